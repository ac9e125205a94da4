"""Private pilots: what a campaign is made with, from records that a curator holds.

In: records, a schema with public bounds, terms that were fixed before, an open budget file. Out: projections and bins
that may be published, with what they cost. Everything that these modules return is public or has noise; nothing of a
record is printed.
"""
