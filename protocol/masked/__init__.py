"""Masked sums: nodes encrypt their noisy sums so that an aggregator can decrypt the total and nothing else.

A campaign with ``masked``, the dealer's key book, a node's numbers and its secret key go in; signed messages of
ciphertexts come out. From the messages of a set of nodes, and the dealer's release for exactly that set, follow the
totals of the numbers. Nothing here opens a file, reads a clock or chooses where random bytes come from. Source:
docs/math.md, section 6, and docs/formats.md, sections 5 and 6.
"""
