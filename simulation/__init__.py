"""What needs both sides in one process: a fleet of real devices against a real aggregator.

Depends on ``edge_sdk``, ``aggregator`` and ``protocol``; nothing depends on it.
"""
