"""Lies through real bytes and tally never move an estimate further than is said.

All attacks: benchmarks/guarantees/attacks.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.cards.influence import published_numbers, reach_of_reports
from aggregator.cards.manipulation import extreme_answers, manipulation
from benchmarks.guarantees import attacks
from protocol.mechanisms import SINGLE

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
    """Every question with each of its extreme answers, as rows of reports hold them."""
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
