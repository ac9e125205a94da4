"""From counts to unbiased estimates: variances, intervals, shares of the classes, tables.

In: tallies of reports (:mod:`aggregator.estimates.reports`). Out: :class:`aggregator.estimates.statistics.Statistics`,
the shape in which every kind of count ends and every fit begins. Estimates may be negative; making probabilities of
them is a later step (:mod:`aggregator.models`).
"""
