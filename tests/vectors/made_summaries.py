"""Vectors of summaries of nodes: judged one by one, in files, and in sets."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from support.nodes import NODE_KEYS, PERIOD, node_campaign, node_payload, plain_sums, signed_list, summary_of
from support.publisher import DAY, NOW, key

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, keyid, pae, write_envelope
from protocol.nodes.summary import read_summary
from protocol.schema import integer_array
from vectors.makers import PUBLISHER, Collection, flipped, signed_by, wild

CAMPAIGN = node_campaign()
OTHER = node_campaign(DISCRETE)
KIND = PAYLOAD_TYPES["node"]
NODE = NODE_KEYS[0]
SUMS = plain_sums(CAMPAIGN)
GOOD = summary_of(CAMPAIGN)
BODY = canonical.unpack(read_summary(GOOD)[0].payload)
LAST = (NOW + 365 * DAY - 1) // DAY
REACH, WIDE = 256, 256 * 65536
"""The largest noise at ε = 1: of counts, of sums."""


def make(cases: Collection) -> None:
    """All of them."""
    cases.keep("campaign", PUBLISHER.sign("campaign", node_payload(PUBLISHER)))
    cases.keep("list", signed_list(PUBLISHER, NODE_KEYS[:3]))
    _good(cases)
    _payloads(cases)
    _refused(cases)
    _order(cases)
    _files(cases)
    _sets(cases)


def signed(signer: Any = NODE, **changes: Any) -> bytes:
    """The good summary with some fields replaced, signed by ``signer``; a field of ``...`` is left out."""
    body = {**BODY, **changes}
    return signed_by(KIND, canonical.pack({name: body[name] for name in body if body[name] is not ...}), signer)


def _sums(numbers: list[int]) -> dict[str, Any]:
    return integer_array("<i8", numbers, [len(numbers)])


def _with(place: int, number: int) -> dict[str, Any]:
    """The good numbers with one of them replaced."""
    return _sums([*SUMS[:place], number, *SUMS[place + 1 :]])


def _add(cases: Collection, name: str, data: bytes, reason: str | None = None, now: int = NOW) -> None:
    case: dict[str, Any] = {
        "name": name,
        "spec": "formats 6",
        "kind": "summary",
        "campaign": "@campaign",
        "nodes": "@list",
    }
    case |= {"data": cases.keep(name, data), "now": now}
    if reason is not None:
        case["reason"] = reason
    else:
        payload = read_summary(data)[0].payload
        body = canonical.unpack(payload)
        raw = body["sums"]["b"]
        sums = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8)]
        case["expect"] = {
            "node": body["node"].hex(),
            "period": body["period"],
            "epsilon_micro": body["epsilon_micro"],
            "sums": sums,
            "identity": sha256(payload).hexdigest(),
        }
    cases.cases.append(case)


def _good(cases: Collection) -> None:
    _add(cases, "summary", GOOD)
    _add(cases, "another_node", summary_of(CAMPAIGN, 2))
    _add(cases, "at_the_least_epsilon", summary_of(CAMPAIGN, epsilon_micro=100_000))
    _add(cases, "last_period", signed(period=LAST), now=NOW + 365 * DAY)
    _add(cases, "period_that_begins_now", signed(), now=PERIOD * DAY)
    # class counts at places 0 and 1, cells at 2 to 9, sums at 10 and 11, squares at 12 and 13
    for name, place, number in (
        ("least_count", 0, -REACH),
        ("largest_count", 1, 1000 + REACH),
        ("largest_cell", 9, 1000 + REACH),
        ("least_sum", 10, -1000 * 65536 - WIDE),
        ("largest_sum", 11, 1000 * 65536 + WIDE),
        ("least_square", 12, -WIDE),
        ("largest_square", 13, 1000 * 65536 + WIDE),
    ):
        _add(cases, name, signed(sums=_with(place, number)))


def _payloads(cases: Collection) -> None:
    """Payloads that are no summary."""
    array = BODY["sums"]
    for name, changes in {
        "unknown_key": {"zz": 1},
        "a_key_of_other_payloads": {"crit": []},
        "campaign_of_31_bytes": {"campaign": bytes(31)},
        "campaign_is_text": {"campaign": "a" * 32},
        "node_of_7_bytes": {"node": bytes(7)},
        "epsilon_0": {"epsilon_micro": 0},
        "epsilon_of_2_to_the_40": {"epsilon_micro": 1 << 40},
        "epsilon_is_true": {"epsilon_micro": True},
        "period_negative": {"period": -1},
        "period_of_2_to_the_32": {"period": 1 << 32},
        "period_is_text": {"period": "1"},
        "sums_are_an_array": {"sums": SUMS},
        "sums_are_32_bit": {"sums": {**array, "dt": "<i4"}},
        "sums_are_big_endian": {"sums": {**array, "dt": ">i8"}},
        "sums_of_two_dimensions": {"sums": {**array, "sh": [2, 7]}},
        "sums_of_no_dimension": {"sums": {**array, "sh": []}},
        "sums_of_another_length": {"sums": {**array, "sh": [13]}},
        "sums_with_half_a_number": {"sums": {**array, "b": array["b"][:-4]}},
        "no_sums": {"sums": {"dt": "<i8", "sh": [0], "b": b""}},
        "sums_with_another_key": {"sums": {**array, "zz": 1}},
        "shape_is_a_number": {"sums": {**array, "sh": 14}},
        "shape_is_true": {"sums": {"dt": "<i8", "sh": [True], "b": bytes(8)}},
        "keyid_is_not_the_node": {"node": keyid(NODE_KEYS[1].public)},
    }.items():
        _add(cases, name, signed(**changes), "malformed")
    for missing in BODY:
        _add(cases, f"without_{missing}", signed(**{missing: ...}), "malformed")
    _add(cases, "another_spec", signed(spec="1.1"), "unsupported_version")
    _add(cases, "another_spec_with_other_keys", signed(spec="2.0", zz=1), "unsupported_version")
    payload = read_summary(GOOD)[0].payload
    for name, other in {
        "payload_is_empty": b"",
        "payload_is_an_array": b"\x90",
        "payload_with_a_byte_after_it": payload + b"\0",
        "payload_cut": payload[:-1],
        "keys_in_another_order": wild(dict(reversed(BODY.items()))),
        "a_key_twice": wild((*BODY.items(), ("campaign", BODY["campaign"]))),
        "sum_is_a_float": canonical.pack({**BODY, "sums": 0}).replace(b"\xa4sums\x00", b"\xa4sums" + wild(1.0)),
        "period_in_a_longer_form": payload.replace(b"\xa6period\xcd", b"\xa6period\xce\0\0"),
        "nested_too_deep": b"\x91" * 40 + b"\x90",
    }.items():
        _add(cases, name, signed_by(KIND, other, NODE), "malformed")
    _envelopes(cases, payload)


def _envelopes(cases: Collection, payload: bytes) -> None:
    pair = keyid(NODE.public), NODE.sign(pae(KIND, payload))
    second = keyid(NODE_KEYS[1].public), NODE_KEYS[1].sign(pae(KIND, payload))
    for name, pairs in {"two_signatures": (pair, second), "one_signature_twice": (pair, pair)}.items():
        _add(cases, name, write_envelope(Envelope(KIND, payload, pairs)), "malformed")
    _add(cases, "empty_file", b"", "malformed")
    _add(cases, "envelope_with_a_byte_after_it", GOOD + b"\0", "malformed")
    _add(cases, "envelope_cut", GOOD[:-1], "malformed")
    _add(cases, "envelope_of_another_version", GOOD.replace(b"hsy1", b"hsy2", 1), "unsupported_version")
    _add(cases, "payload_type_of_a_campaign", signed_by(PAYLOAD_TYPES["campaign"], payload, NODE), "wrong_role")
    _add(cases, "payload_type_of_a_list", signed_by(PAYLOAD_TYPES["nodes"], payload, NODE), "wrong_role")


def _refused(cases: Collection) -> None:
    _add(cases, "of_another_campaign", summary_of(OTHER), "unrecognized_campaign")
    _add(cases, "of_a_node_that_is_not_listed", summary_of(CAMPAIGN, 3), "node_not_listed")
    unknown = key(99)
    _add(cases, "of_an_unknown_node", signed(unknown, node=keyid(unknown.public)), "node_not_listed")
    _add(cases, "signature_damaged", flipped(GOOD, len(GOOD) - 1), "bad_signature")
    forged = read_summary(GOOD)[0]
    other = NODE_KEYS[1].sign(pae(KIND, forged.payload))
    raw = write_envelope(forged._replace(signatures=((keyid(NODE.public), other),)))
    _add(cases, "signed_by_another_node", raw, "bad_signature")
    changed = canonical.pack({**BODY, "period": PERIOD - 1})
    _add(cases, "signature_of_another_period", write_envelope(forged._replace(payload=changed)), "bad_signature")
    typed = NODE.sign(pae(PAYLOAD_TYPES["nodes"], forged.payload))
    raw = write_envelope(forged._replace(signatures=((keyid(NODE.public), typed),)))
    _add(cases, "signed_as_another_type", raw, "bad_signature")
    _add(cases, "epsilon_above", signed(epsilon_micro=1_000_001), "epsilon_out_of_range")
    _add(cases, "epsilon_below", signed(epsilon_micro=99_999), "epsilon_out_of_range")
    for name, place, number in (
        ("count_below", 0, -REACH - 1),
        ("count_above", 1, 1001 + REACH),
        ("cell_above", 9, 1001 + REACH),
        ("sum_below", 10, -1000 * 65536 - WIDE - 1),
        ("sum_above", 11, 1000 * 65536 + WIDE + 1),
        ("square_below", 12, -WIDE - 1),
        ("square_above", 13, 1000 * 65536 + WIDE + 1),
        ("count_of_2_to_the_63_less_1", 0, (1 << 63) - 1),
        ("count_of_minus_2_to_the_63", 0, -(1 << 63)),
    ):
        _add(cases, name, signed(sums=_with(place, number)), "value_out_of_domain")
    _add(cases, "one_number_too_few", signed(sums=_sums(SUMS[:-1])), "value_out_of_domain")
    _add(cases, "one_number_too_many", signed(sums=_sums([*SUMS, 0])), "value_out_of_domain")
    _add(cases, "period_at_the_end", signed(period=LAST + 1), "report_too_late", now=NOW + 400 * DAY)
    _add(cases, "period_before_the_beginning", signed(period=PERIOD - 2), "report_too_early")
    _add(cases, "period_of_tomorrow", signed(period=PERIOD + 1), "report_too_early")
    _add(cases, "period_a_second_before_it", signed(), "report_too_early", now=PERIOD * DAY - 1)


def _order(cases: Collection) -> None:
    """Of several faults the first of the order counts."""
    wrong = {"epsilon_micro": 1_000_001, "sums": _sums([1 << 62]), "period": LAST + 9}
    _add(
        cases,
        "wrong_in_everything",
        signed(key(99), campaign=bytes(32), node=bytes(8), spec="2.0", **wrong),
        "unsupported_version",
    )
    _add(
        cases,
        "wrong_from_the_campaign_on",
        signed(key(99), campaign=bytes(32), node=keyid(key(99).public), **wrong),
        "unrecognized_campaign",
    )
    _add(cases, "wrong_from_the_node_on", signed(key(99), node=keyid(key(99).public), **wrong), "node_not_listed")
    _add(cases, "wrong_from_the_signature_on", flipped(signed(**wrong), len(signed(**wrong)) - 1), "bad_signature")
    _add(cases, "wrong_from_epsilon_on", signed(**wrong), "epsilon_out_of_range")
    _add(cases, "wrong_from_the_numbers_on", signed(**{**wrong, "epsilon_micro": 100_000}), "value_out_of_domain")


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
    cases.cases.append({"name": name, "spec": "formats 6", "kind": "summary_file", "parts": texts, "expect": found})


def _files(cases: Collection) -> None:
    one, two = GOOD, summary_of(CAMPAIGN, 1)
    a, b = len(one), len(two)
    bad, cut = "invalid_message", "truncated"
    size = 6 + 2 + len(KIND)  # where the payload's length begins: c4 and one byte
    longer = one[:size] + b"\xc5" + (len(read_summary(one)[0].payload) + b).to_bytes(2, "big") + one[size + 2 :]
    _file(cases, "file_of_none", [], [])
    _file(cases, "file_of_two", [one, two], [(a, None), (b, None)])
    _file(cases, "file_of_one_twice", [one, one], [(a, None), (a, None)])
    _file(cases, "bytes_between", [one, b"\0" * 7, two], [(a, None), (7, bad), (b, None)])
    _file(cases, "bytes_before_and_after", [b"\x94", one, b"xyz"], [(1, bad), (a, None), (3, bad)])
    _file(cases, "no_envelope", [b"hsy1"], [(4, bad)])
    _file(cases, "part_of_a_mark", [one, b"\x94\xa4hs"], [(a, None), (4, cut)])
    _file(cases, "bytes_and_part_of_a_mark", [one, b"zz\x94\xa4"], [(a, None), (2, bad), (2, cut)])
    _file(cases, "mark_alone", [b"\x94\xa4hsy1"], [(6, cut)])
    _file(cases, "mark_and_other_bytes", [b"\x94\xa4hsy1\0"], [(7, bad)])
    for name, length in (
        ("type", 30),
        ("length", size + 1),
        ("payload", size + 50),
        ("keyid", a - 70),
        ("signature", a - 1),
    ):
        _file(cases, f"cut_in_the_{name}", [two, one[:length]], [(b, None), (length, cut)])
        _file(cases, f"cut_in_the_{name}_before_another", [one[:length], two], [(length, bad), (b, None)])
    _file(cases, "two_damaged_are_one_stretch", [one[:-1], one[:-2], two], [(2 * a - 3, bad), (b, None)])
    _file(cases, "length_that_reaches_over_the_next", [longer, two], [(a + 1, bad), (b, None)])
    inside = signed_by(KIND, two, NODE)
    before, after = len(inside) - b - 78, 78
    _file(cases, "envelope_in_a_payload", [inside], [(before, bad), (b, None), (after, bad)])
    _file(
        cases,
        "two_signatures_in_a_file",
        [write_envelope(_twice()), two],
        [(len(write_envelope(_twice())), bad), (b, None)],
    )
    other = PUBLISHER.sign("campaign", b"\x80")
    _file(cases, "a_campaign_between", [one, other, two], [(a, None), (len(other), bad), (b, None)])
    stretched = one[:size] + b"\xc5\0" + one[size + 1 :]
    _file(cases, "length_in_a_longer_form", [stretched, two], [(a + 1, bad), (b, None)])
    huge = one[:size] + b"\xc6\xff\xff\xff\xff" + one[size + 2 :]
    _file(cases, "huge_length_at_the_end", [two, huge], [(b, None), (a + 3, bad)])
    _file(
        cases,
        "payload_that_is_no_summary",
        [signed_by(KIND, b"\xc0", NODE)],
        [(len(signed_by(KIND, b"\xc0", NODE)), None)],
    )


def _twice() -> Envelope:
    found = read_summary(GOOD)[0]
    return found._replace(signatures=found.signatures * 2)


def _sets(cases: Collection) -> None:
    """Unions, in different orders, of summaries with and without conflicts."""
    plain = [summary_of(CAMPAIGN, node) for node in range(3)]
    rivals = sorted((summary_of(CAMPAIGN, 0, number) for number in range(1, 5)), key=_identity)
    later = summary_of(CAMPAIGN, 0, period=PERIOD + 1)
    foreign = summary_of(OTHER, 0)
    _set(cases, "set_of_none", [[]], [], [])
    _set(cases, "set_of_three", [plain], plain, [])
    _set(cases, "set_of_three_in_another_order", [plain[:1], plain[1:], plain[:2]], plain, [])
    _set(cases, "set_of_a_conflict", [[rivals[1]], [rivals[0], plain[1]]], plain[1:2], rivals[:2])
    _set(cases, "the_two_smallest_are_kept", [[rivals[3], rivals[2]], [rivals[0]], [rivals[1]]], [], rivals[:2])
    _set(cases, "the_two_smallest_in_another_order", [rivals[::-1], [rivals[1]]], [], rivals[:2])
    _set(cases, "periods_and_campaigns_apart", [[later, foreign], [plain[0]]], [later, foreign, plain[0]], [])


def _identity(raw: bytes) -> bytes:
    return sha256(read_summary(raw)[0].payload).digest()


def _place(raw: bytes) -> tuple[Any, ...]:
    body = canonical.unpack(read_summary(raw)[0].payload)
    return body["campaign"], body["period"], body["node"]


def _set(cases: Collection, name: str, files: list[list[bytes]], counting: list[bytes], conflict: list[bytes]) -> None:
    """One case: the union of these files. ``conflict``: the two kept summaries of one place, if there is a conflict."""
    held = b"".join(sorted([*counting, *conflict], key=lambda raw: (_place(raw), _identity(raw))))
    places = sorted({_place(raw) for raw in conflict})
    case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "summary_union"}
    case["files"] = [cases.keep(f"{name}.{number}", b"".join(file)) for number, file in enumerate(files)]
    case["expect"] = {
        "bytes": len(held),
        "sha256": sha256(held).hexdigest(),
        "counting": [sha256(raw).hexdigest()[:16] for raw in sorted(counting, key=_place)],
        "conflicts": [[campaign.hex(), period, node.hex()] for campaign, period, node in places],
    }
    cases.cases.append(case)
