"""Vectors of campaigns for nodes and of lists of nodes: which are refused, and by whom."""

from functools import partial

from support.nodes import NODE_KEYS, TERMS, node_payload
from support.publisher import DAY, MODEL_KEY, NOW

from protocol import canonical
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Series
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import MAX_RECORDS
from protocol.documents.payload import MAX_TIME
from protocol.nodes.summary import build_node_list
from vectors.makers import PUBLISHER, THREE_CLASSES, Collection, campaign, changed, many, packed

INVALID, WRONG_LIST = "invalid_campaign", "invalid_nodes"
PAYLOAD = node_payload(PUBLISHER)
BODY = canonical.unpack(PAYLOAD)
signed = partial(campaign, BODY)
MAP = TERMS.to_dict()
LIST = canonical.unpack(build_node_list(PUBLISHER.header("wards"), [one.public for one in NODE_KEYS]))
ENTRIES = LIST["nodes"]
FIRST = min(ENTRIES)


def _range(cases, name, data, epsilon_micro, **outcome):
    inputs = {"campaign": cases.keep(name, data), "epsilon_micro": epsilon_micro}
    cases.case(name, "released_ranges", **inputs, **outcome)


def listed(**changes):
    """A list of nodes with some fields replaced; a field of ``...`` is left out."""
    return PUBLISHER.sign("nodes", packed(LIST, **changes))


def _list(cases, name, data, reason=None, **options):
    cases.add(name, data, reason=reason, **{"role": "nodes", **options})


cases = Collection()

cases.add("gaussian", signed())
cases.add("discrete", PUBLISHER.sign("campaign", node_payload(PUBLISHER, DISCRETE)))
for name, changes in {
    "one_record": {"max_records": 1},
    "most_records": {"max_records": MAX_RECORDS},
    "least_epsilon_of_a_millionth_each": {"least_epsilon_micro": 4},
    "least_epsilon_is_the_epsilon": {"least_epsilon_micro": 1_000_000},
    "smooth": {"sensitivity": "smooth"},
    "list_of_1024_bytes": {"list": "x" * 1024},
}.items():
    cases.add(name, signed(nodes={**MAP, **changes}))
groups = [{"feature": 0, "group_of": [0, 1, 1, 1]}]
cases.add("values_in_groups", signed(groups=groups, crit=["groups", "nodes"]))
cases.add("seven_times_2_to_the_16_numbers", signed(**many(BODY, 7)))
end = {"version": 2, "nodes": ..., "crit": [], "epsilon_micro": 0}
cases.add("its_end_has_no_nodes", signed(**end), before=(("campaign", signed(), NOW),))

for name, changes in {
    "list_empty": {"list": ""},
    "list_with_a_line_break": {"list": "a\n"},
    "list_of_1025_bytes": {"list": "x" * 1025},
    "list_is_a_number": {"list": 1},
    "no_records": {"max_records": 0},
    "records_above_2_to_the_40": {"max_records": MAX_RECORDS + 1},
    "records_are_true": {"max_records": True},
    "least_epsilon_0": {"least_epsilon_micro": 0},
    "least_epsilon_below_a_millionth_each": {"least_epsilon_micro": 3},
    "least_epsilon_above_the_epsilon": {"least_epsilon_micro": 1_000_001},
    "least_epsilon_is_text": {"least_epsilon_micro": "1000"},
    "another_sensitivity": {"sensitivity": "local"},
    "sensitivity_is_nil": {"sensitivity": None},
    "unknown_key": {"zz": 1},
    **{f"without_{key}": {key: ...} for key in MAP},
}.items():
    cases.add(name, signed(nodes=changed(MAP, **changes)), reason=INVALID)
asked = canonical.unpack(PUBLISHER.campaign_payload())
series = Series("pilot", NOW).to_dict()
for name, fields in {
    "key_is_not_in_crit": {"crit": []},
    "crit_without_the_key": {"nodes": ...},
    "nodes_is_nil": {"nodes": None},
    "nodes_is_a_list": {"nodes": [MAP]},
    "with_questions": {key: asked[key] for key in ("questions", "fit")},
    "with_an_answer": {"answers": 1},
    "with_the_questions_of_devices": {key: asked[key] for key in ("questions", "answers", "fit")},
    "epsilon_0": {"epsilon_micro": 0},
    "of_a_series": {"series": series, "crit": ["nodes", "series"]},
    "evaluates_a_model": {"fit": {"family": "outcome", "postprocess": "none"}, "model": bytes(32)},
    "names_models": {"models": [bytes(32), b"\x01" * 32], "model_names": ["a", "b"], "crit": ["models", "nodes"]},
    "layout_2": {"layout": 2},
    "record_length_19": {"record_length": 19},
    "groups_of_a_number": {"groups": [{"feature": 1, "group_of": [0, 0]}], "crit": ["groups", "nodes"]},
    "no_contact": {"contact": ...},
    "gaussian_without_a_number": {"features": asked["features"][:1]},
}.items():
    cases.add(name, signed(**fields), reason=INVALID)
cases.add("another_key_in_crit", signed(crit=["nodes", "zz"]), reason="unknown_crit")
cases.add("more_than_2_to_the_19_numbers", signed(**many(BODY, 8)), reason=INVALID)
devices = (PUBLISHER.campaign(), "mushrooms")
cases.older("nodes", {"older_reader": signed()}, {"older_reader_of_a_campaign_for_devices": devices})

s = 65536
four = [["class", 2], ["cell", 8], ["moment", 2], ["moment", 2]]
for name, epsilon, share, reach in (
    ("ranges_at_1", 1_000_000, 250_000, 256),
    ("ranges_at_an_epsilon_that_four_does_not_divide", 999_999, 249_999, 257),
    ("ranges_at_the_least", 100_000, 25_000, 2560),
):
    counts, wide = [-reach, 1000 + reach], -(-64 * 10**6 * s // share)
    sums = [[-1000 * s - wide, 1000 * s + wide], [-wide, 1000 * s + wide]]
    expect = [[*one, share, *ends] for one, ends in zip(four, [counts, counts, *sums], strict=True)]
    _range(cases, name, signed(), epsilon, expect=expect)
discrete = PUBLISHER.sign("campaign", node_payload(PUBLISHER, DISCRETE))
three = [["class", 2], ["cell", 8], ["cell", 4]]
_range(cases, "ranges_of_a_discrete_campaign", discrete, 10**6, expect=[[*one, 333_333, -193, 1193] for one in three])
missing = THREE_CLASSES.sign("campaign", node_payload(THREE_CLASSES, GAUSSIAN))
five = [["class", 3], ["cell", 9], ["present", 6], ["moment", 3], ["moment", 3]]
reach, wide = 320, 320 * s
ends = [[-reach, 1000 + reach]] * 3 + [[-1000 * s - wide, 1000 * s + wide], [-wide, 1000 * s + wide]]
expect = [[*one, 200_000, *pair] for one, pair in zip(five, ends, strict=True)]
_range(cases, "ranges_of_a_number_that_may_be_missing", missing, 1_000_000, expect=expect)
smooth = signed(nodes={**MAP, "sensitivity": "smooth"})
wide, heavy = 4 * 128 * s, 4 * 131_072 * s
ends = [[-256, 1256], [-512, 1512], [-1000 * s - wide, 1000 * s + wide], [-heavy, 1000 * s + heavy]]
expect = [[*one, 250_000, *pair] for one, pair in zip(four, ends, strict=True)]
_range(cases, "ranges_of_smooth", smooth, 1_000_000, expect=expect)
_range(cases, "ranges_above_the_epsilon", signed(), 1_000_001, reason="epsilon_invalid")
_range(cases, "ranges_below_the_least", signed(), 99_999, reason="epsilon_invalid")
_range(cases, "ranges_of_a_campaign_for_devices", PUBLISHER.campaign(), 10**6, reason="campaign_for_devices")

for name, changes in {
    "list": {},
    "list_of_one": {"nodes": {FIRST: ENTRIES[FIRST]}},
    "list_with_an_unknown_key": {"zz": 1},
}.items():
    _list(cases, name, listed(**changes))
newer = listed(version=2, nodes={FIRST: ENTRIES[FIRST]})
_list(cases, "newer_list", newer, before=(("nodes", listed(), NOW),))
other = listed(name="other")
held = {"nodes wards": listed(version=2), "nodes other": other}
_list(cases, "list_of_another_name", other, before=(("nodes", listed(version=2), NOW),), floors=held)
both = {"campaign wards": signed(version=2), "nodes wards": listed()}
_list(cases, "list_and_campaign_of_one_name", listed(), before=(("campaign", signed(version=2), NOW),), floors=both)

other = NODE_KEYS[0].public
for name, nodes in {
    "no_node": {},
    "nodes_are_an_array": [other],
    "key_of_31_bytes": {keyid(other[:31]).hex(): other[:31]},
    "key_is_text": {FIRST: "key"},
    "wrong_keyid": {"00" * 8: other},
    "keyid_in_capitals": {keyid(other).hex().upper(): other},
    "keyid_of_another_key": {FIRST: next(ENTRIES[hint] for hint in ENTRIES if hint != FIRST)},
}.items():
    _list(cases, name, listed(nodes=nodes), WRONG_LIST)
_list(cases, "list_without_nodes", listed(nodes=...), WRONG_LIST)
payload = canonical.pack(LIST)
_list(cases, "list_signed_by_the_model_key", PUBLISHER.sign("nodes", payload, MODEL_KEY), "bad_signature")
_list(cases, "list_signed_by_a_node", PUBLISHER.sign("nodes", payload, NODE_KEYS[0]), "bad_signature")
_list(cases, "campaign_for_a_list", signed(), "wrong_role")
_list(cases, "list_for_a_campaign", listed(), "wrong_role", role="campaign")
_list(cases, "list_for_a_model", listed(), "wrong_role", role="model")
_list(cases, "list_version_0", listed(version=0), "malformed")
_list(cases, "list_with_a_key_in_crit", listed(crit=["zz"]), "unknown_crit")
_list(cases, "list_of_another_spec", listed(spec="2.0"), "unsupported_version")
_list(cases, "list_too_late", listed(), "expired", clock=NOW + 366 * DAY)
early = listed(not_before=NOW + DAY, expires=MAX_TIME)
_list(cases, "list_too_early", early, "not_yet_valid")
_list(cases, "older_list", listed(), "rollback", before=(("nodes", listed(version=2), NOW),))
other_list = listed(nodes={FIRST: ENTRIES[FIRST]})
_list(cases, "another_list_of_one_version", other_list, "equivocation", before=(("nodes", listed(), NOW),))
