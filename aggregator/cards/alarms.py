"""Alarms: counts of reports that honest devices do not explain, with p-values. They cost no privacy.

Each kind of test compares counts with a law (distribution) that holds for honest devices whatever their records are:

    set bits    numbers of ones in answers that are rows of bits, if their law is the same for every record
    questions   reports per question: each question has a fixed share of the report ids of its stratum (group of
                questions, of which a device answers one), and all strata have equally many reports
    range       estimates below the least or above the largest possible value
    periods     one stretch of periods against all others; also an honest change of the population raises an alarm

By Bonferroni's inequality p is divided by the test's share of :data:`LEVEL` (:data:`SHARES`), so at most that share of
honest campaigns raises any alarm. Source: docs/math.md, section 3; decision 58.
"""

from __future__ import annotations

from math import erfc, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.cards.binomial import upper_tail
from aggregator.cards.manipulation import weights_of
from aggregator.cards.set_bits import OneBitCount, law_p_value, one_bit_p_value, set_bits_law
from aggregator.common.arrays import Floats, Integers
from aggregator.common.periods import shown
from aggregator.estimates.cells import cell_names, question_name
from aggregator.estimates.debias import debias, support_counts
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.reports import Reports
from aggregator.estimates.statistics import Statistics
from aggregator.reports.tally.profile import Profile, Stretches
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import Campaign
from protocol.documents.memory_terms import Remembered
from protocol.mechanisms import FrequencyMechanism, Mechanism

LEVEL = 0.006
"""Corrected p-value below which a test is an alarm."""
SHARES = {"set bits": 0.55, "questions": 0.35, "range": 0.05, "periods": 0.05}
"""Share of :data:`LEVEL` for each kind of tests. If a kind has no test, the other kinds divide its share.

A test among thousands hardly loses power by a smaller share; a test among few does.
"""
CORRECTION = "Bonferroni, with unequal shares for the kinds of tests"
_ONE_BIT = 0.9
"""Part of the share of "set bits" that the one test of all questions together has."""
_LEAST_ANSWERS = 100
"""Number of answers from which sums of numbers are taken as normal."""


class Test(NamedTuple):
    """One test of counts of the kind ``kind`` (a key of :data:`SHARES`), and what it found, in words (``about``).

    ``p``: probability that honest devices give such a count or a more extreme one. ``share``: the test's part of the
    share of its kind. ``corrected``: the corrected p-value, at most 1.
    """

    kind: str
    about: str
    p: float
    share: float
    corrected: float = 1.0


class Alarms(NamedTuple):
    """All tests' results; ``kinds``: kind → (number, least corrected p); ``raised``: alarms, the smallest p first."""

    tests: int
    kinds: dict[str, tuple[int, float]]
    raised: tuple[Test, ...]

    def summary(self) -> str:
        """Return how many alarms there are, of how many tests, and the smallest corrected p-value: one line."""
        least = min((p for _, p in self.kinds.values()), default=1.0)
        return f"{len(self.raised) or 'none'} in {self.tests} tests, smallest corrected p-value {least:.2g}"

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``alarms`` in the output of ``hearsay status --json``."""
        return {
            "level": LEVEL,
            "correction": CORRECTION,
            "tests": self.tests,
            "kinds": [
                {"kind": kind, "tests": tests, "corrected_p": least} for kind, (tests, least) in self.kinds.items()
            ],
            "raised": [
                {"kind": test.kind, "about": test.about, "p": test.p, "corrected_p": test.corrected}
                for test in self.raised
            ],
        }


def alarms(campaign: Campaign, tally: Tally, statistics: Statistics, profile: Profile | None) -> Alarms:
    """Test the counts of a store's reports, and return the results. Run by the operator.

    ``statistics``: the estimates from ``tally``. ``profile``: numbers of set bits of the reports that were not
    forgotten, and counts by period; None leaves out the tests of set bits and of periods.
    """
    names = [question_name(question.subject, campaign.schema) for question in campaign.questions]
    found = [*_questions(campaign, tally, names, _repeats(statistics)), *_range(campaign, tally, statistics)]
    if profile is not None:
        found += [
            *_set_bits(campaign, profile, names, _repeats(statistics)),
            *_periods(campaign, statistics, profile, names),
        ]
    kinds = {kind: share for kind, share in SHARES.items() if any(test.kind == kind for test in found)}
    whole = sum(kinds.values())
    corrected = [test._replace(corrected=min(1.0, test.p * whole / (kinds[test.kind] * test.share))) for test in found]
    return Alarms(
        len(found),
        {kind: _summary([test for test in corrected if test.kind == kind]) for kind in kinds},
        tuple(sorted((test for test in corrected if test.corrected < LEVEL), key=lambda test: test.corrected)),
    )


def _summary(tests: list[Test]) -> tuple[int, float]:
    return len(tests), min(test.corrected for test in tests)


def _shared(kind: str, found: list[tuple[str, float]], share: float = 1.0) -> list[Test]:
    """Return tests of one kind with equal parts of ``share``, of the kind. ``found``: (what was found, p-value)."""
    return [Test(kind, about, float(p), share / len(found)) for about, p in found]


# Set bits -------------------------------------------------------------------------------------------


def _set_bits(campaign: Campaign, profile: Profile, names: list[str], repeats: float) -> list[Test]:
    pooled_counts, each = [], []
    for number, question in enumerate(campaign.questions):
        law = set_bits_law(question.mechanism)
        if law is None:
            continue
        counts = _fewer(profile.set_bits[number, : len(law)], repeats)
        if not counts.sum():
            continue
        if 0 < law[1] < 1:
            pooled_counts.append(OneBitCount(int(counts[1]), int(counts.sum()), float(law[1])))
        p = law_p_value(counts, law)
        if p is not None:
            each.append((f"{names[number]}: the numbers of set bits do not follow their law", p))
    if not pooled_counts:
        return _shared("set bits", each)
    expected = sum(one.answers * one.chance for one in pooled_counts)
    about = f"{sum(one.seen for one in pooled_counts)} reports have exactly one set bit, expected {expected:.0f}"
    pooled = _shared("set bits", [(about, one_bit_p_value(pooled_counts))], _ONE_BIT if each else 1.0)
    return pooled + (_shared("set bits", each, 1 - _ONE_BIT) if each else [])


# Questions ------------------------------------------------------------------------------------------


def _questions(campaign: Campaign, tally: Tally, names: list[str], repeats: float) -> list[Test]:
    n = _fewer(np.array(tally.n, np.int64), repeats)
    return _shared("questions", _against_assignment(campaign, n[None], names, [""]))


def _repeats(statistics: Statistics) -> float:
    """Return how many reports count as one device (:attr:`.Recurrence.repeats`): 1, except in a campaign with memory.

    Counts of such a campaign, divided by it, vary at most as the binomial law says, though reports of one device agree.
    """
    source = statistics.sources[0]
    return source.recurrence.repeats if isinstance(source, Reports) else 1.0


def _fewer(counts: Integers, repeats: float) -> Integers:
    return counts if repeats == 1 else np.rint(counts / repeats).astype(np.int64)


def _against_assignment(campaign: Campaign, n: Integers, names: list[str], where: list[str]) -> list[tuple[str, float]]:
    """Return two-sided tests of the numbers of reports of each question and stratum, as (what was found, p-value).

    ``n``: (P, Q) int64, number of reports of Q questions in P sets of reports; ``where``: P texts that name the sets.
    Each of r strata has Bin(T, 1/r) of T reports; a question that is alone in its stratum has no other test.
    """
    stratum = np.array([question.stratum for question in campaign.questions])
    answers = n @ (stratum[:, None] == stratum).astype(np.int64)
    weights = np.array(weights_of(campaign))
    rows, chosen = np.nonzero((weights < 1) & (answers > 0))
    ps = two_sided(n[rows, chosen], answers[rows, chosen], weights[chosen])
    found = [
        (f"{names[j]}: {n[row, j]} reports{where[row]}, expected {answers[row, j] * weights[j]:.0f}", p)
        for row, j, p in zip(rows.tolist(), chosen.tolist(), ps.tolist(), strict=True)
    ]
    return found + (_equal_strata(campaign, n, stratum, where) if campaign.answers > 1 else [])


def _equal_strata(campaign: Campaign, n: Integers, stratum: Integers, where: list[str]) -> list[tuple[str, float]]:
    strata = campaign.answers
    reports = n @ (stratum[:, None] == np.arange(strata)).astype(np.int64)
    total = np.broadcast_to(reports.sum(axis=1, keepdims=True), reports.shape)
    ps = two_sided(reports, total, np.full(reports.shape, 1 / strata))
    return [
        (f"stratum {j + 1}: {reports[row, j]} reports{where[row]}, expected {total[row, j] / strata:.0f}", ps[row, j])
        for row, j in zip(*(each.tolist() for each in np.nonzero(total)), strict=True)
    ]


def two_sided(k: Integers, n: Integers, p: Floats) -> Floats:
    """Return two-sided p-values of arrays k under Bin(n, p): twice the tail without the mean, at most 1."""
    high = k >= n * p
    tail = upper_tail(np.where(high, k, n - k), n, np.where(high, p, 1 - p))
    return np.asarray(np.minimum(1.0, 2 * tail), np.float64)


# Range ----------------------------------------------------------------------------------------------


def _range(campaign: Campaign, tally: Tally, statistics: Statistics) -> list[Test]:
    found: list[tuple[str, float]] = []
    for number, (question, estimate) in enumerate(zip(campaign.questions, statistics.questions, strict=True)):
        n = estimate.n
        if not n:
            continue
        mechanism = question.mechanism
        if isinstance(mechanism, FrequencyMechanism) and not isinstance(mechanism, Remembered):
            counts = support_counts(mechanism, np.array(tally.counts[number], np.int64))
            low = upper_tail(n - counts, n, 1 - float(mechanism.q))
            high = upper_tail(counts, n, float(mechanism.p))
        elif n >= _LEAST_ANSWERS:
            sd = np.sqrt(np.maximum(estimate.noise_variance, 1e-300))
            low = _normal_tails((estimate.least * n - estimate.estimate) / sd)
            high = _normal_tails((estimate.estimate - n) / sd)
        else:
            continue
        cells = cell_names(question.subject, campaign.schema)
        for place, value in enumerate((estimate.estimate / n).tolist()):
            text = f"{cells[place]}: the estimate is {value:z.4f}"
            found.append((f"{text}, below {estimate.least}", float(low[place])))
            found.append((f"{text}, above 1", float(high[place])))
    return _shared("range", found)


# Periods --------------------------------------------------------------------------------------------


def _periods(campaign: Campaign, statistics: Statistics, profile: Profile, names: list[str]) -> list[Test]:
    stretches = Stretches(campaign)
    numbers, table = profile.by_stretch(stretches.width)
    table = _fewer(table, _repeats(statistics))
    if len(numbers) < 2:
        return []
    when = []
    for stretch in numbers.tolist():
        first, last = (shown(period, campaign.time_precision) for period in stretches.periods(stretch))
        when.append(f" in {first}" if stretches.length == 1 else f" from {first} to {last}")
    sizes = [question.mechanism.answers + 1 for question in campaign.questions]
    starts = np.cumsum(sizes) - sizes
    found = _against_assignment(campaign, table[:, starts], names, when)
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes, strict=True)):
        mechanism, n = campaign.questions[number].mechanism, table[:, start]
        counts = support_counts(mechanism, table[:, start + 1 : start + size])
        rows, ps = _differs(campaign, number, statistics.questions[number], n, counts)
        cells = cell_names(campaign.questions[number].subject, campaign.schema)
        for row, some in zip(rows.tolist(), ps.tolist(), strict=True):
            found += [(f"{cells[place]}: differs{when[row]}", p) for place, p in enumerate(some)]
    return _shared("periods", found)


def _differs(
    campaign: Campaign, number: int, whole: QuestionEstimate, n: Integers, counts: Integers
) -> tuple[NDArray[np.intp], Floats]:
    """Return the stretches with enough answers, (R,) intp, and p-values of their counts against all others, (R, K).

    ``n``: (P,) int64, numbers of answers in P stretches of periods; ``counts``: (P, K) int64; ``whole``: the estimates
    from all reports. Given its sum, a count is hypergeometric; the binomial law used here has heavier tails.
    """
    mechanism, total = campaign.questions[number].mechanism, int(n.sum())
    sums, is_frequency = counts.sum(axis=0), isinstance(campaign.questions[number].mechanism, FrequencyMechanism)
    rows = np.flatnonzero(np.minimum(n, total - n) >= (1 if is_frequency else _LEAST_ANSWERS))
    own, counts = n[rows, None], counts[rows]
    if is_frequency:
        fewer = np.broadcast_to(2 * sums <= total, counts.shape)  # The rarer one of the two outcomes is counted.
        rarer = np.broadcast_to(np.minimum(sums, total - sums), counts.shape)
        shares = np.broadcast_to(own / total, counts.shape)
        return rows, two_sided(np.where(fewer, counts, own - counts), rarer, shares)
    if not rows.size:
        return rows, np.empty((0, 0))
    rest = total - own
    here = _means(mechanism, own, counts)
    there = _means(mechanism, rest, sums - counts)
    variance = (whole.noise_variance / whole.n + whole.spread) * (1 / own + 1 / rest)
    if whole.least == 0 and not whole.is_share:  # The answers are about the stretched number 2v − 1.
        variance = 4 * variance
    z = np.abs(here - there) / np.sqrt(np.maximum(variance, 1e-300))
    return rows, np.minimum(1.0, 2 * _normal_tails(z.ravel()).reshape(z.shape))


def _means(mechanism: Mechanism, n: Integers, counts: Integers) -> Floats:
    """Return the estimated means of R sets of answers, (R, K) float64. ``n``: (R, 1); ``counts``: (R, answers)."""
    found = [debias(mechanism, m, row).estimate / m for m, row in zip(n[:, 0].tolist(), counts.tolist(), strict=True)]
    return np.array(found, np.float64).reshape(len(found), -1)


# Tails ----------------------------------------------------------------------------------------------


def _normal_tails(z: Floats) -> Floats:
    return np.array([erfc(float(each) / sqrt(2)) / 2 for each in z])
