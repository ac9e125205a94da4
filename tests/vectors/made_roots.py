"""Vectors of trust roots: the first one, and the chain from one to the next."""

from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, NOW, ROOT_KEY, Publisher, key

from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, keyid, read_envelope
from vectors.makers import PUBLISHER, Collection, changed, packed, signed_by

BODY = canonical.unpack(read_envelope(PUBLISHER.root(), "root").payload)
KEYS = {"root": ROOT_KEY, "campaign": CAMPAIGN_KEY, "model": MODEL_KEY}


def root(*signers, keys=None, thresholds=None, **changes):
    """A root with other keys, thresholds or fields, signed by just these keys."""
    members = {**{role: [own] for role, own in KEYS.items()}, **(keys or {})}
    ids = {role: [keyid(each.public).hex() for each in group] for role, group in members.items()}
    fields = {
        "keys": {keyid(each.public).hex(): each.public for group in members.values() for each in group},
        "roles": {role: {"keyids": ids[role], "threshold": (thresholds or {}).get(role, 1)} for role in ids},
    }
    return signed_by(PAYLOAD_TYPES["root"], packed(BODY, **fields | changes), *(signers or (ROOT_KEY,)))


cases = Collection()

two = {"root": [ROOT_KEY, key(7)]}
cases.pin("first", root())
cases.pin("first_with_clock_at_zero", PUBLISHER.root(lifetime=100 * DAY), clock=0)
cases.pin("first_two_of_two", root(ROOT_KEY, key(7), keys=two, thresholds={"root": 2}))
cases.pin("first_one_of_two", root(key(7), keys=two))
cases.pin("first_threshold_not_met", root(ROOT_KEY, keys=two, thresholds={"root": 2}), "bad_signature")
twice = root(ROOT_KEY, ROOT_KEY, keys=two, thresholds={"root": 2})
cases.pin("first_one_key_used_twice", twice, "bad_signature")
cases.pin("first_signed_by_another_role", root(CAMPAIGN_KEY), "bad_signature")
cases.pin("first_expired", root(), "expired", clock=BODY["expires"])
cases.pin("first_is_a_campaign", PUBLISHER.campaign(), "wrong_role")
cases.pin("first_needs_unknown", root(crit=["zz"]), "unknown_crit")
cases.pin("first_of_a_newer_spec", root(spec="2.0"), "unsupported_version")

keys, roles = BODY["keys"], BODY["roles"]
hint = keyid(CAMPAIGN_KEY.public).hex()
own = roles["model"]
for name, changes in {
    "key_id_of_another_key": {"keys": {**keys, hint: MODEL_KEY.public}},
    "key_of_31_bytes": {"keys": {**keys, hint: bytes(31)}},
    "key_is_text": {"keys": {**keys, hint: "00" * 16}},
    "role_absent": {"roles": changed(roles, model=...)},
    "role_unknown": {"roles": {**roles, "node": own}},
    "role_without_keys": {"roles": {**roles, "model": {"keyids": [], "threshold": 1}}},
    "threshold_0": {"roles": {**roles, "model": {**own, "threshold": 0}}},
    "threshold_above_the_keys": {"roles": {**roles, "model": {**own, "threshold": 2}}},
    "threshold_is_true": {"roles": {**roles, "model": {**own, "threshold": True}}},
    "key_id_twice": {"roles": {**roles, "model": {"keyids": own["keyids"] * 2, "threshold": 2}}},
    "key_id_without_key": {"roles": {**roles, "model": {"keyids": ["0" * 16], "threshold": 1}}},
    "key_id_in_upper_case": {"keys": {**keys, hint.upper(): CAMPAIGN_KEY.public}},
}.items():
    cases.pin(name, signed_by(PAYLOAD_TYPES["root"], packed(BODY, **changes), ROOT_KEY), "malformed")
seventeen = [key(number) for number in range(20, 37)]
cases.pin("sixteen_keys_in_a_role", root(keys={"model": seventeen[:16]}))
cases.pin("seventeen_keys_in_a_role", root(keys={"model": seventeen}), "malformed")

first, new_key = root(), key(8)
turned = {"root": [new_key]}


def add(name, data, reason=None, **options):
    cases.add(name, data, role="root", root=first, reason=reason, **options)


add("next", root(version=2), root_version=2)
add("next_with_a_new_key", root(ROOT_KEY, new_key, version=2, keys=turned), root_version=2)
add("next_signed_by_the_old_key_only", root(ROOT_KEY, version=2, keys=turned), "bad_signature")
add("next_signed_by_the_new_key_only", root(new_key, version=2, keys=turned), "bad_signature")
add("one_version_left_out", root(version=3), "bad_signature")
add("the_stored_root_again", first)
add("another_root_of_the_stored_version", root(purpose="x"), "equivocation")
add("of_another_workspace", root(version=2, name="other"), "rollback")
add("next_expired", root(version=2), "expired", clock=BODY["expires"])
add("next_not_yet_valid", root(version=2, not_before=NOW + DAY), "not_yet_valid")
add("next_malformed", root(version=2, expires=NOW), "malformed")
older = (("root", root(version=2), NOW),)
add("an_older_root_is_ignored", first, before=older, root_version=2)
earlier = Publisher(now=NOW - 9 * DAY).root(version=2)
add("next_lowers_the_time_floor", earlier, root_version=2, time_floor=NOW - 9 * DAY)

first, campaign, model = root(), PUBLISHER.campaign(version=5), PUBLISHER.model(version=6)
before = (("campaign", campaign, NOW), ("model", model, NOW))
held = {"campaign mushrooms": campaign, "model mushrooms": model}
more, without_campaign = {"campaign": [CAMPAIGN_KEY, key(7)]}, {"model mushrooms": model}
for name, keys, thresholds, kept in (
    ("floors_kept_with_the_same_keys", {}, {}, held),
    ("floors_kept_with_a_key_more", more, {}, held),
    ("floors_reset_where_the_threshold_is_above_the_shared_keys", more, {"campaign": 2}, without_campaign),
    ("floors_reset_with_all_keys_new", {"campaign": [key(7)]}, {}, without_campaign),
):
    data = root(version=2, keys=keys, thresholds=thresholds)
    cases.add(name, data, role="root", root=first, before=before, floors=kept, root_version=2)
turned = root(version=2, keys={"campaign": [key(7)]})
old = PUBLISHER.sign("campaign", PUBLISHER.campaign_payload(version=9), CAMPAIGN_KEY)
cases.add("signed_by_a_key_turned_out", old, root=first, before=(("root", turned, NOW),), reason="bad_signature")
