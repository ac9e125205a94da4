"""Statistics of nodes' sums, the common form that models are made from: by addition, by a robust rule, of masked sums.

In: summaries, or the decrypted sums of periods. Out: :class:`aggregator.estimates.statistics.Statistics` whose source
is :class:`aggregator.nodes.statistics.federation.Federation`.
"""
