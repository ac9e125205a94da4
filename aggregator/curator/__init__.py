"""Statistics and models of records that a curator holds in the clear; what leaves is differentially private.

In: a frame of records, a schema with public bounds, and terms that were fixed before the records were seen. Out:
:class:`aggregator.estimates.statistics.Statistics` with the variances of the noise, and the privacy cost.
"""
