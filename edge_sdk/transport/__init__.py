"""Transports: how a device fetches documents and sends batches. One module for each kind of address.

In: the place of a document, or a sealed batch. Out: the document's bytes, or the confirmation that the batch arrived.
:mod:`edge_sdk.carriers` chooses the transport for an address.
"""

from edge_sdk.transport.base import Found, Transport, parts_of

__all__ = ["Found", "Transport", "parts_of"]
