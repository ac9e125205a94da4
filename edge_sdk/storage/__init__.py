"""What a device stores: one SQLite database, the meaning of its tables, and the files beside it.

In: accepted documents, and answers with their cost. Out: the same after any crash, and files that appear complete or
not at all. This package does not know the rules of campaigns.
"""
