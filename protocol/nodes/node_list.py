"""The signed list of the nodes whose summaries count.

The role ``campaign`` of the trust root signs the list. Versions rise, as those of campaigns.
Source: docs/formats.md, section 5 (node list); decision 72.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical
from protocol.document import HEADER_KEYS, Header, read_field, read_payload
from protocol.documents.envelope import KEY_BYTES, keyid
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROLE = "nodes"
UNDERSTOOD = frozenset((*HEADER_KEYS, "nodes"))
"""Payload keys of a list that this reader understands."""
MAX_NODES = 1 << 16


class NodeList(NamedTuple):
    """A parsed list: header, and key id (8 bytes) → Ed25519 public key (32 bytes) of every node."""

    header: Header
    nodes: Mapping[bytes, bytes]


def build_node_list(header: Header, publics: Iterable[bytes]) -> bytes:
    """The payload of a list of nodes with these public keys. Run by the publisher, who then signs it.

    Raises:
        InputError: ``nodes_invalid``: a key has not 32 bytes, or there are not 1 to 65536 different keys.
    """
    publics = set(publics)
    if not 1 <= len(publics) <= MAX_NODES or any(len(public) != KEY_BYTES for public in publics):
        raise InputError("nodes_invalid", f"a list holds 1 to {MAX_NODES} public keys of {KEY_BYTES} bytes")
    payload = canonical.pack({**header.to_dict(), "nodes": {keyid(public).hex(): public for public in publics}})
    parse_node_list(payload)
    return payload


def parse_node_list(payload: bytes) -> NodeList:
    """Parse the payload of a list of nodes. Callers verify signatures, ``spec`` and ``crit`` first.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``invalid_nodes``: not 1 to 65536
            nodes, a key that has not 32 bytes, or a key id that is not that of its key.
    """
    body, header = read_payload(payload)
    return NodeList(header, _nodes(body))


def _nodes(body: dict[str, Any]) -> dict[bytes, bytes]:
    entries = read_field(body, "nodes", dict, "invalid_nodes")
    if not 1 <= len(entries) <= MAX_NODES:
        raise DocumentError("invalid_nodes", f"a list holds 1 to {MAX_NODES} nodes")
    found = {}
    for hint, public in entries.items():
        if not isinstance(public, bytes) or len(public) != KEY_BYTES or keyid(public).hex() != hint:
            raise DocumentError("invalid_nodes", "a key id of the list is not that of its key")
        found[keyid(public)] = public
    return found
