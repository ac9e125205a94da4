"""Transports fetch documents for a device and send its batches. Each kind of address has a module.

In: the place (path at the source) of a document, or a sealed batch. Out: the document's bytes, or the confirmation that
the batch arrived. :mod:`edge_sdk.carriers` chooses the transport for an address.
"""

from edge_sdk.transport.base import Found, Transport, parts_of

__all__ = ["Found", "Transport", "parts_of"]
