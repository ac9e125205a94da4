"""The Python functions behind the commands: the work between reading options and printing.

In: paths, open workspaces and stores, options as Python values. Out: signed documents, statistics, models, and
summaries of what was done. Nothing is printed here. The public names of :mod:`aggregator` are mostly these functions.
"""
