"""Accept documents, answer once per period and pay for it, and seal answers into files.

In: signed documents and records. Out: stored answers, and files of them. :class:`edge_sdk.Device` has the methods.
"""
