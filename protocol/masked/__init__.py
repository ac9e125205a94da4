"""Masked sums: nodes encrypt their noisy sums so that an aggregator can decrypt the total and nothing else.

In: a campaign with ``masked``, a node's numbers and its secret key. Out: ciphertexts, and from the ciphertexts of a set
of nodes and the dealer's release for exactly that set the totals of the numbers. Nothing here opens a file, reads a
clock or draws random bytes. Source: docs/math.md, section 6, and docs/formats.md, section 6.
"""
