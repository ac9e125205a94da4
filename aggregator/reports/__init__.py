"""Reports of devices, from report files to exact integer counts.

In: report files (``.hsr``) from folders and URLs, a signed campaign, the ids of a closed fleet. Out: a store of Parquet
parts on the disk, quarantined records with their reasons, and a tally: integer counts by question and period.

Start with ``decoding`` (bytes to judged columns), then ``intake`` (one ingest is one transaction), ``storage`` (the
files of a store) and ``tally`` (repeats and conflicts removed, answers counted). ``gateway`` merges files before they
are sent on, ``cluster`` runs the same work on Dask, ``fleet`` holds the lists of closed fleets.
"""
