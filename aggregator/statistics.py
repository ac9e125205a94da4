"""The hall: unbiased estimates with variances, where all kinds of counts end and every fit begins.

Source: docs/math.md, section 1. Nothing here is made pretty: estimates may be negative. Making
probabilities of them is a second, named step (``aggregator.models``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.debias import debias, marginal
from aggregator.intake.counting import EVERYTHING, Scope
from aggregator.intervals import Interval, count_interval, normal_interval
from aggregator.notebooks import facts, table
from protocol.errors import InputError, PolicyError
from protocol.questions import CELL, MOMENT, MOMENTS, OUTCOME, SQUARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.intake.tally import Tally
    from protocol.campaign import Campaign
    from protocol.questions import Question
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

_POWERS = {1: "", 2: "²"}


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """What is known about one question. Estimates are in reports: how many of the ``n`` asked.

    Attributes:
        question: what was asked.
        n: answers counted.
        counts: the integer sums they came from.
        estimate: shape (K,), unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,), of the noise, given who was asked. Infinite if n = 0.
        sampling_variance: shape (K,), n f(1 − f): from whom it happened to be that was asked, so that
            ``estimate / n`` speaks for the whole fleet. f is the estimated share, brought into [0, 1].
    """

    question: Question
    n: int
    counts: tuple[int, ...]
    estimate: Floats
    noise_variance: Floats
    sampling_variance: Floats

    @property
    def variance(self) -> Floats:
        """Shape (K,): noise and sampling together."""
        return self.noise_variance + self.sampling_variance

    @property
    def sd(self) -> Floats:
        """Shape (K,): standard deviation."""
        return np.sqrt(self.variance)

    @cached_property
    def interval(self) -> Interval:
        """95 % intervals for n times the fleet's shares; without ends if n = 0.

        From the law of the counts where that is known (``aggregator.intervals``), so they reach further
        towards the middle than away from it; else the estimate and 1.96 standard deviations either side.
        """
        exact = count_interval(self.question.mechanism, self.n, self.counts) if self.n else None
        return normal_interval(self.estimate, self.sd) if exact is None else exact

    @property
    def low(self) -> Floats:
        """Shape (K,): lower ends of the intervals."""
        return self.interval.low

    @property
    def high(self) -> Floats:
        """Shape (K,): upper ends of the same intervals."""
        return self.interval.high


@dataclass(frozen=True, eq=False)
class Statistics:
    """All estimates of one campaign.

    Attributes:
        campaign: what was asked.
        tally: the integer counts that everything here follows from.
        rejected: records and stretches not counted, by reason.
        unproven: records counted although their batch was damaged.
        questions: one estimate per question, in the campaign's order.
        superseded: records of damaged batches not counted because a whole batch has the same ids.
        scope: of which periods and which standing the counted reports are. What is not counted is told of all.
    """

    campaign: Campaign
    tally: Tally
    rejected: Mapping[str, int]
    unproven: int
    questions: tuple[QuestionEstimate, ...]
    superseded: int = 0
    scope: Scope = EVERYTHING

    @cached_property
    def reports(self) -> int:
        """Reports used, after de-duplication."""
        return sum(self.tally.n)

    @property
    def statistics_id(self) -> bytes:
        """SHA-256 of the tally bytes."""
        return self.tally.statistics_id

    def check_publishable(self) -> None:
        """Refuse to show or publish estimates from fewer reports than the campaign promises to wait for.

        Raises:
            PolicyError: ``batch_too_small`` (DAP's minimum batch size).
        """
        needed = self.campaign.min_batch_size
        if self.reports < needed:
            raise PolicyError(
                "batch_too_small",
                f"usable reports so far: {self.reports}; the campaign promises to wait for {needed}",
            )

    def frame(self) -> pd.DataFrame:
        """One row per question and cell: question, cell, n, estimate, sd, low, high."""
        import pandas as pd

        schema = self.campaign.schema
        tables = [
            pd.DataFrame(
                {
                    "question": question_name(found.question, schema),
                    "cell": cell_names(found.question, schema),
                    "n": found.n,
                    "estimate": found.estimate,
                    "sd": found.sd,
                    "low": found.low,
                    "high": found.high,
                }
            )
            for found in self.questions
        ]
        return pd.concat(tables, ignore_index=True)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"campaign": self.campaign.header.name, "reports": self.reports}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        if self.reports < self.campaign.min_batch_size:
            return facts("Estimates", {**about, "smallest batch": f"{self.campaign.min_batch_size}, not reached"})
        frame = self.frame()
        return facts("Estimates", about) + table(list(frame.columns), frame.itertuples(index=False, name=None))

    def to_json(self) -> dict[str, Any]:
        """What ``hearsay estimate --json`` prints. Variances are null for a question without answers."""
        return {
            "campaign": self.campaign.id.hex(),
            "reports": self.reports,
            "rejected": dict(self.rejected),
            "unproven": self.unproven,
            "superseded": self.superseded,
            "periods": self.scope.periods,
            "proven_only": self.scope.proven_only,
            "statistics_id": self.statistics_id.hex(),
            "questions": [self._question_json(found) for found in self.questions],
        }

    def _question_json(self, found: QuestionEstimate) -> dict[str, Any]:
        schema = self.campaign.schema
        feature = found.question.feature
        return {
            "kind": found.question.kind,
            "feature": None if feature is None else schema.observed[feature].name,
            "power": found.question.subject.power,
            "cells": cell_names(found.question, schema),
            "n": found.n,
            "counts": list(found.counts),
            "estimates": _finite(found.estimate),
            "variances": _finite(found.variance),
        }


def _finite(values: Floats) -> list[float | None]:
    return [value if isfinite(value) else None for value in values.tolist()]


def question_name(question: Question, schema: Schema) -> str:
    """``class``, ``cell odor``, ``moment 1 of width`` or ``moments 2``."""
    kind, feature, _, power, of_class = question.subject
    name = "" if feature is None else f" {schema.observed[feature].name}"
    if kind == MOMENT:
        where = "" if of_class is None else f", {schema.label.name}={schema.label.classes[of_class]}"
        return f"{kind} {power} of{name}{where}"
    return f"{kind}{name}" if power is None else f"{kind} {power}"


def cell_names(question: Question, schema: Schema) -> list[str]:
    """A name for every number of an estimate: ``label=e``, ``odor=n, label=e``, ``width, label=e``."""
    label = schema.label
    kind, feature, _, power, of_class = question.subject
    classes = [f"{label.name}={name}" for name in label.classes]
    if kind == OUTCOME:
        return [f"{true}, predicted {name}" for true in classes for name in label.classes]
    if kind == MOMENTS:
        names = [schema.observed[index].name for index in schema.numeric]
        return [f"{name}{_POWERS[power or 1]}, {one}" for name in names for one in classes]
    if feature is None:
        return classes
    observed = schema.observed[feature]
    if kind == MOMENT:
        asked = classes if of_class is None else [classes[of_class]]
        return [f"{observed.name}{_POWERS[power or 1]}, {one}" for one in asked]
    values = [f"no {observed.name}", f"{observed.name} is there"]
    if kind == CELL:
        values = [f"{observed.name}={value}" for value in observed.labels()]
    return [f"{value}, {one}" for value in values for one in classes]


def estimate(
    campaign: Campaign,
    tally: Tally,
    *,
    rejected: Mapping[str, int] | None = None,
    unproven: int = 0,
    superseded: int = 0,
    scope: Scope = EVERYTHING,
) -> Statistics:
    """Unbiased estimates from a tally. Run by the aggregator.

    Args:
        campaign: what was asked, with the integers that the devices used.
        tally: the counts.
        rejected: passed on, for whoever reads the statistics.
        unproven, superseded, scope: likewise.

    Raises:
        InputError: ``other_campaign``: the tally counts answers to another campaign;
            ``mechanism_unknown``: a question's answers have no estimator.
    """
    if tally.campaign != campaign.id:
        raise InputError("other_campaign", "the tally counts answers to another campaign")
    found = tuple(
        _estimate_question(question, n, counts)
        for question, n, counts in zip(campaign.questions, tally.n, tally.counts, strict=True)
    )
    return Statistics(campaign, tally, dict(rejected or {}), unproven, found, superseded, scope)


def _estimate_question(question: Question, n: int, counts: tuple[int, ...]) -> QuestionEstimate:
    result = debias(question.mechanism, n, counts)
    estimates, noise = result.estimate, result.noise_variance
    if question.subject.of_class is not None and question.subject.power == SQUARE:
        estimates, noise = (estimates + n) / 2, noise / 4  # the answer was about 2v − S
    sampling = np.zeros_like(noise) if result.holds_sampling else _sampling_variance(estimates, n)
    return QuestionEstimate(question, n, counts, estimates, noise, sampling)


def _sampling_variance(estimates: Floats, n: int) -> Floats:
    """Shape (K,): n f(1 − f) with f the estimated share, brought into [0, 1]; zeros if n = 0."""
    share = np.clip(estimates / max(n, 1), 0, 1)
    return np.asarray(n * share * (1 - share), np.float64)


class ClassShares(NamedTuple):
    """Shares of the classes in the fleet.

    Attributes:
        share: shape (k,), unbiased; may be negative. Zeros if nobody was asked.
        variance: shape (k,), noise and sampling. Infinite if nobody was asked.
    """

    share: Floats
    variance: Floats


def class_shares(statistics: Statistics) -> ClassShares:
    """The classes' shares from the class question and every cell question, by inverse variance.

        share_c = Σ_j w_j s_jc      w_j ∝ 1 / Var s_jc at equal shares 1/k, Σ_j w_j = 1

    where s_jc is question j's estimate of the share of class c: for a cell question the sum over its
    values. The weights depend on the mechanisms and the numbers asked, never on the answers, so the
    sum is as unbiased as its parts.

    Noise is independent between questions. So is sampling within a stratum, where every question has
    its own devices; between strata it is the same devices that answer, so there the variance returned
    is the largest that any correlation allows.

    Source: docs/math.md, section 4 ("combine by inverse variance").
    """
    classes = len(statistics.campaign.schema.label.classes)
    votes = [vote for found in statistics.questions if (vote := _class_vote(found, classes)) is not None]
    if not votes:
        return ClassShares(np.zeros(classes), np.full(classes, np.inf))
    weights = np.array([1 / vote.planned_variance for vote in votes])
    weights /= weights.sum()
    share = sum((w * vote.share for w, vote in zip(weights, votes, strict=True)), np.zeros(classes))
    noise = sum((w * w * vote.noise for w, vote in zip(weights, votes, strict=True)), np.zeros(classes))
    return ClassShares(share, noise + _sampling_over_strata(weights.tolist(), votes, classes))


class _Vote(NamedTuple):
    """What one question says about the classes, as shares."""

    stratum: int
    share: Floats
    noise: Floats
    sampling: Floats
    planned_variance: float


def _class_vote(found: QuestionEstimate, classes: int) -> _Vote | None:
    """One question's estimate of the classes' shares; None if it was not asked or says nothing of them."""
    question, n = found.question, found.n
    result = marginal(question.mechanism, n, found.counts, classes) if n else None
    if result is None:
        return None
    equal = 1 / classes
    return _Vote(
        question.stratum,
        result.estimate / n,
        result.noise_variance / n**2,
        _sampling_variance(result.estimate, n) / n**2,
        result.planned_variance / n**2 + equal * (1 - equal) / n,
    )


def _sampling_over_strata(weights: Sequence[float], votes: Sequence[_Vote], classes: int) -> Floats:
    """(Σ_s √(Σ_{j in stratum s} w_j² sampling_j))²: independent within strata, any correlation between."""
    by_stratum: dict[int, Floats] = {}
    for weight, vote in zip(weights, votes, strict=True):
        total = by_stratum.get(vote.stratum, np.zeros(classes))
        by_stratum[vote.stratum] = total + weight**2 * vote.sampling
    deviation = sum((np.sqrt(total) for total in by_stratum.values()), np.zeros(classes))
    return np.asarray(deviation**2, np.float64)
