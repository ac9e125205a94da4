"""What several packages of ``aggregator`` need and no single one owns: files, tables, periods, passphrases, plots.

In: paths, tables of other programs, texts of periods. Out: bytes, pandas frames, ranges of periods, SVG, and errors
with a reason where a file can not be read or written. Start with ``files`` and ``tables``.
"""
