"""Reports: from files as they arrive to integer counts per question.

``decode`` judges every record of a file, ``store`` keeps the good ones as Parquet and ``quarantine``
what was set aside, ``tally`` removes repeats exactly and counts. Any order, split or repetition of the
same files ends in the same tally, byte for byte.
"""
