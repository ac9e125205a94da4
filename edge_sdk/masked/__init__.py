"""The vertical form of masked sums: parties that hold different features of the same records.

In: a party's records, the campaign's terms, and the party's key. Out: ciphertexts of products of its noisy counts. The
horizontal form, nodes that hold different records, is ``Node.encrypt`` in :mod:`edge_sdk.node`.
"""
