"""The workers of a Dask cluster, for the same ingest and the same counts with the same bytes.

In: the address of a scheduler. Out: an executor that a store uses in place of this process's threads.
How to run it: docs/how-to/cluster.md.
"""
