"""From integer counts to unbiased estimates: variances, intervals, shares of the classes, tables.

In: tallies. Out: :class:`Statistics`, where every kind of count ends and every fit begins. Estimates may be negative;
making probabilities of them is a later step (:mod:`aggregator.models`).
"""
