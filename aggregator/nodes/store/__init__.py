"""Stores of what nodes sent, one campaign per folder: summaries in the clear, or masked messages.

In: files of nodes' envelopes (``.hsn``, ``.hse``), the campaign, the signed list of its nodes; for messages the
dealer's key books and releases. Out: what counts and why the rest does not, requests to the dealer, and statistics.
"""
