"""Joining: statistics of several sources on one schema become statistics of one population.

In: statistics of at least two sources (:class:`aggregator.estimates.statistics.Statistics`). Out: the joined
statistics, and a test of homogeneity: whether the sources look like samples of one population. :func:`join` is
``aggregator.join``. ``fewer_features`` has the reverse: statistics of some of the features, for a model that leaves
others out.
"""

from aggregator.estimates.joining.sources import join

__all__ = ["join"]
