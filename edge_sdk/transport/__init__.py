"""How documents come to a device and batches leave it: :class:`Transport`, and one module per kind of address.

In: the name of a document, or a sealed batch. Out: the document's bytes, or the news that the batch has arrived.
``registry`` says which transport an address means.
"""

from edge_sdk.transport.base import Found, Transport, parts_of

__all__ = ["Found", "Transport", "parts_of"]
