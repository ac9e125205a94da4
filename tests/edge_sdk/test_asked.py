"""What an owner is told of a campaign that asks about some features and groups, and what the owner's list allows."""

from __future__ import annotations

import re

import pytest
from support.failures import reason
from support.publisher import Publisher

from edge_sdk import Device, Policy
from protocol import canonical, mechanisms
from protocol.documents.asked import groups_to_list
from protocol.features import Categorical, Numeric
from protocol.questions import build_questions, discrete_subjects
from protocol.schema import Component, Label, Projection, build_schema

LABEL = Label("label", ["e", "p"])
FEATURES = [
    Categorical("odor", ["almond", "anise", "none", "foul"]),
    Categorical("cap", ["x", "y"]),
    *(Numeric(name, "0", "10", [0]) for name in ("width", "height")),
]
SCHEMA = build_schema(LABEL, FEATURES)


def asking(schema, places):
    """A signed campaign about some observed features of a schema with groups."""
    publisher = Publisher(schema=schema._replace(groups=()))
    subjects = [one for one in discrete_subjects(schema) if one.feature is None or one.feature in places]
    questions = build_questions(subjects, 1, lambda one: mechanisms.from_micro("direct", 1_000_000, one.size))
    body = canonical.unpack(publisher.campaign_payload())
    body["questions"] = [question.to_dict() for question in questions]
    if schema.groups:
        body |= {"groups": groups_to_list(schema), "crit": ["groups"]}
    return publisher.sign("campaign", canonical.pack(body))


def test_only_what_is_asked_is_named_as_asked(device):
    text = device.explain(asking(SCHEMA, {1, 2}))
    asked, _, rest = text.partition("It does not ask about ")
    assert "'cap'" in asked
    assert "'width'" in asked
    assert "'odor'" not in asked
    assert rest.splitlines()[0] == "'odor', 'height'."


def test_a_campaign_about_everything_says_nothing_of_the_rest(device):
    assert "does not ask" not in device.explain(asking(SCHEMA, {0, 1, 2, 3}))


def test_groups_are_named_in_words(device):
    text = device.explain(asking(SCHEMA._replace(groups=((0, 0, 1, 2, 2), None, None, None)), {0, 1}))
    assert (
        "which group 'odor' is in (one of {'almond', 'anise'} / {'none'} / {'foul', '(missing)'}), together with "
        "its 'label': one of 6 values" in text
    )


def test_a_long_rest_is_all_other_values_and_a_short_group_is_listed(device):
    long = build_schema(LABEL, [Categorical("odor", [f"v{number}" for number in range(20)])])
    text = device.explain(asking(long._replace(groups=((0, 0, *[1] * 19),)), {0}))
    assert "(one of {'v0', 'v1'} / {all other values})" in text


def test_a_value_can_not_pretend_to_end_its_group(device):
    odd = build_schema(LABEL, [Categorical("odor", ["a'} / {'b", "c", "d"])])
    text = device.explain(asking(odd._replace(groups=((0, 0, 1, 1),)), {0}))
    found = re.search(r"\(one of (.*)\), together", text)
    assert found
    assert found[1] == r"{'a\'} / {\'b', 'c'} / {'d', '(missing)'}"


@pytest.mark.parametrize(("allowed", "refused"), [(["cap", "label"], None), (["odor", "label"], "policy_refused")])
def test_the_owners_list_is_about_what_is_asked(clock, allowed, refused):
    raw = asking(SCHEMA, {1})
    with Device.open(None, trust=Publisher().root(), policy=Policy.of(features=allowed), clock=clock) as device:
        if refused is None:
            assert device.report(device.enrol(raw).id, {"cap": "x"}, "e")
        else:
            assert reason(device.enrol, raw) == refused


@pytest.mark.parametrize(("allowed", "refused"), [(["width", "height", "label"], None), (["width", "label"], True)])
def test_of_a_component_every_input_is_asked(clock, allowed, refused):
    parts = [Component(name, -65536, 65536, [0]) for name in ("first", "second")]
    schema = build_schema(LABEL, FEATURES, Projection([2, 3], [[1, 0], [0, 1]], [0, 0], 0, parts))
    raw = asking(schema, {2})  # the component that weighs width alone
    with Device.open(None, trust=Publisher().root(), policy=Policy.of(features=allowed), clock=clock) as device:
        text = device.explain(raw)
        assert "'first' (a component)" in text
        assert "Each component is computed from 'width', 'height'" in text
        assert "does not ask about 'odor', 'cap'." in text
        if refused is None:
            device.enrol(raw)
        else:
            assert reason(device.enrol, raw) == "policy_refused"


def test_what_is_not_asked_is_not_missing_and_not_counted(clock):
    with Device.open(None, trust=Publisher().root(), clock=clock) as device:
        campaign = device.enrol(asking(SCHEMA, {1}))
        found = campaign.check({"cap": "x", "odor": "zz", "label": "e"})
        assert (found.missing, found.unlisted) == ((), ())
