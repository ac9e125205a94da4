"""Vectors of campaigns that ask about some of the stated features, about values in groups, and about joins."""

from support.publisher import DAY, NOW

from protocol import canonical, mechanisms
from vectors.made_campaigns import INVALID
from vectors.made_devices import add_device
from vectors.makers import PUBLISHER, Collection, campaign

WORD = 1 << 32
BODY = canonical.unpack(PUBLISHER.campaign_payload())
CLASS, ODOR, WIDTH = BODY["questions"]
"""odor has the codes a, n, f and missing; width has two bins."""


def _bounded(*questions):
    count = len(questions)
    return [{**one, "bound": WORD * (place + 1) // count} for place, one in enumerate(questions)]


def _in_groups(count):
    return {**ODOR, "size": 2 * count, "mechanism": mechanisms.from_micro("direct", 1_000_000, 2 * count).to_dict()}


def grouped(groups, count=2, *, questions=None, **changes):
    """A campaign with the key ``groups``, in ``crit``, and a question about odor in ``count`` groups."""
    asked = _bounded(*(questions or (CLASS, _in_groups(count), WIDTH)))
    return campaign(BODY, **{"groups": groups, "crit": ["groups"], "questions": asked, **changes})


cases = Collection()

for name, questions in {
    "asks_the_class_and_one_feature": (CLASS, ODOR),
    "asks_one_feature_and_not_the_class": (WIDTH,),
    "asks_the_features_in_another_order": (WIDTH, CLASS, ODOR),
    "asks_the_class_alone": (CLASS,),
}.items():
    cases.add(name, campaign(BODY, questions=_bounded(*questions)))
both = campaign(BODY, questions=_bounded(CLASS, {**ODOR, "feature": 2}))
cases.add("asks_about_a_feature_beyond_the_stated", both, reason=INVALID)

for name, groups in {
    "two_groups": [0, 0, 1, 1],
    "a_group_of_codes_that_are_not_neighbours": [0, 1, 0, 1],
    "missing_alone": [0, 0, 0, 1],
    "missing_with_the_first_value": [0, 1, 1, 0],
}.items():
    cases.add(name, grouped([{"feature": 0, "group_of": groups}]))
cases.add("three_groups", grouped([{"feature": 0, "group_of": [0, 1, 0, 2]}], 3))
only = grouped([{"feature": 0, "group_of": [0, 1, 1, 1]}], questions=(_in_groups(2),))
cases.add("groups_of_the_only_asked_feature", only)
cases.add("unknown_key_of_a_group", grouped([{"feature": 0, "group_of": [0, 0, 1, 1], "zz": 1}]))
cases.add("crit_names_groups_twice", grouped([{"feature": 0, "group_of": [0, 0, 1, 1]}], crit=["groups", "groups"]))

good = {"feature": 0, "group_of": [0, 0, 1, 1]}
for name, groups in {
    "groups_of_too_few_codes": [{"feature": 0, "group_of": [0, 0, 1]}],
    "groups_of_too_many_codes": [{"feature": 0, "group_of": [0, 0, 1, 1, 1]}],
    "groups_numbered_in_another_order": [{"feature": 0, "group_of": [1, 1, 0, 0]}],
    "a_group_number_left_out": [{"feature": 0, "group_of": [0, 0, 2, 2]}],
    "a_negative_group": [{"feature": 0, "group_of": [0, -1, 1, 1]}],
    "a_group_that_is_true": [{"feature": 0, "group_of": [0, 0, True, True]}],
    "a_group_that_is_text": [{"feature": 0, "group_of": [0, 0, "1", "1"]}],
    "groups_of_a_feature_twice": [good, good],
    "groups_of_an_absent_feature": [{**good, "feature": 2}],
    "groups_of_feature_minus_1": [{**good, "feature": -1}],
    "groups_of_a_feature_by_name": [{**good, "feature": "odor"}],
    "groups_without_a_feature": [{"group_of": [0, 0, 1, 1]}],
    "groups_without_their_codes": [{"feature": 0}],
    "groups_as_a_map": {"0": [0, 0, 1, 1]},
    "groups_as_bare_arrays": [[0, 0, 1, 1]],
    "groups_are_empty": [],
    "groups_are_nil": None,
}.items():
    cases.add(name, grouped(groups), reason=INVALID)
one = {"feature": 0, "group_of": [0, 0, 0, 0]}
of_one_group = {**CLASS, "kind": ODOR["kind"], "feature": 0}
cases.add("a_single_group", grouped([one], 1, questions=(CLASS, WIDTH, of_one_group)), reason=INVALID)
each = {"feature": 0, "group_of": [0, 1, 2, 3]}
cases.add("each_code_in_a_group_of_its_own", grouped([each], 4), reason=INVALID)
cases.add("groups_of_an_unasked_feature", grouped([good], questions=(CLASS, WIDTH)), reason=INVALID)
cases.add("groups_without_crit", grouped([good], crit=[]), reason=INVALID)
cases.add("crit_without_groups", campaign(BODY, crit=["groups"]), reason=INVALID)
cases.add("the_size_of_all_codes_beside_groups", grouped([good], 4), reason=INVALID)
cases.add("the_size_of_groups_without_groups", campaign(BODY, questions=_bounded(_in_groups(2))), reason=INVALID)
ended = campaign(BODY, questions=[], answers=0, epsilon_micro=0, groups=[good], crit=["groups"])
cases.add("groups_in_a_campaign_that_has_ended", ended, reason=INVALID)


def joined(joins, *, feature=2, codes=8, **changes):
    """A campaign with the key ``joins``, in ``crit``, and a question about a join of so many combinations."""
    size = 2 * codes
    about = {**ODOR, "feature": feature, "size": size}
    about["mechanism"] = mechanisms.from_micro("direct", 1_000_000, size).to_dict()
    return campaign(BODY, **{"joins": joins, "crit": ["joins"], "questions": _bounded(CLASS, about), **changes})


cases.add("a_join", joined([[0, 1]]))
in_both = {"groups": [good], "crit": ["groups", "joins"]}
cases.add("a_join_of_a_feature_in_groups", joined([[0, 1]], codes=4, **in_both))
for name, joins in {
    "a_join_of_one_feature": [[0]],
    "a_join_of_a_feature_with_itself": [[0, 0]],
    "a_join_in_another_order": [[1, 0]],
    "a_join_of_an_absent_feature": [[0, 2]],
    "a_join_of_feature_minus_1": [[-1, 0]],
    "a_join_by_names": [["odor", "width"]],
    "a_join_of_true": [[False, True]],
    "a_join_twice": [[0, 1], [0, 1]],
    "a_join_that_is_a_map": [{"0": 1}],
    "joins_are_bare_indices": [0, 1],
    "joins_are_empty": [],
    "joins_are_nil": None,
}.items():
    cases.add(name, joined(joins), reason=INVALID)
cases.add("a_join_beyond_the_stated", joined([[0, 1]], feature=3), reason=INVALID)
cases.add("a_join_of_another_size", joined([[0, 1]], codes=7), reason=INVALID)
cases.add("a_join_that_is_not_asked_about", joined([[0, 1]], questions=_bounded(CLASS, ODOR)), reason=INVALID)
cases.add("joins_without_crit", joined([[0, 1]], crit=[]), reason=INVALID)
cases.add("crit_without_joins", campaign(BODY, crit=["joins"]), reason=INVALID)
odors = [str(number) for number in range(200)]
wide = [{**each, "name": name, "values": odors} for each, name in zip([BODY["features"][0]] * 2, "ab", strict=True)]
of_wide = [{"feature": place, "group_of": [0] + [1] * 200} for place in (0, 1)]
too_wide = joined([[0, 1]], codes=4, features=wide, **{**in_both, "groups": of_wide})
cases.add("a_join_of_too_many_combinations_without_groups", too_wide, reason=INVALID)
alike = [*BODY["features"], {**BODY["features"][0], "name": "odor × width"}]
namesake = joined([[0, 1]], feature=3, features=alike)
cases.add("a_join_with_the_name_of_a_feature", namesake, reason=INVALID)
floor = {"family": "gaussian", "postprocess": "simplex", "variance_floor_micro": 1}
cases.add("joins_in_a_gaussian_campaign", joined([[0, 1]], fit=floor), reason=INVALID)

cases.add("groups_and_a_key_of_later_software", grouped([good], crit=["groups", "zz"]), reason="unknown_crit")

for name, questions, features, refused in (
    ("only_asked_features_need_the_owners_leave", (CLASS, ODOR), ["odor", "label"], False),
    ("an_asked_feature_without_the_owners_leave", (CLASS, WIDTH), ["odor", "label"], True),
    ("the_label_without_the_owners_leave", (ODOR,), ["odor"], True),
):
    step = ("enrol", campaign(BODY, questions=_bounded(*questions)), NOW)
    outcome = {"reason": "policy_refused"} if refused else {"expect": {"name": "mushrooms", "version": 1}}
    add_device(cases, name, [], step, policy={"features": features}, **outcome)
strange = {**BODY["features"][1], "unlisted": "refuse"}
data = campaign(BODY, questions=_bounded(CLASS, ODOR), features=[BODY["features"][0], strange])
before = [("enrol", cases.keep("refusing", data), NOW)]
expect = {"period": NOW // DAY, "repeated": False}
add_device(cases, "an_unasked_feature_that_refuses_values", before, ("report", "mushrooms", NOW), expect=expect)
