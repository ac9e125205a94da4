"""Vectors of everything before a campaign's own values: envelope, signatures, payload, header, state."""

from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, NOW, Publisher, key

from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope, write_envelope
from vectors.makers import PUBLISHER, Collection, campaign, flipped, root_with, signed_by, wild

KIND = PAYLOAD_TYPES["campaign"]
PAYLOAD = PUBLISHER.campaign_payload()
HEADER = ("name", "version", "spec", "issued_at", "not_before", "expires", "crit")
"""The keys of all payloads, by docs/formats.md."""
GOOD = PUBLISHER.campaign()
YEAR = 365 * DAY

cases = Collection()

payload_at, type_at = GOOD.index(PAYLOAD), GOOD.index(KIND.encode())
cases.add("good", GOOD)
cases.add("one_bit_of_the_payload", flipped(GOOD, payload_at + 40), reason="bad_signature")
cases.add("last_bit_of_the_signature", flipped(GOOD, len(GOOD) - 1), reason="bad_signature")
cases.add("one_bit_of_the_key_id", flipped(GOOD, payload_at + len(PAYLOAD) + 5), reason="bad_signature")
cases.add("one_bit_of_the_type", flipped(GOOD, type_at + 5), reason="wrong_role")
cases.add("one_bit_of_the_magic", flipped(GOOD, 3), reason="unsupported_version")
newer = GOOD.replace(b"hsy1", b"hsy2", 1)
cases.add("newer_envelope", newer, reason="unsupported_version")
cases.add("newer_envelope_with_a_trailing_byte", newer + b"\0", reason="unsupported_version")
cases.add("newer_envelope_of_six_bytes", b"\x94\xa4hsy2", reason="unsupported_version")
cases.add("magic_of_five_bytes", GOOD.replace(b"\xa4hsy1", b"\xa5hsy10", 1), reason="malformed")
cases.add("magic_of_three_bytes", GOOD.replace(b"\xa4hsy1", b"\xa3hsy", 1), reason="malformed")
cases.add("array_length_not_shortest", b"\xdc\x00\x04" + GOOD[1:], reason="malformed")
cases.add("trailing_byte", GOOD + b"\0", reason="malformed")
cases.add("last_byte_missing", GOOD[:-1], reason="malformed")
cases.add("empty", b"", reason="malformed")
cases.add("first_byte_only", GOOD[:1], reason="malformed")
cases.add("array_of_five", b"\x95" + GOOD[1:] + b"\xc0", reason="malformed")
cases.add("text_file", b"id,value\n1,2\n", reason="malformed")
cases.add("magic_in_a_long_string", b"\x94\xd9\x04" + GOOD[2:], reason="malformed")
long_length = b"\xc6" + len(PAYLOAD).to_bytes(4, "big")
short_length = b"\xc5" + len(PAYLOAD).to_bytes(2, "big")
cases.add("payload_length_not_shortest", GOOD.replace(short_length, long_length, 1), reason="malformed")
many = canonical.pack(["hsy1", KIND, b"", [[] for _ in range(60)]])
cases.add("more_values_than_an_envelope_has", many, reason="malformed")

zeros = [bytes(8), bytes(64)]
for name, pairs in {
    "no_signature": [],
    "signature_of_63_bytes": [[bytes(8), bytes(63)]],
    "seventeen_signatures": [zeros] * 17,
}.items():
    cases.add(name, canonical.pack(["hsy1", KIND, PAYLOAD, pairs]), reason="malformed")
cases.add("signed_by_another_role", PUBLISHER.sign("campaign", PAYLOAD, MODEL_KEY), reason="bad_signature")
cases.add("signed_by_a_stranger", PUBLISHER.sign("campaign", PAYLOAD, key(9)), reason="bad_signature")
cases.add("stranger_beside_the_right_key", PUBLISHER.sign("campaign", PAYLOAD, key(9), CAMPAIGN_KEY))
cases.add("a_model_where_a_campaign_is_expected", PUBLISHER.model(), reason="wrong_role")
as_model = read_envelope(PUBLISHER.sign("model", PAYLOAD, CAMPAIGN_KEY), "model")
retyped = write_envelope(as_model._replace(payload_type=KIND))
cases.add("signed_under_another_type", retyped, reason="bad_signature", notes="the type is part of what is signed")
cases.add("signature_of_zeros", canonical.pack(["hsy1", KIND, PAYLOAD, [zeros]]), reason="bad_signature")
two_of_three = root_with([key(number).public for number in (4, 5, 6)], threshold=2)
for name, keys, reason in (
    ("threshold_not_met", (key(4),), "bad_signature"),
    ("threshold_met_by_any_two", (key(6), key(4)), None),
    ("one_key_used_twice", (key(5), key(5)), "bad_signature"),
    ("one_key_and_a_stranger", (key(5), key(9)), "bad_signature"),
):
    cases.add(name, signed_by(KIND, PAYLOAD, *keys), root=two_of_three, reason=reason)

fields = sorted(canonical.unpack(PAYLOAD).items())
plain = wild(tuple(fields))
if plain != PAYLOAD:
    raise AssertionError("the free writer does not agree with the canonical one on a good payload")
nested = b"\x90"
for _ in range(14):
    nested = b"\x91" + nested
for name, payload in {
    "duplicate_keys": wild((fields[0], *fields)),
    "keys_unsorted": wild((fields[1], fields[0], *fields[2:])),
    "integer_not_shortest": wild(tuple((k, b"\xcd\x00\x01") if k == "version" else (k, v) for k, v in fields)),
    "float": wild(tuple((k, 1.0) if k == "version" else (k, v) for k, v in fields)),
    "extension": wild((*fields, ("zz", b"\xd4\x01\x00"))),
    "depth_17": wild((*fields, ("zz", b"\x91" + nested))),
    "bytes_as_a_key": wild((*fields, ("zz", b"\x81\xc4\x01a\x01"))),
    "not_utf8": wild((*fields, ("zz", b"\xa1\xff"))),
    "trailing_byte_in_the_payload": PAYLOAD + b"\xc0",
    "payload_cut": PAYLOAD[:-1],
    "payload_empty": b"",
    "payload_is_no_map": canonical.pack(["name"]),
    "payload_is_nil": canonical.pack(None),
}.items():
    cases.add(name, PUBLISHER.sign("campaign", payload), reason="malformed")
cases.add("depth_16", PUBLISHER.sign("campaign", wild((*fields, ("zz", nested)))))

for name, changes, reason in (
    ("unknown_key_is_ignored", {"zz": 1}, None),
    ("known_key_in_crit", {"crit": ["questions", "fit"]}, None),
    ("unknown_key_in_crit", {"crit": ["zz"], "zz": 1}, "unknown_crit"),
    ("crit_is_text", {"crit": "zz"}, "malformed"),
    ("crit_holds_a_number", {"crit": [1]}, "malformed"),
    ("newer_spec", {"spec": "1.1"}, "unsupported_version"),
    ("spec_is_a_number", {"spec": 1}, "malformed"),
    ("version_0", {"version": 0}, "malformed"),
    ("version_is_true", {"version": True}, "malformed"),
    ("version_above_32_bits", {"version": 1 << 32}, "malformed"),
    ("name_empty", {"name": ""}, "malformed"),
    ("name_with_a_line_break", {"name": "a\nb"}, "malformed"),
    ("name_with_a_terminal_escape", {"name": "a\x1b[2J"}, "malformed"),
    ("name_of_1025_bytes", {"name": "é" * 512 + "e"}, "malformed"),
    ("latest_time", {"expires": 1 << 40, "time_precision": 1 << 20}, None),
    ("expires_above_2_to_the_40", {"expires": (1 << 40) + 1, "time_precision": 1 << 20}, "malformed"),
    ("largest_version", {"version": (1 << 32) - 1}, None),
    ("issued_at_negative", {"issued_at": -1}, "malformed"),
    ("issued_at_is_nil", {"issued_at": None}, "malformed"),
    ("not_before_over_a_day_after_issue", {"not_before": NOW + DAY + 1}, "malformed"),
    ("expires_a_day_after_issue", {"expires": NOW + DAY}, "malformed"),
):
    cases.add(name, PUBLISHER.campaign(changes), reason=reason)
body = canonical.unpack(PAYLOAD)
for field in sorted(body):
    reason = "malformed" if field in HEADER else "invalid_campaign"
    cases.add(f"without_{field}", campaign(body, **{field: ...}), reason=reason)
    if field != "projection":
        cases.add(f"{field}_is_a_map_of_nothing", campaign(body, **{field: {"zz": 1}}), reason=reason)

second = PUBLISHER.campaign(version=2)
accepted = (("campaign", second, NOW),)
cases.add("the_same_document_again", second, before=accepted)
cases.add("newer_version", PUBLISHER.campaign(version=3), before=accepted)
cases.add("rollback", GOOD, before=accepted, reason="rollback")
other = PUBLISHER.campaign({"purpose": "something else"}, version=2)
cases.add("equivocation", other, before=accepted, reason="equivocation")
unrelated = PUBLISHER.campaign(name="unrelated")
floors = {"campaign mushrooms": second, "campaign unrelated": unrelated}
cases.add("older_version_of_another_name", unrelated, before=accepted, floors=floors)
model = PUBLISHER.model()
floors = {"campaign mushrooms": second, "model mushrooms": model}
cases.add("older_version_of_another_role", model, role="model", before=accepted, floors=floors)

late = Publisher(now=NOW + 30 * DAY)
cases.add("clock_at_zero", GOOD, clock=0, notes="the document's own issued_at is a lower bound for now")
cases.add("not_yet_valid", PUBLISHER.campaign({"not_before": NOW + DAY}), reason="not_yet_valid")
cases.add("valid_from_not_before_on", PUBLISHER.campaign({"not_before": NOW + DAY}), clock=NOW + DAY)
cases.add("last_second", GOOD, clock=NOW + YEAR - 1)
cases.add("expired", GOOD, clock=NOW + YEAR, reason="expired")
short = PUBLISHER.campaign(lifetime=20 * DAY)
other = late.campaign(name="unrelated")
notes = "a clock set back does not revive a document: another one was issued after its end"
before = (("campaign", other, 0),)
cases.add("expired_by_the_time_floor", short, before=before, clock=0, reason="expired", notes=notes)
newer, before = late.campaign(version=2), (("campaign", GOOD, NOW),)
cases.add("time_floor_rises", newer, before=before, clock=0, time_floor=NOW + 30 * DAY)
root = PUBLISHER.root(lifetime=10 * DAY)
cases.add("root_still_valid", GOOD, root=root, clock=NOW + 10 * DAY - 1)
cases.add("root_expired", GOOD, root=root, clock=NOW + 10 * DAY, reason="expired")
