"""From counts to unbiased estimates: variances, intervals, shares of the classes, tables.

In: tallies of reports, or noisy sums. Out: :class:`aggregator.estimates.statistics.Statistics`, the input of every fit.
Estimates may be negative; :mod:`aggregator.models` makes probabilities of them.
"""
