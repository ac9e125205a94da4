"""Reports and batch files: encoding of one report, header and trailer of a batch, writing and reading of files.

To write, answers with id, period and question go in; the bytes of a batch file come out. To read, bytes that may be
damaged go in; every readable report comes out. Source: docs/formats.md, sections 3 and 4.
"""
