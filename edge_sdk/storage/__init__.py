"""What a device stores: one SQLite database, the meaning of its tables, and the files beside it.

In: accepted documents and paid answers. Out: the same after any crash, and files that appear complete or not at all.
The rules of campaigns are not known here.
"""
