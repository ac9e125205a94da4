"""Vectors of averaging gossip: messages as the text says, computed here with plain integers."""

from protocol import canonical
from protocol.stream import sha256
from vectors.makers import Collection

TAG = "hearsay averaging 1"
CAMPAIGN = sha256(b"campaign").digest()
SESSION = [CAMPAIGN, 7, 1, 2]
A, B, C, STRANGER = (bytes(7) + bytes([number]) for number in (1, 2, 3, 9))
UNIT = 1 << 64
OWN, OTHER = [10, -3], [4, 8]
"""Sums of A, who holds the weight, and of B."""
LIMIT = 1 << 126


def units(sums, *, weight):
    """The vector of a peer that begins."""
    return [*(each * UNIT for each in sums), UNIT * weight]


def halves(first, second):
    """⌊(a + b)/2⌋ of two vectors."""
    return [(a + b) // 2 for a, b in zip(first, second, strict=True)]


def less(first, second):
    """The difference of two vectors."""
    return [a - b for a, b in zip(first, second, strict=True)]


BEFORE, BEFORE_OTHER = units(OWN, weight=True), units(OTHER, weight=False)
MEAN = halves(BEFORE, BEFORE_OTHER)
TRANSFER = less(MEAN, BEFORE)
"""What A has to add."""


def packed(numbers):
    """Integers of 16 bytes, big-endian, two's complement."""
    return b"".join(number.to_bytes(16, "big", signed=True) for number in numbers)


def message(**changes):
    """An offer of A to B with some of the seven values replaced."""
    vector = packed(BEFORE)
    values = {"tag": TAG, "kind": "offer", "session": SESSION, "sender": A, "receiver": B, "number": 1}
    return canonical.pack([*({**values, "vector": vector, **changes}).values()])


def reply(**changes):
    """B's reply to the first offer of A: the transfer a' − a."""
    return message(**{"kind": "reply", "sender": B, "receiver": A, "vector": packed(TRANSFER), **changes})


def _case(cases, name, kind, own, outcome, **inputs):
    session = {"session": [CAMPAIGN.hex(), *SESSION[1:]], "members": [one.hex() for one in (A, B, C)]}
    peer = {"peer": own.hex(), "sums": OWN if own == A else OTHER, "weight": own == A}
    cases.case(name, kind, **{**session, **peer, **inputs}, **outcome)


def _texts(numbers):
    return [str(number) for number in numbers]


def _answer(cases, name, offers, **outcome):
    _case(cases, name, "averaging_answer", B, outcome, offers=[offer.hex() for offer in offers])


def _take(cases, name, replies, **outcome):
    _case(cases, name, "averaging_taken", A, outcome, partner=B.hex(), replies=[each.hex() for each in replies])


cases = Collection()

_case(cases, "offer", "averaging_offer", A, {"expect": message().hex()}, partner=B.hex())
plain = message(sender=B, receiver=C, vector=packed(BEFORE_OTHER))
_case(cases, "offer_without_weight", "averaging_offer", B, {"expect": plain.hex()}, partner=C.hex())
mismatch = {"reason": "averaging_mismatch"}
_case(cases, "offer_to_itself", "averaging_offer", A, mismatch, partner=A.hex())
_case(cases, "offer_to_a_stranger", "averaging_offer", A, mismatch, partner=STRANGER.hex())
for name, inputs in {
    "sums_too_few": {"sums": [1]},
    "sum_of_2_to_the_62": {"sums": [1, 1 << 62]},
    "sum_of_minus_2_to_the_62": {"sums": [-(1 << 62), 1]},
    "sum_is_true": {"sums": [True, 1]},
    "name_of_7_bytes": {"peer": "00" * 7},
    "session_without_holders": {"session": [CAMPAIGN.hex(), 7, 0, 2]},
    "session_of_period_2_to_the_32": {"session": [CAMPAIGN.hex(), 1 << 32, 1, 2]},
    "session_of_a_campaign_of_31_bytes": {"session": ["00" * 31, 7, 1, 2]},
    "session_without_entries": {"session": [CAMPAIGN.hex(), 7, 1, 0], "sums": []},
}.items():
    _case(cases, name, "averaging_offer", A, mismatch, **{"partner": B.hex(), **inputs})

after = less(BEFORE_OTHER, TRANSFER)
once = {"replies": [reply().hex()], "units": _texts(after)}
_answer(cases, "answer", [message()], expect=once)
_answer(cases, "offer_repeated", [message()] * 3, expect={**once, "replies": [reply().hex()] * 3})
mean = halves(MEAN, after)
later, second = reply(number=2, vector=packed(less(mean, MEAN))), message(number=2, vector=packed(MEAN))
expect = {"replies": [reply().hex(), later.hex(), None], "units": _texts(less(after, less(mean, MEAN)))}
_answer(cases, "older_offer_after_a_newer", [message(), second, message()], expect=expect)
largest = [LIMIT - 1, 1 - LIMIT, 0]
ends = less(halves(largest, BEFORE_OTHER), largest)
expect = {"replies": [reply(vector=packed(ends)).hex()], "units": _texts(less(BEFORE_OTHER, ends))}
_answer(cases, "largest_numbers", [message(vector=packed(largest))], expect=expect)

own = _texts(BEFORE)
_take(cases, "reply", [reply()], expect={"averaged": [True], "units": _texts(MEAN)})
_take(cases, "reply_repeated", [reply()] * 2, expect={"averaged": [True, False], "units": _texts(MEAN)})
_take(cases, "refusal", [reply(vector=None)], expect={"averaged": [False], "units": own})
_take(cases, "reply_to_another_offer", [reply(number=2)], expect={"averaged": [False], "units": own})
_take(cases, "reply_of_another_member", [reply(sender=C)], expect={"averaged": [False], "units": own})
beyond = reply(vector=packed([LIMIT - 1, 0, 0]))
_take(cases, "reply_that_leaves_126_bits", [beyond], reason="malformed")

for role, good, put in (("offer", message, _answer), ("reply", reply, _take)):
    vector = canonical.unpack(good())[6]
    for name, changes in {
        "with_another_tag": {"tag": "hearsay averaging 2"},
        "of_another_kind": {"kind": "reply" if role == "offer" else "offer"},
        "of_an_unknown_kind": {"kind": "hello"},
        "of_number_0": {"number": 0},
        "of_number_true": {"number": True},
        "with_a_number_as_text": {"number": "1"},
        "from_7_bytes": {"sender": bytes(7)},
        "to_9_bytes": {"receiver": bytes(9)},
        "from_a_text": {"sender": "12345678"},
        "with_a_value_more": {"more": 0},
        "with_an_integer_too_few": {"vector": vector[16:]},
        "with_an_integer_too_many": {"vector": vector + bytes(16)},
        "with_half_an_integer": {"vector": vector[:-8]},
        "with_integers_as_an_array": {"vector": [1, 2, 3]},
        "with_2_to_the_126": {"vector": packed([0, LIMIT, 0])},
        "with_minus_2_to_the_126": {"vector": packed([-LIMIT, 0, 0])},
    }.items():
        put(cases, f"{role}_{name}", [good(**changes)], reason="malformed")
    put(cases, f"{role}_empty", [b""], reason="malformed")
    put(cases, f"{role}_cut", [good()[:-1]], reason="malformed")
    put(cases, f"{role}_with_a_byte_after_it", [good() + b"\0"], reason="malformed")
    put(cases, f"{role}_is_a_map", [canonical.pack({"tag": TAG})], reason="malformed")
    for name, changes in {
        "of_another_campaign": {"session": [bytes(32), 7, 1, 2]},
        "of_another_period": {"session": [CAMPAIGN, 8, 1, 2]},
        "of_other_holders": {"session": [CAMPAIGN, 7, 2, 2]},
        "of_holders_true": {"session": [CAMPAIGN, 7, True, 2]},
        "of_other_entries": {"session": [CAMPAIGN, 7, 1, 3]},
        "of_a_session_that_is_nil": {"session": None},
        "to_another_peer": {"receiver": C},
        "of_a_stranger": {"sender": STRANGER},
        "of_the_receiver_itself": {"sender": B if role == "offer" else A},
    }.items():
        put(cases, f"{role}_{name}", [good(**changes)], reason="averaging_mismatch")
_answer(cases, "offer_without_a_vector", [message(vector=None)], reason="malformed")
