"""Documented import path of ``open_transport`` and ``read_token``; ``edge_sdk.transport.registry`` defines them."""

from edge_sdk.transport.registry import open_transport, read_token

__all__ = ["open_transport", "read_token"]
