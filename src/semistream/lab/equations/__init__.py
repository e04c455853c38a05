"""The papers' equations as they are printed, and with what is doubtful in them set right.

They serve the lab and comparisons. What the product predicts with is in `semistream.cost`, which
knows how R really lies on disk, what the stream really asks for, and what every step really costs.
"""
