"""Statistics of nodes' sums, the common form that models are made from.

They are made by plain addition of summaries, by a robust rule, or from the decrypted totals of masked sums.

In: summaries, or the decrypted sums of periods. Out: :class:`aggregator.estimates.statistics.Statistics` whose source
is :class:`aggregator.nodes.statistics.federation.Federation`.
"""
