"""Reports and the files that carry them: one report, a batch's header and trailer, writing, reading.

In: an answer with its id, period and question. Out: the bytes of a batch file, and back from bytes that may be
damaged to every report that can be read. docs/formats.md, sections 3 and 4.
"""
