"""From accepted documents to sealed answers: acceptance, one paid answer per period, files, and the methods for these.

In: signed documents and records. Out: stored answers, and files of them. :class:`edge_sdk.Device` has the methods.
"""
