"""A store as its operator uses it: ingest, count, show, forget, judge again, export.

In: a folder. Out: tallies, statistics, status tables, exported files. ``store`` is the facade. Each other module is one
operation on a store.
"""
