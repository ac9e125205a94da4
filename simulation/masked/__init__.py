"""Simulated parties whose sums or products open only together: ``distributed`` trust and ``vertical`` trust.

In: settings and records. Out: the accuracies of all trials. ``trials`` runs masked sums, with the parties' code in
memory or with totals that numpy draws (``vector``). ``vertical`` runs products of parties with different features.
"""
