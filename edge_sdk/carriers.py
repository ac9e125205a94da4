"""The documented way to a transport by its address; the mechanism is in ``edge_sdk.transport.registry``."""

from edge_sdk.transport.registry import open_transport, read_token

__all__ = ["open_transport", "read_token"]
