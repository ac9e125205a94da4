"""Exact integer counts: repeats and conflicts removed, answers counted by question and period.

The same bytes whatever the order, the division or the repetition of the report files.
"""
