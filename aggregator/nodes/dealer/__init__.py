"""The dealer of masked (encrypted) sums, who keeps the parties' keys and decrypts one sum per period.

In: a signed masked campaign, the signed list of its nodes, and requests of an aggregator. Out: a key book with a sealed
key for every party, and one release per campaign and period. Source: docs/math.md, section 6.
"""
