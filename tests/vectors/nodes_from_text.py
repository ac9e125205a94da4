"""Files of nodes and of masked sums once more, written from docs/formats.md, sections 5 and 6, alone.

It imports nothing of this project but signatures in plain integers, and is written for reading. Of msgpack it uses the
packer, whose forms are the shortest: a payload is canonical if writing its fields again gives the same bytes.
"""

from functools import cache
from hashlib import sha256
from itertools import pairwise
from math import isqrt

import msgpack
from support.ed25519 import is_signed

S = 65536
MARK = b"\x94\xa4hsy1"
NODE, NODES, MASKED, KEYS, RELEASE = (
    b"application/vnd.hearsay.%s.v1+msgpack" % kind for kind in (b"node", b"nodes", b"masked", b"keys", b"release")
)
LARGEST = 8 * 1024 * 1024
WRONG = (ValueError, AssertionError, KeyError, TypeError, AttributeError, OverflowError, IndexError, ZeroDivisionError)
"""What reading a payload of another form raises here."""


def packed(value):
    """Canonical msgpack of a map, whose keys are put in order, or of another value."""
    ordered = isinstance(value, dict)
    return msgpack.packb({key: value[key] for key in sorted(value)} if ordered else value)


def unpacked(raw):
    """Any msgpack value."""
    return msgpack.unpackb(raw, strict_map_key=False)


# --- writing


def keyid(public):
    """The id of a key."""
    return sha256(public).digest()[:8]


def signed_bytes(kind, payload):
    """DSSE's pre-authentication encoding."""
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def envelope(kind, payload, public, sign):
    """An envelope with one signature."""
    return packed(["hsy1", kind.decode(), payload, [[keyid(public), sign(signed_bytes(kind, payload))]]])


def summary_payload(campaign, epsilon_micro, node, period, sums):
    """The payload of a summary."""
    raw = b"".join(number.to_bytes(8, "little", signed=True) for number in sums)
    fields = {"campaign": campaign, "epsilon_micro": epsilon_micro, "node": node, "period": period, "spec": "1.0"}
    return packed({**fields, "sums": {"b": raw, "dt": "<i8", "sh": [len(sums)]}})


def list_payload(name, version, issued, before, expires, publics):
    """The payload of a list of nodes."""
    times = {"issued_at": issued, "not_before": before, "expires": expires}
    nodes = {public.hex(): key for public, key in sorted((keyid(key), key) for key in publics)}
    return packed({"name": name, "version": version, "spec": "1.0", **times, "crit": [], "nodes": nodes})


def message_payload(campaign, elements, node, period, serial):
    """The payload of a message."""
    fields = {"campaign": campaign, "ciphertexts": elements, "node": node, "period": period, "serial": serial}
    return packed({**fields, "spec": "1.0"})


def book_payload(campaign, version, listed, parties):
    """The payload of a key book."""
    ordered = {node: parties[node] for node in sorted(parties)}
    return packed({"campaign": campaign, "version": version, "list": listed, "parties": ordered, "spec": "1.0"})


def box_content(campaign, node, serial, u, secret):
    """What a sealed box holds."""
    return packed(["hearsay masked key 1", campaign, node, serial, u, secret.to_bytes(528, "big")])


def request_bytes(campaign, period, version, ids):
    """A request."""
    return packed(["hearsay masked request 1", campaign, period, version, ids])


def release_payload(campaign, elements, ids, period, version):
    """The payload of a release."""
    fields = {"campaign": campaign, "elements": elements, "parties": ids, "period": period, "version": version}
    return packed({**fields, "spec": "1.0"})


# --- reading


def envelope_parts(raw, kind):
    """Payload, keyid and signature of an envelope with one signature; None of other bytes."""
    try:
        _, _, payload, [[hint, signature]] = unpacked(raw)
        assert raw == packed(["hsy1", kind.decode(), payload, [[hint, signature]]])
        assert (type(payload), len(hint), len(signature)) == (bytes, 8, 64)
    except WRONG:
        return None
    return payload, hint, signature


def parts_of(raw, kind=NODE):
    """The parts of an intact envelope that is all of ``raw`` and holds no other mark; None of other bytes."""
    return None if len(raw) > LARGEST or MARK in raw[1:] else envelope_parts(raw, kind)


def cut(raw, kind=NODE):
    """Whether more bytes could make these an intact envelope, or a mark."""
    start = packed(["hsy1", kind.decode(), b"", []])[:-3]
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
    if len(start) + 1 + width + size + 78 > LARGEST or len(packed(bytes(size))) != 1 + width + size:
        return False
    after = rest[1 + width + size :]
    fixed = zip((0, 1, 2, 3, 12, 13), b"\x91\x92\xc4\x08\xc4\x40", strict=True)
    return len(after) < 78 and all(after[place] == byte for place, byte in fixed if place < len(after))


def file_pieces(raw, kind=NODE):
    """Offset, length, and reason (None of an envelope) of every stretch of a file."""
    marks = [at for at in range(len(raw)) if raw.startswith(MARK, at)]
    pieces, done = [], 0
    for at, limit in pairwise([*marks, len(raw)]):
        for end in range(at + 1, limit + 1):
            # An envelope ends 64 bytes after `c4 40`.
            if raw[end - 66 : end - 64] == b"\xc4\x40" and parts_of(raw[at:end], kind) is not None:
                pieces += [(done, at - done, "invalid_message")] * (at > done) + [(at, end - at, None)]
                done = end
    last = next((at for at in range(done, len(raw)) if cut(raw[at:], kind)), len(raw))
    pieces += [(done, last - done, "invalid_message")] * (last > done)
    return pieces + [(last, len(raw) - last, "truncated")] * (last < len(raw))


def written_again(payload, write):
    """Why a payload is not what ``write`` writes of its fields, and the fields."""
    try:
        body = unpacked(payload)
        if body["spec"] != "1.0":
            return "unsupported_version", {}
        assert all(type(body[key]) is bytes for key in ("campaign", "node", "ciphertexts", "elements") if key in body)
        assert all(type(body[key]) is int for key in ("epsilon_micro", "period", "serial", "version") if key in body)
        assert write(body) == payload
    except WRONG:
        return "malformed", {}
    return None, body


def is_word(value, least=0):
    """Whether a value is an integer from ``least`` to 2^32 − 1."""
    return type(value) is int and least <= value < 2**32


def is_set(ids):
    """Whether bytes are node ids in rising order."""
    parts = [ids[at : at + 8] for at in range(0, len(ids), 8)]
    return 1 <= len(parts) <= 65536 and len(ids) % 8 == 0 and parts == sorted(set(parts))


def _summary(body):
    """The bytes of a summary with these fields; the sums are read into numbers."""
    raw = body["sums"]["b"]
    body["sums"] = [int.from_bytes(raw[k : k + 8], "little", signed=True) for k in range(0, len(raw), 8)]
    assert (len(body["campaign"]), len(body["node"])) == (32, 8)
    assert 1 <= body["epsilon_micro"] < 2**40
    assert is_word(body["period"])
    assert 1 <= len(body["sums"]) <= 2**19
    return summary_payload(*(body[key] for key in ("campaign", "epsilon_micro", "node", "period", "sums")))


def _message(body):
    assert (len(body["campaign"]), len(body["node"])) == (32, 8)
    assert is_word(body["period"])
    assert is_word(body["serial"])
    assert len(body["ciphertexts"]) in range(512, 16_001 * 512, 512)
    return message_payload(*(body[key] for key in ("campaign", "ciphertexts", "node", "period", "serial")))


def _book(body):
    entries = body["parties"]
    assert len(body["campaign"]) == 32
    assert is_word(body["version"], 1)
    assert is_word(body["list"], 1)
    for node, (serial, u, box) in entries.items():
        assert bytes.fromhex(node).hex() == node
        assert len(node) == 16
        assert is_word(serial)
        assert type(u) is int
        assert len(entries) < 2 * u <= 2 * len(entries)
        assert type(box) is bytes
        assert len(box) == 48 + len(box_content(bytes(32), bytes(8), serial, u, 0))
    assert len({entry[0] for entry in entries.values()}) == len(entries) >= 2
    return book_payload(body["campaign"], body["version"], body["list"], entries)


def _release(body):
    assert len(body["campaign"]) == 32
    assert is_word(body["period"])
    assert is_word(body["version"], 1)
    assert type(body["parties"]) is bytes
    assert is_set(body["parties"])
    assert len(body["elements"]) in range(512, 16_001 * 512, 512)
    return release_payload(*(body[key] for key in ("campaign", "elements", "parties", "period", "version")))


# --- judging


def period_fault(period, times):
    """Why a period is not answered; ``times``: time_precision, not_before, expires, now."""
    precision, not_before, expires, now = times
    if period * precision >= expires:
        return "report_too_late"
    if (period + 1) * precision <= not_before or period * precision > now:
        return "report_too_early"
    return None


def _judged(raw, kind, write, campaign, times, publics, content_fault):
    """The first reason that applies to one envelope; ``content_fault``: of the fields, between signature and period."""
    payload, hint, signature = parts_of(raw, kind)
    fault, body = written_again(payload, write)
    if fault or hint != body["node"]:
        return fault or "malformed"
    if body["campaign"] != campaign:
        return "unrecognized_campaign"
    keys = {keyid(public): public for public in publics}
    if hint not in keys:
        return "node_not_listed"
    if not is_signed(keys[hint], signed_bytes(kind, payload), signature):
        return "bad_signature"
    return content_fault(body) or period_fault(body["period"], times)


def judged_summary(raw, campaign, epsilons, ranges_at, times, publics):
    """The first reason that applies to one intact envelope; None if the summary counts.

    Args:
        raw: an envelope.
        campaign: the campaign's id.
        epsilons: least and largest ε in millionths.
        ranges_at: ε of a summary → length, least and largest number of every vector.
        times: time_precision, not_before, expires, now.
        publics: the keys of the listed nodes.
    """

    def content_fault(body):
        if not epsilons[0] <= body["epsilon_micro"] <= epsilons[1]:
            return "epsilon_out_of_range"
        ends = [pair for length, *pair in ranges_at(body["epsilon_micro"]) for _ in range(length)]
        numbers = body["sums"]
        fits = len(numbers) == len(ends) and all(a <= x <= b for x, (a, b) in zip(numbers, ends, strict=True))
        return None if fits else "value_out_of_domain"

    return _judged(raw, NODE, _summary, campaign, times, publics, content_fault)


def judged_message(raw, campaign, modulus, count, times, publics, serials):
    """The same of a message. ``modulus``: N; ``count``: J; ``serials``: node id → serial number in the book."""

    def content_fault(body):
        if serials.get(body["node"]) != body["serial"]:
            return "stale_key"
        numbers = elements_of(body["ciphertexts"])
        return None if len(numbers) == count and are_good(numbers, modulus) else "value_out_of_domain"

    return _judged(raw, MASKED, _message, campaign, times, publics, content_fault)


def set_file(envelopes):
    """The file of a set to which these envelopes were added."""
    places = {}
    for raw in envelopes:
        payload = parts_of(raw)[0]
        _, body = written_again(payload, _summary)
        held = places.setdefault((body["campaign"], body["period"], body["node"]), {})
        identity = sha256(payload).digest()
        held[identity] = min(raw, held.get(identity, raw))
    return b"".join(places[place][one] for place in sorted(places) for one in sorted(places[place])[:2])


def _of_dealer(raw, kind, dealer, largest, write):
    """Why a file of the dealer is refused, before its campaign is looked at, and its fields."""
    if len(raw) > largest:
        return "too_large", {}
    found = envelope_parts(raw, kind)
    if found is None or found[1] != keyid(dealer):
        return "malformed", {}
    if not is_signed(dealer, signed_bytes(kind, found[0]), found[2]):
        return "bad_signature", {}
    return written_again(found[0], write)


def book_faults(raw, campaign, dealer, most):
    """Reasons that a reader may give for refusing a book; empty if the book is taken.

    The text leaves open whether an entry of a wrong form is ``malformed`` or ``invalid_keys``.
    """
    fault, body = _of_dealer(raw, KEYS, dealer, 700 * most + 1024, _book)
    if fault is not None:
        return {fault, "invalid_keys"} if fault == "malformed" and envelope_parts(raw, KEYS) else {fault}
    if body["campaign"] != campaign:
        return {"unrecognized_campaign"}
    return {"invalid_keys"} if len(body["parties"]) > most else set()


def request_fault(raw):
    """Why bytes are no request; None if they are one."""
    try:
        _, campaign, period, version, ids = unpacked(raw)
        assert request_bytes(campaign, period, version, ids) == raw
        assert (type(campaign), type(ids), len(campaign)) == (bytes, bytes, 32)
        assert is_word(period)
        assert is_word(version, 1)
        assert is_set(ids)
    except WRONG:
        return "malformed"
    return None


def release_fault(raw, asked, campaign, dealer, most, count, modulus):
    """Why a release is refused; None if it answers the request ``asked``. ``count``: J; ``modulus``: N."""
    fault, body = _of_dealer(raw, RELEASE, dealer, 8 * most + 512 * count + 1024, _release)
    if fault is not None:
        return fault
    if body["campaign"] != campaign:
        return "unrecognized_campaign"
    numbers = elements_of(body["elements"])
    if len(body["parties"]) > 8 * most or len(numbers) != count or not are_good(numbers, modulus):
        return "invalid_release"
    same = request_bytes(body["campaign"], body["period"], body["version"], body["parties"]) == asked
    return None if same else "release_mismatch"


# --- terms


def vectors(family, classes, features):
    """Kind and length of every vector. ``features``: kind, number of codes or groups, may be missing."""
    numbers = [one for one in features if one[0] == "numeric"]
    found = [("classes", classes)]
    found += [("cells", classes * codes) for kind, codes, _ in features if family == "discrete" or kind != "numeric"]
    if family == "discrete":
        return found
    found += [("presence", 2 * classes) for _, _, missing in numbers if missing]
    return found + [("sums", classes) for _ in numbers] + [("squares", classes) for _ in numbers]


def exact_ends(kind, records):
    """Least and largest exact number of a party."""
    return {"sums": (-records * S, records * S), "squares": (0, records * S)}.get(kind, (0, records))


def bounds(kind, epsilon_micro, count, most, sensitivity="global"):
    """The range of a vector: ε of the summary, Q, max_records and the campaign's sensitivity."""
    delta, steps = (S if kind in ("sums", "squares") else 1), 64
    if sensitivity == "smooth":
        delta = {"classes": 1, "cells": 2, "presence": 2, "sums": 2 * S, "squares": S}[kind]
        steps = 2**17 if kind == "squares" else 64
    reach = -((-steps * 10**6 * delta) // (epsilon_micro // count))
    least, largest = exact_ends(kind, most)
    return least - reach, largest + reach


def tail(kind, records, unit, epsilon_micro, count):
    """H, with ε of the sum and Q."""
    delta = (S if kind in ("sums", "squares") else 1) * (records if unit == "party" else 1)
    return -(-64 * 10**6 * delta // (epsilon_micro // count))


def ciphertexts(numbers, slot_bits):
    """J."""
    return -(-numbers // (2000 // slot_bits))


def fits(kinds, records, unit, epsilon_micro, parties, slot_bits):
    """Whether no total leaves its slot."""
    largest = (exact_ends(kind, records)[1] + tail(kind, records, unit, epsilon_micro, len(kinds)) for kind in kinds)
    return parties * max(largest) < 2 ** (slot_bits - 1)


@cache
def modulus_fits(raw):
    """Whether 256 bytes are a modulus, by trial division and by all roots."""
    n = int.from_bytes(raw, "big")
    if len(raw) != 256 or n < 2**2047 or any(n % divisor == 0 for divisor in range(2, 65536)):
        return False
    return isqrt(n) ** 2 != n and not any(has_root(n, degree) for degree in range(3, 2048)) and pow(2, n - 1, n) != 1


def has_root(n, degree):
    """Whether n is a power with this exponent, by bisection."""
    low, high = 1, 2 ** (2048 // degree + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**degree < n else (low, middle)
    return low**degree == n


# --- the cipher


def elements_of(raw):
    """Numbers of 512 bytes."""
    return [int.from_bytes(raw[at : at + 512], "big") for at in range(0, len(raw), 512)]


def are_good(numbers, n):
    """Whether all are elements, by Euclid's algorithm."""
    for number in numbers:
        a, b = number, n
        while b:
            a, b = b, a % b
        if not 0 < number < n * n or a != 1:
            return False
    return True


def base(campaign, period, number, modulus):
    """H(t, j)."""
    raw = b""
    for block in range(17):
        words = [value.to_bytes(4, "big") for value in (block, period, number)]
        raw += sha256(words[0] + b"hearsay/1/masked" + campaign + words[1] + words[2]).digest()
    return int.from_bytes(raw, "big") % modulus**2


def plaintexts(numbers, slot_bits):
    """x_0, x_1, …"""
    found = [0] * ciphertexts(len(numbers), slot_bits)
    for place, number in enumerate(numbers):
        j, s = divmod(place, 2000 // slot_bits)
        found[j] += number * 2 ** (slot_bits * s)
    return found


def totals(products, released, modulus, slot_bits, count):
    """The totals of Π C_j and R_j; None if they do not belong together."""
    found = []
    for product, element in zip(products, released, strict=True):
        x, rest = divmod(product * element % modulus**2 - 1, modulus)
        x = x - modulus if 2 * x > modulus else x
        for _ in range(min(2000 // slot_bits, count - len(found))):
            low = x % 2**slot_bits
            low = low - 2**slot_bits if low >= 2 ** (slot_bits - 1) else low
            found.append(low)
            x = (x - low) // 2**slot_bits
        if x or rest:
            return None
    return found
