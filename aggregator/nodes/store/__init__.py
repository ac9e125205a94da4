"""Stores of what nodes sent, one campaign per folder: summaries in the clear, or masked messages.

In: files of nodes' envelopes (``.hsn``, ``.hse``), a campaign for nodes, the signed list of its nodes; for messages the
dealer's key books and releases. Out: what counts and why the rest does not, requests to the dealer, and
:class:`aggregator.estimates.statistics.Statistics`. ``opening`` makes and opens a store, ``envelope_store`` is what
both kinds share, ``summaries`` and ``masked`` are the kinds. Without the dealer's release no message is decrypted.
"""
