"""Measuring joins: service rates on real and emulated devices."""
