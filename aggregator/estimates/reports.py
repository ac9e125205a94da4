"""Statistics of reports: from the integer counts of a tally to the common form of all statistics.

Source: docs/math.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from operator import add
from typing import Any, NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import combined
from aggregator.estimates.debias import (
    Estimates,
    Law,
    adds_up,
    debias,
    marginal,
    noise_law,
    pairs_of,
    sign_size,
    support_counts,
)
from aggregator.estimates.intervals import Interval, count_interval, normal_interval
from aggregator.estimates.question_estimate import (
    QuestionEstimate,
    Right,
    Sample,
    SampleWeight,
    Vote,
    is_share,
    is_stretched,
    relative_spread,
)
from aggregator.estimates.recurrence import Recurrence, once
from aggregator.estimates.source import Source
from aggregator.estimates.spread import Spreads, SubjectEstimate, spreads
from aggregator.estimates.statistics import Statistics
from aggregator.reports.tally.tally import Tally
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.documents.memory_terms import Remembered
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism, Mechanism
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.questions import CELL, CLASS, OUTCOME, PRESENT, RIGHT, Question
from protocol.schema import Schema

THREATS = (
    "Each answer is ε-locally private by itself, whoever reads it. The numbers are only as good as the devices: "
    "whoever controls many devices, or sends invented reports, can move them."
)
INTERVALS = (
    "95 % intervals of the population, which cover noise and sampling; hearsay estimate shows that of every probability"
)
ESTIMATOR = "unbiased counts from the campaign's integer probabilities"

_UNIFORM_SQUARE = 1 / 3
"""E x² of a number x with the uniform distribution on [−1, 1]."""


@dataclass(frozen=True, eq=False)
class Reports(Source):
    """Source of statistics: reports of devices, each with one perturbed answer.

    ``recurrence``: how often the same devices answered, or an upper bound; ``rejected``: reason → records and byte
    ranges not counted; ``unproven``: counted records from damaged batches; ``superseded``: those not counted because a
    complete batch has the same ids; ``periods``: in words.
    """

    campaign: Campaign
    tally: Tally
    recurrence: Recurrence
    rejected: Mapping[str, int] = field(default_factory=dict)
    unproven: int = 0
    superseded: int = 0
    periods: str = "all"
    proven_only: bool = False

    @property
    def reports(self) -> int:
        """Number of reports used, after de-duplication."""
        return sum(self.tally.n)

    @property
    def batch(self) -> int:
        """Number of reports, or of the devices that they count for in a campaign with memory (:class:`.Recurrence`)."""
        return self.recurrence.devices(self.reports)

    @property
    def statistics_id(self) -> bytes:
        """SHA-256 of the tally bytes."""
        return self.tally.statistics_id

    def counts(self, question: int) -> list[int]:
        """Return the integer counts of one question; ``question``: its index in the campaign."""
        return list(self.tally.counts[question])

    def populations(self) -> dict[str, Any]:
        """Return who each of the two intervals is about, and the assumption about repeated answers, for programs."""
        return self.recurrence.to_json()

    def facts(self) -> dict[str, int]:
        """Return counts for people by printed name: reports from damaged files, and records not counted, by reason."""
        found = {"of them from damaged files": self.unproven}
        found |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        return found | ({"superseded by whole files": self.superseded} if self.superseded else {})

    def card(self) -> dict[str, Any]:
        """Return entries for a model's card: mechanisms, ε, periods, counts of unused and unproven reports, threats.

        Only a campaign of a series has the entry ``series``: ε is then the total of a device in the whole series.
        """
        campaign = self.campaign
        series = {} if campaign.series is None else {"series": campaign.series.name}
        if campaign.memory is not None:
            series["memory"] = campaign.memory.in_words(campaign.epsilon_micro)
        return series | {
            "answers_per_device": campaign.answers,
            "epsilon_per_answer": format_micro(campaign.epsilon_per_answer_micro),
            "epsilon_total": format_micro(campaign.life_micro(1)),
            "estimator": ESTIMATOR,
            "intervals": INTERVALS,
            "mechanisms": sorted({question.mechanism.name for question in campaign.questions}),
            "periods": self.periods,
            "proven_only": self.proven_only,
            "rejected": {reason: int(count) for reason, count in sorted(self.rejected.items()) if count},
            "threats": THREATS,
            "trust": "local",
            "unproven": int(self.unproven),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the part of the output of ``hearsay estimate --json`` that is about the reports."""
        return {
            "campaign": self.campaign.id.hex(),
            "reports": self.reports,
            "rejected": dict(self.rejected),
            "unproven": self.unproven,
            "superseded": self.superseded,
            "periods": self.periods,
            "proven_only": self.proven_only,
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations(),
        }


def estimate(
    campaign: Campaign,
    tally: Tally,
    *,
    recurrence: Recurrence | None = None,
    rejected: Mapping[str, int] | None = None,
    unproven: int = 0,
    superseded: int = 0,
    periods: str = "all",
    proven_only: bool = False,
    with_intervals: bool = True,
) -> Statistics:
    """Return unbiased estimates from a tally of reports. Run by the aggregator.

    Raises InputError: ``other_campaign``: the tally counts answers to another campaign; ``mechanism_unknown``: a
    question's answers have no estimator.

    Args:
        campaign: questions and mechanisms, with the integer parameters of the devices.
        tally: the counts.
        recurrence: how often the same devices answered. The default assumes that every answer to a stratum is from
            another device, which is right for one period only.
        rejected, unproven, superseded, periods, proven_only: attributes of the returned source (:class:`Reports`).
        with_intervals: False sets the ends of all intervals to NaN, which saves time; a fit needs no intervals.
    """
    if tally.campaign != campaign.id:
        raise InputError("other_campaign", "the tally counts answers to another campaign")
    recurrence = recurrence or once(campaign, tally)
    classes = len(campaign.schema.label.classes)
    parts = [
        _part(question, n, counts, recurrence, classes)
        for question, n, counts in zip(campaign.questions, tally.n, tally.counts, strict=True)
    ]
    table = None
    if not all(is_share(part.question.subject) for part in parts):
        shares = combined([vote for part in parts for vote in part.classes], classes).share
        table = spreads([part.estimated() for part in parts], campaign.schema, shares)
    found = tuple(_completed(part, table, campaign.schema, with_intervals=with_intervals) for part in parts)
    source = Reports(campaign, tally, recurrence, dict(rejected or {}), unproven, superseded, periods, proven_only)
    return Statistics(campaign.schema, campaign.fit, found, (source,))


def with_answers(statistics: Statistics, added: Sequence[tuple[int, Sequence[int]]]) -> Statistics:
    """Return the statistics with a few further answers; only their questions are estimated again, without intervals.

    ``added`` has for each answer the index of its question and what it adds to the question's counts. ``statistics``
    have one source, of reports. The numbers of answers to whole strata, which only variances need, stay as they are.
    """
    source = statistics.source
    assert isinstance(source, Reports)
    campaign, tally, recurrence = source.campaign, source.tally, source.recurrence
    n, counts = list(tally.n), list(tally.counts)
    times = round(recurrence.repeats)  # a device of a campaign with memory answers its question in all periods
    for place, own in added:
        n[place] += times
        counts[place] = tuple(map(add, counts[place], [times * one for one in own]))
    classes, found = len(campaign.schema.label.classes), list(statistics.questions)
    parts = {
        place: _part(campaign.questions[place], n[place], counts[place], recurrence, classes) for place, _ in added
    }
    table = None
    if not all(is_share(part.question.subject) for part in parts.values()):
        votes = [parts[place].classes if place in parts else one.classes for place, one in enumerate(found)]
        shares = combined([vote for own in votes for vote in own], classes).share
        known = [
            parts[place].estimated() if place in parts else SubjectEstimate(one.subject, one.n, one.estimate)
            for place, one in enumerate(found)
        ]
        table = spreads(known, campaign.schema, shares)
    for place, part in parts.items():
        found[place] = _completed(part, table, campaign.schema, with_intervals=False)
    grown = replace(source, tally=replace(tally, n=tuple(n), counts=tuple(counts)))
    return replace(statistics, questions=tuple(found), sources=(grown,))


class _Part(NamedTuple):
    """Estimates of one question, before the spread of the true values is computed.

    ``n``: number of answers, or of devices if each answers one question in all periods. ``result``: estimates with
    noise variances. ``sample``: all answers to the stratum.
    ``classes``, ``right``: shares of the classes and of right predictions, if the question gives any.
    """

    question: Question
    n: int
    result: Estimates
    sample: Sample
    classes: tuple[Vote, ...]
    right: Right | None

    def estimated(self) -> SubjectEstimate:
        """Return the estimate of the number v that the question is about. Devices may have perturbed 2v − S."""
        estimates = self.result.estimate
        if is_stretched(self.question.subject):
            estimates = (estimates + self.n) / 2
        return SubjectEstimate(self.question.subject, self.n, estimates)


def _part(question: Question, n: int, counts: Sequence[int], recurrence: Recurrence, classes: int) -> _Part:
    stratum, counts = question.stratum, support_counts(question.mechanism, counts)
    if isinstance(question.mechanism, Remembered):
        question = question._replace(mechanism=question.mechanism.averaged(*recurrence.left))
    devices = recurrence.devices(n)
    sample = Sample(0, stratum, recurrence.devices(recurrence.answers[stratum]), recurrence.concentration[stratum])
    votes = _votes(question, n, counts, sample, devices, classes)
    right = _right(question, n, counts, classes) if n and question.kind in (OUTCOME, RIGHT) else None
    found = debias(question.mechanism, n, counts)
    if devices != n:
        found = found._replace(estimate=found.estimate * devices / n, noise_variance=found.noise_variance * devices / n)
    return _Part(question, devices, found, sample, votes, right)


def _votes(
    question: Question, n: int, counts: Sequence[int], sample: Sample, devices: int, classes: int
) -> tuple[Vote, ...]:
    """Return the classes' shares by one question; empty if its values do not contain the class, or without answers.

    ``devices``: how many devices the ``n`` answers count for.
    """
    if not n or question.kind not in (CLASS, CELL, PRESENT):
        return ()
    found = marginal(question.mechanism, n, counts, classes)
    return () if found is None else (Vote(sample, devices, found.estimate / n, found.law),)


def _right(question: Question, n: int, counts: Sequence[int], classes: int) -> Right | None:
    """Return the share of right predictions; None if the mechanism has no estimator for it.

    The values true·k + predicted of an ``outcome`` question (k classes) are put into k groups by (predicted − true) mod
    k; group 0 is right. In a ``right`` question the value 1 means right.
    """
    mechanism = question.mechanism
    if question.kind == RIGHT:
        law = noise_law(mechanism)
        return None if law is None else Right(float(debias(mechanism, n, counts).estimate[1]) / n, law)
    grouped = [counts[true * classes + (true + shift) % classes] for true in range(classes) for shift in range(classes)]
    found = marginal(mechanism, n, grouped, classes)
    return None if found is None else Right(float(found.estimate[0]) / n, found.law)


def _completed(part: _Part, table: Spreads | None, schema: Schema, *, with_intervals: bool) -> QuestionEstimate:
    """Return the estimate of one question with the variance of the true values, and with intervals on request."""
    question, n, sample = part.question, part.n, part.sample
    subject = question.subject
    estimates, noise = part.estimated().estimate, part.result.noise_variance
    if table is not None and not is_share(subject):
        spread = table.of_subject(subject, schema)
    else:
        share = np.clip(estimates / max(n, 1), 0, 1)
        spread = np.asarray(share * (1 - share), np.float64)
    if is_stretched(subject):
        noise = noise / 4
    if part.result.holds_sampling and n:
        spread = np.minimum(spread, noise / n)
        noise = noise - n * spread
    devices_scatter = 1 - (n / sample.answers if sample.answers else 1.0)
    scatter = devices_scatter + n * sample.concentration
    unknown = Interval(np.full(len(estimates), np.nan), np.full(len(estimates), np.nan))
    ends, devices_ends = (
        _intervals(question, n, estimates, noise, spread, (scatter, devices_scatter))
        if with_intervals
        else (unknown, unknown)
    )
    mechanism = question.mechanism
    return QuestionEstimate(
        subject,
        n,
        estimates,
        noise,
        spread,
        devices_scatter,
        scatter,
        ends,
        devices_ends,
        planned_variance(question, n, len(schema.label.classes)),
        _law(mechanism),
        pairs_of(mechanism),
        is_binomial=isinstance(mechanism, FrequencyMechanism | CoinMechanism) and not isinstance(mechanism, Remembered),
        adds_up=adds_up(mechanism),
        samples=(SampleWeight(sample, 1.0),),
        classes=part.classes,
        right=part.right,
    )


def _intervals(
    question: Question, n: int, estimate: Floats, noise: Floats, spread: Floats, scatters: tuple[float, float]
) -> tuple[Interval, Interval]:
    """Return 95 % intervals, by the law of the counts if it is known, for each of the two ``scatters``: (K,) each."""
    found = None
    if n:
        stretched = is_stretched(question.subject)
        room = relative_spread(n, estimate, spread, least=0 if stretched else -1)
        relative = np.ones(len(estimate)) if is_share(question.subject) else room
        dependence = 1 + (np.array(scatters)[:, None] - 1) * relative
        found = count_interval(question.mechanism, n, 2 * estimate - n if stretched else estimate, dependence)
        if found is not None and stretched:
            found = Interval((found.low + n) / 2, (found.high + n) / 2)
    if found is None:
        sds = [np.sqrt(noise + n * spread * scatter) for scatter in scatters]
        return normal_interval(estimate, sds[0]), normal_interval(estimate, sds[1])
    return Interval(found.low[0], found.high[0]), Interval(found.low[1], found.high[1])


def _law(mechanism: Mechanism) -> Law | None:
    """Return the noise variance of one answer, linear in a share (for one bit: in (1 + mean)/2), or None."""
    if isinstance(mechanism, CoinMechanism):
        gain = 1 / (2 * sign_size(mechanism))
        return Law.pure(1 / 2 + gain, 1 / 2 - gain)
    return noise_law(mechanism)


def planned_variance(question: Question, n: int, classes: int) -> float:
    """Return the variance of a share or mean that ``question`` estimates, from its mechanism and n answers alone.

        share: [φ(1/K) + (1/K)(1 − 1/K)]/n      mean of a number: [φ(0) + 1/(3k)]/n

    φ(x): noise variance of one answer at the true share or number x; K: number of values; k: ``classes``. All shares
    are taken as equal, numbers as uniform. Infinite if n = 0, or if the mechanism states no variance.
    """
    if not n:
        return inf
    law = noise_law(question.mechanism)
    if law is not None:
        equal = 1 / question.size
        return (float(law.at(np.array(equal))) + equal * (1 - equal)) / n
    noise = _noise_at_zero(question.mechanism)
    if is_stretched(question.subject):
        noise /= 4
    return (noise + _UNIFORM_SQUARE / classes) / n


@lru_cache(maxsize=64)
def _noise_at_zero(mechanism: Mechanism) -> float:
    """Return the noise variance of one answer about the number 0, or infinity; cached, since fractions are slow."""
    return float(mechanism.variance(0)) / SCALE**2 if isinstance(mechanism, NumericMechanism) else inf
