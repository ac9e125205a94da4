"""Vectors of messages of masked campaigns: judged one by one, in files, in sets, and opened."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from support.masked import (
    DEALER,
    MODULUS,
    TERMS,
    P,
    any_ciphertexts,
    book_of,
    masked_campaign,
    masked_payload,
    message_of,
    secret_of,
)
from support.nodes import NODE_KEYS, PERIOD, node_campaign, signed_list, summary_of
from support.publisher import DAY, NOW, key

from protocol import canonical
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, keyid, pae, read_envelope, write_envelope
from protocol.masked.cipher import power
from protocol.masked.message import read_message
from vectors.makers import PUBLISHER, Collection, flipped, signed_by, wild

CAMPAIGN = masked_campaign()
OTHER = masked_campaign(DISCRETE)
WIDE_TERMS = TERMS._replace(slot_bits=200)
WIDE = masked_campaign(masked=WIDE_TERMS)
"""14 numbers in slots of 200 bits: two ciphertexts, and six unused slots."""
KIND = PAYLOAD_TYPES["masked"]
NODE = NODE_KEYS[0]
GOOD = message_of(CAMPAIGN)
BODY = canonical.unpack(read_message(GOOD)[0].payload)
LAST = (NOW + 365 * DAY - 1) // DAY
SQUARE = MODULUS**2
SIZE = 512


def make(cases: Collection) -> None:
    """All of them."""
    cases.keep("campaign", PUBLISHER.sign("campaign", masked_payload(PUBLISHER)))
    cases.keep("wide campaign", PUBLISHER.sign("campaign", masked_payload(PUBLISHER, masked=WIDE_TERMS)))
    cases.keep("list", signed_list(PUBLISHER, NODE_KEYS[:3]))
    # Nodes 0, 1 and 4 have keys; nodes 0, 1 and 2 are on the list.
    cases.keep("book", book_of(CAMPAIGN, [NODE_KEYS[0], NODE_KEYS[1], NODE_KEYS[4]]))
    cases.keep("wide book", book_of(WIDE, NODE_KEYS[:3]))
    _good(cases)
    _payloads(cases)
    _refused(cases)
    _order(cases)
    _files(cases)
    _sets(cases)
    _opened(cases)


def signed(signer: Any = NODE, **changes: Any) -> bytes:
    """The good message with some fields replaced, signed by ``signer``; a field of ``...`` is left out."""
    body = {**BODY, **changes}
    return signed_by(KIND, canonical.pack({name: body[name] for name in body if body[name] is not ...}), signer)


def short(number: int) -> int:
    """A secret of 128 bits: as good as a long one for known answers, and quick without gmpy2."""
    return secret_of(number) >> 4096


def elements(*numbers: int) -> bytes:
    """Numbers of 512 bytes each."""
    return b"".join(number.to_bytes(SIZE, "big") for number in numbers)


def _add(
    cases: Collection, name: str, data: bytes, reason: str | None = None, *, now: int = NOW, wide: bool = False
) -> None:
    files = ("@wide campaign", "@wide book") if wide else ("@campaign", "@book")
    case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "masked_message"}
    case |= {"campaign": files[0], "nodes": "@list", "keys": files[1], "data": cases.keep(name, data), "now": now}
    if reason is not None:
        case["reason"] = reason
    else:
        payload = read_envelope(data, "masked").payload
        body = canonical.unpack(payload)
        raw = body["ciphertexts"]
        case["expect"] = {
            "node": body["node"].hex(),
            "period": body["period"],
            "serial": body["serial"],
            "ciphertexts": [f"{int.from_bytes(raw[at : at + SIZE], 'big'):x}" for at in range(0, len(raw), SIZE)],
            "identity": sha256(payload).hexdigest(),
        }
    cases.cases.append(case)


def _good(cases: Collection) -> None:
    _add(cases, "message", GOOD)
    _add(cases, "another_node", message_of(CAMPAIGN, 1))
    _add(cases, "two_ciphertexts", message_of(WIDE), wide=True)
    _add(cases, "last_period", signed(period=LAST), now=NOW + 365 * DAY)
    _add(cases, "period_that_begins_now", signed(), now=PERIOD * DAY)
    _add(cases, "least_element", signed(ciphertexts=elements(1)))
    _add(cases, "largest_element", signed(ciphertexts=elements(SQUARE - 1)))


def _payloads(cases: Collection) -> None:
    """Payloads that are no message."""
    for name, changes in {
        "unknown_key": {"zz": 1},
        "a_key_of_summaries": {"epsilon_micro": 1_000_000},
        "campaign_of_31_bytes": {"campaign": bytes(31)},
        "campaign_is_text": {"campaign": "a" * 32},
        "node_of_7_bytes": {"node": bytes(7)},
        "period_negative": {"period": -1},
        "period_of_2_to_the_32": {"period": 1 << 32},
        "period_is_true": {"period": True},
        "serial_negative": {"serial": -1},
        "serial_of_2_to_the_32": {"serial": 1 << 32},
        "serial_is_text": {"serial": "1"},
        "no_ciphertexts": {"ciphertexts": b""},
        "ciphertext_of_511_bytes": {"ciphertexts": BODY["ciphertexts"][1:]},
        "ciphertext_of_513_bytes": {"ciphertexts": b"\0" + BODY["ciphertexts"]},
        "ciphertexts_are_an_array": {"ciphertexts": [BODY["ciphertexts"]]},
        "keyid_is_not_the_node": {"node": keyid(NODE_KEYS[1].public)},
    }.items():
        _add(cases, name, signed(**changes), "malformed")
    for missing in BODY:
        _add(cases, f"without_{missing}", signed(**{missing: ...}), "malformed")
    _add(cases, "another_spec", signed(spec="1.1"), "unsupported_version")
    payload = read_message(GOOD)[0].payload
    for name, other in {
        "payload_is_empty": b"",
        "payload_is_an_array": b"\x90",
        "payload_with_a_byte_after_it": payload + b"\0",
        "payload_cut": payload[:-1],
        "keys_in_another_order": wild(dict(reversed(BODY.items()))),
        "a_key_twice": wild((*BODY.items(), ("campaign", BODY["campaign"]))),
        "serial_in_a_longer_form": payload.replace(b"\xa6serial\x01", b"\xa6serial\xcc\x01"),
        "nested_too_deep": b"\x91" * 40 + b"\x90",
    }.items():
        _add(cases, name, signed_by(KIND, other, NODE), "malformed")
    pair = keyid(NODE.public), NODE.sign(pae(KIND, payload))
    second = keyid(NODE_KEYS[1].public), NODE_KEYS[1].sign(pae(KIND, payload))
    for name, pairs in {"two_signatures": (pair, second), "one_signature_twice": (pair, pair)}.items():
        _add(cases, name, write_envelope(Envelope(KIND, payload, pairs)), "malformed")
    _add(cases, "envelope_with_a_byte_after_it", GOOD + b"\0", "malformed")
    _add(cases, "envelope_cut", GOOD[:-1], "malformed")
    _add(cases, "envelope_of_another_version", GOOD.replace(b"hsy1", b"hsy2", 1), "unsupported_version")
    _add(cases, "payload_type_of_a_summary", signed_by(PAYLOAD_TYPES["node"], payload, NODE), "wrong_role")
    _add(cases, "summary", summary_of(node_campaign()), "wrong_role")


def _refused(cases: Collection) -> None:
    _add(cases, "of_another_campaign", message_of(OTHER), "unrecognized_campaign")
    _add(cases, "node_that_is_not_listed", message_of(CAMPAIGN, 4, serial=3), "node_not_listed")
    _add(cases, "node_without_a_key", message_of(CAMPAIGN, 2, serial=3), "stale_key")
    _add(cases, "later_serial", signed(serial=2), "stale_key")
    _add(cases, "earlier_serial", signed(serial=0), "stale_key")
    _add(cases, "signature_changed", flipped(GOOD, len(GOOD) - 1), "bad_signature")
    forged = read_envelope(GOOD, "masked")
    other = write_envelope(forged._replace(signatures=((keyid(NODE.public), key(99).sign(pae(KIND, forged.payload))),)))
    _add(cases, "signed_by_another_key", other, "bad_signature")
    typed = NODE.sign(pae(PAYLOAD_TYPES["node"], forged.payload))
    raw = write_envelope(forged._replace(signatures=((keyid(NODE.public), typed),)))
    _add(cases, "signed_as_a_summary", raw, "bad_signature")
    for name, numbers in {
        "element_0": [0],
        "element_of_n_squared": [SQUARE],
        "element_above_n_squared": [SQUARE + 1],
        "largest_number_of_512_bytes": [(1 << 4096) - 1],
        "element_n": [MODULUS],
        "element_a_multiple_of_n": [5 * MODULUS],
        "element_a_multiple_of_p": [P],
        "one_ciphertext_too_many": [2, 3],
    }.items():
        _add(cases, name, signed(ciphertexts=elements(*numbers)), "value_out_of_domain")
    one = message_of(WIDE)
    body = canonical.unpack(read_message(one)[0].payload)
    for name, raw in {
        "one_ciphertext_too_few": body["ciphertexts"][:SIZE],
        "second_element_0": body["ciphertexts"][:SIZE] + bytes(SIZE),
    }.items():
        changed = signed_by(KIND, canonical.pack({**body, "ciphertexts": raw}), NODE)
        _add(cases, name, changed, "value_out_of_domain", wide=True)
    _add(cases, "period_at_the_end", signed(period=LAST + 1), "report_too_late", now=NOW + 400 * DAY)
    _add(cases, "period_before_the_beginning", signed(period=PERIOD - 2), "report_too_early")
    _add(cases, "period_of_tomorrow", signed(period=PERIOD + 1), "report_too_early")
    _add(cases, "period_a_second_before_it", signed(), "report_too_early", now=PERIOD * DAY - 1)


def _order(cases: Collection) -> None:
    """Of several faults the first of the order counts."""
    wrong = {"serial": 9, "ciphertexts": bytes(2 * SIZE), "period": LAST + 9}
    stranger = key(99)
    _add(
        cases,
        "wrong_in_everything",
        signed(stranger, campaign=bytes(32), node=bytes(8), spec="2.0", **wrong),
        "unsupported_version",
    )
    foreign = signed(stranger, campaign=bytes(32), node=keyid(stranger.public), **wrong)
    _add(cases, "wrong_from_the_campaign_on", foreign, "unrecognized_campaign")
    _add(cases, "wrong_from_the_node_on", signed(stranger, node=keyid(stranger.public), **wrong), "node_not_listed")
    _add(cases, "wrong_from_the_signature_on", flipped(signed(**wrong), len(signed(**wrong)) - 1), "bad_signature")
    _add(cases, "wrong_from_the_key_on", signed(**wrong), "stale_key")
    _add(cases, "wrong_from_the_elements_on", signed(**{**wrong, "serial": 1}), "value_out_of_domain")


def _file(cases: Collection, name: str, parts: list[bytes], expect: list[tuple[int, str | None]]) -> None:
    """One case: a file of these parts. ``expect``: length and reason of every stretch, in order."""
    offset, found = 0, []
    for length, reason in expect:
        found.append([offset, length, reason])
        offset += length
    assert offset == sum(map(len, parts)), name
    texts = [
        cases.keep(f"{name}.{number}", part) if len(part) > 99 else part.hex() for number, part in enumerate(parts)
    ]
    cases.cases.append({"name": name, "spec": "formats 6", "kind": "message_file", "parts": texts, "expect": found})


def _files(cases: Collection) -> None:
    one, two = GOOD, message_of(CAMPAIGN, 1)
    a, b = len(one), len(two)
    bad, cut = "invalid_message", "truncated"
    _file(cases, "file_of_two", [one, two], [(a, None), (b, None)])
    _file(
        cases,
        "bytes_around",
        [b"\0", one, b"\x94\xa4", two, b"xyz"],
        [(1, bad), (a, None), (2, bad), (b, None), (3, bad)],
    )
    _file(cases, "file_cut", [one, two[:-1]], [(a, None), (b - 1, cut)])
    _file(cases, "cut_in_the_middle", [one[:-1], two], [(a - 1, bad), (b, None)])
    plain = summary_of(node_campaign())
    _file(cases, "a_summary_between", [one, plain, two], [(a, None), (len(plain), bad), (b, None)])
    _file(cases, "a_summary_alone", [plain], [(len(plain), bad)])


def _sets(cases: Collection) -> None:
    """Unions with a conflict: the two smallest identities are kept, whatever the order."""
    plain = message_of(CAMPAIGN, 1)
    rivals = sorted((message_of(CAMPAIGN, 0, number) for number in range(1, 5)), key=_identity)
    kept = sorted([plain, *rivals[:2]], key=lambda raw: (_place(raw), _identity(raw)))
    for name, files in {
        "two_files": [[rivals[0], plain], [rivals[1]]],
        "another_order": [rivals[::-1], [plain, plain], rivals[1:3]],
    }.items():
        case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "message_union"}
        case["files"] = [cases.keep(f"{name}.{number}", b"".join(file)) for number, file in enumerate(files)]
        held, place = b"".join(kept), _place(rivals[0])
        case["expect"] = {
            "bytes": len(held),
            "sha256": sha256(held).hexdigest(),
            "conflicts": [[place[0].hex(), place[1], place[2].hex()]],
        }
        cases.cases.append(case)


def _identity(raw: bytes) -> bytes:
    return sha256(read_envelope(raw, "masked").payload).digest()


def _place(raw: bytes) -> tuple[Any, ...]:
    body = canonical.unpack(read_envelope(raw, "masked").payload)
    return body["campaign"], body["period"], body["node"]


def base(campaign_id: bytes, period: int, number: int) -> int:
    """H of the text, written out here."""
    raw = b"".join(
        sha256(
            block.to_bytes(4, "big")
            + b"hearsay/1/masked"
            + campaign_id
            + period.to_bytes(4, "big")
            + number.to_bytes(4, "big")
        ).digest()
        for block in range(17)
    )
    return int.from_bytes(raw, "big") % SQUARE


def _plain(bits: int, numbers: list[int]) -> list[int]:
    each = 2000 // bits
    return [
        sum(value << bits * slot for slot, value in enumerate(numbers[start : start + each]))
        for start in range(0, len(numbers), each)
    ]


def _cipher(campaign: Any, secret: int, period: int, plaintexts: list[int]) -> list[int]:
    return [
        (1 + x % MODULUS * MODULUS) * power(base(campaign.id, period, number), secret, SQUARE) % SQUARE
        for number, x in enumerate(plaintexts)
    ]


def _opened(cases: Collection) -> None:
    """Ciphertexts and totals, computed here from the text with Python's integers."""
    limit = 1 << 39
    for name, file, campaign, bits, secret, numbers in (
        ("encrypted", "@campaign", CAMPAIGN, 40, secret_of(1), [1, -1, 0, limit - 1, 1 - limit, *range(9)]),
        ("encrypted_in_two", "@wide campaign", WIDE, 200, short(2), [-(5**80), *range(12), 5**80]),
        ("encrypted_with_the_key_0", "@campaign", CAMPAIGN, 40, 0, [7] * 14),
        ("encrypted_with_the_largest_key", "@campaign", CAMPAIGN, 40, (1 << 4224) - 1, [7] * 14),
    ):
        plaintexts = _plain(bits, numbers)
        case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "encrypted", "campaign": file}
        case |= {"secret": f"{secret:x}", "period": PERIOD, "numbers": numbers}
        case["expect"] = {
            "plaintexts": [f"{each:x}" for each in plaintexts],
            "ciphertexts": [f"{each:x}" for each in _cipher(campaign, secret, PERIOD, plaintexts)],
        }
        cases.cases.append(case)
    for name, number in {"slot_overflow": limit, "slot_overflow_below": -limit}.items():
        case = {"name": name, "spec": "formats 6", "kind": "encrypted", "campaign": "@campaign"}
        case |= {"secret": f"{secret_of(1):x}", "period": PERIOD, "numbers": [number], "reason": "slot_overflow"}
        cases.cases.append(case)
    _totals(cases)


def _totals(cases: Collection) -> None:
    numbers = [[place * (node + 1) - 3**node for place in range(14)] for node in range(3)]
    for family, file, campaign, bits in ((GAUSSIAN, "@campaign", CAMPAIGN, 40), ("wide", "@wide campaign", WIDE, 200)):
        sent = [
            signed_by(
                KIND,
                canonical.pack(
                    {
                        **BODY,
                        "campaign": campaign.id,
                        "ciphertexts": elements(*_cipher(campaign, short(node + 1), PERIOD, _plain(bits, each))),
                        "node": keyid(NODE_KEYS[node].public),
                        "serial": node + 1,
                    }
                ),
                NODE_KEYS[node],
            )
            for node, each in enumerate(numbers)
        ]
        total = [sum(each) for each in zip(*numbers, strict=True)]
        _total(cases, f"{family}_total_of_three", file, sent, release_of(campaign, [1, 2, 3]), expect=total)
        two = [sum(each) for each in zip(*numbers[:2], strict=True)]
        _total(cases, f"{family}_total_of_two", file, sent[:2], release_of(campaign, [1, 2]), expect=two)
        mismatch = {"reason": "mask_mismatch"}
        _total(cases, f"{family}_one_is_missing", file, sent[:2], release_of(campaign, [1, 2, 3]), **mismatch)
        _total(cases, f"{family}_one_too_many", file, sent, release_of(campaign, [1, 2]), **mismatch)
        other = release_of(campaign, [1, 2, 3], elements_of=PERIOD + 1)
        _total(cases, f"{family}_elements_of_another_period", file, sent, other, **mismatch)
    other = message_of(CAMPAIGN, 2, 5)
    _total(
        cases, "a_message_of_nobody_knows_what", "@campaign", [other], release_of(CAMPAIGN, [3]), reason="mask_mismatch"
    )
    # Totals with a number in an unused slot, and with one above the last slot.
    for name, file, campaign, plaintexts in (
        ("unused_slot", "@campaign", CAMPAIGN, [1 << 40 * 14]),
        ("above_the_last_slot", "@wide campaign", WIDE, [1 << 2000, 0]),
    ):
        raw = elements(*_cipher(campaign, short(1), PERIOD, plaintexts))
        body = {**BODY, "campaign": campaign.id, "ciphertexts": raw}
        sent = [signed_by(KIND, canonical.pack(body), NODE)]
        _total(cases, name, file, sent, release_of(campaign, [1]), reason="mask_mismatch")


def release_of(campaign: Any, serials: list[int], *, elements_of: int = PERIOD) -> bytes:
    """The release for the nodes with these serial numbers, with elements of a period that may be another."""
    exponent = -sum(map(short, serials))
    found = [
        power(base(campaign.id, elements_of, number), exponent, SQUARE)
        for number in range(len(any_ciphertexts(campaign)))
    ]
    payload = {
        "campaign": campaign.id,
        "elements": elements(*found),
        "parties": b"".join(sorted(keyid(NODE_KEYS[serial - 1].public) for serial in serials)),
        "period": PERIOD,
        "spec": "1.0",
        "version": 1,
    }
    return signed_by(PAYLOAD_TYPES["release"], canonical.pack(payload), DEALER)


def _total(cases: Collection, name: str, file: str, messages: list[bytes], data: bytes, **outcome: Any) -> None:
    case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "opened_totals", "campaign": file}
    case |= {"messages": cases.keep(f"{name}.hse", b"".join(messages)), "data": cases.keep(f"{name}.hsd", data)}
    cases.cases.append(case | outcome)
