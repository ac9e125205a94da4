"""Properties of the parsers of masked campaigns: messages and their files, key books, requests, releases.

Signatures are not verified here.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from fuzz.node_targets import file_of
from fuzz.refusing import refused
from support.masked import masked_campaign, message_of

from protocol import canonical
from protocol.document import SPEC
from protocol.masked.fields import write_numbers
from protocol.masked.keys import parse_key_book
from protocol.masked.message import MessageSet, parse_message
from protocol.masked.release import build_request, parse_release, parse_request

if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOAD_REASONS = {"malformed", "unsupported_version"}
BOOK_REASONS = PAYLOAD_REASONS | {"invalid_keys"}
REQUEST_REASONS = {"malformed", "too_large"}
GOOD = message_of(masked_campaign())
WORD = 1 << 32


def _is_sorted(parties: Sequence[bytes]) -> bool:
    return list(parties) == sorted(set(parties)) and all(len(party) == 8 for party in parties)


def masked(data: bytes) -> str:
    """An accepted message is written in one way only."""
    reason = refused(parse_message, data, reasons=PAYLOAD_REASONS)
    if reason is not None:
        return reason
    found = parse_message(data)
    assert found.identity == sha256(data).digest()
    assert found.place == (found.campaign, found.period, found.node)
    body = {
        "campaign": found.campaign,
        "ciphertexts": write_numbers(found.ciphertexts),
        "node": found.node,
        "period": found.period,
        "serial": found.serial,
        "spec": SPEC,
    }
    assert canonical.pack(body) == data
    return "accepted"


def messages(data: bytes) -> str:
    """Every byte belongs to one stretch, an intact envelope behind the file is found, and a set is a fixed point."""
    return file_of(data, MessageSet, GOOD)


def book(data: bytes) -> str:
    """An accepted key book has distinct serial numbers, every u in its half, and is written in one way only."""
    reason = refused(parse_key_book, data, reasons=BOOK_REASONS)
    if reason is not None:
        return reason
    found = parse_key_book(data)
    assert found.identity == sha256(data).digest()
    count = len(found.parties)
    assert count >= 2
    assert len({party.serial for party in found.parties.values()}) == count
    assert all(count < 2 * party.u <= 2 * count for party in found.parties.values())
    body = {
        "campaign": found.campaign,
        "list": found.list_version,
        "parties": {node.hex(): list(party) for node, party in found.parties.items()},
        "spec": SPEC,
        "version": found.version,
    }
    assert canonical.pack(body) == data
    return "accepted"


def request(data: bytes) -> str:
    """An accepted request names each party once, and is written in one way only."""
    reason = refused(parse_request, data, reasons=REQUEST_REASONS)
    if reason is not None:
        return reason
    found = parse_request(data)
    assert _is_sorted(found.parties)
    assert 0 <= found.period < WORD
    assert 1 <= found.version < WORD
    assert build_request(*found) == data
    return "accepted"


def release(data: bytes) -> str:
    """An accepted release names each party once, and is written in one way only."""
    reason = refused(parse_release, data, reasons=PAYLOAD_REASONS)
    if reason is not None:
        return reason
    found = parse_release(data)
    assert found.identity == sha256(data).digest()
    assert _is_sorted(found.parties)
    assert found.request == parse_request(build_request(*found.request))
    body = {
        "campaign": found.campaign,
        "elements": write_numbers(found.elements),
        "parties": b"".join(found.parties),
        "period": found.period,
        "spec": SPEC,
        "version": found.version,
    }
    assert canonical.pack(body) == data
    return "accepted"
