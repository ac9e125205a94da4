"""An ingest: from report files in folders and at URLs to the Parquet files of a store.

In: names of files, folders, patterns and URLs. Out: the Parquet files (parts) and the index entries of the input files
that the next manifest names. An ingest is one transaction: it takes every readable file, or after an error nothing.
"""
