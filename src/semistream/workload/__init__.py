"""Workloads: skewed keys, bursty arrivals, a retail catalogue with its sales."""
