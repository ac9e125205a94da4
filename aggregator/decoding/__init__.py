"""From bytes to judged columns: which records of a file are good, and the reason why another is not.

In: the bytes of a report file and a campaign. Out: columns of good records, and rejected pieces with their reasons.
Array operations on the bytes; nothing is written here.
"""
