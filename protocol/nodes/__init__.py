"""Nodes that hold many records: the terms of their campaigns, the list of nodes, and their signed summaries.

In: a campaign with ``nodes``, a signed list of nodes, the bytes of summary files. Out: checked values, and sets of
summaries that any two machines can unite. Nothing here reads a record or draws noise: ``edge_sdk.node`` does.
"""
