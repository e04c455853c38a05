"""Workloads: relations and the streams that refer to them, reproducible by row number."""
