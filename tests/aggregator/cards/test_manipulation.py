"""What lies can move: the reach of one answer for every mechanism, and attacks through bytes and tally."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.failures import reason_of
from support.mechanisms import as_answers, inputs_of, kinds, made, sums_of
from support.publisher import NOW

from aggregator.cards.influence import published_numbers, reach_of_reports
from aggregator.cards.manipulation import contribution, extreme_answers, manipulation, numbers_of
from aggregator.estimates.debias import debias, marginal
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import draw
from benchmarks.guarantees import attacks
from protocol import mechanisms
from protocol.documents.campaign import parse_campaign
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.mechanisms import INTEGERS, SINGLE, ValueMechanism
from protocol.schema import Label, build_schema

SCHEMA = build_schema(
    Label("label", ["a", "b", "c"]), [Categorical("x", ["u", "v", "w"]), Numeric("y", "0", "10", [0])]
)
NUMBERS = build_schema(Label("label", ["a", "b"]), [Numeric("y", "0", "10", [0]), Numeric("z", "0", "1", [0])])


def campaign(mechanism, epsilon_micro=1_000_000, answers=1, *, family="discrete"):
    parameters = CampaignParameters("c", epsilon_micro, mechanism, answers, family=family, postprocess="simplex")
    schema = SCHEMA if family == "discrete" else NUMBERS
    return parse_campaign(build_campaign(schema, parameters, 1, NOW))


def every_kind_of_answer(mechanism):
    """Counts of one answer each: extreme answers, and some that a device could draw."""
    if mechanism.layout == SINGLE:
        for answer in range(mechanism.answers):
            yield [int(answer == place) for place in range(mechanism.answers)]
        return
    ends = mechanism.counted if mechanism.layout == INTEGERS else (0, 1)
    rows = np.array(list(product(ends, repeat=mechanism.answers)))
    refused = mechanism.impossible(rows)
    yield from (rows if refused is None else rows[~refused]).tolist()
    rng = np.random.default_rng(1)
    inputs = np.array([inputs_of(mechanism)[0]] * 200)
    for answer in as_answers(mechanism, draw(mechanism, inputs, rng)):
        yield sums_of(mechanism, [answer])


@pytest.mark.parametrize("name", mechanisms.names())
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_no_answer_adds_more_than_is_said_and_some_answer_adds_as_much(name, epsilon):
    mechanism = made(name, epsilon)
    ends = contribution(mechanism)
    if mechanism.layout == SINGLE and mechanism.answers > 100:  # one number: its estimate is known in closed form
        found = np.array([[float(mechanism.estimate(answer)) / 65536] for answer in range(mechanism.answers)])
    else:
        found = np.array([debias(mechanism, 1, counts).estimate for counts in every_kind_of_answer(mechanism)])
    assert found.min(axis=0) == pytest.approx(np.full(found.shape[1], ends.least))
    assert found.max(axis=0) == pytest.approx(np.full(found.shape[1], ends.most))


@pytest.mark.parametrize("name", kinds(ValueMechanism))
def test_the_same_holds_for_the_sum_over_the_values_of_a_class(name):
    mechanism = mechanisms.from_epsilon(name, 1, 6)
    found = np.array([marginal(mechanism, 1, counts, 2).estimate for counts in every_kind_of_answer(mechanism)])
    assert (found.min(), found.max()) == pytest.approx(contribution(mechanism, 2))


def test_the_reach_of_one_answer_and_the_share_of_lies_follow_the_formulas():
    """docs/math.md, section 1: 4.69 of ``she`` and 4.33 of ``oue`` at ε = 1."""
    for name, width in (("she", 4.69), ("oue", 4.33)):
        assert contribution(mechanisms.from_epsilon(name, 1, 3)).width == pytest.approx(width, abs=0.005)
    found = numbers_of(0.05, 1.0, 1)
    assert (found.closed, found.open) == (0.05, 0.05)
    assert numbers_of(0.05, 0.25, 2).open == pytest.approx(0.1 / (0.1 + 0.95 * 0.25))


def test_more_lies_reach_further_and_most_where_they_choose_their_question():
    for bound in manipulation(campaign("oue")):
        assert bound.closed[0.01] < bound.closed[0.05] < bound.open[0.05]
        assert bound.closed[0.01] < bound.open[0.01]
    many = manipulation(campaign("direct"), devices=10**9)
    limit = manipulation(campaign("direct"))
    few = manipulation(campaign("direct"), devices=1000)
    for large, none, small in zip(many, limit, few, strict=True):
        assert none.open[0.01] < large.open[0.01] < none.open[0.01] * 1.001
        assert large.closed[0.05] < small.closed[0.05]


@pytest.mark.parametrize("devices", [None, 100, 1000, 100_000])
@pytest.mark.parametrize("share", [1e-9, 0.01, 0.5])
def test_lies_reach_no_further_where_they_can_not_choose_their_question(devices, share):
    features = [Categorical(f"f{place}", ["a", "b", "c"]) for place in range(12)]
    schema = build_schema(Label("label", ["e", "p"]), features)
    raw = build_campaign(schema, CampaignParameters("c", 1_000_000, "direct", 1), 1, NOW)
    for bound in manipulation(parse_campaign(raw), [share], devices):
        assert bound.closed[share] <= bound.open[share]


@pytest.mark.parametrize("wrong", [{"shares": (0.0,)}, {"shares": (1.0,)}, {"devices": 0}])
def test_shares_and_devices_out_of_range_are_refused(wrong):
    assert reason_of(InputError, manipulation, campaign("direct"), **wrong) == "argument_invalid"


def test_layouts_have_bounds_for_every_question():
    for mechanism in ("bits", "piecewise", "laplace", "duchi"):
        made_of = campaign(mechanism, family="gaussian")
        bounds = manipulation(made_of)
        assert len(bounds) == len(made_of.questions) + 1
        assert all(bound.one_answer > 0 for bound in bounds)


# Attacks through bytes and tally ----------------------------------------------------------------------


DEVICES, SHARE = 300, 0.05


def parts(mechanism, fleet, kind, seed, lying=SHARE):
    """Moves of one attack by a share of liars, over the bounds of the share 0.05."""
    rng = np.random.default_rng(seed)
    campaign = attacks.campaign_of(mechanism, "1", 1)
    rows = attacks.fleet_rows(campaign, DEVICES, rng)
    after, before = attacks.attacked(campaign, rows, attacks.Attack(kind, fleet, lying), rng)
    moved = attacks.moves(attacks.counted(campaign, after), attacks.counted(campaign, before))
    bounds = manipulation(campaign, (SHARE,), DEVICES)
    return [move / getattr(bound, fleet)[SHARE] for move, bound in zip(moved, bounds, strict=True)]


@pytest.mark.parametrize("fleet", attacks.FLEETS)
@pytest.mark.parametrize("mechanism", ["direct", "oue", "she", "bits", "laplace"])
def test_no_attack_moves_an_estimate_further_than_is_said(mechanism, fleet):
    found = [max(parts(mechanism, fleet, kind, seed)) for seed, kind in enumerate(attacks.KINDS)]
    assert 0.05 < max(found) <= 1  # the attacks do move something


def test_an_attack_beyond_the_bound_would_be_seen():
    assert max(parts("direct", "closed", "target", 1, lying=0.9)) > 2


def with_lies(campaign, honest, lies, rng):
    """The reports, and further ones with invented ids: for each lie its question and its answer, as rows hold it."""
    head, parts = len(campaign.layout.prefix), [honest]
    for question, answer in lies:
        row = honest[:1].copy()
        low, high = campaign.assignment.interval(question, campaign.questions[question].stratum)
        row[:, head : head + 4] = np.array([rng.integers(low, high)], ">u4").view(np.uint8)
        row[:, head + 4 : head + 8] = rng.integers(0, 256, 4)
        row[:, head + 12 : head + 14] = np.frombuffer(question.to_bytes(2, "big"), np.uint8)
        attacks.write_answers(campaign, row, question, np.asarray(answer)[None])
        parts.append(row)
    return np.concatenate(parts)


def extremes(campaign):
    classes = len(campaign.schema.label.classes)
    for place, question in enumerate(campaign.questions):
        for counts in extreme_answers(question.mechanism, classes if question.mechanism.answers > classes else 1):
            yield place, int(np.argmax(counts)) if question.mechanism.layout == SINGLE else list(counts)


@pytest.mark.parametrize(
    ("mechanism", "postprocess"),
    [(name, "simplex") for name in ("direct", "oue", "she", "bits", "duchi", "bit", "hybrid", "laplace")]
    + [("laplace", "posterior")],
)
def test_invented_reports_move_no_published_number_further_than_the_card_says(mechanism, postprocess):
    """Through bytes, decoding and tally: every extreme answer once and three times, and 10 random sets."""
    rng = np.random.default_rng(8)
    campaign = attacks.campaign_of(mechanism, "1", 1)
    honest = attacks.fleet_rows(campaign, DEVICES * 2, rng)
    statistics = attacks.counted(campaign, honest)
    before, kinds = published_numbers(statistics, postprocess)
    stated = dict(reach_of_reports(statistics, postprocess))
    assert set(stated) == set(kinds.tolist())
    each = list(extremes(campaign))
    sets = [[one] * number for one in each for number in (1, 3)]
    for number in (1, 3) * 5:
        chosen = rng.integers(0, len(campaign.questions), number).tolist()
        drawn = [(one, campaign.questions[one].mechanism) for one in chosen]
        sets.append([(one, attacks.lies(m, str(rng.choice(attacks.KINDS)), 2, 1, rng)[0]) for one, m in drawn])
    parts = {}
    for lies in sets:
        after = published_numbers(attacks.counted(campaign, with_lies(campaign, honest, lies, rng)), postprocess)[0]
        for kind, by in stated.items():
            moved = float(np.abs(after - before)[kinds == kind].max())
            assert moved <= by[len(lies)] * 1.001 + 1e-9, (kind, lies)
            parts[kind, len(lies)] = max(parts.get((kind, len(lies)), 0.0), moved / by[len(lies)])
    assert min(parts.values()) > 0.6
    assert max(part for (_, number), part in parts.items() if number == 1) > 0.99
