"""Vectors of shared campaigns: which are refused, reports from their seeds, what collectors open and what they decide.

Bytes of reports and verifiers are those of ``shared_from_text.py``; what is wrong with a report is made here by hand.
"""

from functools import cache, partial
from hashlib import sha256

from nacl import bindings
from support.ed25519 import encode, small
from support.publisher import DAY, NOW, Publisher
from support.shared import COLLECTOR_KEYS, PAIR, gaussian, shared_payload, terms

from protocol import canonical
from protocol.documents.campaign import Series
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema
from vectors import shared_from_text as text
from vectors.makers import PUBLISHER, Collection, campaign, changed

INVALID = "invalid_campaign"
PAYLOAD = shared_payload(PUBLISHER)
BODY = canonical.unpack(PAYLOAD)
MAP = BODY["shared"]
LEADER, HELPER = MAP["collectors"]
SIZES = [8, 4]
"""Cells: three odors and missing, and two bins of width, each with two classes."""
SEEDS = [one.seed for one in COLLECTOR_KEYS]
signed = partial(campaign, BODY)


def with_terms(**changes):
    """A shared campaign with some of its terms replaced."""
    return signed(shared=changed(MAP, **changes))


def with_leader(**changes):
    """A shared campaign whose leader is another one."""
    return with_terms(collectors=[changed(LEADER, **changes), HELPER])


def wide(codes, classes=8, chunk=46):
    """A shared campaign with one feature of so many codes, whatever the number of cells is."""
    label = {**BODY["label"], "classes": [str(number) for number in range(classes)]}
    feature = {**BODY["features"][1], "edges": [*range(codes - 1)]}
    length = text.record_length([codes * classes], chunk)
    return signed(label=label, features=[feature], shared=changed(MAP, chunk=chunk), record_length=length)


cases = Collection()

cases.add("laplace", PUBLISHER.sign("campaign", PAYLOAD))
cases.add("gaussian", PUBLISHER.sign("campaign", shared_payload(PUBLISHER, shared=gaussian())))
for name, changes in {
    "least_delta": {"noise": "gaussian", "delta_pico": 1},
    "largest_delta": {"noise": "gaussian", "delta_pico": 10**9},
    "any_salt": {"salt": bytes(32)},
    "any_digest_of_a_verify_key": {"verify_key": bytes(32)},
    "collectors_of_one_name": {"collectors": [LEADER, {**LEADER, "key": HELPER["key"]}]},
    "the_other_is_the_leader": {"collectors": [HELPER, LEADER]},
}.items():
    cases.add(name, with_terms(**changes))
for name, chunk in (("chunk_of_one_cell", 1), ("chunk_of_all_cells", 12), ("chunk_that_does_not_divide", 5)):
    cases.add(name, signed(shared=changed(MAP, chunk=chunk), record_length=text.record_length(SIZES, chunk)))
cases.add("least_epsilon", signed(epsilon_micro=4))
cases.add("2048_cells", wide(256))
series = shared_payload(PUBLISHER, series=Series("pilot", NOW))
cases.add("in_a_series", PUBLISHER.sign("campaign", series))
grouped = {"groups": [{"feature": 0, "group_of": [0, 1, 1, 0]}], "crit": ["groups", "shared"]}
length = text.record_length([4, 4], 4)
cases.add("values_in_groups", signed(**grouped, record_length=length))
end = {"version": 2, "shared": ..., "crit": [], "answers": 0, "epsilon_micro": 0, "layout": 1, "record_length": 18}
cases.add("its_end_has_no_terms", signed(**end), before=(("campaign", signed(), NOW),))

SMALL = {f"key_of_order_{order}": {"key": encode(small(order))} for order in (2, 4, 8)}
for name, changes in {
    "key_of_31_bytes": {"key": LEADER["key"][:31]},
    "key_is_text": {"key": "a" * 32},
    "key_is_no_point": {"key": b"\2" + bytes(31)},
    "key_of_zeros": {"key": bytes(32)},
    **SMALL,
    "the_same_key": {"key": HELPER["key"]},
    "name_empty": {"name": ""},
    "name_is_a_number": {"name": 1},
    "contact_empty": {"contact": ""},
    "contact_is_nil": {"contact": None},
    "a_further_key": {"zz": 1},
    **{f"leader_without_{key}": {key: ...} for key in LEADER},
}.items():
    cases.add(name, with_leader(**changes), reason=INVALID)
PUBLIC_KEY = bindings.crypto_sign_seed_keypair(bytes(32))[0]
for name, changes in {
    "one_collector": {"collectors": [LEADER]},
    "three_collectors": {"collectors": [LEADER, HELPER, {**LEADER, "key": PUBLIC_KEY}]},
    "collectors_are_no_maps": {"collectors": [LEADER["key"], HELPER["key"]]},
    "salt_of_31_bytes": {"salt": bytes(31)},
    "salt_of_33_bytes": {"salt": bytes(33)},
    "salt_is_text": {"salt": "a" * 32},
    "verify_key_of_16_bytes": {"verify_key": bytes(16)},
    "verify_key_is_nil": {"verify_key": None},
    "chunk_0": {"chunk": 0},
    "chunk_above_all_cells": {"chunk": 13},
    "chunk_is_true": {"chunk": True},
    "another_noise": {"noise": "none"},
    "noise_is_nil": {"noise": None},
    "laplace_with_a_delta": {"delta_pico": 1},
    "gaussian_without_a_delta": {"noise": "gaussian"},
    "delta_above_a_thousandth": {"noise": "gaussian", "delta_pico": 10**9 + 1},
    "delta_is_negative": {"delta_pico": -1},
    "unknown_key": {"zz": 1},
    **{f"without_{key}": {key: ...} for key in MAP},
}.items():
    cases.add(name, with_terms(**changes), reason=INVALID)
question = canonical.unpack(PUBLISHER.campaign_payload())["questions"]
nodes = canonical.unpack(PUBLISHER.node_payload())["nodes"]
for name, fields in {
    "key_is_not_in_crit": {"crit": []},
    "crit_without_the_key": {"shared": ...},
    "nil": {"shared": None},
    "a_list": {"shared": [MAP]},
    "with_questions": {"questions": question},
    "with_nodes": {"nodes": nodes, "crit": ["nodes", "shared"]},
    "with_a_model": {"model": bytes(32)},
    "gaussian_family": {"fit": {"family": "gaussian", "postprocess": "floored", "variance_floor_micro": 1}},
    "two_answers": {"answers": 2},
    "no_answer": {"answers": 0},
    "layout_of_single_values": {"layout": 1},
    "longer_reports": {"record_length": BODY["record_length"] + 1},
    "shorter_reports": {"record_length": BODY["record_length"] - 16},
    "epsilon_below_two_millionths_of_each_feature": {"epsilon_micro": 3},
    "epsilon_0": {"epsilon_micro": 0},
    "no_feature": {"features": []},
}.items():
    cases.add(name, signed(**fields), reason=INVALID)
cases.add("2056_cells", wide(257), reason=INVALID)
cases.add("reports_of_163_kilobytes", wide(256, chunk=1), reason=INVALID)
cases.add("another_key_in_crit", signed(crit=["shared", "zz"]), reason="unknown_crit")
plain = (PUBLISHER.campaign(), "mushrooms")
cases.older("shared", {"older_reader": signed()}, {"older_reader_of_a_campaign_with_noise": plain})

# Reports ----------------------------------------------------------------------------------------------

THREE = Publisher(
    schema=build_schema(
        Label("state", ["low", "mid", "high"]),
        [Categorical("odor", ["a", "n"]), Numeric("width", "0", "10", [-5, 5]), Categorical("count", ["3"])],
    )
)
"""Sizes 9, 9 and 6: 24 cells."""
OTHERS = {
    "mushrooms": (PAYLOAD, SIZES),
    "one_product": (
        canonical.pack({**BODY, "shared": {**MAP, "chunk": 12}, "record_length": text.record_length(SIZES, 12)}),
        SIZES,
    ),
    "three_classes": (shared_payload(THREE, shared=terms(THREE.schema)), [9, 9, 6]),
}
PERIOD = NOW // DAY
ID = bytes(range(8))


@cache
def seed(name):
    """A report's seed."""
    return sha256(b"hearsay shared vector " + name.encode()).digest()


def made(payload, sizes, cells, identifier=ID, period=PERIOD, own=None):
    """The answer field, from the text."""
    found = canonical.unpack(payload)["shared"]
    return text.answer_field(sha256(payload).digest(), found, sizes, cells, identifier, period, own or seed("a"))


for name, (payload, sizes) in OTHERS.items():
    kept = cases.keep(f"payload_{name}", payload)
    for case, cells, identifier, period, own in (
        ("first_cells", [0] * len(sizes), ID, PERIOD, "a"),
        ("last_cells", [size - 1 for size in sizes], ID, PERIOD, "a"),
        ("another_seed", [0] * len(sizes), ID, PERIOD, "b"),
        ("another_id", [0] * len(sizes), bytes(8), PERIOD, "a"),
        ("another_period", [0] * len(sizes), ID, 2**32 - 1, "a"),
    ):
        inputs = {"campaign": kept, "cells": cells, "identifier": identifier.hex(), "period": period}
        field = made(payload, sizes, cells, identifier, period, seed(own))
        cases.case(f"report_{name}_{case}", "shared_report", **inputs, seed=seed(own).hex(), expect=field.hex())
for case, cells, reason in (
    ("beyond_a_block", [8, 0], "value_out_of_domain"),
    ("negative", [0, -1], "value_out_of_domain"),
    ("missing", [0], "shape_invalid"),
    ("more_than_blocks", [0, 0, 0], "shape_invalid"),
):
    inputs = {"campaign": "@payload_mushrooms", "cells": cells, "identifier": ID.hex(), "period": PERIOD}
    cases.case(f"report_cell_{case}", "shared_report", **inputs, seed=seed("a").hex(), reason=reason)
clear = cases.keep("payload_with_noise", PUBLISHER.campaign_payload())
inputs = {"campaign": clear, "cells": [0, 0], "identifier": ID.hex(), "period": PERIOD, "seed": seed("a").hex()}
cases.case("report_of_a_campaign_with_noise", "shared_report", **inputs, reason="campaign_not_shared")

# Boxes ------------------------------------------------------------------------------------------------

CAMPAIGN = sha256(PAYLOAD).digest()
FIELD = made(PAYLOAD, SIZES, [3, 1])
NONCE, PUBLIC, SENDER, (OURS, THEIRS) = text.contents(CAMPAIGN, MAP, SIZES, [3, 1], ID, PERIOD, seed("a"))
SPLIT = len(FIELD) - (93 + 64)
"""Where the helper's box begins."""


def box(role, content, secret=SENDER):
    """A box of any content."""
    return bindings.crypto_box(content, bytes([role]) + bytes(23), text.box_key(MAP["collectors"][role]["key"]), secret)


def boxes(name, field=FIELD, *, identifier=ID, period=PERIOD, seeds=SEEDS, **outcome):
    """One case: what both collectors find in their boxes."""
    inputs = {"campaign": "@payload_mushrooms", "field": field.hex(), "identifier": identifier.hex(), "period": period}
    cases.case(f"boxes_{name}", "shared_boxes", **inputs, seeds=[one.hex() for one in seeds], **outcome)


head, foreign = FIELD[:112], made(OTHERS["one_product"][0], SIZES, [3, 1])
boxes("of_a_report", expect=[OURS[77:].hex(), THEIRS[77:].hex()])
of_nothing = head + box(0, OURS) + box(1, THEIRS[:77] + bytes(64))
boxes("of_zeros", of_nothing, expect=[OURS[77:].hex(), bytes(64).hex()])
MISPLACED, UNREADABLE = {"reason": "share_misplaced"}, {"reason": "share_unreadable"}
boxes("of_another_id", identifier=bytes(8), **MISPLACED)
boxes("of_another_period", period=PERIOD + 1, **MISPLACED)
boxes("beside_another_nonce", bytes(16) + FIELD[16:], **MISPLACED)
boxes("beside_another_public_share", FIELD[:79] + bytes([FIELD[79] ^ 1]) + FIELD[80:], **MISPLACED)
for role, place in (("campaign", 0), ("period", 35), ("id", 43), ("role", 44), ("digest", 76)):
    spoilt = THEIRS[:place] + bytes([THEIRS[place] ^ 1]) + THEIRS[place + 1 :]
    boxes(f"that_say_another_{role}", head + FIELD[112:SPLIT] + box(1, spoilt), **MISPLACED)
boxes("of_another_sender", FIELD[:80] + bindings.crypto_scalarmult_base(bytes(32)) + FIELD[112:], **UNREADABLE)
boxes("of_a_sender_of_order_one", FIELD[:80] + bytes(32) + FIELD[112:], **UNREADABLE)
boxes("for_other_collectors", seeds=SEEDS[::-1], **UNREADABLE)
boxes("with_a_bit_changed", FIELD[:-1] + bytes([FIELD[-1] ^ 1]), **UNREADABLE)
leaders = bindings.crypto_box(THEIRS, bytes(24), text.box_key(HELPER["key"]), SENDER)
boxes("under_the_leader_s_nonce", head + FIELD[112:SPLIT] + leaders, **UNREADABLE)
boxes("cut", FIELD[:-1], reason="malformed")
boxes("with_a_byte_more", FIELD + b"\0", reason="malformed")
boxes("of_a_longer_campaign", foreign, reason="malformed")

# The verify key ----------------------------------------------------------------------------------------

KEYS = [one.public for one in COLLECTOR_KEYS]
secret = text.verify_key(SEEDS[0], KEYS, PAIR.salt)
for name, own, outcome in (
    ("of_the_leader", SEEDS[0], {"expect": secret.hex()}),
    ("of_the_helper", SEEDS[1], {"expect": secret.hex()}),
    ("of_somebody_else", bytes(32), {"reason": "not_this_collector"}),
):
    cases.case(f"verify_key_{name}", "shared_verify_key", campaign="@payload_mushrooms", seed=own.hex(), **outcome)
lying = cases.keep("payload_other_verify_key", canonical.pack({**BODY, "shared": {**MAP, "verify_key": bytes(32)}}))
cases.case(
    "verify_key_that_is_not_stated", "shared_verify_key", campaign=lying, seed=SEEDS[0].hex(),
    reason="not_this_collector",
)  # fmt: skip

# Decisions ---------------------------------------------------------------------------------------------


def decided(name, shares, *, nonce=NONCE, public=PUBLIC, key=secret, reason=None):
    """One case: what both collectors say of their shares. The text must come to the same."""
    inputs = {"campaign": "@payload_mushrooms", "key": key.hex(), "nonce": nonce.hex(), "public": public.hex()}
    inputs["shares"] = [share.hex() for share in shares]
    if reason is None:
        verifiers, message, sums = text.checked(CAMPAIGN, MAP, SIZES, key, nonce, public, shares)
        assert sums == text.one_hot(SIZES, [3, 1])
        outcome = {"expect": {"verifiers": [one.hex() for one in verifiers], "message": message.hex(), "vector": sums}}
    else:
        outcome = {"reason": reason}
    cases.case(f"decision_{name}", "shared_decision", **inputs, **outcome)


def of_vector(vector):
    """Public share and input shares of a vector that no honest device makes."""
    blocks = text.Blocks(SIZES, MAP["chunk"])
    return text.sharded(text.context_of(CAMPAIGN), blocks, vector, NONCE, b"".join(map(seed, "abcd")))


ours, theirs = OURS[77:], THEIRS[77:]
decided("of_a_report", [ours, theirs])
decided("with_another_key", [ours, theirs], key=bytes(32))
for name, cells in (
    ("two_ones_in_a_block", {0: 1, 1: 1, 8: 1}),
    ("an_empty_block", {0: 1}),
    ("a_two", {0: 2, 8: 1}),
    ("minus_one_and_two", {0: 2, 1: -1, 8: 1}),
    ("ones_of_one_block_in_the_other", {8: 1, 9: 1}),
    ("a_number_near_p", {0: 1, 8: 2, 9: -1}),
):
    vector = [cells.get(number, 0) % text.P for number in range(12)]
    public, shares = of_vector(vector)
    decided(name, shares, public=public, reason="proof_invalid")
for name, place in (("vector", 0), ("proof", 12 * 16), ("last_of_the_proof", len(ours) - 48)):
    number = (int.from_bytes(ours[place : place + 16], "little") + 1) % text.P
    spoilt = ours[:place] + number.to_bytes(16, "little") + ours[place + 16 :]
    decided(f"changed_{name}", [spoilt, theirs], reason="proof_invalid")
decided("changed_blind_of_the_leader", [ours[:-1] + bytes([ours[-1] ^ 1]), theirs], reason="proof_invalid")
decided("changed_blind_of_the_helper", [ours, theirs[:-1] + bytes([theirs[-1] ^ 1])], reason="proof_invalid")
decided("changed_seed_of_the_helper", [ours, bytes(32) + theirs[32:]], reason="proof_invalid")
for name, place in (("leader", 0), ("helper", 63)):
    spoilt = PUBLIC[:place] + bytes([PUBLIC[place] ^ 1]) + PUBLIC[place + 1 :]
    decided(f"changed_part_of_the_{name}", [ours, theirs], public=spoilt, reason="proof_invalid")
decided("another_nonce", [ours, theirs], nonce=bytes(16), reason="proof_invalid")
decided("an_element_p", [text.P.to_bytes(16, "little") + ours[16:], theirs], reason="value_out_of_domain")
decided("the_largest_element", [b"\xff" * 16 + ours[16:], theirs], reason="value_out_of_domain")
decided("a_short_share", [ours[:-16], theirs], reason="malformed")
decided("a_long_share_of_the_helper", [ours, theirs + b"\0"], reason="malformed")
decided("the_shares_of_each_other", [theirs, ours], reason="malformed")
decided("one_joint_randomness_part", [ours, theirs], public=PUBLIC[:32], reason="malformed")
