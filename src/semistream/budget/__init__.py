"""The sizes of a join's parts in memory, and how a budget is split between them."""
