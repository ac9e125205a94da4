"""Exact integer counts: repeats and conflicts removed, answers counted by question and period.

In: the columns of a store's Parquet files, one partition of report ids at a time. Out: a :class:`Tally`, the same bytes
whatever the order, the division or the repetition of the report files.
"""
