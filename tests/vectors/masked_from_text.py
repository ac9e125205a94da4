"""Masked sums once more, written from docs/formats.md, sections 5 and 6, alone.

It imports nothing of this project but the other implementation from the text, and no cryptographic library.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from math import isqrt
from typing import TYPE_CHECKING, Any

from vectors.nodes_from_text import (
    MASKED,
    WRONG,
    Reader,
    S,
    binary,
    envelope_parts,
    integer,
    keyid,
    mapping,
    parts_of,
    period_fault,
    signed_bytes,
    text,
    written_again,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEYS = b"application/vnd.hearsay.keys.v1+msgpack"
RELEASE = b"application/vnd.hearsay.release.v1+msgpack"


def array(*items: bytes) -> bytes:
    """An array of packed values."""
    assert len(items) < 16
    return bytes([0x90 + len(items)]) + b"".join(items)


# --- terms


@cache
def modulus_fits(raw: bytes) -> bool:
    """Whether 256 bytes are a modulus, by trial division and by all roots."""
    n = int.from_bytes(raw, "big")
    if len(raw) != 256 or n < 2**2047 or any(n % divisor == 0 for divisor in range(2, 65536)):
        return False
    return isqrt(n) ** 2 != n and not any(has_root(n, degree) for degree in range(3, 2048)) and pow(2, n - 1, n) != 1


def has_root(n: int, degree: int) -> bool:
    """Whether n is a power with this exponent, by bisection."""
    low, high = 1, 2 ** (2048 // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < n:
            low = middle + 1
        else:
            high = middle
    return low**degree == n


def exact_ends(kind: str, records: int) -> tuple[int, int]:
    """Least and largest exact number of a party."""
    return {"sums": (-records * S, records * S), "squares": (0, records * S)}.get(kind, (0, records))


def tail(kind: str, records: int, unit: str, epsilon_micro: int, count: int) -> int:
    """H, with ε of the sum and Q."""
    delta = (S if kind in ("sums", "squares") else 1) * (records if unit == "party" else 1)
    return -(-64 * 10**6 * delta // (epsilon_micro // count))


def ciphertexts(numbers: int, slot_bits: int) -> int:
    """J."""
    return -(-numbers // (2000 // slot_bits))


def fits(kinds: Sequence[str], records: int, unit: str, epsilon_micro: int, parties: int, slot_bits: int) -> bool:
    """Whether no total leaves its slot."""
    count = len(kinds)
    return all(
        parties * (exact_ends(kind, records)[1] + tail(kind, records, unit, epsilon_micro, count))
        < 2 ** (slot_bits - 1)
        for kind in kinds
    )


# --- messages


def message_payload(campaign: bytes, elements: bytes, node: bytes, period: int, serial: int) -> bytes:
    """The payload of a message."""
    return mapping(
        {
            "campaign": binary(campaign),
            "ciphertexts": binary(elements),
            "node": binary(node),
            "period": integer(period),
            "serial": integer(serial),
            "spec": text("1.0"),
        }
    )


def is_word(value: object, least: int = 0) -> bool:
    """Whether a value is an integer from ``least`` to 2^32 − 1."""
    return type(value) is int and least <= value < 2**32


def _message(body: dict[str, Any]) -> bytes:
    assert (len(body["campaign"]), len(body["node"])) == (32, 8)
    assert is_word(body["period"])
    assert is_word(body["serial"])
    assert len(body["ciphertexts"]) % 512 == 0
    assert 512 <= len(body["ciphertexts"]) <= 16_000 * 512
    return message_payload(body["campaign"], body["ciphertexts"], body["node"], body["period"], body["serial"])


def elements_of(raw: bytes) -> list[int]:
    """Numbers of 512 bytes."""
    return [int.from_bytes(raw[at : at + 512], "big") for at in range(0, len(raw), 512)]


def are_good(numbers: Sequence[int], n: int) -> bool:
    """Whether all are elements, by Euclid's algorithm."""
    for number in numbers:
        a, b = number, n
        while b:
            a, b = b, a % b
        if not 0 < number < n * n or a != 1:
            return False
    return True


def judged(
    raw: bytes,
    campaign: bytes,
    modulus: int,
    count: int,
    times: tuple[int, int, int, int],
    publics: Sequence[bytes],
    serials: Mapping[bytes, int],
    verify: Callable[[bytes, bytes, bytes], bool],
) -> str | None:
    """The first reason that applies to one envelope; None if the message counts.

    Args:
        raw: an intact envelope.
        campaign: the campaign's id.
        modulus: N.
        count: J.
        times: time_precision, not_before, expires, now.
        publics: the keys of the listed nodes.
        serials: node id → serial number of its key in the book.
        verify: public key, message and signature → whether the signature is valid.
    """
    found = parts_of(raw, MASKED)
    assert found is not None
    payload, hint, signature = found
    fault, body = written_again(payload, _message)
    if fault is None and hint != body["node"]:
        fault = "malformed"
    if fault is not None:
        return fault
    if body["campaign"] != campaign:
        return "unrecognized_campaign"
    known = {keyid(public): public for public in publics}
    if hint not in known:
        return "node_not_listed"
    if not verify(known[hint], signed_bytes(MASKED, payload), signature):
        return "bad_signature"
    if serials.get(hint) != body["serial"]:
        return "stale_key"
    numbers = elements_of(body["ciphertexts"])
    if len(numbers) != count or not are_good(numbers, modulus):
        return "value_out_of_domain"
    return period_fault(body["period"], times)


# --- files of the dealer


def book_payload(campaign: bytes, version: int, listed: int, parties: dict[str, list[Any]]) -> bytes:
    """The payload of a key book."""
    packed = {node: array(integer(one[0]), integer(one[1]), binary(one[2])) for node, one in parties.items()}
    return mapping(
        {
            "campaign": binary(campaign),
            "version": integer(version),
            "list": integer(listed),
            "parties": mapping(packed),
            "spec": text("1.0"),
        }
    )


def box_content(campaign: bytes, node: bytes, serial: int, u: int, secret: int) -> bytes:
    """What a sealed box holds."""
    numbers = integer(serial), integer(u), binary(secret.to_bytes(528, "big"))
    return array(text("hearsay masked key 1"), binary(campaign), binary(node), *numbers)


def _signed(
    raw: bytes, kind: bytes, dealer: bytes, verify: Callable[[bytes, bytes, bytes], bool]
) -> tuple[str | None, bytes]:
    found = envelope_parts(raw, kind)
    if found is None or found[1] != keyid(dealer):
        return "malformed", b""
    payload, _, signature = found
    return None if verify(dealer, signed_bytes(kind, payload), signature) else "bad_signature", payload


def book_fault(
    raw: bytes, campaign: bytes, dealer: bytes, most: int, verify: Callable[[bytes, bytes, bytes], bool]
) -> set[str]:
    """Reasons that a reader may give for refusing a book; empty if the book is taken.

    The text leaves open whether an entry of a wrong form is ``malformed`` or ``invalid_keys``.
    """
    if len(raw) > 700 * most + 1024:
        return {"too_large"}
    fault, payload = _signed(raw, KEYS, dealer, verify)
    if fault is not None:
        return {fault}
    open_forms = {"malformed", "invalid_keys"}
    try:
        body = Reader(payload).value()
        assert body["spec"] == "1.0" or (_ := 1 / 0)
        assert book_payload(body["campaign"], body["version"], body["list"], body["parties"]) == payload
        assert len(body["campaign"]) == 32
        assert is_word(body["version"], 1)
        assert is_word(body["list"], 1)
        entries = body["parties"]
        for node, (serial, u, box) in entries.items():
            assert bytes.fromhex(node).hex() == node
            assert len(node) == 16
            assert is_word(serial)
            assert type(u) is int
            assert len(entries) < 2 * u <= 2 * len(entries)
            assert len(box) == 48 + len(box_content(bytes(32), bytes(8), serial, u, 0))
        assert len(entries) >= 2
        assert len({entry[0] for entry in entries.values()}) == len(entries)
    except ZeroDivisionError:
        return {"unsupported_version"}
    except WRONG:
        return open_forms
    if body["campaign"] != campaign:
        return {"unrecognized_campaign"}
    return {"invalid_keys"} if len(entries) > most else set()


def request_bytes(campaign: bytes, period: int, version: int, ids: bytes) -> bytes:
    """A request."""
    numbers = integer(period), integer(version), binary(ids)
    return array(text("hearsay masked request 1"), binary(campaign), *numbers)


def is_set(ids: bytes) -> bool:
    """Whether bytes are node ids in rising order."""
    parts = [ids[at : at + 8] for at in range(0, len(ids), 8)]
    return 1 <= len(parts) <= 65536 and len(ids) % 8 == 0 and parts == sorted(set(parts))


def request_fault(raw: bytes) -> str | None:
    """Why bytes are no request; None if they are one."""
    try:
        reader = Reader(raw)
        _, campaign, period, version, ids = reader.value()
        assert request_bytes(campaign, period, version, ids) == raw
        assert len(campaign) == 32
        assert is_word(period)
        assert is_word(version, 1)
        assert is_set(ids)
    except WRONG:
        return "malformed"
    return None


def release_payload(campaign: bytes, elements: bytes, ids: bytes, period: int, version: int) -> bytes:
    """The payload of a release."""
    return mapping(
        {
            "campaign": binary(campaign),
            "elements": binary(elements),
            "parties": binary(ids),
            "period": integer(period),
            "spec": text("1.0"),
            "version": integer(version),
        }
    )


def _release(body: dict[str, Any]) -> bytes:
    assert len(body["campaign"]) == 32
    assert is_word(body["period"])
    assert is_word(body["version"], 1)
    assert is_set(body["parties"])
    assert len(body["elements"]) % 512 == 0
    assert 512 <= len(body["elements"]) <= 16_000 * 512
    return release_payload(*(body[key] for key in ("campaign", "elements", "parties", "period", "version")))


def release_fault(
    raw: bytes,
    asked: bytes,
    campaign: bytes,
    dealer: bytes,
    sizes: tuple[int, int, int],
    verify: Callable[[bytes, bytes, bytes], bool],
) -> str | None:
    """Why a release is refused; None if it answers the request ``asked``. ``sizes``: most parties, J and N."""
    most, count, modulus = sizes
    if len(raw) > 8 * most + 512 * count + 1024:
        return "too_large"
    fault, payload = _signed(raw, RELEASE, dealer, verify)
    if fault is not None:
        return fault
    fault, body = written_again(payload, _release)
    if fault is not None:
        return fault
    if body["campaign"] != campaign:
        return "unrecognized_campaign"
    numbers = elements_of(body["elements"])
    if len(body["parties"]) > 8 * most or len(numbers) != count or not are_good(numbers, modulus):
        return "invalid_release"
    same = request_bytes(body["campaign"], body["period"], body["version"], body["parties"]) == asked
    return None if same else "release_mismatch"


# --- the cipher


def base(campaign: bytes, period: int, number: int, modulus: int) -> int:
    """H(t, j)."""
    raw = b""
    for block in range(17):
        words = [value.to_bytes(4, "big") for value in (block, period, number)]
        raw += sha256(words[0] + b"hearsay/1/masked" + campaign + words[1] + words[2]).digest()
    return int.from_bytes(raw, "big") % modulus**2


def plaintexts(numbers: Sequence[int], slot_bits: int) -> list[int]:
    """x_0, x_1, …"""
    found = [0] * ciphertexts(len(numbers), slot_bits)
    for place, number in enumerate(numbers):
        j, s = divmod(place, 2000 // slot_bits)
        found[j] += number * 2 ** (slot_bits * s)
    return found


def totals(
    products: Sequence[int], released: Sequence[int], modulus: int, slot_bits: int, count: int
) -> list[int] | None:
    """The totals of Π C_j and R_j; None if they do not belong together."""
    found: list[int] = []
    for product, element in zip(products, released, strict=True):
        x, rest = divmod(product * element % modulus**2 - 1, modulus)
        if rest:
            return None
        x = x - modulus if 2 * x > modulus else x
        for _ in range(min(2000 // slot_bits, count - len(found))):
            low = x % 2**slot_bits
            low = low - 2**slot_bits if low >= 2 ** (slot_bits - 1) else low
            found.append(low)
            x = (x - low) // 2**slot_bits
        if x:
            return None
    return found
