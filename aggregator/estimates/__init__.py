"""From counts to unbiased estimates: variances, intervals, shares of the classes, tables.

In: tallies of reports (:mod:`aggregator.estimates.reports`). Out: :class:`aggregator.estimates.statistics.Statistics`,
the common form of all estimates and the input of every fit. Estimates may be negative. A later step turns estimates
into probabilities (:mod:`aggregator.models`). ``joining`` combines statistics of several sources of one population.
"""
