"""What a device keeps: one SQLite database, the files beside it, and what the tables mean.

In: documents that were accepted, answers that were paid for. Out: the same after any crash, and files that appear
whole or not at all. Nothing here knows a campaign's rules.
"""
