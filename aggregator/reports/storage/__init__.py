"""The files of a store: manifest, Parquet parts, index of input files, quarantine (rejected records), lock.

A part counts only once a manifest names it, so a crash leaves the store as it was. docs/reference/store.md.
"""
