"""What the owner reads before a campaign is accepted: every question by its chance, and odds that are never too low."""

from __future__ import annotations

import math
import re

import pytest
from support.publisher import Publisher

from edge_sdk.explain import _odds, _percent
from protocol import canonical, mechanisms
from protocol.features import Categorical
from protocol.questions import build_questions, discrete_subjects
from protocol.schema import Label, build_schema

FEATURES = [f"f{number}" for number in range(30)]


def wide_publisher():
    return Publisher(
        schema=build_schema(Label("label", ["e", "p"]), [Categorical(name, ["a", "n"]) for name in FEATURES])
    )


def with_weights(publisher, subjects, weights, answers=1):
    """A signed campaign that asks these subjects, one per weight."""
    questions = build_questions(
        subjects, answers, lambda subject: mechanisms.from_micro("direct", 1_000_000 // answers, subject.size), weights
    )
    entries = [question.to_dict() for question in questions]
    payload = canonical.unpack(publisher.campaign_payload(answers=answers))
    return publisher.sign("campaign", canonical.pack({**payload, "questions": entries}))


def listed(text):
    """Chance and subject of every line of its own, in order."""
    return re.findall(r"^  - (\S+(?: 0\.1%)?)  (.*?)(?: together with its 'label')?: one of", text, re.MULTILINE)


def test_the_question_that_is_really_asked_comes_first(device):
    publisher = wide_publisher()
    subjects = discrete_subjects(publisher.schema)
    weights = [1] * len(subjects)
    weights[-1] = 10_000  # the last of thirty
    text = device.explain(with_weights(publisher, subjects, weights))
    assert listed(text)[0] == ("99.7%", "'f29'")


@pytest.mark.parametrize("most", [1, 13, 31])
def test_nothing_above_one_percent_is_hidden_and_every_name_is_there(device, most):
    publisher = wide_publisher()
    subjects = discrete_subjects(publisher.schema)
    weights = [1] * (len(subjects) - most) + [1000] * most
    text = device.explain(with_weights(publisher, subjects, weights))
    shown = [subject for _, subject in listed(text)]
    assert len(shown) == max(most, 12)
    assert set(shown) >= {f"'{name}'" for name in FEATURES[-most:]}
    for name in FEATURES:
        assert f"'{name}'" in text
    assert "its 'label'" in text
    assert ("together, " in text) == (most < 31)


def test_a_question_in_many_small_pieces_is_not_rare(device):
    publisher = wide_publisher()
    plain = discrete_subjects(publisher.schema)
    pieces = [plain[30]] * 300  # f29, a third of a percent each
    text = device.explain(with_weights(publisher, [*plain, *pieces], [1] * 331))
    assert listed(text)[0] == ("90.9%", "'f29'")


def test_each_answer_has_its_own_chances(device):
    publisher = wide_publisher()
    subjects = discrete_subjects(publisher.schema)
    weights = [1] * 16 + [1] * 14 + [9986]
    text = device.explain(with_weights(publisher, subjects, weights, answers=2))
    first, second = text.split("  answer 1, one of\n")[1].split("  answer 2, one of\n")
    assert listed(first)[0] == ("6.3%", "its 'label'")
    assert "'f29'" not in first
    assert listed(second)[0] == ("99.9%", "'f29'")
    assert "'f14'" not in second.split("Cost")[0]


def test_all_questions_are_certain_where_all_are_answered(device):
    publisher = wide_publisher()
    text = device.explain(publisher.campaign(answers=31, epsilon_micro=3_100_000))
    assert {chance for chance, _ in listed(text)} == {"100%"}
    assert len(listed(text)) == 31


def test_what_may_be_asked_is_never_zero_percent():
    assert [_percent(width) for width in (1, 1 << 20, 1 << 31, 1 << 32)] == ["under 0.1%", "under 0.1%", "50%", "100%"]


@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.5, 1.0, 3.3, 6.9, 7.0, 20.0, 300.0, 700.0])
def test_odds_are_rounded_up_and_not_far(epsilon):
    told = float(_odds(epsilon)) - 1
    assert math.expm1(epsilon) <= told <= math.expm1(epsilon) * 1.0011


def test_no_epsilon_is_too_large_to_explain(device):
    publisher = wide_publisher()
    text = device.explain(publisher.campaign(answers=31, epsilon_micro=31 * 16_000_000))
    odds = float(re.search(r"by at most (\S+)\.\n", text)[1])
    assert 495 < math.log(odds) <= 496.001
    assert _odds(900.0) == "7.329e+390"
    assert "e+" in _odds(1_048_560.0)
