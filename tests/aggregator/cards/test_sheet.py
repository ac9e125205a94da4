"""The guarantee sheet: when shuffling counts and how much, what devices and nodes spend, how far lies reach."""

from __future__ import annotations

import itertools
import json
import re
from fractions import Fraction
from itertools import accumulate
from math import comb, exp, log

import numpy as np
import pytest
from support.commands import run
from support.failures import reason, reason_of
from support.nodes import PERIOD
from support.publisher import DAY, NOW, Publisher, small_schema

from aggregator.cards import shuffling
from aggregator.cards.binomial import least_likely, log_probability, most_likely, upper_tail
from aggregator.cards.guarantee import guarantee_sheet, node_guarantee, spending
from aggregator.cards.manipulation import TableClaim, moved_share
from aggregator.cards.patterns import patterns
from aggregator.cards.shuffling import Mixed, amplified, closed_forms, decomposed, numeric, of_clones
from aggregator.estimates.class_shares import class_shares
from aggregator.models.postprocess.noisy_sums import floored_tables
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Total
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol.documents.campaign import build_payload, parse_campaign
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.features import Categorical
from protocol.mechanisms import from_epsilon
from protocol.nodes.terms import NodeTerms, ranges, released_vectors
from protocol.questions import MOMENT
from protocol.schema import Label, build_schema

SCHEMA = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"]), Categorical("y", ["u", "v", "w"])])
REFUSING = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"], unlisted="refuse")])


def payload(mechanism="oue", epsilon_micro=1_000_000, answers=1, schema=SCHEMA, **more):
    parameters = CampaignParameters("c", epsilon_micro, mechanism, answers, postprocess="simplex", **more)
    return build_campaign(schema, parameters, 1, NOW)


def test_a_central_epsilon_is_stated_only_for_shuffled_reports_of_enough_devices():
    alone = guarantee_sheet(payload()).central
    assert len(alone.obstacles) == 2
    assert alone.epsilon is None
    assert "--shuffled" in guarantee_sheet(payload(), devices=1000).central.obstacles[0]
    few = guarantee_sheet(payload(), devices=3, shuffled=True).central
    assert "too few" in few.obstacles[0]
    many = guarantee_sheet(payload(), devices=10_000, shuffled=True).central
    assert many.obstacles == ()
    assert 0 < many.epsilon == many.bounds.decomposed < many.clones == many.bounds.clones < 0.1
    refusing = guarantee_sheet(payload(schema=REFUSING), devices=10_000, shuffled=True).central
    assert "refuse" in refusing.obstacles[0]
    central = guarantee_sheet(payload("direct", 4_000_000, 2), devices=20_000, shuffled=True).central
    assert central.by_stratum
    assert central.epsilon < central.bounds.decomposed < central.bounds.clones < central.local
    assert central.epsilon == central.decomposition < central.clones


@pytest.mark.parametrize(
    ("epsilon_micro", "period_seconds", "days", "day", "life", "answered"),
    [
        (1_000_000, DAY, 30, 1_000_000, 31_000_000, 31),
        (1_000_000, 3600, 30, 4_000_000, 100_000_000, 100),
        (500_000, 3600, 3, 4_000_000, 12_000_000, 24),
        (4_000_000, DAY, 60, 4_000_000, 100_000_000, 25),
        (8_000_000, DAY, 10, 8_000_000, 88_000_000, 11),
    ],
)
def test_what_a_device_spends(epsilon_micro, period_seconds, days, day, life, answered):
    raw = payload("direct", epsilon_micro, period_seconds=period_seconds, lifetime_seconds=days * DAY)
    spent = spending(parse_campaign(raw))
    assert (spent.period, spent.day, spent.life, spent.answered) == (epsilon_micro, day, life, answered)


def test_a_sheet_says_what_no_test_can_see_and_where_the_best_test_of_set_bits_is_weak():
    assert "direct" in " ".join(guarantee_sheet(payload("direct")).unseen)
    assert "set one bit" in " ".join(guarantee_sheet(payload("oue")).unseen)
    assert "set one bit" not in " ".join(guarantee_sheet(payload("she")).unseen)

    def said(epsilon_micro, devices=None):
        sheet = guarantee_sheet(payload("oue", epsilon_micro), devices=devices)
        return [one for one in sheet.unseen if "set one bit only" in one]

    assert "1 % of 100000 reports, in 20% of such campaigns" in said(4_000_000)[0]
    assert "1 % of 5000 reports" in said(4_000_000, 5000)[0]
    assert said(4_000_000, 1_000_000) == said(1_000_000) == []


WRONG = [{"devices": 0}, {"devices": 10**15 + 1}, {"liars": (2.0,)}]


@pytest.mark.parametrize("wrong", [*WRONG, *({"delta": delta} for delta in (float("nan"), 0.0, 1.0))])
def test_wrong_arguments_are_refused(wrong):
    assert reason_of(InputError, guarantee_sheet, payload(), **wrong) == "argument_invalid"


def test_the_command_prints_the_sheet_and_the_same_as_json(tmp_path):
    """The numeric bound takes 10⁹ reports at most, so the closed form is smaller for more."""
    raw = Publisher().campaign()
    (tmp_path / "c.hsc").write_bytes(raw)

    def page(*arguments):
        return run("guarantee", tmp_path / "c.hsc", "--shuffled", *arguments).stdout

    printed = page("--devices", 5000)
    assert re.search(
        r"^central ε after shuffling, δ = 1e-06 .*\(from the laws of its mechanisms\)", printed, re.MULTILINE
    )
    assert re.search(r"^from the local ε alone .*\(bound of clones", printed, re.MULTILINE)
    assert re.search(r"^central ε .*\(closed form\)", page("--devices", 10**14), re.MULTILINE)
    assert "δ is not below 1/N" in page("--devices", 5000, "--delta", 0.001)
    assert "δ is not below 1/N" not in printed
    assert "too few (1)" in page("--devices", 1)
    assert "closed 0.9999999" in page("--devices", 5000, "--liars", 0.9999999)
    found = json.loads(page("--devices", 5000, "--liars", 0.02, "--json"))
    assert found["shuffled"]["applies"]
    assert list(found["lies"][0]["closed"]) == ["0.02"]
    assert found["privacy"]["holds"]
    assert found["device"]["epsilon_per_period"] == "1"
    (tmp_path / "r.hst").write_bytes(Publisher().root())
    assert "not_a_campaign" in run("guarantee", tmp_path / "r.hst", status=1).output


def test_a_campaign_that_has_ended_promises_nothing_more():
    found = parse_campaign(payload())
    texts = {name: getattr(found, name) for name in ("purpose", "contact", "time_precision", "min_batch_size", "fit")}
    ended = build_payload(found.header._replace(version=2), found.stated, (), epsilon_micro=0, **texts)
    sheet = guarantee_sheet(ended, devices=1000, shuffled=True)
    assert sheet.unseen == sheet.lies == ()
    assert sheet.central.obstacles == ("the campaign has ended: there are no reports",)


# Nodes ------------------------------------------------------------------------------------------------


def asking(epsilon_micro=MICRO, max_records=1000, sensitivity="global", family="gaussian", schema=None):
    terms = NodeTerms("clinics", max_records, epsilon_micro, sensitivity)
    parameters = CampaignParameters("sums", epsilon_micro, family=family, nodes=terms)
    return parse_campaign(build_campaign(schema or small_schema(), parameters, 1, NOW))


def summed(found, rows, claim, nodes=20):
    """Totals of ``nodes`` nodes: honest ones with ``rows`` as their records of each class, and the claims of liars.

    ``claim``: the claimed (count of class 0, count of any other class) for the class counts, and for all other tables.
    """
    classes, numbers = len(rows), []
    for place, subject in enumerate(released_vectors(found)):
        values = np.zeros((subject.size // classes, classes), int)
        if subject.kind != MOMENT:
            values[0] = rows
            first, others = claim[min(place, 1)]
            values[:, 0] += first
            values[:, 1:] += others
        numbers += values.ravel().tolist()
    return Total(found.id, nodes, {found.epsilon_micro: nodes}, {PERIOD: sum(numbers[:classes])}, tuple(numbers))


@pytest.mark.parametrize("family", ["discrete", "gaussian"])
@pytest.mark.parametrize("epsilon_micro", [MICRO, 20_000])
@pytest.mark.parametrize("honest", [[500, 500], [0, 1000], [1000, 0], [3, 7]])
def test_no_claim_of_two_liars_among_twenty_nodes_moves_a_share_further(family, epsilon_micro, honest):
    """All claims at the ends of the accepted ranges, of each class, in the class counts and in the other tables."""
    found = asking(epsilon_micro, family=family)
    low, high = ranges(found)[0]
    told = node_guarantee(found, nodes=20, records=sum(honest), liars=[0.1]).reach[0].moved[0.1]
    total = [18 * count for count in honest]
    largest = 0.0
    for ends in itertools.product((2 * low, 2 * high), repeat=4):
        shares = class_shares(federated(found, summed(found, total, (ends[:2], ends[2:])))).share
        raw = float(np.clip(shares / shares.sum(), 0, 1)[0]) if shares.sum() > 0 else np.inf
        largest = max(largest, min(1.0, abs(raw - total[0] / sum(total))))
    assert largest <= told + 1e-12
    if 0 in honest:
        assert largest > 0.95 * told  # the bound is nearly reached


def test_a_published_share_moves_no_further():
    """One of 100 nodes with 8 features of 40 values claims in every table: the published share is within the bound."""
    schema = build_schema(
        Label("label", ["rare", "common"]),
        [Categorical(f"f{place}", [f"v{value}" for value in range(39)]) for place in range(8)],
    )
    found = asking(9 * MICRO, family="discrete", schema=schema)
    low, high = ranges(found)[0]
    told = node_guarantee(found, nodes=100, records=1000, liars=[0.01]).reach[0].moved[0.01]
    statistics = federated(found, summed(found, [0, 99_000], ((high, low), (high, low)), nodes=100))
    published = floored_tables(statistics, range(8)).prior[0]
    assert 0.2 < published <= told < 0.35


def test_what_a_node_books_in_a_campaign_s_life():
    spent = node_guarantee(asking(), liars=[0.1]).spending
    assert (spent.period, spent.day, spent.life, spent.answered) == (2 * MICRO, 2 * MICRO, 62 * MICRO, 31)
    sheet = node_guarantee(asking(sensitivity="smooth"), liars=[0.1])
    assert sheet.privacy.booked_micro == {"change-features": MICRO}
    assert sheet.spending.period == MICRO
    # Where the noise's range exceeds the records of a node, claims of −H empty nine of ten classes.
    classes, noise, records = 10, 5000, 100_000
    below = 2 * (classes - 1) * noise
    honest = [records - below, *[2 * noise] * (classes - 1)]
    claims = [TableClaim(1, noise, 10 + noise, 1.0)]
    told = moved_share(claims, classes, records / 18, 0.1, 20)
    lied = [honest[0] + 2 * (10 + noise), *(count - 2 * noise for count in honest[1:])]
    assert lied[0] / sum(lied) - honest[0] / records <= told + 1e-12
    assert lied[0] / sum(lied) - honest[0] / records == pytest.approx(told)


@pytest.mark.parametrize("changes", [{"nodes": 0}, {"records": 0}, {"liars": [0]}, {"liars": [1]}])
def test_arguments_out_of_range_are_refused(changes):
    assert reason(lambda: node_guarantee(asking(), **({"liars": [0.1]} | changes))) == "argument_invalid"


# Shuffled reports, and the binomial distribution -----------------------------------------------------


def test_the_figures_of_a_hundred_thousand_reports():
    """The authors' program brackets the numeric bound by 0.1676 and 0.1728."""
    found = amplified(4.0, 100_000, 1e-6)
    assert 0.1676 <= found.clones <= 0.1728
    assert found.decomposed < found.clones
    assert f"{found.printed:.4f} {found.closed_form:.4f}" == "0.5346 0.5378"
    least = 16 * log(4 / 1e-6) * exp(1.0)
    assert closed_forms(1.0, int(least) - 1, 1e-6) == (None, None)
    found, printed = closed_forms(1.0, int(least) + 2, 1e-6)
    assert printed < found
    assert amplified(1.0, int(least) + 2, 1e-6).general < printed


def whole_divergence(local, reports, epsilon):
    """Σ (P − e^ε Q)⁺ over all outcomes of the pair of clones, without any grouping."""
    share, p, total = exp(-local), exp(local) / (1 + exp(local)), 0.0
    for clones in range(reports):
        chance = comb(reports - 1, clones) * share**clones * (1 - share) ** (reports - 1 - clones)
        half = [0.0, *(comb(clones, k) / 2**clones for k in range(clones + 1)), 0.0]
        for x in range(clones + 2):
            own, other = half[x], half[x + 1]  # A = x − 1 and A = x
            total += chance * max(0.0, p * own + (1 - p) * other - exp(epsilon) * ((1 - p) * own + p * other))
    return total


@pytest.mark.parametrize(("local", "reports"), [(0.5, 2), (1.0, 30), (2.0, 100), (4.0, 120), (3.0, 1)])
def test_delta_is_an_upper_bound_of_the_exact_sum_and_near_it(local, reports):
    clones = Mixed(of_clones(local), reports)
    for part in (0, 0.05, 0.3, 0.9):
        exact = whole_divergence(local, reports, part * local)
        assert exact * (1 - 1e-9) <= clones.delta(part * local) <= exact * 1.02 + 1e-12
    assert clones.delta(local) == 0


def shuffled_laws(mechanism, reports):
    """The exact law of the sorted answers of ``reports`` devices, for every multiset of the others' inputs.

    Yields, for each multiset, input of one more device → array of the probabilities of all sorted answers.
    """
    laws = [mechanism.distribution(value) for value in range(mechanism.size)]
    rows = np.array([[float(law[answer]) for answer in laws[0]] for law in laws])
    answers = range(rows.shape[1])
    places = [
        {found: place for place, found in enumerate(itertools.combinations_with_replacement(answers, n))}
        for n in range(reports + 1)
    ]

    def with_one_more(law, n, row):
        found = np.zeros(len(places[n + 1]))
        for multiset, place in places[n].items():
            for answer in answers:
                found[places[n + 1][tuple(sorted((*multiset, answer)))]] += law[place] * row[answer]
        return found

    def walk(law, n, least):
        if n == reports - 1:
            yield [with_one_more(law, n, row) for row in rows]
            return
        for value in range(least, len(rows)):
            yield from walk(with_one_more(law, n, rows[value]), n + 1, value)

    return walk(np.ones(1), 0, 0)


@pytest.mark.parametrize(
    ("name", "size", "reports"),
    [
        *(("direct", 2, 6), ("direct", 3, 5), ("direct", 4, 4), ("oue", 2, 5), ("oue", 3, 3)),
        *(("sue", 2, 4), ("the", 2, 4), ("subset", 3, 5), ("subset", 4, 3)),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_delta_of_a_mechanism_is_never_below_that_of_all_its_shuffled_answers(name, size, reports, epsilon):
    """Over all inputs of the other devices, and both of the one. A blanket of a tenth too much promises too much."""
    mechanism = from_epsilon(name, epsilon, size)
    local, law = float(mechanism.privacy_loss()), decomposed(patterns(mechanism))
    wrong = Mixed(law._replace(high=law.high / 1.1, low=law.low / 1.1, share=law.share * 1.1), reports)
    mixed, clones = Mixed(law, reports), Mixed(of_clones(local), reports)
    every, is_wrong = list(shuffled_laws(mechanism, reports)), False
    for part in (0, 0.1, 0.3, 0.6, 0.9):
        grown = exp(part * local)
        exact = max(
            float(np.maximum(one - grown * other, 0).sum())
            for laws in every
            for one, other in itertools.permutations(laws, 2)
        )
        assert exact * (1 - 1e-9) <= mixed.delta(part * local) <= clones.delta(part * local) * (1 + 1e-6)
        assert part > 0 or mixed.delta(0) <= 1.06 * exact
        is_wrong |= wrong.delta(part * local) < exact * (1 - 1e-9)
    assert is_wrong or (name, size) != ("direct", 2)


def test_the_laws_of_mechanisms_promise_more_than_clones_and_never_less():
    """And more for more reports, a smaller ε₀ and a larger δ."""
    for name, size in (("direct", 20), ("oue", 8), ("laplace", 1)):
        small, large = (from_epsilon(name, epsilon, size) for epsilon in ("0.5", 4))
        order = [(large, 300, 1e-6), (large, 20_000, 1e-6), (small, 20_000, 1e-6), (small, 20_000, 1e-5)]
        found = [amplified(float(one.privacy_loss()), n, delta, patterns(one)) for one, n, delta in order]
        bounds = [one.decomposed for one in found]
        assert bounds == sorted(bounds, reverse=True)
        assert all(one.decomposed <= one.clones for one in found)
        assert found[1].decomposed < 0.9 * found[1].clones
    rare = from_epsilon("direct", "0.001", 500)  # nearly every answer is neutral: W misses a few of n by Poisson's law
    found = amplified(float(rare.privacy_loss()), 100_000, 1e-12, patterns(rare))
    assert found.decomposed < found.clones


def test_more_reports_and_a_larger_delta_give_a_smaller_epsilon_and_coarse_groups_a_larger_one(monkeypatch):
    law = of_clones(1.0)
    found = [numeric(law, 1.0, n, 1e-6) for n in (10, 1000, 5000)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= 1.0
    assert numeric(law, 1.0, 1000, 1e-3) < found[1]
    fine = numeric(of_clones(2.0), 2.0, 5000, 1e-6)
    monkeypatch.setattr(shuffling, "_GROUPS", 12)
    assert fine < numeric(of_clones(2.0), 2.0, 5000, 1e-6) < 2.0


@pytest.mark.parametrize("wrong", [(0.0, 9, 0.1), (float("inf"), 9, 0.1), (1.0, 0, 0.1), (1.0, 9, 0.0), (1.0, 9, 1.0)])
def test_arguments_of_shuffling_out_of_range_are_refused(wrong):
    assert reason_of(InputError, amplified, *wrong) == "argument_invalid"


# The binomial distribution ----------------------------------------------------------------------------


def exact(k, n, p):
    return comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize(("n", "p"), [(0, 0.5), (1, 0.25), (7, 0.5), (40, 0.125), (300, 0.75)])
def test_probabilities_are_those_of_integers(n, p):
    expected = [log(exact(k, n, Fraction(p))) for k in range(n + 1)]
    assert log_probability(np.arange(n + 1), n, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "p"), [(1, 0.25), (7, 0.5), (40, 0.125), (2000, 0.25)])
def test_tails_are_below_the_exact_ones_and_near(n, p):
    chances = [exact(k, n, Fraction(p)) for k in range(n + 1)]
    expected = np.array([float(tail) for tail in accumulate(reversed(chances))][::-1])
    found = upper_tail(np.arange(n + 1), n, p)
    above = np.arange(n + 1) > n * p
    assert (found <= expected * (1 + 1e-9) + 1e-300).all()
    assert found[above] == pytest.approx(expected[above], rel=4e-3)


def test_a_billion_trials_sum_to_one_and_ends_are_certain():
    around = np.arange(500_000_000 - 200_000, 500_000_000 + 200_001)
    assert np.exp(log_probability(around, 10**9, 0.5)).sum() == pytest.approx(1, abs=1e-8)
    assert upper_tail([0, -3, 11], 10, 0.5).tolist() == [1, 1, 0]
    found = upper_tail([1, 100, 500_000, 900_000], 10**6, 0.9)  # neither of both tails is lost to an overflow
    assert np.isfinite(found).all()
    assert (found[:3] > 0.98).all()
    assert found[3] == pytest.approx(0.5, abs=0.01)
    assert upper_tail(900_000, 10**6, 0.1) == 0
    for n, p in ((50, 0.1), (1000, 0.3), (7, 1.0), (0, 0.5)):
        chances = np.exp(log_probability(np.arange(n + 1), n, p)) if 0 < p < 1 else np.eye(n + 1)[n if p else 0]
        most, least = most_likely(n, p, 1e-6), least_likely(n, p, 1e-6)
        assert chances[most + 1 :].sum() <= 1e-6
        assert chances[:least].sum() <= 1e-6
        assert least <= n * p <= most
    assert most_likely(1000, 0.3, 1e-6) < 400
