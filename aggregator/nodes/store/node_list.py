"""The list of nodes that a store uses: checks of its signatures, and that a newer version replaces an older one.

The newest list that a store was given decides which nodes count, also for summaries that were taken in before.
"""

from __future__ import annotations

from pathlib import Path

from aggregator.common.files import read_file
from aggregator.publishing.naming import opened
from aggregator.publishing.signatures import signed_list
from aggregator.publishing.workspace import Workspace
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.payload import check_understood
from protocol.errors import DocumentError, InputError
from protocol.nodes.summary import UNDERSTOOD, NodeList, parse_node_list


def read_list(raw: bytes, campaign: Campaign) -> NodeList:
    """Parse an unchecked list of nodes. Raises DocumentError, also ``other_name`` if the campaign asks another list."""
    envelope = read_envelope(raw, "nodes")
    listed = parse_node_list(envelope.payload)
    check_understood(listed.header, UNDERSTOOD)
    assert campaign.nodes is not None
    if listed.header.name != campaign.nodes.list_name:
        raise DocumentError("other_name", "the campaign names another list of nodes than this one")
    return listed


def check_list(
    given: bytes | str | Path,
    *,
    workspace: Workspace | str | Path | None = None,
    trusted: bytes | str | Path | None = None,
) -> bytes:
    """Return the bytes of a list of nodes. Its signatures are checked only if a workspace or a trust root is given.

    Dates are not checked: the list may have expired since a node made its summary. Raises DocumentError
    ``bad_signature``, and the errors of reading and parsing.
    """
    raw = given if isinstance(given, bytes) else read_file(given, SIZE_LIMITS["nodes"])
    if workspace is not None:
        opened(workspace).check_signed(raw, "nodes")
    elif trusted is not None:
        signed_list(trusted if isinstance(trusted, bytes) else read_file(trusted, SIZE_LIMITS["root"]), raw)
    return raw


def newer_list(kept: bytes | None, given: bytes, campaign: Campaign) -> bytes:
    """Return the bytes of the newer one of two lists: ``kept``, which a store has used (or None), and ``given``.

    Raises DocumentError: the reasons of :func:`read_list`; ``rollback``: the given list is older; ``equivocation``: it
    differs from the kept list and has the same version.
    """
    offered = read_list(given, campaign)
    if kept is None:
        return given
    before = read_list(kept, campaign)
    if offered.header.version < before.header.version:
        raise DocumentError("rollback", f"the store has version {before.header.version} of the list; give that one")
    if offered.header.version > before.header.version:
        return given
    if read_envelope(given, "nodes").payload != read_envelope(kept, "nodes").payload:
        raise DocumentError("equivocation", "the store has another list of this version; ask who signed two")
    return kept


def needed(kept: bytes | None) -> bytes:
    """Return the bytes of a store's list of nodes. Raise InputError ``nodes_unknown`` if ``kept`` is None."""
    if kept is None:
        raise InputError("nodes_unknown", "the store has no list of nodes yet: give one with --nodes LIST.hsl")
    return kept
