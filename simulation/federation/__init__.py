"""Simulated nodes: records are dealt to nodes, each node sends one summary, the aggregator adds, a device classifies.

In: settings and records. Out: the accuracies of all trials. ``trials`` is the facade; ``nodes`` runs the nodes' code in
memory, ``vector`` draws the same numbers by numpy.
"""
