"""Alarms: laws of honest reports, what raises them, and how rarely honest reports do.

All settings: benchmarks/guarantees/alarms.py.
"""

from __future__ import annotations

import json
from statistics import NormalDist

import numpy as np
import pytest
from support.commands import invoke
from support.mechanisms import inputs_of
from support.publisher import CAMPAIGN_KEY, DAY

from aggregator.cards.alarms import LEVEL, SHARES, two_sided
from aggregator.cards.set_bits import OneBitCount, one_bit_p_value, power, set_bits_law
from aggregator.estimates.cells import cell_names
from aggregator.operations.report_store import create_store
from aggregator.operations.status import status
from benchmarks.guarantees import alarms as bench
from benchmarks.shared.made_batches import NOW, batch
from protocol import mechanisms
from protocol.documents.envelope import PAYLOAD_TYPES, seal

SETTING = bench.Setting("oue", "1", (4, 4, 4))
SMALL = bench.campaign_of(SETTING)
REPORTS = 20_000


@pytest.mark.parametrize("name", ["oue", "sue", "the"])
@pytest.mark.parametrize("size", [2, 5])
def test_the_law_of_set_bits_is_that_of_the_exact_distribution_for_every_value(name, size):
    mechanism = mechanisms.from_epsilon(name, "1", size)
    for value in inputs_of(mechanism):
        exact = np.zeros(size + 1)
        for answer, chance in mechanism.distribution(value).items():
            exact[sum(answer)] += float(chance)
        assert set_bits_law(mechanism) == pytest.approx(exact)


def test_tails_of_both_sides():
    found = two_sided(np.array([50, 10]), np.array([100, 10]), np.array([0.5, 0.5]))
    assert found.tolist() == pytest.approx([1, 2 / 1024])
    far = two_sided(np.array([90_000, 0, 100_000]), np.array([100_000] * 3), np.array([0.04, 0.5, 0.5]))
    assert (far < 1e-300).all()


def rows(seed, kind=None, reports=REPORTS):
    rng = np.random.default_rng(seed)
    made = bench.honest_rows(SMALL, reports, rng)
    if kind:
        bench.lie(SMALL, made, kind, rng)
    return made


def asked_in(campaign, made):
    """The question of each report, and where a record's id begins."""
    head = len(campaign.layout.prefix)
    return np.ascontiguousarray(made[:, head + 12 : head + 14]).view(">u2")[:, 0], head


def test_honest_reports_raise_none():
    """Five campaigns: a right program fails with probability below 5·LEVEL; seeds are fixed."""
    found = [bench.alarms_of(SMALL, rows(seed)) for seed in range(5)]
    assert [each.raised for each in found] == [()] * 5
    assert all(set(each.kinds) == set(SHARES) for each in found)
    assert sum(SHARES.values()) == pytest.approx(1)
    assert all(0 <= p <= 1 for each in found for _, p in each.kinds.values())


@pytest.mark.parametrize(("kind", "told"), [("one bit", "set bits"), ("choose", "questions"), ("both", "questions")])
def test_one_percent_of_liars_raise_an_alarm(kind, told):
    found = bench.alarms_of(SMALL, rows(1, kind, 100_000))
    assert told in {test.kind for test in found.raised}
    assert found.raised[0].corrected < LEVEL
    assert list(found.raised) == sorted(found.raised, key=lambda test: test.corrected)


def test_a_period_unlike_the_others_and_cells_below_zero_are_told():
    made = rows(2)
    asked, head = asked_in(SMALL, made)
    last = made[-REPORTS // 5 :]
    last[: len(last) // 3, head + 14 :] = np.packbits(np.ones((1, 8), np.uint8), axis=1)
    fields = made[:, head + 14 :]
    for number, question in enumerate(SMALL.questions):  # Bits beyond a question's size stay 0.
        beyond = np.packbits((np.arange(8 * fields.shape[1]) < question.mechanism.size).astype(np.uint8))
        fields[asked == number] &= beyond[None, : fields.shape[1]]
    fields[asked == 1] &= np.uint8(0x7F)  # Nobody sets the first bit: far fewer than by noise alone.
    raised = bench.alarms_of(SMALL, made).raised
    assert {"periods", "range", "set bits"} <= {test.kind for test in raised}
    cells = {test.about.split(": ")[0] for test in raised if test.kind in {"periods", "range"}}
    known = {name for question in SMALL.questions for name in cell_names(question.subject, SMALL.schema)}
    assert cells <= known, "feature, value and class, and not the number of a cell"
    assert "f0=v0, label=a" in cells


@pytest.mark.parametrize("mechanism", ["direct", "oue", "she"])
def test_periods_of_few_answers_are_not_compared(mechanism):  # no question has 100 in a period here
    campaign = bench.campaign_of(SETTING._replace(mechanism=mechanism))
    made = bench.honest_rows(campaign, 300, np.random.default_rng(5))
    assert bench.alarms_of(campaign, made).raised == ()


def test_strata_of_unlike_sizes_are_told():
    campaign = bench.campaign_of(SETTING._replace(answers=3))
    alone = [question.stratum for question in campaign.questions].index(1)
    made = bench.honest_rows(campaign, 30_000, np.random.default_rng(4))
    assert bench.alarms_of(campaign, made).raised == ()
    asked, head = asked_in(campaign, made)
    more = made[asked == alone][:1500].copy()
    more[:, head + 4] ^= 1  # Other ids, which the assignment gives the same question.
    raised = bench.alarms_of(campaign, np.concatenate([made, more])).raised
    assert "stratum 2" in raised[0].about


def test_the_best_test_of_set_bits_is_told_and_ours_is_near_it():
    """The plan of ε = 4: one test of 1 % false alarms finds four campaigns in five, and no test finds more."""
    campaign = bench.campaign_of(bench.SETTINGS[1])
    best = power(campaign, 100_000, 0.01)
    assert best.found == pytest.approx(0.817, abs=0.001)
    assert best.chance == pytest.approx(0.489, abs=0.001)
    assert power(bench.campaign_of(bench.SETTINGS[4]), 100_000, 0.01) is None
    law = set_bits_law(campaign.questions[1].mechanism)
    generator, found = np.random.default_rng(1), []
    for lies in (0, 1000):  # One question with all reports: the simulated power is the formula's.
        honest = generator.multinomial(100_000 - lies, law, 4000)[:, 1] + lies
        found.append([one_bit_p_value([OneBitCount(count, 100_000, law[1])]) for count in honest])
    assert np.mean(np.array(found[0]) < 0.01) == pytest.approx(0.01, abs=0.008)
    shift, sd = 1000 * (1 - law[1]), np.sqrt(100_000 * law[1] * (1 - law[1]))
    assert np.mean(np.array(found[1]) < 0.01) == pytest.approx(NormalDist().cdf(shift / sd - 2.326), abs=0.04)


def test_status_tells_the_alarms_and_forgotten_periods_keep_theirs(tmp_path):
    lied = create_store(tmp_path / "store", seal(PAYLOAD_TYPES["campaign"], bench.payload_of(SETTING), [CAMPAIGN_KEY]))
    (tmp_path / "a.hsr").write_bytes(batch(SMALL, rows(3, "both")))
    lied.ingest([tmp_path / "a.hsr"], now=NOW)
    found = status(lied)
    assert found.alarms.raised
    answer = invoke("status", "--store", lied.path)
    assert "smallest corrected p-value" in answer.output
    assert "warning: honest devices hardly ever send such reports" in answer.output
    shown = json.loads(invoke("status", "--store", lied.path, "--json").stdout)["alarms"]
    assert shown["correction"].startswith("Bonferroni")
    assert shown["raised"][0]["corrected_p"] < shown["level"] == LEVEL
    before = {kind: each for kind, each in found.alarms.kinds.items() if kind != "set bits"}
    lied.forget(SMALL.period_at(NOW) - 2, now=NOW + DAY)
    after = {kind: each for kind, each in status(lied).alarms.kinds.items() if kind != "set bits"}
    assert after == before
