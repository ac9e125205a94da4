"""The files of masked sums in words and as plain data, for ``hearsay show`` and ``verify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.cli.nodes.describe import NAMES
from aggregator.cli.output import counted
from aggregator.nodes.campaigns.dealer_file import parse_public_file
from protocol.documents import campaign, trust
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.errors import DocumentError, InputError
from protocol.masked.keys import KeyBook, parse_key_book, read_key_book
from protocol.masked.message import Message, read_message
from protocol.masked.release import MAX_REQUEST_BYTES, Release, Request, parse_release, parse_request, read_release
from protocol.nodes.summary_files import read_summaries

MAX_ROWS = 1000
"""Most messages, damaged byte ranges and parties of a book that are listed for one file. All of them are counted."""


class Described(NamedTuple):
    """What a file says.

    Attributes:
        kind: of the file, in words.
        facts: names and values, for people.
        columns, rows: a table, for people.
        content: the content in the types of JSON, for programs.
    """

    kind: str
    facts: dict[str, object]
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    content: dict[str, Any]


def described(raw: bytes, role: str) -> Described:
    """What a file of masked messages, a key book or a release says. Nothing is verified.

    Args:
        raw: bytes of the file.
        role: ``masked``, ``keys`` or ``release``.

    Raises:
        DocumentError: ``malformed``, ``too_large``, ``invalid_keys``, …: a key book or release can not be read.
    """
    if role == "masked":
        return _messages(raw)
    payload = read_envelope(raw, role).payload
    return _book(parse_key_book(payload)) if role == "keys" else _release(parse_release(payload))


def unsigned(raw: bytes) -> Described | None:
    """What a request for a masked sum, or a dealer's public file, says. None if the bytes are neither."""
    if len(raw) <= MAX_REQUEST_BYTES:
        try:
            return _request(parse_request(raw))
        except DocumentError:
            pass
    try:
        found = parse_public_file(raw)
    except InputError:
        return None
    facts: dict[str, object] = {"key": found.key.hex(), "key id": found.id}
    facts["modulus"] = f"{found.modulus:x}"
    return Described("dealer's public file", facts, (), (), {"key": found.key, "modulus": f"{found.modulus:x}"})


def verify_of_dealer(raw: bytes, role: str, state: trust.TrustState, campaign_file: Path, now: int) -> dict[str, Any]:
    """Check a key book or release: the dealer whom the campaign names has signed it, and its values fit the campaign.

    Args:
        raw: bytes of the file.
        role: ``keys`` or ``release``.
        state: the trust in the root that must have signed the campaign.
        campaign_file: the signed campaign.
        now: seconds since 1970.

    Returns:
        Facts about the file, in the types of JSON.

    Raises:
        InputError: the campaign's file can not be read; ``campaign_not_masked``.
        DocumentError: the campaign is refused (:func:`protocol.documents.trust.verify`), or the file is
            (:func:`protocol.masked.keys.read_key_book`, :func:`protocol.masked.release.read_release`).
    """
    from aggregator.common.files import read_file

    document = read_file(campaign_file, SIZE_LIMITS["campaign"])
    asked = campaign.parse_campaign(trust.verify(state, document, "campaign", now, campaign.UNDERSTOOD).payload)
    return {"kind": NAMES[role], "verified": True, "campaign": asked.header.name, **_verified(raw, role, asked)}


def _verified(raw: bytes, role: str, asked: Campaign) -> dict[str, Any]:
    if role == "keys":
        book = read_key_book(raw, asked)
        facts = {"version": book.version, "list_version": book.list_version, "parties": len(book.parties)}
        return {**facts, "id": book.identity.hex()}
    release = read_release(raw, asked)
    return {"period": release.period, "key_book": release.version, "parties": len(release.parties)}


def _book(found: KeyBook) -> Described:
    facts: dict[str, object] = {
        "campaign": found.campaign.hex(),
        "version": found.version,
        "node list": f"version {found.list_version}",
        "parties": len(found.parties),
        "id": found.identity.hex(),
        "same for all": "parties that compare version and id see whether the dealer gave them one book",
        "keys": "each is sealed: only its own node can open it",
    }
    parties = sorted(found.parties.items())
    content = {
        "campaign": found.campaign,
        "version": found.version,
        "list_version": found.list_version,
        "id": found.identity,
        "parties": [{"node": node, "serial": key.serial, "u": key.u} for node, key in parties],
    }
    rows = [(node.hex(), key.serial, key.u) for node, key in parties[:MAX_ROWS]]
    if len(parties) > MAX_ROWS:
        facts["listed"] = f"the first {MAX_ROWS}; --json lists all"
    return Described(NAMES["keys"], facts, ("node", "serial", "u"), rows, content)


def _release(found: Release) -> Described:
    about = _request(found.request)
    elements = len(found.elements)
    return about._replace(
        kind=NAMES["release"],
        facts={**about.facts, "decrypts": f"the total of exactly these parties, {counted(elements, 'ciphertext')}"},
        content={**about.content, "elements": elements},
    )


def _request(found: Request) -> Described:
    facts: dict[str, object] = {
        "campaign": found.campaign.hex(),
        "period": found.period,
        "key book": f"version {found.version}",
        "parties": len(found.parties),
    }
    content = {"campaign": found.campaign, "period": found.period, "version": found.version, "parties": found.parties}
    return Described("request for a masked sum", facts, ("node",), [(node.hex(),) for node in found.parties], content)


def _messages(raw: bytes) -> Described:
    rows: list[list[object]] = []
    listed: list[dict[str, Any]] = []
    count = damaged = 0
    for piece in read_summaries(raw, "masked"):
        found: Message | None = None
        reason = piece.reason
        if reason is None:
            try:
                found = read_message(piece.envelope)[1]
            except DocumentError as error:
                reason = error.reason
        count, damaged = count + (found is not None), damaged + (piece.length if found is None else 0)
        if len(rows) >= MAX_ROWS:
            continue
        if found is None:
            rows.append(["damage", reason, f"{counted(piece.length, 'byte')} at {piece.offset}"])
            listed.append({"damage": reason, "position": piece.offset, "length": piece.length})
            continue
        rows.append([found.campaign.hex(), found.node.hex(), found.period, found.serial, len(found.ciphertexts)])
        listed.append({**found._asdict(), "ciphertexts": len(found.ciphertexts)})
    facts: dict[str, object] = {"messages": count, "bytes": len(raw), "damaged bytes": damaged}
    facts["numbers"] = "encrypted: only the total of a set of nodes can be decrypted, with the dealer's release"
    if count > MAX_ROWS:
        facts["listed"] = f"the first {MAX_ROWS}"
    content = {"messages": count, "bytes": len(raw), "damaged_bytes": damaged, "entries": listed}
    columns = ("campaign", "node", "period", "serial", "ciphertexts")
    return Described(NAMES["masked"], facts, columns, rows, content)
