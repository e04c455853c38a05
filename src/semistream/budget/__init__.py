"""What the parts of a join take in memory, and how a budget is split between them."""
