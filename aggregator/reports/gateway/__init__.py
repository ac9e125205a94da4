"""A gateway's merge: many report files become one, sorted by id, so that the order of records hides their origin.

In: report files. Out: one report file with every distinct record once. The records are sorted on the disk.
"""
