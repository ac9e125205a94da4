"""A store as its operator uses it: ingest, count, look, forget, judge again, export.

In: a folder. Out: tallies, statistics, status tables, exported files. ``store`` is the facade; every other module is
one thing that an operator does with a store.
"""
