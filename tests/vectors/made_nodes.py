"""Vectors of campaigns for nodes and of lists of nodes: which are refused, and by whom."""

from __future__ import annotations

from typing import Any

from support.nodes import NODE_KEYS, TERMS, node_payload
from support.publisher import DAY, MODEL_KEY, NOW, Publisher

from protocol import canonical
from protocol.document import MAX_TIME
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Series
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import MAX_RECORDS
from protocol.features import Categorical, Numeric
from protocol.nodes.summary import build_node_list
from protocol.schema import Label, build_schema
from vectors.makers import PUBLISHER, Collection

INVALID, WRONG_LIST = "invalid_campaign", "invalid_nodes"
PAYLOAD = node_payload(PUBLISHER)
BODY = canonical.unpack(PAYLOAD)
MAP = TERMS.to_dict()
LIST = canonical.unpack(build_node_list(PUBLISHER.header("wards"), [one.public for one in NODE_KEYS]))
ENTRIES = LIST["nodes"]
FIRST = min(ENTRIES)
ANY = Publisher(
    schema=build_schema(
        Label("label", ["e", "p", "q"]),
        [Categorical("odor", ["a", "n"]), Numeric("width", "0", "10", [0], substitute=None)],
    )
)
"""Three classes, and a number that may be missing: five vectors of a Gaussian campaign."""


def make(cases: Collection) -> None:
    """All of them."""
    _good(cases)
    _refused(cases)
    _older(cases)
    _ranges(cases)
    _lists(cases)
    _bad_lists(cases)


def signed(**changes: Any) -> bytes:
    """A campaign for nodes with some fields replaced; a field of ``...`` is left out."""
    body = {**BODY, **changes}
    return PUBLISHER.sign("campaign", canonical.pack({key: body[key] for key in body if body[key] is not ...}))


def _good(cases: Collection) -> None:
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
    cases.add("seven_times_2_to_the_16_numbers", signed(**_many(7)))
    end = {"version": 2, "nodes": ..., "crit": [], "epsilon_micro": 0}
    cases.add("its_end_has_no_nodes", signed(**end), before=(("campaign", signed(), NOW),))


def _refused(cases: Collection) -> None:
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
    }.items():
        cases.add(name, signed(nodes={**MAP, **changes}), reason=INVALID)
    for key in MAP:
        left = {name: value for name, value in MAP.items() if name != key}
        cases.add(f"without_{key}", signed(nodes=left), reason=INVALID)
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
    cases.add("more_than_2_to_the_19_numbers", signed(**_many(8)), reason=INVALID)


def _many(features: int) -> dict[str, Any]:
    """Fields of a discrete campaign with 256 classes and as many codes per feature: 2^16 numbers per feature."""
    label = {**BODY["label"], "classes": [str(number) for number in range(256)]}
    entry = {**BODY["features"][1], "edges": [*range(255)]}
    entries = [{**entry, "name": f"width {number}"} for number in range(features)]
    return {"label": label, "features": entries, "fit": {"family": DISCRETE, "postprocess": "posterior"}}


def _older(cases: Collection) -> None:
    """A reader that does not know nodes refuses the campaigns for them, and no others."""
    for name, data, outcome in (
        ("older_reader", signed(), {"reason": "unknown_crit"}),
        ("older_reader_of_a_campaign_for_devices", PUBLISHER.campaign(), {"expect": "mushrooms"}),
    ):
        case: dict[str, Any] = {"name": name, "spec": "formats 5", "kind": "campaign_of_older_reader"}
        case |= {"root": cases.root, "data": cases.keep(name, data), "wall_clock": NOW, "unknown": ["nodes"]}
        cases.cases.append(case | outcome)


def _ranges(cases: Collection) -> None:
    """Vectors, shares and ranges, computed by hand from the text. ``TERMS``: at most 1000 records."""
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
    _range(
        cases, "ranges_of_a_discrete_campaign", discrete, 10**6, expect=[[*one, 333_333, -193, 1193] for one in three]
    )
    missing = ANY.sign("campaign", node_payload(ANY, GAUSSIAN))
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


def _range(cases: Collection, name: str, data: bytes, epsilon_micro: int, **outcome: Any) -> None:
    case: dict[str, Any] = {"name": name, "spec": "formats 6", "kind": "released_ranges"}
    case |= {"campaign": cases.keep(name, data), "epsilon_micro": epsilon_micro}
    cases.cases.append(case | outcome)


def listed(**changes: Any) -> bytes:
    """A list of nodes with some fields replaced; a field of ``...`` is left out."""
    body = {**LIST, **changes}
    return PUBLISHER.sign("nodes", canonical.pack({key: body[key] for key in body if body[key] is not ...}))


def _lists(cases: Collection) -> None:
    for name, changes in {
        "list": {},
        "list_of_one": {"nodes": {FIRST: ENTRIES[FIRST]}},
        "list_with_an_unknown_key": {"zz": 1},
    }.items():
        cases.add(name, listed(**changes), role="nodes")
    newer = listed(version=2, nodes={FIRST: ENTRIES[FIRST]})
    cases.add("newer_list", newer, role="nodes", before=(("nodes", listed(), NOW),))
    other = listed(name="other")
    held = {"nodes wards": listed(version=2), "nodes other": other}
    cases.add("list_of_another_name", other, role="nodes", before=(("nodes", listed(version=2), NOW),), floors=held)
    both = {"campaign wards": signed(version=2), "nodes wards": listed()}
    cases.add(
        "list_and_campaign_of_one_name",
        listed(),
        role="nodes",
        before=(("campaign", signed(version=2), NOW),),
        floors=both,
    )


def _bad_lists(cases: Collection) -> None:
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
        cases.add(name, listed(nodes=nodes), role="nodes", reason=WRONG_LIST)
    cases.add("list_without_nodes", listed(nodes=...), role="nodes", reason=WRONG_LIST)
    payload = canonical.pack(LIST)
    cases.add(
        "list_signed_by_the_model_key",
        PUBLISHER.sign("nodes", payload, MODEL_KEY),
        role="nodes",
        reason="bad_signature",
    )
    cases.add(
        "list_signed_by_a_node", PUBLISHER.sign("nodes", payload, NODE_KEYS[0]), role="nodes", reason="bad_signature"
    )
    cases.add("campaign_for_a_list", signed(), role="nodes", reason="wrong_role")
    cases.add("list_for_a_campaign", listed(), role="campaign", reason="wrong_role")
    cases.add("list_for_a_model", listed(), role="model", reason="wrong_role")
    cases.add("list_version_0", listed(version=0), role="nodes", reason="malformed")
    cases.add("list_with_a_key_in_crit", listed(crit=["zz"]), role="nodes", reason="unknown_crit")
    cases.add("list_of_another_spec", listed(spec="2.0"), role="nodes", reason="unsupported_version")
    cases.add("list_too_late", listed(), role="nodes", clock=NOW + 366 * DAY, reason="expired")
    early = listed(not_before=NOW + DAY, expires=MAX_TIME)
    cases.add("list_too_early", early, role="nodes", reason="not_yet_valid")
    cases.add("older_list", listed(), role="nodes", before=(("nodes", listed(version=2), NOW),), reason="rollback")
    changed = listed(nodes={FIRST: ENTRIES[FIRST]})
    cases.add(
        "another_list_of_one_version", changed, role="nodes", before=(("nodes", listed(), NOW),), reason="equivocation"
    )
