"""The largest models that are taken: beyond any trained so far, and small enough to reckon with."""

MOST_LAYERS = 10_000
"""Reckoning and partitioning go through layers one by one."""
MOST_EXPERTS = 10_000
MOST_HEADS = 10**6
MOST_HIDDEN = 10**7
MOST_VOCAB = 10**9
