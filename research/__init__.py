"""Research protocols without a command: importable, tested, used by simulations, and part of no device.

``averaging``: peers agree on the sums of all their summaries by averaging in pairs. In: a peer's released integers.
Out: messages between peers, and every peer's estimate of the sums.

``vertical``: parties hold different features of the same records, and classify a record together. In: a party's
records. Out: ciphertexts of products of its noisy counts (``products``), which the aggregator opens and compares.

Their messages and arithmetic are stable (docs/formats.md); their Python interface may change.
"""
