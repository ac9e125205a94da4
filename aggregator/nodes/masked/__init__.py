"""Masked messages of nodes: a store of them, requests to the dealer, and the decryption of a whole set's sums.

In: files of messages (``.hse``), a masked campaign, the list of its nodes, the dealer's key books and releases. Out:
:class:`aggregator.estimates.statistics.Statistics` of the decrypted totals. ``stores`` opens a store of either kind,
summaries or messages. The aggregator holds no key: without the dealer's release it decrypts nothing.
"""
