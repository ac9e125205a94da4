"""Reports of devices, from report files to exact integer counts.

In: report files (``.hsr``) from folders and URLs, a signed campaign, the ids of a closed fleet. Out: a store (a folder
of Parquet files), rejected records with their reasons, and a tally: integer counts by question and period.
"""
