"""Vectors of key books, sealed keys, requests and releases of masked campaigns."""

from hashlib import sha256

from support.masked import (
    DEALER,
    MODULUS,
    TERMS,
    P,
    any_ciphertexts,
    book_of,
    fixed_entropy,
    masked_campaign,
    masked_payload,
    secret_of,
)
from support.nodes import NODE_KEYS, PERIOD, node_campaign, summary_of

from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, keyid
from protocol.masked.keys import seal_key
from vectors.makers import PUBLISHER, Collection, campaign, flipped, packed, signed_by, wild
from vectors.sent import STRANGER, Sent, identity, payload_of

CAMPAIGN = masked_campaign()
FEW_TERMS = TERMS._replace(most_parties=4)
FEW = masked_campaign(masked=FEW_TERMS)
PARTIES = NODE_KEYS[:3]
IDS = sorted(keyid(one.public) for one in PARTIES)
GOOD = book_of(CAMPAIGN, PARTIES)
BOOK = Sent("keys", GOOD, DEALER, STRANGER)
BODY, signed = BOOK.body, BOOK.signed
ENTRIES = BODY["parties"]
FIRST = keyid(NODE_KEYS[0].public).hex()
SQUARE = MODULUS**2
TAG = "hearsay masked key 1"


def with_entry(entry, node=FIRST):
    """The good book with the entry of one node replaced or added."""
    return signed(parties={**ENTRIES, node: entry})


def box(node=NODE_KEYS[0], *, campaign=CAMPAIGN.id, name=None, serial=1, u=3, entropy=1):
    """A sealed box to a node; ``name``: the node id that it holds, the node's own by default."""
    name = keyid(node.public) if name is None else name
    return seal_key(node.public, campaign, name, serial, u, secret_of(serial), fixed_entropy(entropy))


def _book(cases, name, data, reason=None, campaign="@campaign"):
    outcome = {"reason": reason}
    if reason is None:
        body = canonical.unpack(payload_of(data))
        parties = {node: [one[0], one[1], sha256(one[2]).hexdigest()] for node, one in body["parties"].items()}
        found = {"version": body["version"], "list": body["list"], "parties": parties}
        outcome = {"expect": {**found, "identity": identity(data).hex()}}
    cases.case(name, "key_book", campaign=campaign, data=cases.keep(name, data), **outcome)


def book_of_five():
    """A book of five parties of the campaign that allows four, which no dealer's code signs."""
    ids = {keyid(one.public): (one, serial) for serial, one in enumerate(NODE_KEYS, 1)}
    parties = {
        node.hex(): [serial, 5, box(one, campaign=FEW.id, serial=serial, u=5)] for node, (one, serial) in ids.items()
    }
    return signed(campaign=FEW.id, parties=parties)


def _open(cases, name, data, node, **outcome):
    book = cases.keep(f"{name}.hsk", data)
    cases.case(name, "opened_key", campaign="@campaign", data=book, seed=node.seed.hex(), **outcome)


def request(**changes):
    """A request for the first two of the parties with some values replaced."""
    values = {"tag": "hearsay masked request 1", "campaign": CAMPAIGN.id, "period": PERIOD, "version": 1}
    return canonical.pack(list(({**values, "parties": b"".join(IDS[:2])} | changes).values()))


def released(signer=DEALER, **changes):
    """A release that answers :func:`request`, with some fields replaced; a field of ``...`` is left out."""
    body = {
        "campaign": CAMPAIGN.id,
        "elements": any_ciphertexts(CAMPAIGN)[0].to_bytes(512, "big"),
        "parties": b"".join(IDS[:2]),
        "period": PERIOD,
        "spec": "1.0",
        "version": 1,
    }
    return signed_by(PAYLOAD_TYPES["release"], packed(body, **changes), signer)


def _release(cases, name, data, reason=None, asked=None):
    outcome = {"reason": reason}
    if reason is None:
        found = int.from_bytes(canonical.unpack(payload_of(data))["elements"], "big")
        outcome = {"expect": {"elements": [f"{found:x}"], "identity": identity(data).hex()}}
    inputs = {"campaign": "@campaign", "request": (asked or request()).hex()}
    cases.case(f"release_{name}", "masked_release", **inputs, data=cases.keep(f"release_{name}", data), **outcome)


cases = Collection()
cases.keep("campaign", PUBLISHER.sign("campaign", masked_payload(PUBLISHER)))
cases.keep("campaign of four", PUBLISHER.sign("campaign", masked_payload(PUBLISHER, masked=FEW_TERMS)))

_book(cases, "book", GOOD)
_book(cases, "book_of_two", book_of(CAMPAIGN, NODE_KEYS[:2]))
_book(cases, "last_version", signed(version=(1 << 32) - 1, list=(1 << 32) - 1))
_book(cases, "as_many_as_the_campaign_allows", book_of(FEW, NODE_KEYS[:4]), campaign="@campaign of four")
_book(cases, "least_u", with_entry([1, 2, box(u=2)]))
# A serial number of five bytes makes the box four bytes longer.
largest = (1 << 32) - 1
sealed = seal_key(NODE_KEYS[0].public, CAMPAIGN.id, bytes.fromhex(FIRST), largest, 3, 0, fixed_entropy(9))
_book(cases, "largest_serial", with_entry([largest, 3, sealed]))
_book(cases, "serial_0", with_entry([0, 3, box(serial=0)]))
_book(cases, "a_box_that_nobody_can_open", with_entry([1, 3, flipped(ENTRIES[FIRST][2], 40)]))

entry = ENTRIES[FIRST]
for name, fields in {
    "unknown_key": {"zz": 1},
    "campaign_of_31_bytes": {"campaign": bytes(31)},
    "version_0": {"version": 0},
    "version_of_2_to_the_32": {"version": 1 << 32},
    "version_is_true": {"version": True},
    "list_0": {"list": 0},
    "list_is_text": {"list": "1"},
    "parties_are_an_array": {"parties": [*ENTRIES.values()]},
}.items():
    _book(cases, name, signed(**fields), "malformed")
for name, data in BOOK.lacking().items():
    _book(cases, name, data, "malformed")
invalid = "invalid_keys"
_book(cases, "nobody", signed(parties={}), invalid)
_book(cases, "one_party", signed(parties={FIRST: [1, 1, box(u=1)]}), invalid)
_book(cases, "five_parties_of_four", book_of_five(), invalid, campaign="@campaign of four")
for name, raw in {
    "id_of_14_digits": with_entry(entry, FIRST[:-2]),
    "id_of_18_digits": with_entry(entry, FIRST + "00"),
    "id_in_capitals": with_entry([9, 4, box(serial=9, u=4)], "ABCDEF0123456789"),
    "id_is_no_number": with_entry([9, 4, box(serial=9, u=4)], "x" * 16),
    "entry_is_a_map": with_entry({"serial": 1, "u": 3, "sealed": entry[2]}),
    "entry_of_two": with_entry(entry[:2]),
    "entry_of_four": with_entry([*entry, 0]),
    "serial_negative": with_entry([-1, 3, entry[2]]),
    "serial_of_2_to_the_32": with_entry([1 << 32, 3, entry[2]]),
    "serial_is_true": with_entry([True, 3, entry[2]]),
    "serial_twice": with_entry([2, 3, box(serial=2)]),
    "u_0": with_entry([1, 0, entry[2]]),
    "u_of_half": with_entry([1, 1, box(u=1)]),
    "u_above_all": with_entry([1, 4, box(u=4)]),
    "u_is_text": with_entry([1, "3", entry[2]]),
    "box_is_text": with_entry([1, 3, "x" * len(entry[2])]),
    "box_is_empty": with_entry([1, 3, b""]),
    "box_a_byte_short": with_entry([1, 3, entry[2][:-1]]),
    "box_a_byte_long": with_entry([1, 3, entry[2] + b"\0"]),
    "box_of_another_serial_s_length": with_entry([1, 3, box(serial=200)]),
}.items():
    _book(cases, name, raw, invalid)
_book(cases, "of_another_campaign", book_of(FEW, PARTIES), "unrecognized_campaign")
_book(cases, "another_spec", signed(spec="1.1"), "unsupported_version")
payload = payload_of(GOOD)
others = {
    "a_party_twice": wild({**BODY, "parties": wild((*ENTRIES.items(), (FIRST, entry)))}),
    "u_in_a_longer_form": payload.replace(b"\x01\x03\xc5", b"\x01\xcc\x03\xc5"),
}
for name, data in (BOOK.payloads(others) | BOOK.pairs()).items():
    _book(cases, name, data, "malformed")

own, other = BOOK.pair(DEALER), BOOK.pair(STRANGER)
bad = "bad_signature"
_book(cases, "signed_by_a_stranger", BOOK.paired(other), "malformed")
_book(cases, "no_key_id_of_the_dealer", BOOK.paired((other[0], own[1])), "malformed")
_book(cases, "forged", BOOK.paired((own[0], other[1])), bad)
_book(cases, "signature_changed", flipped(GOOD, len(GOOD) - 1), bad)
_book(cases, "payload_changed", flipped(GOOD, GOOD.index(b"\x01\x03\xc5") + 1), bad)
_book(cases, "not_parsed_before_its_signature", BOOK.paired(own, payload=b"\xc1"), bad)
_book(cases, "signed_as_a_release", BOOK.paired(BOOK.pair(DEALER, role="release")), bad)
_book(cases, "payload_type_of_a_release", BOOK.of_payload(payload_of(GOOD), role="release"), "wrong_role")
_book(cases, "empty_file", b"", "malformed")
for name, size, reason in (("largest_file_of_four", 3824, "malformed"), ("too_large_for_four", 3825, "too_large")):
    _book(cases, name, bytes(size), reason, campaign="@campaign of four")
_book(cases, "file_cut", GOOD[:-1], "malformed")
clear = campaign(canonical.unpack(masked_payload(PUBLISHER)), masked=..., crit=["nodes"])
_book(cases, "of_a_campaign_in_the_clear", GOOD, "campaign_not_masked", cases.keep("clear", clear))

for name, before, data, outcome in (
    ("later_book", GOOD, signed(version=2), {"expect": 2}),
    ("much_later_book", GOOD, signed(version=9, list=7), {"expect": 9}),
    ("same_book", GOOD, GOOD, {"expect": 1}),
    ("earlier_book", signed(version=2), GOOD, {"reason": "rollback"}),
    ("another_book_of_one_version", GOOD, signed(list=2), {"reason": "equivocation"}),
    ("another_box_of_one_version", GOOD, with_entry([1, 3, box(entropy=7)]), {"reason": "equivocation"}),
):
    files = {"before": cases.keep(f"{name}.before", before), "data": cases.keep(f"{name}.book", data)}
    cases.case(name, "key_books", campaign="@campaign", **files, **outcome)

public = NODE_KEYS[0].public
to = {"public": public.hex(), "campaign_id": CAMPAIGN.id.hex(), "node": FIRST}
for name, serial, u, secret, length in (
    ("box_of_small_numbers", 1, 2, secret_of(1), 647),
    ("box_of_the_secret_0", 127, 127, 0, 647),
    ("box_of_large_numbers", (1 << 32) - 1, 65536, (1 << 4224) - 1, 655),
):
    sealed = seal_key(public, CAMPAIGN.id, bytes.fromhex(FIRST), serial, u, secret, fixed_entropy(3))
    inputs = {**to, "serial": serial, "u": u, "secret": f"{secret:x}", "entropy": 3}
    cases.case(name, "sealed_key", **inputs, expect={"bytes": length, "sha256": sha256(sealed).hexdigest()})
for name, changes, reason in (
    ("secret_of_4225_bits", {"secret": f"{1 << 4224:x}"}, "masked_key_invalid"),
    ("secret_negative", {"secret": "-1"}, "masked_key_invalid"),
    ("box_to_no_point_of_the_curve", {"public": "02" + "00" * 31}, "key_invalid"),
    ("box_to_a_point_of_small_order", {"public": "01" + "00" * 31}, "key_invalid"),
    ("box_to_31_bytes", {"public": "ab" * 31}, "key_invalid"),
):
    inputs = {**to, "serial": 1, "u": 2, "secret": "5", "entropy": 3, **changes}
    cases.case(name, "sealed_key", **inputs, reason=reason)

second = NODE_KEYS[1]
other = canonical.pack([TAG, CAMPAIGN.id, bytes.fromhex(FIRST), 1, 3, bytes(528)])
assert len(ENTRIES[FIRST][2]) == len(other) + 48
for name, node in {"opened": NODE_KEYS[0], "opened_by_another_party": second}.items():
    serial = 1 + NODE_KEYS.index(node)
    expect = {"serial": serial, "u": 3, "secret": f"{secret_of(serial):x}"}
    _open(cases, name, GOOD, node, expect=expect)
_open(cases, "not_in_the_book", GOOD, NODE_KEYS[3], reason="node_without_key")
for name, sealed in {
    "box_changed": flipped(ENTRIES[FIRST][2], 40),
    "box_of_another_party": ENTRIES[keyid(second.public).hex()][2],
    "box_for_another_campaign": box(campaign=FEW.id),
    "box_for_another_node": box(name=bytes(8)),
    "box_with_another_serial": box(serial=4),
    "box_with_another_u": box(u=2),
}.items():
    _open(cases, name, with_entry([1, 3, sealed]), NODE_KEYS[0], reason="invalid_keys")

a, b = IDS[:2]
most = (1 << 32) - 1
for name, changes, ids in (
    ("request", {}, [a, b]),
    ("request_of_one", {"parties": a}, [a]),
    ("request_of_the_last", {"period": most, "version": most}, [a, b]),
):
    expect = {"campaign": CAMPAIGN.id.hex(), "period": PERIOD, "version": 1, **changes}
    expect["parties"] = [one.hex() for one in ids]
    cases.case(name, "masked_request", data=request(**changes).hex(), expect=expect)
many = b"".join(number.to_bytes(8, "big") for number in range(65537))
good = request()
for name, data in {
    "request_with_another_tag": request(tag="hearsay masked request 2"),
    "request_without_parties": request(parties=b""),
    "request_out_of_order": request(parties=b + a),
    "request_of_one_twice": request(parties=a + a + b),
    "request_of_half_an_id": request(parties=a + b[:4]),
    "request_with_ids_as_an_array": request(parties=[a, b]),
    "request_of_campaign_of_31_bytes": request(campaign=bytes(31)),
    "request_of_period_negative": request(period=-1),
    "request_of_period_2_to_the_32": request(period=1 << 32),
    "request_of_version_0": request(version=0),
    "request_of_version_true": request(version=True),
    "request_with_one_value_more": request(more=0),
    "request_with_one_value_less": canonical.pack(canonical.unpack(good)[:4]),
    "request_with_a_byte_after_it": good + b"\0",
    "request_cut": good[:-1],
    "request_is_a_map": canonical.pack({"period": 1}),
    "request_is_empty": b"",
}.items():
    cases.case(name, "masked_request", data=data.hex(), reason="malformed")
assert len(request(parties=many)) < 1 << 20

_release(cases, "of_two", released())
_release(cases, "of_one", released(parties=IDS[0]), asked=request(parties=IDS[0]))
_release(cases, "of_the_largest_element", released(elements=(SQUARE - 1).to_bytes(512, "big")))
for name, changes in {
    "with_an_unknown_key": {"zz": 1},
    "of_a_campaign_of_31_bytes": {"campaign": bytes(31)},
    "of_period_2_to_the_32": {"period": 1 << 32},
    "of_version_0": {"version": 0},
    "of_nobody": {"parties": b""},
    "out_of_order": {"parties": IDS[1] + IDS[0]},
    "of_one_twice": {"parties": IDS[0] * 2},
    "of_half_an_id": {"parties": IDS[0][:4]},
    "parties_are_an_array": {"parties": IDS[:2]},
    "without_elements": {"elements": b""},
    "element_of_511_bytes": {"elements": bytes(511)},
}.items():
    _release(cases, name, released(**changes), "malformed")
for missing in ("campaign", "elements", "parties", "period", "spec", "version"):
    _release(cases, f"without_the_key_{missing}", released(**{missing: ...}), "malformed")
for name, number in {"element_0": 0, "element_n": MODULUS, "element_p": P, "element_n_squared": SQUARE}.items():
    _release(cases, name, released(elements=number.to_bytes(512, "big")), "invalid_release")
_release(cases, "one_element_too_many", released(elements=bytes(511) + b"\2" + bytes(511) + b"\2"), "invalid_release")
many = b"".join(number.to_bytes(8, "big") for number in range(101))
_release(cases, "of_more_than_most_parties", released(parties=many), "invalid_release")
_release(cases, "of_another_campaign", released(campaign=FEW.id), "unrecognized_campaign")
_release(cases, "too_large", bytes(8 * 100 + 512 + 1025), "too_large")
_release(cases, "of_the_largest_size", bytes(8 * 100 + 512 + 1024), "malformed")
_release(cases, "of_another_spec", released(spec="2.0"), "unsupported_version")
_release(cases, "signed_by_a_stranger", released(STRANGER), "malformed")
_release(cases, "changed", flipped(released(), len(released()) - 1), "bad_signature")
_release(cases, "is_a_book", GOOD, "wrong_role")
_release(cases, "is_a_summary", summary_of(node_campaign()), "wrong_role")
mismatch = "release_mismatch"
_release(cases, "of_another_period", released(period=PERIOD + 1), mismatch)
_release(cases, "of_another_version", released(version=2), mismatch)
_release(cases, "of_one_party_more", released(parties=b"".join(IDS)), mismatch)
_release(cases, "of_one_party_less", released(parties=IDS[0]), mismatch)
_release(cases, "of_other_parties", released(parties=IDS[0] + IDS[2]), mismatch)
_release(cases, "asked_of_another_campaign", released(), mismatch, asked=request(campaign=FEW.id))
