"""Reports of devices, from report files to exact integer counts.

In: report files (``.hsr``) from folders and URLs, a signed campaign, the ids of a closed fleet. Out: a store (a folder
of Parquet files), rejected records with their reasons, and a tally: integer counts by question and period.

Start with ``decoding`` (bytes to checked columns), then ``intake`` (one ingest is one transaction), ``storage`` (the
files of a store) and ``tally`` (repeats and conflicts removed, answers counted). ``gateway`` merges report files before
they are sent on, ``cluster`` reads and counts on Dask, ``fleet`` holds the lists of closed fleets.
"""
