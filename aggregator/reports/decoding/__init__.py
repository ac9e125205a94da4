"""From bytes to checked columns: the good records of a report file, and a reason for every other record.

In: the bytes of a report file and a campaign. Out: columns of good records, and rejected records and byte ranges with
their reasons. The work is done by array operations on the bytes. Nothing is written to disk.
"""
