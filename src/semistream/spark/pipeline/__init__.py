"""Runs a pipeline on Spark: source, parsing, steps, sinks, dead letters, an orderly stop."""
