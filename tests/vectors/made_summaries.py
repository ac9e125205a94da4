"""Vectors of summaries of nodes: judged one by one, in files, and in sets."""

from functools import partial
from hashlib import sha256

from support.nodes import NODE_KEYS, PERIOD, node_campaign, node_payload, plain_sums, signed_list, summary_of
from support.publisher import NOW

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import keyid
from protocol.schema import integer_array
from vectors.makers import PUBLISHER, Collection, flipped, packed, wild
from vectors.sent import IDS, LAST, STRANGER, Sent, add_file, add_parts, add_union, identity, payload_of, place, told

CAMPAIGN = node_campaign()
OTHER = node_campaign(DISCRETE)
NODE = NODE_KEYS[0]
SUMS = plain_sums(CAMPAIGN)
GOOD = summary_of(CAMPAIGN)
SENT = Sent("node", GOOD, NODE, NODE_KEYS[1])
BODY, signed = SENT.body, SENT.signed
REACH, WIDE = 256, 256 * 65536
"""The largest noise at ε = 1: of counts, of sums."""


def _sums(numbers):
    return integer_array("<i8", numbers, [len(numbers)])


def _with(place, number):
    return _sums([*SUMS[:place], number, *SUMS[place + 1 :]])


def _add(cases, name, data, reason=None, *, now=NOW):
    outcome = {"reason": reason}
    if reason is None:
        body = canonical.unpack(payload_of(data))
        raw = body["sums"]["b"]
        sums = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8)]
        found = {"node": body["node"].hex(), "period": body["period"], "epsilon_micro": body["epsilon_micro"]}
        outcome = {"expect": {**found, "sums": sums, "identity": identity(data).hex()}}
    cases.case(name, "summary", campaign="@campaign", nodes="@list", data=cases.keep(name, data), now=now, **outcome)


def _files(add, add_stretches):
    one, two = GOOD, summary_of(CAMPAIGN, 1)
    a, b = len(one), len(two)
    bad, cut = "invalid_message", "truncated"
    size = 6 + 2 + len(SENT.kind)  # where the payload's length begins: c4 and one byte
    longer = one[:size] + b"\xc5" + (len(payload_of(one)) + b).to_bytes(2, "big") + one[size + 2 :]
    add("file_of_none")
    add("file_of_two", (one, None), (two, None))
    add("file_of_one_twice", (one, None), (one, None))
    add("bytes_between", (one, None), (b"\0" * 7, bad), (two, None))
    add("bytes_before_and_after", (b"\x94", bad), (one, None), (b"xyz", bad))
    add("no_envelope", (b"hsy1", bad))
    add("part_of_a_mark", (one, None), (b"\x94\xa4hs", cut))
    add_stretches("bytes_and_part_of_a_mark", [one, b"zz\x94\xa4"], [(a, None), (2, bad), (2, cut)])
    add("mark_alone", (b"\x94\xa4hsy1", cut))
    add("mark_and_other_bytes", (b"\x94\xa4hsy1\0", bad))
    lengths = {"type": 30, "length": size + 1, "payload": size + 50, "keyid": a - 70, "signature": a - 1}
    for name, length in lengths.items():
        add(f"cut_in_the_{name}", (two, None), (one[:length], cut))
        add(f"cut_in_the_{name}_before_another", (one[:length], bad), (two, None))
    damaged = [one[:-1], one[:-2], two]
    add_stretches("two_damaged_are_one_stretch", damaged, [(2 * a - 3, bad), (b, None)])
    add("length_that_reaches_over_the_next", (longer, bad), (two, None))
    inside = SENT.of_payload(two)
    around = [(len(inside) - b - 78, bad), (b, None), (78, bad)]
    add_stretches("envelope_in_a_payload", [inside], around)
    add("two_signatures_in_a_file", (SENT.pairs()["one_signature_twice"], bad), (two, None))
    add("a_campaign_between", (one, None), (PUBLISHER.sign("campaign", b"\x80"), bad), (two, None))
    add("length_in_a_longer_form", (one[:size] + b"\xc5\0" + one[size + 1 :], bad), (two, None))
    add("huge_length_at_the_end", (two, None), (one[:size] + b"\xc6\xff\xff\xff\xff" + one[size + 2 :], bad))
    add("payload_that_is_no_summary", (SENT.of_payload(b"\xc0"), None))


def _set(cases, name, files, counting, conflict):
    counted = [sha256(raw).hexdigest()[:16] for raw in sorted(counting, key=place)]
    conflicts = told({place(raw) for raw in conflict})
    held = [*counting, *conflict]
    add_union(cases, "summary_union", name, files, held, counting=counted, conflicts=conflicts)


cases = Collection()
cases.keep("campaign", PUBLISHER.sign("campaign", node_payload(PUBLISHER)))
cases.keep("list", signed_list(PUBLISHER, NODE_KEYS[:3]))
add = partial(_add, cases)

add("summary", GOOD)
add("another_node", summary_of(CAMPAIGN, 2))
add("at_the_least_epsilon", summary_of(CAMPAIGN, epsilon_micro=100_000))
SENT.answered_periods(add)
# class counts at places 0 and 1, cells at 2 to 9, sums at 10 and 11, squares at 12 and 13
for name, at, number in (
    ("least_count", 0, -REACH),
    ("largest_count", 1, 1000 + REACH),
    ("largest_cell", 9, 1000 + REACH),
    ("least_sum", 10, -1000 * 65536 - WIDE),
    ("largest_sum", 11, 1000 * 65536 + WIDE),
    ("least_square", 12, -WIDE),
    ("largest_square", 13, 1000 * 65536 + WIDE),
):
    add(name, signed(sums=_with(at, number)))

array = BODY["sums"]
for name, changes in {
    "unknown_key": {"zz": 1},
    "a_key_of_other_payloads": {"crit": []},
    **IDS,
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
    add(name, signed(**changes), "malformed")
for name, data in SENT.lacking().items():
    add(name, data, "malformed")
add("another_spec", signed(spec="1.1"), "unsupported_version")
add("another_spec_with_other_keys", signed(spec="2.0", zz=1), "unsupported_version")
payload = payload_of(GOOD)
others = {
    "a_key_twice": wild((*BODY.items(), ("campaign", BODY["campaign"]))),
    "sum_is_a_float": canonical.pack({**BODY, "sums": 0}).replace(b"\xa4sums\x00", b"\xa4sums" + wild(1.0)),
    "period_in_a_longer_form": payload.replace(b"\xa6period\xcd", b"\xa6period\xce\0\0"),
    "nested_too_deep": b"\x91" * 40 + b"\x90",
}
for name, data in (SENT.payloads(others) | SENT.pairs()).items():
    add(name, data, "malformed")
add("empty_file", b"", "malformed")
SENT.damaged(add)
add("payload_type_of_a_campaign", SENT.of_payload(payload, role="campaign"), "wrong_role")
add("payload_type_of_a_list", SENT.of_payload(payload, role="nodes"), "wrong_role")

add("of_another_campaign", summary_of(OTHER), "unrecognized_campaign")
add("of_a_node_that_is_not_listed", summary_of(CAMPAIGN, 3), "node_not_listed")
add("of_an_unknown_node", signed(STRANGER, node=keyid(STRANGER.public)), "node_not_listed")
add("signature_damaged", flipped(GOOD, len(GOOD) - 1), "bad_signature")
add("signed_by_another_node", SENT.paired(SENT.pair(NODE, NODE_KEYS[1])), "bad_signature")
changed = SENT.paired(SENT.pair(NODE), payload=packed(BODY, period=PERIOD - 1))
add("signature_of_another_period", changed, "bad_signature")
add("signed_as_another_type", SENT.paired(SENT.pair(NODE, role="nodes")), "bad_signature")
add("epsilon_above", signed(epsilon_micro=1_000_001), "epsilon_out_of_range")
add("epsilon_below", signed(epsilon_micro=99_999), "epsilon_out_of_range")
for name, at, number in (
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
    add(name, signed(sums=_with(at, number)), "value_out_of_domain")
add("one_number_too_few", signed(sums=_sums(SUMS[:-1])), "value_out_of_domain")
add("one_number_too_many", signed(sums=_sums([*SUMS, 0])), "value_out_of_domain")
SENT.other_periods(add)
wrong = {"epsilon_micro": 1_000_001, "sums": _sums([1 << 62]), "period": LAST + 9}
SENT.in_order(add, wrong)
add("wrong_from_epsilon_on", signed(**wrong), "epsilon_out_of_range")
add("wrong_from_the_numbers_on", signed(**{**wrong, "epsilon_micro": 100_000}), "value_out_of_domain")
_files(partial(add_file, cases, "summary_file"), partial(add_parts, cases, "summary_file"))

plain = [summary_of(CAMPAIGN, node) for node in range(3)]
rivals = sorted((summary_of(CAMPAIGN, 0, number) for number in range(1, 5)), key=identity)
later = summary_of(CAMPAIGN, 0, period=PERIOD + 1)
foreign = summary_of(OTHER, 0)
_set(cases, "set_of_none", [[]], [], [])
_set(cases, "set_of_three", [plain], plain, [])
_set(cases, "set_of_three_in_another_order", [plain[:1], plain[1:], plain[:2]], plain, [])
_set(cases, "set_of_a_conflict", [[rivals[1]], [rivals[0], plain[1]]], plain[1:2], rivals[:2])
_set(cases, "the_two_smallest_are_kept", [[rivals[3], rivals[2]], [rivals[0]], [rivals[1]]], [], rivals[:2])
_set(cases, "the_two_smallest_in_another_order", [rivals[::-1], [rivals[1]]], [], rivals[:2])
_set(cases, "periods_and_campaigns_apart", [[later, foreign], [plain[0]]], [later, foreign, plain[0]], [])
