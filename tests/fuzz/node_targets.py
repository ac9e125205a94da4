"""Properties of the parsers for lists of nodes, summaries and files of summaries. Signatures are not verified here."""

from __future__ import annotations

import itertools
from hashlib import sha256

from fuzz.refusing import refused
from support.nodes import node_campaign, summary_of

from protocol import canonical
from protocol.document import SPEC
from protocol.documents.envelope import keyid, read_envelope
from protocol.nodes.summary import SummarySet, build_node_list, parse_node_list, parse_summary, read_summaries
from protocol.schema import integer_array

LIST_REASONS = {"malformed", "invalid_nodes"}
SUMMARY_REASONS = {"malformed", "unsupported_version"}
GOOD = summary_of(node_campaign())


def nodes(data: bytes) -> str:
    """An accepted list has one key per key id, and is written in one way apart from keys that nobody reads."""
    reason = refused(parse_node_list, data, reasons=LIST_REASONS)
    if reason is not None:
        return reason
    found = parse_node_list(data)
    assert all(keyid(public) == hint for hint, public in found.nodes.items())
    again = build_node_list(found.header, found.nodes.values())
    assert parse_node_list(again) == found
    stated = canonical.unpack(data)
    assert all(stated[key] == value for key, value in canonical.unpack(again).items())
    return "accepted"


def node(data: bytes) -> str:
    """An accepted summary is written in one way only."""
    reason = refused(parse_summary, data, reasons=SUMMARY_REASONS)
    if reason is not None:
        return reason
    found = parse_summary(data)
    assert found.identity == sha256(data).digest()
    body = {
        "campaign": found.campaign,
        "epsilon_micro": found.epsilon_micro,
        "node": found.node,
        "period": found.period,
        "spec": SPEC,
        "sums": integer_array("<i8", found.sums, [len(found.sums)]),
    }
    assert canonical.pack(body) == data
    return "accepted"


def summaries(data: bytes) -> str:
    """Every byte belongs to one stretch, an intact envelope behind the file is found, and a set is a fixed point."""
    return file_of(data, SummarySet, GOOD)


def file_of(data: bytes, kind: type[SummarySet], good: bytes) -> str:
    """The property of :func:`summaries` for a file of envelopes.

    Args:
        data: the file.
        kind: of the sets of such envelopes.
        good: an envelope that the reader must find after whatever ``data`` is.
    """
    pieces = list(read_summaries(data, kind.role))
    place = 0
    for piece in pieces:
        assert piece.offset == place
        assert piece.length > 0
        if piece.reason is None:
            assert piece.envelope == data[place : place + piece.length]
            read_envelope(piece.envelope, kind.role)
        place += piece.length
    assert place == len(data)
    reasons = [piece.reason for piece in pieces]
    assert all(one is None or other is None or other == "truncated" for one, other in itertools.pairwise(reasons))
    assert [piece.envelope for piece in read_summaries(data + good, kind.role)][-1:] == [good]
    found = kind.from_bytes(data)
    again = kind.from_bytes(found.to_bytes())
    assert again == found
    assert again.to_bytes() == found.to_bytes()
    return "some" if len(found) else "none"
