"""An ingest: report files from folders and URLs to parts of a store.

In: names of files, folders, patterns and URLs. Out: the parts and the entries that the next manifest names. An ingest
is one transaction: it takes every readable file, or after an error nothing.
"""
