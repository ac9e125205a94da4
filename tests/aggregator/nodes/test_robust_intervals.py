"""Under a robust rule no interval is stated anywhere: the rule is for nodes that may lie, whose acts nobody knows."""

import json
from functools import cache

import numpy as np
import pytest
from support.node_fleets import keys, noisy
from support.nodes import PERIOD, node_campaign
from support.publisher import Publisher

from aggregator.estimates.cells import NOT_DETERMINED, parameter_rows, rows
from aggregator.estimates.conditional import PRIOR, conditionals
from aggregator.estimates.ratios import Variance, ratio_interval
from aggregator.models.foresight import UNDER_RULE, Foresight, foresee
from aggregator.models.published import interval_card, published
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.robust import parse_rule, robust_statistics
from aggregator.nodes.statistics.totals import Totals
from protocol import SCALE
from protocol.nodes.summary import build_summary, read_summary
from protocol.nodes.terms import released_vectors
from protocol.questions import CELL, CLASS, MOMENT, PRESENT
from protocol.schema import Categorical, Label, Numeric, build_schema

RULES = ["median", "trimmed-mean:0.2", "krum:1"]
PUBLISHER = Publisher()
ODOR = Categorical("odor", ["none", "foul"], "missing", 0)
AGE = Numeric("age", "-1", "1", [0], "missing", None)
PUBLISHER.schema = build_schema(Label("diagnosis", ["well", "ill"]), [ODOR, AGE])
CAMPAIGN = node_campaign(publisher=PUBLISHER, epsilon_micro=10_000_000)
COUNTS = {CLASS: [300, 100], CELL: [200, 30, 100, 70], PRESENT: [150, 50, 150, 50]}
SUMS = {1: [0.25 * 150, -0.5 * 50], 2: [0.25 * 150, 0.5 * 50]}
"""Sums of every node. Half of the records of either class lack their number. Its means are 0.25 and −0.5."""


@cache
def statistics(rule=None):
    exact = []
    for subject in released_vectors(CAMPAIGN):
        exact += [round(SCALE * x) for x in SUMS[subject.power]] if subject.kind == MOMENT else COUNTS[subject.kind]
    generator = np.random.default_rng(4)
    raws = [build_summary(CAMPAIGN, key, PERIOD, noisy(CAMPAIGN, exact, 10_000_000, generator)) for key in keys(9)]
    summaries = [read_summary(raw)[1] for raw in raws]
    if rule is None:
        return federated(CAMPAIGN, Totals.of(CAMPAIGN, summaries).total())
    return robust_statistics(CAMPAIGN, summaries, parse_rule(rule))


@pytest.mark.parametrize("rule", RULES)
def test_no_table_and_no_json_has_an_interval_but_every_ratio(rule):
    found, plain = statistics(rule), statistics()
    assert all(row[4:] == (NOT_DETERMINED,) * 2 for row in rows(found.questions, found.schema))
    shown = parameter_rows(conditionals(found.questions, found.schema), published(found), found.schema)
    assert shown
    assert all(row[1] and row[3:] == (NOT_DETERMINED,) * 2 for row in shown)
    ends = ("low", "high", "devices_low", "devices_high")
    body = json.loads(json.dumps(found.to_json(published(found)), allow_nan=False))
    for one in [*body["questions"], *body["parameters"]]:
        assert all(number is None for end in ends for number in one[end])
        for name in ("variances", "devices_variances"):  # They were stated, and so half of every interval.
            assert all(number is None for number in one.get(name, []))
        assert None not in one.get("raw", [])
    assert found.frame(published(found))[["sd", "devices_sd"]].isna().all(axis=None)
    assert np.isfinite(plain.frame()["sd"][:-2]).all()
    assert body["adjacency"] == "add-remove"
    assert "what lying nodes did is not known" in body["intervals"]
    assert "what lying nodes did is not known" in found.populations["assumes"]
    plainly = plain.to_json(published(plain))
    assert all(None not in one["low"] for one in [*plainly["questions"], *plainly["parameters"]])
    assert "lying" not in plain.populations["assumes"]


@pytest.mark.parametrize("rule", RULES)
def test_means_are_divided_by_the_share_of_records_with_the_number(rule):
    found = statistics(rule)
    means = [one for one in conditionals(found.questions, found.schema) if one.subject.kind == MOMENT]
    tables = [one for one in conditionals(found.questions, found.schema) if one.subject.kind in (CELL, PRESENT)]
    first = next(one for one in means if one.subject.power == 1)
    assert first.raw == pytest.approx([0.25, -0.5], abs=0.1)  # It was [0.125, −0.25], divided by P(class).
    assert tables[0].raw == pytest.approx([2 / 3, 0.3, 1 / 3, 0.7], abs=0.1)


@pytest.mark.parametrize("rule", RULES)
def test_neither_card_nor_publish_claims_a_range(rule):
    found = statistics(rule)
    expected = foresee(found, "floored")
    assert (expected.accuracy, expected.low, expected.high, expected.beats) == (None,) * 4
    assert expected.shown == UNDER_RULE
    assert expected.largest_class == pytest.approx(0.75, abs=0.02)
    assert expected.largest_shown.endswith(f"% (interval {UNDER_RULE})")
    card = expected.to_card()
    assert Foresight.of_card(card) == expected._replace(largest_class=float(card["largest_class"]))
    assert "under a robust rule" in (expected.warning or "")
    card = interval_card(found)
    assert {*card["class_intervals"].values(), *card["interval_widths"].values()} == {NOT_DETERMINED}
    assert found.source.card()["intervals"].startswith("no interval")
    assert foresee(statistics(), "floored").low is not None


def test_pooled_shares_keep_their_estimate():
    prior = next(
        one for one in conditionals(statistics("median").questions, CAMPAIGN.schema) if one.subject.kind == PRIOR
    )
    assert prior.raw == pytest.approx([0.75, 0.25], abs=0.02)
    assert not prior.population.determined.any()


def test_ratios_of_extreme_sums_without_variance_do_not_overflow():
    huge = np.array([-1e18, 3e18])
    found = ratio_interval(huge, np.array([-1e18, 1e18]), Variance(0.0, 0.0, 0.0))
    assert found.low.tolist() == found.high.tolist() == [1, 1]
