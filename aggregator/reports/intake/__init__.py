"""An ingest: from report files in folders and at URLs to the Parquet files of a store.

In: names of files, folders, patterns and URLs. Out: parts (Parquet files) and index entries, which the next manifest
names. An ingest takes every readable file, or after an error nothing.
"""
