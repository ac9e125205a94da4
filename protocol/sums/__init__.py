"""Noisy sums over records: what neighbouring data sets are, how much they differ in sums, and the noise on sums.

In: exact counts and sums of records, and ε. Out: the same integers with exact discrete Laplace noise. A curator
(``aggregator.curator``) and a node that holds many records (``protocol.nodes``) release such sums.
"""
