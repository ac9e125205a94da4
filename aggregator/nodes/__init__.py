"""Nodes with many records each: campaigns for them, their noisy or encrypted sums, and the dealer of the keys.

In: public keys of nodes, schemas, files of summaries (``.hsn``) and of masked messages (``.hse``). Out: signed node
lists and campaigns, stores of what nodes sent, and :class:`aggregator.estimates.statistics.Statistics` of the totals.

Start with ``campaigns`` (what a publisher signs), then ``store``: its ``summaries`` (noisy sums in the clear) or its
``masked`` (sums that decrypt only together) with ``dealer`` (keys and releases, on a machine of its own).
``statistics`` adds up either kind.
"""
