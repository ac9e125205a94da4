"""Summaries of nodes once more, written from docs/formats.md, sections 5 and 6, alone.

It imports nothing of this project, no msgpack and no cryptographic library, and is written for reading. Signatures are
made and verified by functions that the caller passes in.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

S = 65536
MARK = b"\x94\xa4hsy1"
NODE = b"application/vnd.hearsay.node.v1+msgpack"
NODES = b"application/vnd.hearsay.nodes.v1+msgpack"
MASKED = b"application/vnd.hearsay.masked.v1+msgpack"
LARGEST = 8 * 1024 * 1024
SUMMARY_KEYS = ["campaign", "epsilon_micro", "node", "period", "spec", "sums"]


# --- canonical msgpack

WRONG = (ValueError, AssertionError, KeyError, TypeError, AttributeError, OverflowError, IndexError)
"""What reading a payload of another form raises here."""


def integer(number: int) -> bytes:
    """The shortest form of an integer."""
    if 0 <= number < 128:
        return bytes([number])
    if -32 <= number < 0:
        return bytes([256 + number])
    if number > 0:
        for first, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
            if number < 256**size:
                return bytes([first]) + number.to_bytes(size, "big")
    for first, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)):
        if -(256**size) // 2 <= number:
            return bytes([first]) + number.to_bytes(size, "big", signed=True)
    raise ValueError(number)


def text(value: str) -> bytes:
    """The shortest form of a text."""
    raw = value.encode()
    if len(raw) < 32:
        return bytes([0xA0 + len(raw)]) + raw
    return (b"\xd9" + bytes([len(raw)]) if len(raw) < 256 else b"\xda" + len(raw).to_bytes(2, "big")) + raw


def binary(raw: bytes) -> bytes:
    """The shortest form of bytes."""
    for first, size in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if len(raw) < 256**size:
            return bytes([first]) + len(raw).to_bytes(size, "big") + raw
    raise ValueError(len(raw))


def mapping(entries: dict[str, bytes]) -> bytes:
    """A map of packed values."""
    head = bytes([0x80 + len(entries)]) if len(entries) < 16 else b"\xde" + len(entries).to_bytes(2, "big")
    if len(entries) > 65535:
        head = b"\xdf" + len(entries).to_bytes(4, "big")
    return head + b"".join(text(key) + entries[key] for key in sorted(entries))


# --- writing


def keyid(public: bytes) -> bytes:
    """The id of a key."""
    return sha256(public).digest()[:8]


def signed_bytes(kind: bytes, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def envelope(kind: bytes, payload: bytes, public: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """An envelope with one signature."""
    signature = sign(signed_bytes(kind, payload))
    head = MARK + b"\xd9" + bytes([len(kind)]) + kind + binary(payload)
    return head + b"\x91\x92" + binary(keyid(public)) + binary(signature)


def summary_payload(campaign: bytes, epsilon_micro: int, node: bytes, period: int, sums: Sequence[int]) -> bytes:
    """The payload of a summary."""
    array = {
        "b": binary(b"".join(number.to_bytes(8, "little", signed=True) for number in sums)),
        "dt": text("<i8"),
        "sh": b"\x91" + integer(len(sums)),
    }
    return mapping(
        {
            "campaign": binary(campaign),
            "epsilon_micro": integer(epsilon_micro),
            "node": binary(node),
            "period": integer(period),
            "spec": text("1.0"),
            "sums": mapping(array),
        }
    )


def list_payload(name: str, version: int, issued: int, before: int, expires: int, publics: Sequence[bytes]) -> bytes:
    """The payload of a list of nodes."""
    return mapping(
        {
            "name": text(name),
            "version": integer(version),
            "spec": text("1.0"),
            "issued_at": integer(issued),
            "not_before": integer(before),
            "expires": integer(expires),
            "crit": b"\x90",
            "nodes": mapping({keyid(public).hex(): binary(public) for public in publics}),
        }
    )


# --- reading


class Reader:
    """Reads the few msgpack types of a summary, one after another."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        found = self.raw[self.at : self.at + count]
        if len(found) < count:
            raise ValueError("it ends too early")
        self.at += count
        return found

    def value(self) -> Any:
        """The next value: an integer, a text, bytes, an array or a map."""
        first = self.take(1)[0]
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 256
        if first <= 0x8F:
            pairs = [(self.value(), self.value()) for _ in range(first - 0x80)]
            if len({key for key, _ in pairs}) < len(pairs):
                raise ValueError("a key twice")
            return dict(pairs)
        if first <= 0x9F:
            return [self.value() for _ in range(first - 0x90)]
        if first <= 0xBF:
            return self.take(first - 0xA0).decode()
        unsigned = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
        signed = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
        if first in unsigned:
            return int.from_bytes(self.take(unsigned[first]), "big")
        if first in signed:
            return int.from_bytes(self.take(signed[first]), "big", signed=True)
        if first in (0xC4, 0xC5, 0xC6):
            return self.take(int.from_bytes(self.take(1 << first - 0xC4), "big"))
        if first in (0xD9, 0xDA, 0xDB):
            return self.take(int.from_bytes(self.take(1 << first - 0xD9), "big")).decode()
        raise ValueError("a type that no summary has")


def written_again(payload: bytes, write: Callable[[dict[str, Any]], bytes]) -> tuple[str | None, dict[str, Any]]:
    """Why a payload is not what ``write`` writes of its fields, and the fields."""
    try:
        reader = Reader(payload)
        body = reader.value()
        if reader.at != len(payload) or not isinstance(body, dict):
            return "malformed", {}
        if body["spec"] != "1.0":
            return "unsupported_version", {}
        assert write(body) == payload
    except WRONG:
        return "malformed", {}
    return None, body


def _summary(body: dict[str, Any]) -> bytes:
    """The bytes of a summary with these fields; the sums are read into numbers."""
    assert sorted(body) == SUMMARY_KEYS
    assert sorted(body["sums"]) == ["b", "dt", "sh"]
    raw = body["sums"]["b"]
    assert body["sums"]["dt"] == "<i8"
    body["sums"] = [int.from_bytes(raw[k : k + 8], "little", signed=True) for k in range(0, len(raw), 8)]
    assert (len(body["campaign"]), len(body["node"])) == (32, 8)
    assert 1 <= body["epsilon_micro"] < 2**40
    assert 0 <= body["period"] < 2**32
    assert 1 <= len(body["sums"]) <= 2**19
    return summary_payload(body["campaign"], body["epsilon_micro"], body["node"], body["period"], body["sums"])


def payload_fault(payload: bytes) -> tuple[str | None, dict[str, Any]]:
    """Why a payload is no summary (None if it is one), and its fields."""
    return written_again(payload, _summary)


def period_fault(period: int, times: tuple[int, int, int, int]) -> str | None:
    """Why a period is not answered; ``times``: time_precision, not_before, expires, now."""
    precision, not_before, expires, now = times
    if period * precision >= expires:
        return "report_too_late"
    if (period + 1) * precision <= not_before or period * precision > now:
        return "report_too_early"
    return None


def head_of(kind: bytes) -> bytes:
    """The bytes of an envelope before its payload."""
    return MARK + b"\xd9" + bytes([len(kind)]) + kind


def envelope_parts(raw: bytes, kind: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Payload, keyid and signature of an envelope with one signature; None of other bytes."""
    reader = Reader(raw)
    try:
        if reader.take(len(head_of(kind))) != head_of(kind):
            return None
        payload = reader.value()
        if type(payload) is not bytes or reader.take(4) != b"\x91\x92\xc4\x08":
            return None
        hint = reader.take(8)
        if reader.take(2) != b"\xc4\x40":
            return None
        signature = reader.take(64)
    except (ValueError, UnicodeDecodeError):
        return None
    if raw != head_of(kind) + binary(payload) + b"\x91\x92" + binary(hint) + binary(signature):
        return None
    return payload, hint, signature


def parts_of(raw: bytes, kind: bytes = NODE) -> tuple[bytes, bytes, bytes] | None:
    """The parts of an intact envelope that is all of ``raw`` and holds no other mark; None of other bytes."""
    return None if len(raw) > LARGEST or MARK in raw[1:] else envelope_parts(raw, kind)


def cut(raw: bytes, kind: bytes = NODE) -> bool:
    """Whether more bytes could make these an intact envelope, or a mark."""
    start = head_of(kind)
    if len(raw) <= len(start):
        return start.startswith(raw)
    if not raw.startswith(start) or MARK in raw[1:]:
        return False
    rest = raw[len(start) :]
    if rest[0] not in (0xC4, 0xC5, 0xC6):
        return False
    width = 1 << rest[0] - 0xC4
    if len(rest) <= width:
        return True
    size = int.from_bytes(rest[1 : 1 + width], "big")
    if len(binary(bytes(size))) != 1 + width + size if size < 2 * LARGEST else True:
        return False
    after = rest[1 + width + size :]
    if len(start) + 1 + width + size + 78 > LARGEST:
        return False
    for place, byte in zip((0, 1, 2, 3, 12, 13), b"\x91\x92\xc4\x08\xc4\x40", strict=True):
        if place < len(after) and after[place] != byte:
            return False
    return len(after) < 78


def file_pieces(raw: bytes, kind: bytes = NODE) -> list[tuple[int, int, str | None]]:
    """Offset, length, and reason (None of an envelope) of every stretch of a file."""
    marks = [at for at in range(len(raw)) if raw.startswith(MARK, at)]
    intact = []
    for number, at in enumerate(marks):
        limit = marks[number + 1] if number + 1 < len(marks) else len(raw)
        for end in _possible_ends(raw, at, limit):
            if parts_of(raw[at:end], kind) is not None:
                intact.append((at, end))
    pieces: list[tuple[int, int, str | None]] = []
    done = 0
    for at, end in intact:
        if at > done:
            pieces.append((done, at - done, "invalid_message"))
        pieces.append((at, end - at, None))
        done = end
    last = next((at for at in range(done, len(raw)) if cut(raw[at:], kind)), len(raw))
    if last > done:
        pieces.append((done, last - done, "invalid_message"))
    if last < len(raw):
        pieces.append((last, len(raw) - last, "truncated"))
    return pieces


def _possible_ends(raw: bytes, at: int, limit: int) -> list[int]:
    """Where an envelope at a place could end: 64 bytes after each `c4 40`."""
    return [end for end in range(at + 1, limit + 1) if raw[end - 66 : end - 64] == b"\xc4\x40"]


def judged(
    raw: bytes,
    campaign: bytes,
    epsilons: tuple[int, int],
    lengths_and_ranges: Sequence[tuple[int, int, int]],
    times: tuple[int, int, int, int],
    publics: Sequence[bytes],
    verify: Callable[[bytes, bytes, bytes], bool],
) -> str | None:
    """The first reason that applies to one intact envelope; None if the summary counts.

    Args:
        raw: an envelope.
        campaign: the campaign's id.
        epsilons: least and largest ε in millionths.
        lengths_and_ranges: length, least and largest number of every vector, at the summary's ε.
        times: time_precision, not_before, expires, now.
        publics: the keys of the listed nodes.
        verify: public key, message and signature → whether the signature is valid.
    """
    found = parts_of(raw)
    if found is None:
        return "malformed"
    payload, hint, signature = found
    fault, body = payload_fault(payload)
    if fault:
        return fault
    if hint != body["node"]:
        return "malformed"
    if body["campaign"] != campaign:
        return "unrecognized_campaign"
    keys = {keyid(public): public for public in publics}
    if body["node"] not in keys:
        return "node_not_listed"
    if not verify(keys[body["node"]], signed_bytes(NODE, payload), signature):
        return "bad_signature"
    if not epsilons[0] <= body["epsilon_micro"] <= epsilons[1]:
        return "epsilon_out_of_range"
    if len(body["sums"]) != sum(length for length, _, _ in lengths_and_ranges):
        return "value_out_of_domain"
    at = 0
    for length, least, largest in lengths_and_ranges:
        if any(not least <= number <= largest for number in body["sums"][at : at + length]):
            return "value_out_of_domain"
        at += length
    return period_fault(body["period"], times)


def vectors(family: str, classes: int, features: Sequence[tuple[str, int, bool]]) -> list[tuple[str, int]]:
    """Kind and length of every vector. ``features``: kind, number of codes or groups, may be missing."""
    numbers = [one for one in features if one[0] == "numeric"]
    if family == "discrete":
        return [("classes", classes)] + [("cells", classes * codes) for _, codes, _ in features]
    found = [("classes", classes)]
    found += [("cells", classes * codes) for kind, codes, _ in features if kind == "categorical"]
    found += [("presence", 2 * classes) for _, _, missing in numbers if missing]
    return found + [("sums", classes) for _ in numbers] + [("squares", classes) for _ in numbers]


def bounds(kind: str, epsilon_micro: int, count: int, most: int, sensitivity: str = "global") -> tuple[int, int]:
    """The range of a vector: ε of the summary, Q, max_records and the campaign's sensitivity."""
    share = epsilon_micro // count
    delta = S if kind in ("sums", "squares") else 1
    tail = 64
    if sensitivity == "smooth":
        delta = {"classes": 1, "cells": 2, "presence": 2, "sums": 2 * S, "squares": S}[kind]
        tail = 2**17 if kind == "squares" else 64
    reach = -((-tail * 10**6 * delta) // share)
    if kind == "sums":
        return -(most * S + reach), most * S + reach
    return -reach, (most * S if kind == "squares" else most) + reach


def set_file(envelopes: Sequence[bytes]) -> bytes:
    """The file of a set to which these envelopes were added."""
    places: dict[tuple[bytes, int, bytes], dict[bytes, bytes]] = {}
    for raw in envelopes:
        found = parts_of(raw)
        assert found is not None
        fault, body = payload_fault(found[0])
        assert fault is None
        held = places.setdefault((body["campaign"], body["period"], body["node"]), {})
        identity = sha256(found[0]).digest()
        held[identity] = min(raw, held.get(identity, raw))
    return b"".join(places[place][one] for place in sorted(places) for one in sorted(places[place])[:2])
