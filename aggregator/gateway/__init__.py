"""A gateway's join: many report files become one, sorted by id, so that neighbours say nothing of origin.

In: report files. Out: one report file with every distinct record once. The records are sorted outside of memory.
"""
