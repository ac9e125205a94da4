"""Vectors of messages of masked campaigns: judged one by one, in files, in sets, and opened."""

from functools import partial

from support.masked import (
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
from support.publisher import NOW

from protocol import canonical
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.envelope import keyid
from protocol.masked.cipher import power
from vectors.made_masked_keys import released
from vectors.makers import PUBLISHER, Collection, flipped, packed, wild
from vectors.nodes_from_text import base
from vectors.nodes_from_text import plaintexts as plaintexts_of
from vectors.sent import IDS, LAST, STRANGER, Sent, add_file, add_union, identity, payload_of, place, told

CAMPAIGN = masked_campaign()
OTHER = masked_campaign(DISCRETE)
WIDE_TERMS = TERMS._replace(slot_bits=200)
WIDE = masked_campaign(masked=WIDE_TERMS)
"""14 numbers in slots of 200 bits: two ciphertexts, and six unused slots."""
NODE = NODE_KEYS[0]
GOOD = message_of(CAMPAIGN)
SENT = Sent("masked", GOOD, NODE, NODE_KEYS[1])
BODY, signed = SENT.body, SENT.signed
SQUARE = MODULUS**2
SIZE = 512


def short(number):
    """A secret of 128 bits: as good as a long one for known answers, and quick without gmpy2."""
    return secret_of(number) >> 4096


def elements(*numbers):
    """Numbers of 512 bytes each."""
    return b"".join(number.to_bytes(SIZE, "big") for number in numbers)


def _add(cases, name, data, reason=None, *, now=NOW, wide=False):
    outcome = {"reason": reason}
    if reason is None:
        body = canonical.unpack(payload_of(data))
        raw = body["ciphertexts"]
        found = {"node": body["node"].hex(), "period": body["period"], "serial": body["serial"]}
        numbers = [f"{int.from_bytes(raw[at : at + SIZE], 'big'):x}" for at in range(0, len(raw), SIZE)]
        outcome = {"expect": {**found, "ciphertexts": numbers, "identity": identity(data).hex()}}
    files = {"campaign": "@wide campaign" if wide else "@campaign", "nodes": "@list"}
    files |= {"keys": "@wide book" if wide else "@book", "data": cases.keep(name, data)}
    cases.case(name, "masked_message", **files, now=now, **outcome)


def _files(add):
    one, two, plain = GOOD, message_of(CAMPAIGN, 1), summary_of(node_campaign())
    bad, cut = "invalid_message", "truncated"
    add("file_of_two", (one, None), (two, None))
    add("bytes_around", (b"\0", bad), (one, None), (b"\x94\xa4", bad), (two, None), (b"xyz", bad))
    add("file_cut", (one, None), (two[:-1], cut))
    add("cut_in_the_middle", (one[:-1], bad), (two, None))
    add("a_summary_between", (one, None), (plain, bad), (two, None))
    add("a_summary_alone", (plain, bad))


def _cipher(campaign, secret, period, plaintexts):
    return [
        (1 + x % MODULUS * MODULUS) * power(base(campaign.id, period, number, MODULUS), secret, SQUARE) % SQUARE
        for number, x in enumerate(plaintexts)
    ]


def _sent(campaign, ciphertexts, node=0):
    signer = NODE_KEYS[node]
    fields = {"campaign": campaign.id, "node": keyid(signer.public), "serial": node + 1}
    return signed(signer, ciphertexts=elements(*ciphertexts), **fields)


def release_of(campaign, serials, *, elements_of=PERIOD):
    """The release for the nodes with these serial numbers, with elements of a period that may be another."""
    exponent = -sum(map(short, serials))
    found = [
        power(base(campaign.id, elements_of, number, MODULUS), exponent, SQUARE)
        for number in range(len(any_ciphertexts(campaign)))
    ]
    parties = b"".join(sorted(keyid(NODE_KEYS[serial - 1].public) for serial in serials))
    return released(campaign=campaign.id, elements=elements(*found), parties=parties)


def _total(cases, name, file, messages, data, **outcome):
    sent, release = cases.keep(f"{name}.hse", b"".join(messages)), cases.keep(f"{name}.hsd", data)
    cases.case(name, "opened_totals", campaign=file, messages=sent, data=release, **outcome)


cases = Collection()
cases.keep("campaign", PUBLISHER.sign("campaign", masked_payload(PUBLISHER)))
cases.keep("wide campaign", PUBLISHER.sign("campaign", masked_payload(PUBLISHER, masked=WIDE_TERMS)))
cases.keep("list", signed_list(PUBLISHER, NODE_KEYS[:3]))
# Nodes 0, 1 and 4 have keys; nodes 0, 1 and 2 are on the list.
cases.keep("book", book_of(CAMPAIGN, [NODE_KEYS[0], NODE_KEYS[1], NODE_KEYS[4]]))
cases.keep("wide book", book_of(WIDE, NODE_KEYS[:3]))
add = partial(_add, cases)

add("message", GOOD)
add("another_node", message_of(CAMPAIGN, 1))
add("two_ciphertexts", message_of(WIDE), wide=True)
SENT.answered_periods(add)
add("least_element", signed(ciphertexts=elements(1)))
add("largest_element", signed(ciphertexts=elements(SQUARE - 1)))

for name, changes in {
    "unknown_key": {"zz": 1},
    "a_key_of_summaries": {"epsilon_micro": 1_000_000},
    **IDS,
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
    add(name, signed(**changes), "malformed")
for name, data in SENT.lacking().items():
    add(name, data, "malformed")
add("another_spec", signed(spec="1.1"), "unsupported_version")
payload = payload_of(GOOD)
others = {
    "a_key_twice": wild((*BODY.items(), ("campaign", BODY["campaign"]))),
    "serial_in_a_longer_form": payload.replace(b"\xa6serial\x01", b"\xa6serial\xcc\x01"),
    "nested_too_deep": b"\x91" * 40 + b"\x90",
}
for name, data in (SENT.payloads(others) | SENT.pairs()).items():
    add(name, data, "malformed")
SENT.damaged(add)
add("payload_type_of_a_summary", SENT.of_payload(payload, role="node"), "wrong_role")
add("summary", summary_of(node_campaign()), "wrong_role")

add("of_another_campaign", message_of(OTHER), "unrecognized_campaign")
add("node_that_is_not_listed", message_of(CAMPAIGN, 4, serial=3), "node_not_listed")
add("node_without_a_key", message_of(CAMPAIGN, 2, serial=3), "stale_key")
add("later_serial", signed(serial=2), "stale_key")
add("earlier_serial", signed(serial=0), "stale_key")
add("signature_changed", flipped(GOOD, len(GOOD) - 1), "bad_signature")
add("signed_by_another_key", SENT.paired(SENT.pair(NODE, STRANGER)), "bad_signature")
add("signed_as_a_summary", SENT.paired(SENT.pair(NODE, role="node")), "bad_signature")
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
    add(name, signed(ciphertexts=elements(*numbers)), "value_out_of_domain")
one = message_of(WIDE)
body = canonical.unpack(payload_of(one))
for name, raw in {
    "one_ciphertext_too_few": body["ciphertexts"][:SIZE],
    "second_element_0": body["ciphertexts"][:SIZE] + bytes(SIZE),
}.items():
    changed = SENT.of_payload(packed(body, ciphertexts=raw))
    add(name, changed, "value_out_of_domain", wide=True)
SENT.other_periods(add)
wrong = {"serial": 9, "ciphertexts": bytes(2 * SIZE), "period": LAST + 9}
SENT.in_order(add, wrong)
add("wrong_from_the_key_on", signed(**wrong), "stale_key")
add("wrong_from_the_elements_on", signed(**{**wrong, "serial": 1}), "value_out_of_domain")
_files(partial(add_file, cases, "message_file"))

plain = message_of(CAMPAIGN, 1)
rivals = sorted((message_of(CAMPAIGN, 0, number) for number in range(1, 5)), key=identity)
held, conflicts = [plain, *rivals[:2]], told({place(rivals[0])})
for name, files in {
    "two_files": [[rivals[0], plain], [rivals[1]]],
    "another_order": [rivals[::-1], [plain, plain], rivals[1:3]],
}.items():
    add_union(cases, "message_union", name, files, held, conflicts=conflicts)

limit = 1 << 39
for name, file, campaign, bits, secret, numbers in (
    ("encrypted", "@campaign", CAMPAIGN, 40, secret_of(1), [1, -1, 0, limit - 1, 1 - limit, *range(9)]),
    ("encrypted_in_two", "@wide campaign", WIDE, 200, short(2), [-(5**80), *range(12), 5**80]),
    ("encrypted_with_the_key_0", "@campaign", CAMPAIGN, 40, 0, [7] * 14),
    ("encrypted_with_the_largest_key", "@campaign", CAMPAIGN, 40, (1 << 4224) - 1, [7] * 14),
):
    plaintexts = plaintexts_of(numbers, bits)
    found = {"plaintexts": plaintexts, "ciphertexts": _cipher(campaign, secret, PERIOD, plaintexts)}
    expect = {key: [f"{each:x}" for each in of_one] for key, of_one in found.items()}
    inputs = {"campaign": file, "secret": f"{secret:x}", "period": PERIOD, "numbers": numbers}
    cases.case(name, "encrypted", **inputs, expect=expect)
inputs = {"campaign": "@campaign", "secret": f"{secret_of(1):x}", "period": PERIOD}
for name, number in {"slot_overflow": limit, "slot_overflow_below": -limit}.items():
    cases.case(name, "encrypted", **inputs, numbers=[number], reason="slot_overflow")

numbers = [[place * (node + 1) - 3**node for place in range(14)] for node in range(3)]
for family, file, campaign, bits in ((GAUSSIAN, "@campaign", CAMPAIGN, 40), ("wide", "@wide campaign", WIDE, 200)):
    sent = [
        _sent(campaign, _cipher(campaign, short(node + 1), PERIOD, plaintexts_of(each, bits)), node)
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
release = release_of(CAMPAIGN, [3])
_total(cases, "a_message_of_nobody_knows_what", "@campaign", [other], release, reason="mask_mismatch")
# Totals with a number in an unused slot, and with one above the last slot.
for name, file, campaign, plaintexts in (
    ("unused_slot", "@campaign", CAMPAIGN, [1 << 40 * 14]),
    ("above_the_last_slot", "@wide campaign", WIDE, [1 << 2000, 0]),
):
    sent = [_sent(campaign, _cipher(campaign, short(1), PERIOD, plaintexts))]
    _total(cases, name, file, sent, release_of(campaign, [1]), reason="mask_mismatch")
