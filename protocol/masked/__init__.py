"""Masked sums: nodes encrypt their noisy sums so that an aggregator can decrypt the total and nothing else.

In: a masked campaign, the dealer's key book, a node's numbers and key. Out: signed messages of ciphertexts, and from
the messages of a set of nodes with the dealer's release for that set the totals. Nothing here opens a file or reads a
clock. Source: docs/math.md, section 6; docs/formats.md, sections 5 and 6.
"""
