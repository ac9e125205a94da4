"""Campaigns that ask about some features and about groups of values: what a device reads, and what an answer tells."""

from fractions import Fraction
from itertools import product

import pytest
from support.failures import refusal
from support.publisher import NOW, small_schema

from protocol import mechanisms
from protocol.documents import campaign
from protocol.documents.asked import canonical_groups, restricted, ungroupable
from protocol.documents.campaign import parse_campaign
from protocol.documents.payload import Header, check_understood
from protocol.features import Categorical, Numeric
from protocol.questions import build_questions, discrete_subjects
from protocol.schema import Component, Label, Projection, build_schema

LABEL = Label("label", ["e", "p"])
ODOR = Categorical("odor", ["a", "n", "f"], unlisted="other")
"""The codes a, n, f, missing and other."""
GROUPS = (0, 1, 0, 2, 1)


def asking(schema, features, mechanism="direct", answers=1, micro=1_000_000):
    subjects = [one for one in discrete_subjects(schema) if one.feature is None or one.feature in features]
    questions = build_questions(
        subjects, answers, lambda one: mechanisms.from_micro(mechanism, micro // answers, one.size)
    )
    payload = campaign.build_payload(
        Header("c", 1, NOW, NOW, NOW + 10**6),
        schema,
        questions,
        epsilon_micro=micro,
        purpose="p",
        contact="c",
        time_precision=86_400,
        min_batch_size=1,
        fit=campaign.Fit("discrete", "simplex"),
    )
    return parse_campaign(payload)


def three_features():
    refusing = Categorical("cap", ["x", "y"], unlisted="refuse")
    return build_schema(LABEL, [refusing, ODOR, Numeric("width", "0", "10", [0], substitute=None)])


def names(schema):
    return [feature.name for feature in schema.features]


def indices(made):
    return [question.feature for question in made.questions]


def test_questions_are_about_the_asked_features_by_their_indices_and_others_are_not_read():
    two = asking(three_features(), {1, 2})
    assert (names(two.schema), names(two.stated), indices(two)) == (
        ["odor", "width"],
        ["cap", "odor", "width"],
        [None, 0, 1],
    )
    made = asking(three_features(), {1})
    for record in ({"odor": "n"}, {"odor": "n", "cap": "x"}, {"odor": "n", "cap": ["no value"], "width": "?"}):
        assert made.schema.observe(record).codes == (1,)
    assert made.check({"odor": "n"}, "e").missing == ()
    assert refusal(made.stated.observe, {"odor": "n", "cap": ["no value"]}) == "value_refused"
    whole = asking(small_schema(), {0, 1})
    assert (whole.schema is whole.stated, indices(whole), whole.header.crit) == (True, [None, 0, 1], ())
    class_alone = asking(three_features(), set())
    assert class_alone.schema.features == class_alone.schema.observe({"cap": 7}).codes == ()


@pytest.mark.parametrize(("name", "least"), [("direct", 27182), ("oue", 27182), ("sue", 27182), ("the", 24000)])
def test_answers_about_groups_are_private_by_enumeration(name, least):
    """Of every two records, also those with missing and unlisted values, each answer's probabilities differ by the
    factor e at most: exact fractions, all inputs of all records, all answers. The factor is reached up to rounding
    (``the``, whose threshold costs a part of ε, reaches 2.4)."""
    schema = build_schema(LABEL, [ODOR])._replace(groups=(GROUPS,))
    made = asking(schema, {0}, name)
    question = made.questions[1]
    assert question.size == 6
    values = ["a", "n", "f", None, "zz", 3]
    inputs = {
        question.input_of(made.schema.observe({"odor": value}), label, 2) for value, label in product(values, (0, 1))
    }
    assert inputs == set(range(6))
    laws = [question.mechanism.distribution(value) for value in inputs]
    assert all(sum(law.values()) == 1 for law in laws)
    worst = max(one[answer] / other[answer] for one in laws for other in laws for answer in one)
    # e lies between 2.7182 and the last fraction.
    assert Fraction(least, 10000) < worst <= Fraction(2718281829, 1000000000)
    assert float(made.privacy_loss()) <= 1.0


def test_records_of_one_group_have_one_input_and_its_words():
    made = asking(build_schema(LABEL, [ODOR])._replace(groups=(GROUPS,)), {0})
    codes = [made.schema.observe({"odor": value}).codes[0] for value in ("a", "n", "f", None, "zz")]
    assert codes == list(GROUPS)
    assert [made.schema.recognise({"odor": value})[0] for value in ("a", None, "zz")] == [(0, None), None, (1, None)]
    assert made.schema.observed[0].labels() == ["{a, f}", "{n, (other)}", "(missing)"]
    assert made.schema.observed[0].missing_code == 2
    assert build_schema(LABEL, [ODOR])._replace(groups=((0, 1, 1, 1, 1),)).observed[0].missing_code is None
    assert (made.stated.groups, made.header.crit) == ((), ("groups",))
    check_understood(made.header, campaign.UNDERSTOOD)
    assert refusal(check_understood, made.header, campaign.UNDERSTOOD - {"groups"}) == "unknown_crit"


def test_components_keep_their_inputs_and_their_rows():
    numbers = [Numeric(name, "0", "1", [0]) for name in ("x", "y")]
    parts = [Component("first", -65536, 65536, [0]), Component("second", -65536, 65536, [-30000, 30000])]
    projection = Projection([1, 2], [[1, 0], [0, 1]], [0, 0], 0, parts)
    schema = build_schema(LABEL, [ODOR, *numbers], projection)._replace(groups=(None, None, (0, 0, 1)))
    record = {"odor": "n", "x": "0.1", "y": "0.9"}
    whole = schema.observe(record)
    second = restricted(schema, [0, 2])
    assert second.observe(record).codes == (whole.codes[0], whole.codes[2]) == (1, 1)
    assert names(second) == ["odor", "x", "y"]
    category = restricted(schema, [0])
    assert (category.projection, names(category), category.groups) == (None, ["odor"], ())
    made = asking(schema, {2})
    assert names(made.schema) == ["x", "y"]
    assert made.schema.observe(record).codes == (1,)


@pytest.mark.parametrize(
    "groups", [(0, 0, 0, 0, 0), (0, 1, 2, 3, 4), (1, 0, 0, 0, 0), (0, 2, 2, 2, 2), (0, 1), (0, 1, 1, 1, True)]
)
def test_these_are_no_groups_of_five_codes(groups):
    assert ungroupable(ODOR, groups)


def test_canonical_groups_are_numbered_by_their_first_codes():
    assert canonical_groups([5, 2, 5, 9]) == (0, 1, 0, 2)
