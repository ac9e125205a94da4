"""Store what a device must not lose: one SQLite database, the meaning of its tables, and the files beside it.

In: accepted documents, and answers with their cost. Out: the same documents and answers, also after a crash, and files
that appear complete or not at all. This package does not know the rules of campaigns.
"""
