"""An ingest: report files from wherever they are to parts of a store.

In: names of files, folders, patterns and URLs. Out: the parts and the entries that the next manifest names. One
transaction: all files that can be read are taken, or nothing changes.
"""
