"""Summaries of nodes: a store of signed noisy sums, their totals, and statistics of the totals.

In: summary files (``.hsn``), a campaign for nodes, the signed list of its nodes. Out:
:class:`aggregator.estimates.statistics.Statistics`, the common form that models are made from. ``store`` is the facade.
A node counts once per period, whatever its size and its ε.
"""
