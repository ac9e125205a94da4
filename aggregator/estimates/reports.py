"""Statistics of reports: from the integer counts of a tally to the shape that all sources share.

Source: docs/math.md, sections 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import combined
from aggregator.estimates.debias import Law, debias, marginal, noise_law, sign_size
from aggregator.estimates.intervals import Interval, count_interval, normal_interval
from aggregator.estimates.recurrence import Recurrence, once
from aggregator.estimates.spread import Estimated, spreads
from aggregator.estimates.statistics import (
    QuestionEstimate,
    Right,
    Sample,
    Source,
    Statistics,
    Vote,
    is_share,
    is_stretched,
    relative_spread,
)
from protocol import SCALE
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.mechanisms import SINGLE, FrequencyMechanism, Mechanism
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.questions import CELL, CLASS, OUTCOME, PRESENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.debias import Debiased
    from aggregator.estimates.spread import Spreads
    from aggregator.tally.tally import Tally
    from protocol.documents.campaign import Campaign
    from protocol.questions import Question
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

THREATS = (
    "Each answer is ε-locally private by itself, whoever reads it. The numbers are only as good as the devices: "
    "whoever controls many devices, or sends invented reports, can move them."
)
INTERVALS = "95 % intervals cover noise and sampling; see hearsay estimate. The model's own probabilities carry none."
ESTIMATOR = "unbiased counts from the campaign's integer probabilities"

_UNIFORM_SQUARE = 1 / 3
"""E x² of a number that is uniform on [−1, 1]."""


@dataclass(frozen=True, eq=False)
class Reports(Source):
    """Reports of devices, each of one perturbed answer.

    Attributes:
        campaign: what was asked.
        tally: the integer counts.
        recurrence: how often the same devices answered, as far as it is known.
        rejected: records and stretches not counted, by reason.
        unproven: records counted although their batch was damaged.
        superseded: records of damaged batches not counted because a whole batch has the same ids.
        periods: which periods the counted reports are of, in words. What is not counted is told of all.
        proven_only: whether reports of damaged batches are left out.
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
        """Reports used, after de-duplication."""
        return sum(self.tally.n)

    @property
    def statistics_id(self) -> bytes:
        """SHA-256 of the tally bytes."""
        return self.tally.statistics_id

    def counts(self, question: int) -> list[int]:
        """The question's sums in the tally."""
        return list(self.tally.counts[question])

    def populations(self) -> dict[str, Any]:
        """As :meth:`aggregator.estimates.recurrence.Recurrence.to_json`."""
        return self.recurrence.to_json()

    def facts(self) -> dict[str, int]:
        """Reports of damaged files, and what was not counted."""
        found = {"of them from damaged files": self.unproven}
        found |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        return found | ({"superseded by whole files": self.superseded} if self.superseded else {})

    def card(self) -> dict[str, Any]:
        """Mechanisms, ε, periods and standing of the reports, and what they do not protect from."""
        campaign = self.campaign
        return {
            "answers_per_device": campaign.answers,
            "epsilon_per_answer": format_micro(campaign.epsilon_per_answer_micro),
            "epsilon_total": format_micro(campaign.epsilon_micro),
            "estimator": ESTIMATOR,
            "intervals": INTERVALS,
            "mechanisms": sorted({question.mechanism.name for question in campaign.questions}),
            "periods": self.periods,
            "proven_only": self.proven_only,
            "rejected": {reason: int(count) for reason, count in sorted(self.rejected.items()) if count},
            "threats": THREATS,
            "unproven": int(self.unproven),
        }

    def to_json(self) -> dict[str, Any]:
        """What ``hearsay estimate --json`` prints of a store's reports, beside the questions."""
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
) -> Statistics:
    """Unbiased estimates from a tally. Run by the aggregator.

    Args:
        campaign: what was asked, with the integers that the devices used.
        tally: the counts.
        recurrence: how often the same devices answered; without it every answer to a stratum is taken for
            another device's, which is right for one period and no more.
        rejected, unproven, superseded, periods, proven_only: passed on, as :class:`Reports` has them.

    Raises:
        InputError: ``other_campaign``: the tally counts answers to another campaign;
            ``mechanism_unknown``: a question's answers have no estimator.
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
    found = tuple(_completed(part, table, campaign.schema) for part in parts)
    source = Reports(campaign, tally, recurrence, dict(rejected or {}), unproven, superseded, periods, proven_only)
    return Statistics(campaign.schema, campaign.fit, found, (source,))


class _Part(NamedTuple):
    """One question before its true values' spread is known."""

    question: Question
    n: int
    result: Debiased
    sample: Sample
    classes: tuple[Vote, ...]
    right: Right | None

    def estimated(self) -> Estimated:
        estimates = self.result.estimate
        if is_stretched(self.question.subject):
            estimates = (estimates + self.n) / 2
        return Estimated(self.question.subject, self.n, estimates)


def _part(question: Question, n: int, counts: Sequence[int], recurrence: Recurrence, classes: int) -> _Part:
    stratum = question.stratum
    sample = Sample(0, stratum, recurrence.answers[stratum], recurrence.concentration[stratum])
    votes = _votes(question, n, counts, sample, classes)
    right = _right(question.mechanism, n, counts, classes) if n and question.kind == OUTCOME else None
    return _Part(question, n, debias(question.mechanism, n, counts), sample, votes, right)


def _votes(question: Question, n: int, counts: Sequence[int], sample: Sample, classes: int) -> tuple[Vote, ...]:
    """What the answers say of the classes: value a·k + c stands for class c."""
    if not n or question.kind not in (CLASS, CELL, PRESENT):
        return ()
    found = marginal(question.mechanism, n, counts, classes)
    return () if found is None else (Vote(sample, n, found.estimate / n, found.law),)


def _right(mechanism: Mechanism, n: int, counts: Sequence[int], classes: int) -> Right | None:
    """The share of right predictions: of the values true·k + predicted, those with true = predicted.

    The values are put into k groups of k by (predicted − true) mod k; group 0 is that of right predictions.
    """
    turned = [counts[true * classes + (true + shift) % classes] for true in range(classes) for shift in range(classes)]
    found = marginal(mechanism, n, turned, classes)
    return None if found is None else Right(float(found.estimate[0]) / n, found.law)


def _completed(part: _Part, table: Spreads | None, schema: Schema) -> QuestionEstimate:
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
    ends, devices_ends = _intervals(question, n, estimates, noise, spread, (scatter, devices_scatter))
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
        is_binomial=isinstance(mechanism, FrequencyMechanism | CoinMechanism),
        adds_up=isinstance(mechanism, FrequencyMechanism) and mechanism.layout == SINGLE,
        classes=part.classes,
        right=part.right,
    )


def _intervals(
    question: Question, n: int, estimate: Floats, noise: Floats, spread: Floats, scatters: tuple[float, float]
) -> tuple[Interval, Interval]:
    """95 % intervals, of shape (K,), for every scatter.

    They follow the law of the counts where that is known (``aggregator.estimates.intervals``), so they reach further
    towards the middle than away from it; else they are the estimate and 1.96 standard deviations either side.
    """
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
    """The noise of one answer as a line in the share; of a coin about a number of mean m, in (1 + m)/2."""
    if isinstance(mechanism, CoinMechanism):
        gain = 1 / (2 * sign_size(mechanism))
        return Law.pure(1 / 2 + gain, 1 / 2 - gain)
    return noise_law(mechanism)


def planned_variance(question: Question, n: int, classes: int) -> float:
    """Variance of one share or mean, as the mechanism and the number asked tell it before any answer.

        [φ(1/K) + (1/K)(1 − 1/K)]/n of a share;   [φ(0) + 1/(3k)]/n of a number, uniform in one of k equal classes

    φ is one answer's noise variance. Infinite if n = 0, or if the mechanism states no variance.
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
    """Kept: thousands of cells' fractions take long, and the questions of a campaign share few mechanisms."""
    return float(mechanism.variance(0)) / SCALE**2 if isinstance(mechanism, NumericMechanism) else inf
