"""A model's card in words on a device: every kind of trust, old cards, and cards whose author means harm."""

from __future__ import annotations

import pytest
from support.failures import refusal
from support.publisher import Publisher

from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.documents.model import float_array, parse_model
from protocol.features import Categorical
from protocol.schema import Label, build_schema

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
