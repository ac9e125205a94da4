"""Nodes with many records each: campaigns for them, their noisy or encrypted sums, and the dealer of the keys.

In: public keys of nodes, schemas, files of summaries (``.hsn``) and of masked messages (``.hse``). Out: signed node
lists and campaigns, stores of what nodes sent, and statistics of the totals.
"""
