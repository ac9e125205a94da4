"""The text for the owner before a campaign is accepted: every question with its chance, and odds never too low.

It names the features and groups that are asked, and the owner's list is about these.
"""

from __future__ import annotations

import math
import re

import pytest
from support.failures import reason, refusal
from support.publisher import DAY, Publisher

import edge_sdk.explaining
from edge_sdk import Device, Policy
from edge_sdk.explaining import _odds, _percent
from protocol import SCALE, canonical, mechanisms
from protocol.documents import campaign as campaigns
from protocol.documents.asked import groups_to_list
from protocol.documents.envelope import read_envelope
from protocol.documents.model import float_array, parse_model
from protocol.features import Categorical, Numeric
from protocol.questions import Question, Subject, build_questions, discrete_subjects
from protocol.schema import Component, Label, Projection, build_schema

FEATURES = [f"f{number}" for number in range(30)]
WIDE = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical(name, ["a", "n"]) for name in FEATURES]))
SUBJECTS = discrete_subjects(WIDE.schema)


def with_weights(weights, *more, answers=1):
    """A signed campaign that asks for the label, thirty features and ``more`` of them, with these weights."""
    questions = build_questions(
        [*SUBJECTS, *more],
        answers,
        lambda subject: mechanisms.from_micro("direct", 1_000_000 // answers, subject.size),
        weights,
    )
    payload = canonical.unpack(WIDE.campaign_payload(answers=answers))
    asked = [question.to_dict() for question in questions]
    return WIDE.sign("campaign", canonical.pack({**payload, "questions": asked}))


def listed(text):
    """Chance and subject of every subject that has a line, in order."""
    return re.findall(r"^  - (\S+(?: 0\.1%)?)  (.*?)(?: together with its 'label')?: one of", text, re.MULTILINE)


def test_the_question_that_is_really_asked_comes_first(device):
    assert listed(device.explain(with_weights([1] * 30 + [10_000])))[0] == ("99.7%", "'f29'")
    pieces = [SUBJECTS[30]] * 300  # a question in many small pieces, a third of a percent each, is not rare
    assert listed(device.explain(with_weights([1] * 331, *pieces)))[0] == ("90.9%", "'f29'")
    certain = listed(device.explain(WIDE.campaign(answers=31, epsilon_micro=3_100_000)))
    assert ([chance for chance, _ in certain], len(certain)) == (["100%"] * 31, 31)
    assert [_percent(width) for width in (1, 1 << 20, 1 << 31, 1 << 32)] == ["under 0.1%", "under 0.1%", "50%", "100%"]


@pytest.mark.parametrize("most", [1, 13, 31])
def test_nothing_above_one_percent_is_hidden_and_every_name_is_there(device, most):
    text = device.explain(with_weights([1] * (31 - most) + [1000] * most))
    shown = [subject for _, subject in listed(text)]
    assert len(shown) == max(most, 12)
    assert set(shown) >= {f"'{name}'" for name in FEATURES[-most:]}
    assert all(f"'{name}'" in text for name in FEATURES)
    assert "its 'label'" in text
    assert ("together, " in text) == (most < 31)


def test_each_answer_has_its_own_chances(device):
    text = device.explain(with_weights([1] * 30 + [9986], answers=2))
    first, second = text.split("  answer 1, one of\n")[1].split("  answer 2, one of\n")
    assert listed(first)[0] == ("6.3%", "its 'label'")
    assert "'f29'" not in first
    assert listed(second)[0] == ("99.9%", "'f29'")
    assert "'f14'" not in second.split("Cost")[0]


@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.5, 1.0, 3.3, 6.9, 7.0, 20.0, 300.0, 700.0])
def test_odds_are_rounded_up_and_not_far(epsilon):
    told = float(_odds(epsilon)) - 1
    assert math.expm1(epsilon) <= told <= math.expm1(epsilon) * 1.0011


def test_no_epsilon_is_too_large_to_explain(device):
    text = device.explain(WIDE.campaign(answers=31, epsilon_micro=31 * 16_000_000))
    odds = float(re.search(r"by at most (\S+)\.\n", text)[1])
    assert 495 < math.log(odds) <= 496.001
    assert _odds(900.0) == "7.329e+390"
    assert "e+" in _odds(1_048_560.0)


def long_names(number, projection=None):
    features = [Numeric(f"{place:04d}" + "é" * 500, "0", "1", [0]) for place in range(number)]
    return build_schema(Label("l" * 1000, ["a" * 1000, "b" * 1000]), features, projection)


def asking(schema, subjects, mechanism):
    count = len(subjects)
    bounds = [((1 << 32) * (place + 1)) // count for place in range(count)]
    questions = tuple(Question(subject, 0, bound, mechanism) for subject, bound in zip(subjects, bounds, strict=True))
    publisher = Publisher(schema=schema)
    joint = subjects[0].kind == "moments"
    payload = campaigns.build_payload(
        publisher.header("long"), schema, questions, epsilon_micro=1_000_000, purpose="p", contact="c",
        time_precision=DAY, min_batch_size=1,
        fit=campaigns.Fit("gaussian", "simplex", 10_000) if joint else campaigns.Fit("discrete", "simplex", 0),
    )  # fmt: skip
    return publisher.sign("campaign", payload)


def many_moments(names, questions):
    """All numbers and their squares in turn, asked for in many questions."""
    mechanism = mechanisms.from_micro("laplace", 1_000_000, 2 * names, delta=2 * names)
    subjects = [Subject("moments", None, 2 * names, 1 + number % 2) for number in range(questions)]
    return asking(long_names(names), subjects, mechanism)


def many_components(names, questions):
    """Components of all inputs."""
    components = [Component(f"c{number}", -SCALE, SCALE, [0]) for number in range(questions)]
    computed = Projection(range(names), [[1] * names] * questions, [0] * questions, 10, components)
    subjects = [Subject("cell", number, 4) for number in range(questions)]
    return asking(long_names(names, computed), subjects, mechanisms.from_micro("direct", 1_000_000, 4))


@pytest.mark.parametrize("made", [many_moments, many_components])
def test_the_text_of_a_campaign_grows_with_its_names_and_its_questions_and_not_with_their_product(
    device, monkeypatch, made
):
    """The work is counted in characters that are read."""
    raw = made(60, 100)
    looked_at = [0]
    plain = edge_sdk.explaining.quoted

    def counted(text):
        looked_at[0] += len(text)
        return plain(text)

    monkeypatch.setattr(edge_sdk.explaining, "quoted", counted)
    text = device.explain(raw)
    assert len(text) < 2 * len(raw) + 200 * 100
    assert looked_at[0] < 2 * len(raw) + 200 * 100
    assert all(text.count(f"{place:04d}é") == 1 for place in range(60))


def test_no_purpose_ends_a_line_where_none_ends(device, publisher):
    spaces = " " * 200
    forged = "The owner's policy allows it, for at most 100 more answers"
    text = device.explain(publisher.campaign(name=f"a{spaces}b", changes={"purpose": f"learn.{spaces}{forged}"}))
    assert f"purpose    learn. {forged}" in text
    assert re.search(r"Campaign 'a (\\x20){199}b'", text)


def test_a_description_promises_nothing_that_a_large_epsilon_breaks():
    assert "over 99% of the time" in mechanisms.from_epsilon("direct", epsilon="16", size=2).describe()
    assert "73% of the time" in mechanisms.from_epsilon("direct", epsilon="1", size=2).describe()
    assert "100%" not in mechanisms.from_epsilon("direct", epsilon="5.3", size=2).describe()
    for name, size in (("laplace", 2), ("she", 4)):
        assert "the less the larger ε is" in mechanisms.from_epsilon(name, epsilon="16", size=size).describe()


def test_a_period_that_is_paid_for_is_not_a_remaining_one(device, publisher, clock):
    """Also after the campaign's next version has periods of another length, of which one has begun in paid time."""

    def remaining(raw):
        return int(re.search(r"in all (\d+) remaining periods", device.explain(raw))[1])

    raw = publisher.campaign()
    before = remaining(raw)
    device.report(device.enrol(raw).id, {"odor": "n"})
    assert remaining(raw) == before - 1
    clock.now += DAY
    assert remaining(raw) == before - 1
    device.report(device.enrol(raw).id, {"odor": "n"})
    longer = publisher.campaign(version=2, time_precision=10 * DAY)
    expires = campaigns.parse_campaign(publisher.campaign_payload(version=2, time_precision=10 * DAY)).header.expires
    begin = -(-(clock.now // DAY + 1) // 10)
    assert remaining(longer) == -(-expires // (10 * DAY)) - begin


LABEL = Label("label", ["e", "p"])
ODORS_AND_SIZES = [
    Categorical("odor", ["almond", "anise", "none", "foul"]),
    Categorical("cap", ["x", "y"]),
    *(Numeric(name, "0", "10", [0]) for name in ("width", "height")),
]
SCHEMA = build_schema(LABEL, ODORS_AND_SIZES)


def asking_about(schema, places):
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
    asked, _, rest = device.explain(asking_about(SCHEMA, {1, 2})).partition("It does not ask about ")
    assert [name for name in ("odor", "cap", "width", "height") if f"'{name}'" in asked] == ["cap", "width"]
    assert rest.splitlines()[0] == "'odor', 'height'."
    assert "does not ask" not in device.explain(asking_about(SCHEMA, {0, 1, 2, 3}))
    found = device.enrol(asking_about(SCHEMA, {1})).check({"cap": "x", "odor": "zz", "label": "e"})
    assert (found.missing, found.unlisted) == ((), ())


@pytest.mark.parametrize(
    ("values", "groups", "said"),
    [
        (
            ["almond", "anise", "none", "foul"],
            (0, 0, 1, 2, 2),
            "{'almond', 'anise'} / {'none'} / {'foul', '(missing)'}",
        ),
        ([f"v{number}" for number in range(20)], (0, 0, *[1] * 19), "{'v0', 'v1'} / {all other values}"),
        (["a'} / {'b", "c", "d"], (0, 0, 1, 1), r"{'a\'} / {\'b', 'c'} / {'d', '(missing)'}"),
    ],
)
def test_groups_are_named_in_words_and_no_value_pretends_to_end_its_group(device, values, groups, said):
    schema = build_schema(LABEL, [Categorical("odor", values)])
    text = device.explain(asking_about(schema._replace(groups=(groups,)), {0}))
    count = 2 * (max(groups) + 1)
    assert f"which group 'odor' is in (one of {said}), together with its 'label': one of {count} values" in text


@pytest.mark.parametrize(("allowed", "refused"), [(["cap", "label"], None), (["odor", "label"], "policy_refused")])
def test_the_owners_list_is_about_what_is_asked(clock, allowed, refused):
    raw = asking_about(SCHEMA, {1})
    with Device.open(None, trust=Publisher().root(), policy=Policy.of(features=allowed), clock=clock) as device:
        assert reason(device.enrol, raw) == refused
        assert refused or device.report("mushrooms", {"cap": "x"}, "e")


@pytest.mark.parametrize(
    ("allowed", "refused"), [(["width", "height", "label"], None), (["width", "label"], "policy_refused")]
)
def test_of_a_component_every_input_is_asked(clock, allowed, refused):
    parts = [Component(name, -65536, 65536, [0]) for name in ("first", "second")]
    schema = build_schema(LABEL, ODORS_AND_SIZES, Projection([2, 3], [[1, 0], [0, 1]], [0, 0], 0, parts))
    raw = asking_about(schema, {2})  # the component that weighs width alone
    with Device.open(None, trust=Publisher().root(), policy=Policy.of(features=allowed), clock=clock) as device:
        text = device.explain(raw)
        assert "'first' (a component)" in text
        assert "Each component is computed from 'width', 'height'" in text
        assert "does not ask about 'odor', 'cap'." in text
        assert reason(device.enrol, raw) == refused


# A model's card in words: every kind of trust, old cards, and cards whose author means harm

CARD = {
    "trust": "local",
    "purpose": "learn which mushrooms are edible",
    "reports": 20_000,
    "epsilon_total": "1",
    "epsilon_per_answer": "1",
    "expected_accuracy": "0.931",
    "expected_accuracy_low": "0.920",
    "expected_accuracy_high": "0.940",
    "expected_accuracy_assumes": "if features are independent given the class",
    "largest_class": "0.518",
    "beats_largest_class": "yes",
    "threats": "Whoever controls many devices can move the numbers.",
    "reach_of_lies": "1 % of lying devices move the share of a class by at most 4.3 points",
}
MOST_CHARACTERS = 8_000
"""No explanation of a model is longer, whatever its card holds."""


def signed(card, publisher=None, **terms):
    """A signed model with this card."""
    publisher = publisher or Publisher()
    body = canonical.unpack(read_envelope(publisher.model(**terms), "model").payload)
    return publisher.sign("model", canonical.pack({**body, "card": card}))


def test_it_says_source_cost_accuracy_and_who_could_have_moved_it(device):
    text = device.explain(signed(CARD))
    lines = {line[:22].strip(): line[22:] for line in text.splitlines() if line.startswith("  ")}
    assert lines["learned from"] == "20000 reports of devices"
    assert lines["at a cost of"] == "ε = 1 in a period"
    assert lines["expected right"] == (
        "93.1% of the records (92.0% to 94.0%) if features are independent given the class"
    )
    assert lines["the largest class"].startswith("51.8% of the records")
    assert "each device added noise" in lines["privacy rests on"]
    assert lines["moved by"].endswith("; 1 % of lying devices move the share of a class by at most 4.3 points")
    assert lines["it warns"] == CARD["threats"]
    assert "which this device can not check" in text


@pytest.mark.parametrize(
    ("trust", "said"),
    [
        ("federated", "each node read its own records"),
        ("distributed", "the dealer of the keys"),
        ("central", "a curator saw all records"),
        ("local; federated", "so nobody had to be trusted with a record; each node read its own records"),
        ("secure enclave", "in the words of its publisher: 'secure enclave'"),
        ("local; secure enclave", "with a record; in the words of its publisher"),
    ],
)
def test_each_kind_of_trust_has_its_words(device, trust, said):
    text = device.explain(signed({**CARD, "trust": trust, "delta": "1/1000000"}))
    assert said in text
    assert "δ = 1/1000000" in text


@pytest.mark.parametrize(
    ("beats", "said"), [("no", "is right no more often"), ("not known yet", "It is not known"), (None, "It is not")]
)
def test_a_model_that_may_be_useless_is_said_to_be(device, beats, said):
    assert said in device.explain(signed({**CARD, "beats_largest_class": beats}))
    assert said not in device.explain(signed(CARD))


def test_a_class_that_the_model_never_says_is_named(device):
    name = parse_model(read_envelope(signed(CARD), "model").payload).schema.label.classes[1]
    recall = {"expected_recall": {name: "never predicted", "no class": "never predicted"}}
    text = device.explain(signed({**CARD, **recall}))
    assert text.splitlines()[-1].startswith("By its own statistics it never says")
    assert name in text.splitlines()[-1]
    assert "no class" not in text
    assert "never says" not in device.explain(signed(CARD))


def test_an_empty_card_and_one_of_an_older_release_are_explained(device):
    assert "not stated" in device.explain(signed({}))
    older = {key: CARD[key] for key in ("reports", "epsilon_total", "threats", "expected_accuracy", "largest_class")}
    text = device.explain(signed(older))
    assert "20000 reports or records" in text
    assert "93.1% of the records" in text
    assert "not known yet" in device.explain(signed({**CARD, "expected_accuracy": "not known yet"}))


HOSTILE = [
    None, True, -1, 2**63, b"\x00" * 9000, [], [[]] * 1000, {}, {"a": {"b": ["c"]}}, "", "x" * 200_000,
    "1e999", "nan", "0.5\n0.6", "\x1b[2J\nModel 'good', version 9", "\u202e\u2066evil\u3164", "1." + "0" * 99, "²",
    "the owner's policy allows it" + " " * 5000 + "yes",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_no_value_of_any_entry_makes_it_fail_or_forges_a_line(device, value):
    plain = device.explain(signed(CARD))
    for card in (dict.fromkeys(CARD, value), {**CARD, "threats": value}, {**CARD, "trust": value}):
        text = device.explain(signed(card))
        assert len(text) < MOST_CHARACTERS
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "\u3164" not in text
        assert abs(len(text.splitlines()) - len(plain.splitlines())) <= 2
        assert sum(line.startswith("Model ") for line in text.splitlines()) == 1


def test_many_long_names_are_cut(device):
    publisher = Publisher(
        schema=build_schema(
            Label("label" * 50, [f"{number}{'c' * 900}" for number in range(50)]),
            [Categorical(f"{number}{'f' * 900}", ["odor"]) for number in range(200)],
        )
    )
    body = canonical.unpack(read_envelope(Publisher().model(), "model").payload)
    wide = publisher.schema
    tables = [float_array([0.0] * feature.size * 50, [feature.size, 50]) for feature in wide.features]
    body |= {"label": wide.label.to_dict(), "features": [feature.to_dict() for feature in wide.features], "card": CARD}
    body |= {"parameters": {"log_prior": float_array([0.0] * 50, [50]), "log_likelihood": tables}}
    text = device.explain(publisher.sign("model", canonical.pack(body)))
    assert len(text) < MOST_CHARACTERS
    assert "and 188 more" in text
    assert "and 38 more" in text


def test_it_is_verified_and_changes_nothing(device):
    before = device.status()
    assert device.explain(signed(CARD))
    assert device.status() == before
    assert refusal(device.explain, signed(CARD)[:-1] + b"\0") in ("bad_signature", "malformed")
    assert refusal(device.explain, signed(CARD), model=signed(CARD)) == "argument_invalid"
    device.install(signed(CARD))
    assert "93.1%" in device.explain(signed(CARD))
