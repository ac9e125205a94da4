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

from aggregator.estimates.cells import cell_names, cells_of
from aggregator.estimates.class_shares import combined
from aggregator.estimates.debias import debias
from aggregator.estimates.intervals import Interval, count_interval, normal_interval
from aggregator.estimates.recurrence import Recurrence, once
from aggregator.estimates.showing import COLUMNS, rows
from aggregator.estimates.spread import Estimated, spreads
from aggregator.notebooks import facts, table
from aggregator.tally.counting import EVERYTHING, Scope
from protocol.errors import InputError, PolicyError
from protocol.questions import MOMENT, MOMENTS, SQUARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.estimates.debias import Debiased
    from aggregator.estimates.spread import Spreads
    from aggregator.tally.tally import Tally
    from protocol.documents.campaign import Campaign
    from protocol.questions import Question
    from protocol.schema import Schema

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """What is known about one question. Estimates are in reports: how many of the ``n`` asked.

    Of each number there are two variances and intervals (``aggregator.estimates.recurrence``): of n times the shares
    among these devices, each weighted by its answers (``devices_…``), and of n times those in the population
    that they are drawn from, which holds the other's uncertainty and more.

    Attributes:
        question: what was asked.
        n: answers counted.
        counts: the integer sums they came from.
        estimate: shape (K,), unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,), of the noise, given who was asked. Infinite if n = 0.
        spread: shape (K,), s², the variance of the true value between those asked: f(1 − f) of a share f, with
            the estimated share brought into [0, 1].
        chosen: π, the part of its stratum's answers that this question got.
        concentration: c = ΣT²/(ΣT)² of its stratum: 1/N if N devices answered once.
    """

    question: Question
    n: int
    counts: tuple[int, ...]
    estimate: Floats
    noise_variance: Floats
    spread: Floats
    chosen: float
    concentration: float

    @property
    def is_share(self) -> bool:
        """Whether the numbers are shares of those asked, and not means."""
        return self.question.kind not in (MOMENT, MOMENTS)

    @property
    def sampling_variance(self) -> Floats:
        """Shape (K,): from whom it happened to be that was asked, of the population."""
        return np.asarray(self.n * self.spread * self._dependence(drawn=True))

    @property
    def variance(self) -> Floats:
        """Shape (K,), of the population: noise and sampling together."""
        return self.noise_variance + self.sampling_variance

    @property
    def devices_variance(self) -> Floats:
        """Shape (K,), of these devices: noise, and which of their answers this question got."""
        return np.asarray(self.noise_variance + self.n * self.spread * self._dependence(drawn=False))

    @property
    def sd(self) -> Floats:
        """Shape (K,): standard deviation, of the population."""
        return np.sqrt(self.variance)

    @property
    def devices_sd(self) -> Floats:
        """Shape (K,): standard deviation, of these devices."""
        return np.sqrt(self.devices_variance)

    @cached_property
    def interval(self) -> Interval:
        """95 % intervals for n times the population's shares; without ends if n = 0.

        From the law of the counts where that is known (``aggregator.estimates.intervals``), so they reach further
        towards the middle than away from it; else the estimate and 1.96 standard deviations either side.
        """
        return self._interval(self.sd, drawn=True)

    @cached_property
    def devices_interval(self) -> Interval:
        """The same for n times the shares among these devices, each weighted by its answers."""
        return self._interval(self.devices_sd, drawn=False)

    @property
    def low(self) -> Floats:
        """Shape (K,): lower ends of :attr:`interval`."""
        return self.interval.low

    @property
    def high(self) -> Floats:
        """Shape (K,): upper ends of the same intervals."""
        return self.interval.high

    def _dependence(self, *, drawn: bool) -> float:
        """How many times as much as n different people would have it the true values scatter."""
        return 1 - self.chosen + (self.n * self.concentration if drawn else 0.0)

    def _interval(self, sd: Floats, *, drawn: bool) -> Interval:
        if not self.n:
            return normal_interval(self.estimate, sd)
        squares = _is_stretched(self.question)
        dependence = 1 + (self._dependence(drawn=drawn) - 1) * self._relative_spread()
        stretched = 2 * self.estimate - self.n if squares else self.estimate
        found = count_interval(self.question.mechanism, self.n, stretched, dependence)
        if found is None:
            return normal_interval(self.estimate, sd)
        return Interval((found.low + self.n) / 2, (found.high + self.n) / 2) if squares else found

    def _relative_spread(self) -> Floats:
        """Shape (K,): the spread as a part of the largest that this mean allows; 1 of shares."""
        if self.is_share:
            return np.ones(len(self.estimate))
        mean = self.estimate / self.n
        least = 0 if _is_stretched(self.question) else -1
        room = np.maximum((mean - least) * (1 - mean), np.finfo(float).tiny)
        return np.clip(self.spread / room, 0, 1)


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
        recurrence: how often the same devices answered, as far as it is known.
        scope: of which periods and which standing the counted reports are. What is not counted is told of all.
    """

    campaign: Campaign
    tally: Tally
    rejected: Mapping[str, int]
    unproven: int
    questions: tuple[QuestionEstimate, ...]
    superseded: int
    recurrence: Recurrence
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
        """One row per question and cell, in reports asked.

        ``question`` and ``cell`` say in words what ``kind``, ``feature``, ``power``, ``value`` and ``class`` say in
        columns; ``value`` is the predicted class of an outcome. ``estimate`` has ``sd``, ``low`` and ``high`` of the
        population, and ``devices_sd`` … of these devices (:class:`QuestionEstimate`); missing where n = 0.
        """
        import pandas as pd

        schema = self.campaign.schema
        tables = []
        for found in self.questions:
            of_devices = found.devices_interval
            numbers = {"sd": found.sd, "low": found.low, "high": found.high}
            numbers |= {"devices_sd": found.devices_sd, "devices_low": of_devices.low, "devices_high": of_devices.high}
            cells = cells_of(found.question, schema)
            columns = {
                "question": question_name(found.question, schema),
                "cell": cell_names(found.question, schema),
                "kind": found.question.kind,
                "feature": [cell.feature for cell in cells],
                "power": pd.array([found.question.subject.power] * len(cells), dtype="Int64"),
                "value": [cell.value for cell in cells],
                "class": [cell.of_class for cell in cells],
                "n": found.n,
                "estimate": found.estimate,
            }
            tables.append(pd.DataFrame(columns | {name: _known(column) for name, column in numbers.items()}))
        return pd.concat(tables, ignore_index=True)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"campaign": self.campaign.header.name, "reports": self.reports}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        if self.reports < self.campaign.min_batch_size:
            return facts("Estimates", {**about, "smallest batch": f"{self.campaign.min_batch_size}, not reached"})
        about |= {"assumed": self.recurrence.assumption}
        return facts("Estimates", about) + table(COLUMNS, rows(self))

    def to_json(self) -> dict[str, Any]:
        """What ``hearsay estimate --json`` prints. Variances and ends are null for a question without answers."""
        return {
            "campaign": self.campaign.id.hex(),
            "reports": self.reports,
            "rejected": dict(self.rejected),
            "unproven": self.unproven,
            "superseded": self.superseded,
            "periods": self.scope.periods,
            "proven_only": self.scope.proven_only,
            "statistics_id": self.statistics_id.hex(),
            "populations": self.recurrence.to_json(),
            "questions": [self._question_json(found) for found in self.questions],
        }

    def _question_json(self, found: QuestionEstimate) -> dict[str, Any]:
        schema = self.campaign.schema
        feature = found.question.feature
        of_class = found.question.subject.of_class
        return {
            "kind": found.question.kind,
            "feature": None if feature is None else schema.observed[feature].name,
            "power": found.question.subject.power,
            "class": None if of_class is None else schema.label.classes[of_class],
            "cells": cell_names(found.question, schema),
            "n": found.n,
            "counts": list(found.counts),
            "estimates": _finite(found.estimate),
            "variances": _finite(found.variance),
            "low": _finite(found.low),
            "high": _finite(found.high),
            "devices_variances": _finite(found.devices_variance),
            "devices_low": _finite(found.devices_interval.low),
            "devices_high": _finite(found.devices_interval.high),
        }


def _known(values: Floats) -> Floats:
    """What is not finite as missing: tables show nothing there."""
    return np.where(np.isfinite(values), values, np.nan)


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


def estimate(
    campaign: Campaign,
    tally: Tally,
    *,
    recurrence: Recurrence | None = None,
    rejected: Mapping[str, int] | None = None,
    unproven: int = 0,
    superseded: int = 0,
    scope: Scope = EVERYTHING,
) -> Statistics:
    """Unbiased estimates from a tally. Run by the aggregator.

    Args:
        campaign: what was asked, with the integers that the devices used.
        tally: the counts.
        recurrence: how often the same devices answered; without it every answer to a stratum is taken for
            another device's, which is right for one period and no more.
        rejected: passed on, for whoever reads the statistics.
        unproven, superseded, scope: likewise.

    Raises:
        InputError: ``other_campaign``: the tally counts answers to another campaign;
            ``mechanism_unknown``: a question's answers have no estimator.
    """
    if tally.campaign != campaign.id:
        raise InputError("other_campaign", "the tally counts answers to another campaign")
    recurrence = recurrence or once(campaign, tally)
    parts = [
        _Part(question, n, counts, debias(question.mechanism, n, counts))
        for question, n, counts in zip(campaign.questions, tally.n, tally.counts, strict=True)
    ]
    table = None
    if any(part.question.kind in (MOMENT, MOMENTS) for part in parts):
        shares = combined(campaign, tally.n, tally.counts, recurrence).share
        table = spreads([part.estimated() for part in parts], campaign.schema, shares)
    found = tuple(_completed(part, recurrence, table, campaign.schema) for part in parts)
    return Statistics(campaign, tally, dict(rejected or {}), unproven, found, superseded, recurrence, scope)


class _Part(NamedTuple):
    """One question before its true values' spread is known."""

    question: Question
    n: int
    counts: tuple[int, ...]
    result: Debiased

    def estimated(self) -> Estimated:
        estimates = self.result.estimate
        if _is_stretched(self.question):
            estimates = (estimates + self.n) / 2
        return Estimated(self.question, self.n, estimates)


def _is_stretched(question: Question) -> bool:
    """Whether the answers are about 2v − S, v the number asked for: single squares."""
    return question.subject.of_class is not None and question.subject.power == SQUARE


def _completed(part: _Part, recurrence: Recurrence, table: Spreads | None, schema: Schema) -> QuestionEstimate:
    question, n, counts, result = part
    estimates, noise = part.estimated().estimate, result.noise_variance
    if table is not None and question.kind in (MOMENT, MOMENTS):
        spread = table.of_question(question, schema)
    else:
        share = np.clip(estimates / max(n, 1), 0, 1)
        spread = np.asarray(share * (1 - share), np.float64)
    if _is_stretched(question):
        noise = noise / 4
    if result.holds_sampling and n:
        spread = np.minimum(spread, noise / n)
        noise = noise - n * spread
    answers = recurrence.answers[question.stratum]
    chosen = n / answers if answers else 1.0
    concentration = recurrence.concentration[question.stratum]
    return QuestionEstimate(question, n, counts, estimates, noise, spread, chosen, concentration)
