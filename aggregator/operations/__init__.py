"""The Python functions behind the commands: the work between reading options and printing.

In: paths, open workspaces and stores, options as Python values. Out: signed documents, statistics, models, and
summaries of what was done. Nothing is printed here. The public names of :mod:`aggregator` are mostly these functions.

Start with ``campaigns`` (make and check campaigns), ``models`` (ingest, count, sign a model) and ``report_store``, the
facade of a store of reports.
"""
