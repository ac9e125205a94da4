"""The card of a model: every kind of statistics, small, canonical, and in words whatever it holds."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import NOW
from support.reports import made

from aggregator.cards.card import MOST_BYTES, full_card, shortened
from aggregator.cards.card_words import MOST_CHARACTERS, REST, SECTIONS, sections
from aggregator.cards.influence import influences, reach_of_reports
from aggregator.cards.manipulation import manipulation
from aggregator.estimates.joining import of_features
from aggregator.estimates.reports import estimate
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.reports.tally.tally import Tally
from protocol import canonical
from protocol.documents.campaign import parse_campaign
from protocol.features import Categorical
from protocol.schema import Label, build_schema

COUNTS = ((260, 140), (90, 10, 50, 60, 40, 30, 60, 60), (100, 60, 140, 100))


def statistics_of(campaign, counts):
    return estimate(campaign, Tally(campaign.id, tuple(map(sum, counts)), counts))


def test_it_says_what_was_asked_at_which_cost_and_what_was_counted():
    card = full_card(statistics_of(made(), COUNTS), "posterior")
    assert (card["trust"], "chosen" in card) == ("local", False)
    assert list(card["asked"]) == list(card["influence"].keys() & card["asked"].keys() and card["asked"])
    assert sum(card["answers"].values()) == card["reports"] == 1200
    assert "ε at most 1 in a period" in card["costs"][0]
    assert card["reach_of_lies"].startswith("1 % of the devices")
    (said,) = re.findall(r"of a class by at most ([\d.]+) points", card["reach_of_lies"])
    bounds = {n: manipulation(made(), (0.01,), n)[-1].closed[0.01] for n in (1200, None)}
    assert f"{100 * bounds[1200]:.1f}" == said != f"{100 * bounds[None]:.1f}"  # as page and guarantee sheet say
    assert canonical.pack(card)
    # ``publish --features`` failed with an IndexError.
    whole = statistics_of(made(), COUNTS)
    name = whole.schema.observed[1].name
    reach = dict(reach_of_reports(of_features(whole, [name]), "simplex"))
    assert reach["P(class)"] == dict(reach_of_reports(whole, "simplex"))["P(class)"]
    assert "invented" in full_card(of_features(whole, [name]), "posterior")["reach_of_lies"]


def wide(features, values, length=40):
    named = [Categorical(f"{number:04d}" + "n" * length, [str(v) for v in range(values)]) for number in range(features)]
    schema = build_schema(Label("label", ["a", "b"]), named)
    parameters = CampaignParameters("wide", 1_000_000, "direct")
    return parse_campaign(build_campaign(schema, parameters, NOW, 1))


@pytest.mark.slow
def test_a_card_of_many_features_stays_small():
    campaign = wide(66, 2, length=500)
    counts = tuple(tuple(range(1, question.size + 1)) for question in campaign.questions)
    card = full_card(statistics_of(campaign, counts), "simplex")
    assert len(canonical.pack(card)) < 64 << 10
    assert card["asked_besides"] == 2


def noisy(informative, rng):
    """Statistics of 20,000 devices at ε = 1 about ten features of two values and *missing*; the first may tell."""
    campaign = wide(10, 2, length=1)
    counts = []
    for place, question in enumerate(campaign.questions):
        truth = np.full(question.size, 1 / question.size)
        if informative and place == 1:
            truth = np.array([[0.3, 0.0], [0.0, 0.3], [0.2, 0.2]]).ravel()
        tables = (question.mechanism.distribution(x) for x in range(question.size))
        answered = np.array([[float(table[y]) for y in range(question.size)] for table in tables])
        counts.append(tuple(rng.multinomial(20_000 // len(campaign.questions), truth @ answered).tolist()))
    return statistics_of(campaign, tuple(counts))


@pytest.mark.parametrize("postprocess", ["simplex", "posterior"])
def test_what_tells_the_class_stands_out_of_the_noise_and_the_noise_is_as_large_as_said(postprocess):
    """120 features without any signal: one in 21 stands out of its noise, at most one in 8 (fixed seed)."""
    rng = np.random.default_rng(2)
    found = [one for _ in range(12) for one in influences(noisy(False, rng), postprocess)]
    assert 1 < sum(one.bits > one.noise for one in found) < len(found) / 8 == 15
    best, *others = influences(noisy(True, rng), postprocess)
    assert best.name == "0000n"
    assert best.bits > 3 * best.noise
    assert max(one.bits for one in others) < best.bits / 2


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50) | st.binary(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@examples(40)
@given(st.dictionaries(st.sampled_from([key for names in SECTIONS.values() for key in names]) | st.text(), ANY))
def test_any_map_is_put_into_words(card):
    for _, rows in sections(card):
        for name, text in rows:
            assert "\n" not in name + text
            assert "\x1b" not in name + text


@pytest.mark.parametrize(
    "value", ["x" * 100_000, ["y"] * 100_000, {str(n): n for n in range(100_000)}, [[[[[1]]]]] * 9]
)
def test_words_are_bounded(value):
    ((_, ((_, text),)),) = sections({"threats": value})
    assert len(text) <= 70 * (MOST_CHARACTERS + 20)


@pytest.mark.parametrize("size", [1, 1000, 20_000])
@pytest.mark.parametrize("value", ["xxxxx", ["x" * 100], {"x" * 900: "y" * 900}, [[["x" * 100]]]])
def test_any_card_is_shortened_to_its_bound_and_says_what_it_lost(size, value):
    many = value if isinstance(value, dict) else None
    grown = {f"{n}{key}": one for n in range(size) for key, one in value.items()} if many else value * size
    card = {"small": 1, "large": grown, "other": ["y" * 50] * 500}
    found = shortened(card)
    assert len(canonical.pack(found)) <= MOST_BYTES
    assert found["small"] == 1
    if len(canonical.pack(card)) <= MOST_BYTES:
        assert found == card
        return
    for name, number in found["shortened"].items():
        left = len(found.get(name, ()))
        assert number == (1 if isinstance(card[name], str) else len(card[name]) - left)
    assert any(name == "left out of the card" for _, rows in sections(found) for name, _ in rows)


@pytest.mark.parametrize("chosen", [None, "text", 3, [], [1], {"a": [{"b": {}}]}, {1: 2}, {"x" * 9000: ["y"] * 9000}])
def test_a_decision_of_any_form_is_shown_bounded(chosen):
    rows = [row for title, part in sections({"chosen": chosen}) if title != REST for row in part]
    assert sum(len(name) + len(text) for name, text in rows) < 100_000


def test_who_decided_and_why_come_first_and_tables_last():
    chosen = {"candidates": [{"names": "a"}, {"names": "b"}], "devices": 3, "why": "w", "by": "hearsay design"}
    ((_, rows),) = sections({"chosen": chosen})
    assert [name for name, _ in rows] == ["by", "why", "devices", "candidates 1", "candidates 2"]
