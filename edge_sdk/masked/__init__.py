"""A party of a masked campaign: a node whose sums leave it encrypted, so that only the total of many nodes is seen.

In: exact sums of a node's records, its signing key, and its own entry of the dealer's key book. Out: the signed message
of one period, which :mod:`edge_sdk.node` pays for and stores as it does with a summary. ``vertical`` is the other form:
parties that hold different features of the same records encrypt their factors of a product.

The noise of one party is not enough to protect its records. The protection rests on the noise of other parties, and on
the dealer, who holds all keys.
"""
