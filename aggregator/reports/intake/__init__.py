"""An ingest: from report files in folders and at URLs to the Parquet files of a store.

Out: parts (Parquet files) and index entries, which the next manifest names; after an error nothing.
"""
