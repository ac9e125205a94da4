"""Masked sums: nodes encrypt their noisy sums so that an aggregator can decrypt the total and nothing else.

In: a campaign with ``masked``, the dealer's key book, a node's numbers and its secret key. Out: signed messages of
ciphertexts, and from the messages of a set of nodes and the dealer's release for exactly that set the totals of the
numbers. Nothing here opens a file, reads a clock or chooses where random bytes come from. Source: docs/math.md,
section 6, and docs/formats.md, sections 5 and 6.
"""
