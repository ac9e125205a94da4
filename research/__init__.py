"""Research protocols without a command: importable, tested, used by simulations, and part of no device.

``averaging``: peers agree on the sums of all their summaries by averaging in pairs. In: a peer's released integers.
Out: messages between peers, and every peer's estimate of the sums.

``vertical``: parties hold different features of the same records, and classify a record together. In: a party's
records. Out: ciphertexts of products of its noisy counts (``products``), which the aggregator opens and compares.

``dap``: a record for a task of the Distributed Aggregation Protocol, whose servers are other programs. In: a campaign,
the task's configuration, a record's cells. Out: the bytes that a client uploads; they follow the draft.

The messages and arithmetic of the first two are stable (docs/formats.md); the Python interface of all may change.
"""
