"""Ours and its peers, side by side on the same data, in one run."""
