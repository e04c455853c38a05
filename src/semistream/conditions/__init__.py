"""Conditions beyond equal keys: predicates, ranges, texts that are alike."""
