"""The papers' equations *as printed*, and *corrected* where they are in error.

A function that follows the paper to the letter though the equation is in error has a name that
ends in ``_as_printed``; beside it is the corrected one, without the ending. All other functions are
as printed. Each module says which equations are corrected, and why.

The lab uses them for figures and comparisons. The product predicts with `semistream.cost`, which
takes R's layout on disk, the stream's demand and the measured cost of every step into account.
"""
