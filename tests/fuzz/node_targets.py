"""Properties of the parsers of what nodes and dealers write, and of files of it. Signatures are not verified here."""

import itertools
from hashlib import sha256

from fuzz.refusing import PAYLOAD_REASONS, taken_by
from support.masked import masked_campaign, message_of
from support.nodes import node_campaign, summary_of

from protocol import canonical
from protocol.documents.envelope import keyid, read_envelope
from protocol.documents.payload import SPEC
from protocol.masked.fields import write_numbers
from protocol.masked.keys import parse_key_book
from protocol.masked.message import MessageSet, parse_message
from protocol.masked.release import build_request, parse_release, parse_request
from protocol.nodes.summary import SummarySet, build_node_list, parse_node_list, parse_summary, read_summaries
from protocol.schema import integer_array

SUMMARY = summary_of(node_campaign())
MESSAGE = message_of(masked_campaign())
WORD = 1 << 32


@taken_by(parse_node_list, {"malformed", "invalid_nodes"})
def nodes(found, data):
    """An accepted list has one key per key id, and is written in one way apart from keys that nobody reads."""
    assert all(keyid(public) == hint for hint, public in found.nodes.items())
    again = build_node_list(found.header, found.nodes.values())
    assert parse_node_list(again) == found
    stated = canonical.unpack(data)
    assert all(stated[key] == value for key, value in canonical.unpack(again).items())


@taken_by(parse_summary, PAYLOAD_REASONS)
def node(found, data):
    """An accepted summary is written in one way only."""
    assert found.identity == sha256(data).digest()
    body = {name: getattr(found, name) for name in ("campaign", "epsilon_micro", "node", "period")}
    sums = integer_array("<i8", found.sums, [len(found.sums)])
    assert canonical.pack({**body, "spec": SPEC, "sums": sums}) == data


def summaries(data):
    """Every byte belongs to one stretch, an intact envelope behind the file is found, and a set is a fixed point."""
    return _file_of(data, SummarySet, SUMMARY)


def messages(data):
    """The property of :func:`summaries` for a file of masked messages."""
    return _file_of(data, MessageSet, MESSAGE)


def _file_of(data, kind, good):
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


@taken_by(parse_message, PAYLOAD_REASONS)
def masked(found, data):
    """An accepted message is written in one way only."""
    assert found.identity == sha256(data).digest()
    assert found.place == (found.campaign, found.period, found.node)
    body = {name: getattr(found, name) for name in ("campaign", "node", "period", "serial")}
    assert canonical.pack({**body, "ciphertexts": write_numbers(found.ciphertexts), "spec": SPEC}) == data


@taken_by(parse_key_book, PAYLOAD_REASONS | {"invalid_keys"})
def book(found, data):
    """An accepted key book has distinct serial numbers, every u in its half, and is written in one way only."""
    assert found.identity == sha256(data).digest()
    count = len(found.parties)
    assert count >= 2
    assert len({party.serial for party in found.parties.values()}) == count
    assert all(count < 2 * party.u <= 2 * count for party in found.parties.values())
    body = {
        "campaign": found.campaign,
        "list": found.list_version,
        "parties": {party.hex(): list(entry) for party, entry in found.parties.items()},
        "spec": SPEC,
        "version": found.version,
    }
    assert canonical.pack(body) == data


def _are_sorted(parties):
    return list(parties) == sorted(set(parties)) and all(len(party) == 8 for party in parties)


@taken_by(parse_request, {"malformed", "too_large"})
def request(found, data):
    """An accepted request names each party once, and is written in one way only."""
    assert _are_sorted(found.parties)
    assert 0 <= found.period < WORD
    assert 1 <= found.version < WORD
    assert build_request(*found) == data


@taken_by(parse_release, PAYLOAD_REASONS)
def release(found, data):
    """An accepted release names each party once, and is written in one way only."""
    assert found.identity == sha256(data).digest()
    assert _are_sorted(found.parties)
    assert found.request == parse_request(build_request(*found.request))
    body = {name: getattr(found, name) for name in ("campaign", "period", "version")}
    body |= {"elements": write_numbers(found.elements), "parties": b"".join(found.parties), "spec": SPEC}
    assert canonical.pack(body) == data
