"""Serving a published folder on one machine: documents out, batches of reports in.

In: the folder that ``publishing`` writes. Out: answers to devices, and batch files in ``reports/``. Not for the
internet: docs/how-to/serving.md.
"""
