"""Nodes that hold many records: the terms of their campaigns, the list of nodes, and their signed summaries.

A campaign with ``nodes``, a signed list of nodes and the bytes of summary files go in. Checked values, and sets of
summaries that any two machines can unite, come out. Nothing here reads a record or draws noise: ``edge_sdk.node`` does.
"""
