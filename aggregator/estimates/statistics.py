"""The common form of all statistics: unbiased estimates with variances, whatever the source of the counts.

:mod:`aggregator.estimates.reports` makes statistics from tallies of reports. Other kinds of counts have a module of
their own next to it. Models, planning and publishing read only the form.

Source: docs/math.md, section 1; docs/decisions/0052. Estimates may be negative. A second, named step turns estimates
into probabilities (``aggregator.models``).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.estimates.cells import cell_names, cells_of, question_name
from aggregator.estimates.showing import COLUMNS, rows
from aggregator.notebooks import facts, table
from protocol.errors import InputError
from protocol.questions import MOMENT, MOMENTS, SQUARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.estimates.debias import Law
    from aggregator.estimates.intervals import Interval
    from aggregator.estimates.source import Source
    from protocol.documents.campaign import Campaign, Fit
    from protocol.questions import Subject
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

JOINED_ID = b"hearsay joined statistics v1"


class Sample(NamedTuple):
    """All answers to one stratum. The answers to one question are a part of them, drawn without replacement.

    Attributes:
        people: number of the set of devices: samples with equal numbers are from the same devices, samples with
            different numbers share no device.
        stratum: stratum of the campaign. If every record answers every question, each question has its own stratum.
        answers: N, the number of answers to all questions of the stratum.
        concentration: c = ΣT²/(ΣT)², T the number of answers of each device; 1/N if N devices answered once.
    """

    people: int
    stratum: int
    answers: int
    concentration: float


class Vote(NamedTuple):
    """Estimated shares of the classes from one question.

    Attributes:
        sample: the stratum's answers, which the question's answers are a part of.
        n: number of answers, at least 1.
        share: shape (k,) float64, unbiased shares of the classes; may be negative.
        law: noise variance of one answer as a function of a class's share.
    """

    sample: Sample
    n: int
    share: Floats
    law: Law

    @property
    def planned_variance(self) -> float:
        """Variance of a class's share if all classes have equal shares. It does not depend on any answer."""
        equal = 1 / len(self.share)
        noise = self.n * float(self.law.at(np.array(equal)))
        return noise / self.n**2 + equal * (1 - equal) / self.n


class Right(NamedTuple):
    """Estimated share of a model's right predictions, from an outcome question.

    Attributes:
        share: share of right predictions, unbiased; may be negative.
        law: noise variance of one answer as a function of that share.
    """

    share: float
    law: Law


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """Estimates of one question, in reports (or records): n times a share or mean.

    Each estimate has two variances and two intervals. The first (``devices_…``) is about the devices that answered,
    each weighted by its number of answers. The second is about the population of the devices; it also holds the
    chance of which devices take part.

    Attributes:
        subject: subject of the question.
        n: number of answers, or of asked records.
        estimate: shape (K,) float64, unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,) float64, variance of the noise, given the asked devices. Infinite if n = 0.
        spread: shape (K,) float64, s², the variance of the true value between devices: f(1 − f) for a share f, with
            the estimated share clipped to [0, 1].
        devices_scatter: sampling variance for these devices, in multiples of n·s².
        scatter: sampling variance for the population, in multiples of n·s²; 1 if n different devices were asked.
        interval: 95 % intervals for n times the population's shares or means; without finite ends if n = 0.
        devices_interval: the same intervals for these devices.
        planned_variance: variance of a share or mean, assuming equal shares or uniform numbers. It does not depend
            on any answer.
        law: noise variance of one answer as a linear function of (x − least)/(1 − least), x a share or mean; None if
            the variance is not linear.
        is_binomial: whether the counts are binomial.
        adds_up: whether the estimates always sum to ``n``.
        classes: estimated shares of the classes, one vote per source; empty if the question is not about classes.
        right: for an outcome question, the share of right predictions; None if n = 0.
    """

    subject: Subject
    n: int
    estimate: Floats
    noise_variance: Floats
    spread: Floats
    devices_scatter: float
    scatter: float
    interval: Interval
    devices_interval: Interval
    planned_variance: float
    law: Law | None = None
    is_binomial: bool = False
    adds_up: bool = False
    classes: tuple[Vote, ...] = ()
    right: Right | None = None

    @property
    def is_share(self) -> bool:
        """Whether the estimates are about shares, and not about means."""
        return is_share(self.subject)

    @property
    def least(self) -> int:
        """Smallest possible true value: 0 for shares and for squares of single numbers, −1 for other numbers."""
        return 0 if self.is_share or is_stretched(self.subject) else -1

    @property
    def sampling_variance(self) -> Floats:
        """Shape (K,) float64: variance from the random choice of the asked devices from the population."""
        return np.asarray(self.n * self.spread * self.scatter)

    @property
    def variance(self) -> Floats:
        """Shape (K,) float64: noise and sampling variance together, for the population."""
        return self.noise_variance + self.sampling_variance

    @property
    def devices_variance(self) -> Floats:
        """Shape (K,) float64, for these devices: noise, and the random choice of the answers to this question."""
        return np.asarray(self.noise_variance + self.n * self.spread * self.devices_scatter)

    @property
    def sd(self) -> Floats:
        """Shape (K,) float64: standard deviation for the population."""
        return np.sqrt(self.variance)

    @property
    def devices_sd(self) -> Floats:
        """Shape (K,) float64: standard deviation for these devices."""
        return np.sqrt(self.devices_variance)

    @property
    def low(self) -> Floats:
        """Shape (K,) float64: lower ends of :attr:`interval`."""
        return self.interval.low

    @property
    def high(self) -> Floats:
        """Shape (K,) float64: upper ends of :attr:`interval`."""
        return self.interval.high


def is_share(subject: Subject) -> bool:
    """Whether a question's estimates are about shares, and not about means."""
    return subject.kind not in (MOMENT, MOMENTS)


def is_stretched(subject: Subject) -> bool:
    """Whether devices answer about 2v − S instead of v: true for the square v of a single number."""
    return subject.of_class is not None and subject.power == SQUARE


def relative_spread(n: int, estimate: Floats, spread: Floats, *, least: int) -> Floats:
    """Spread of numbers in [``least``, 1], divided by the largest spread that is possible at the numbers' mean.

    Args:
        n: number of answers, at least 1.
        estimate: shape (K,) float64, n times the means.
        spread: shape (K,) float64, s².
        least: smallest possible number.

    Returns:
        Shape (K,) float64, in [0, 1].
    """
    mean = estimate / n
    room = np.maximum((mean - least) * (1 - mean), np.finfo(float).tiny)
    return np.clip(spread / room, 0, 1)


@dataclass(frozen=True, eq=False)
class Statistics:
    """All estimates about one schema.

    Attributes:
        schema: label and features of the questions.
        fit: how a model is made from the estimates.
        questions: one estimate per question, for one source in the order of the campaign's questions.
        sources: one source, or several joined sources (``aggregator.estimates.joining``).
    """

    schema: Schema
    fit: Fit
    questions: tuple[QuestionEstimate, ...]
    sources: tuple[Source, ...]

    @property
    def source(self) -> Source:
        """The source, if there is only one.

        Raises:
            InputError: ``several_sources``: the statistics are joined.
        """
        if len(self.sources) != 1:
            raise InputError(
                "several_sources", f"these statistics join {len(self.sources)} campaigns; name one campaign's alone"
            )
        return self.sources[0]

    @property
    def campaign(self) -> Campaign:
        """The campaign of the source, if there is only one source.

        Raises:
            InputError: ``several_sources``.
        """
        return self.source.campaign

    @property
    def reports(self) -> int:
        """Number of reports or records used."""
        return sum(source.reports for source in self.sources)

    @property
    def statistics_id(self) -> bytes:
        """32 bytes: the id of a single source, or a digest of the sorted ids of several sources."""
        if len(self.sources) == 1:
            return self.sources[0].statistics_id
        return sha256(JOINED_ID + b"".join(sorted(source.statistics_id for source in self.sources))).digest()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Number of contributions that were not used, by reason, over all sources."""
        found: dict[str, int] = {}
        for source in self.sources:
            for reason, count in source.rejected.items():
                found[reason] = found.get(reason, 0) + count
        return found

    @property
    def populations(self) -> dict[str, Any]:
        """The populations of the two intervals, in the first source's words, and the assumptions of all sources."""
        found = [source.populations() for source in self.sources]
        if len(found) == 1:
            return found[0]
        assumed = dict.fromkeys(str(one["assumes"]) for one in found)
        return {
            "devices": found[0]["devices"],
            "population": found[0]["population"],
            "assumes": "; ".join(["the sources are samples of one population", *assumed]),
        }

    def check_publishable(self) -> None:
        """Refuse estimates from fewer reports than the minimum batch size of a source's campaign.

        Raises:
            PolicyError: ``batch_too_small``.
        """
        for source in self.sources:
            source.check_publishable()

    def frame(self) -> pd.DataFrame:
        """One row per question and cell, in reports.

        ``question`` and ``cell`` name the estimate in words; ``kind``, ``feature``, ``power``, ``value`` and ``class``
        name it for programs (``value`` is an outcome's predicted class). ``sd``, ``low`` and ``high`` are about the
        population; ``devices_sd``, ``devices_low`` and ``devices_high`` are about these devices
        (:class:`QuestionEstimate`). These six are missing without answers.
        """
        import pandas as pd

        tables = []
        for found in self.questions:
            of_devices = found.devices_interval
            numbers = {"sd": found.sd, "low": found.low, "high": found.high}
            numbers |= {"devices_sd": found.devices_sd, "devices_low": of_devices.low, "devices_high": of_devices.high}
            cells = cells_of(found.subject, self.schema)
            columns = {
                "question": question_name(found.subject, self.schema),
                "cell": cell_names(found.subject, self.schema),
                "kind": found.subject.kind,
                "feature": [cell.feature for cell in cells],
                "power": pd.array([found.subject.power] * len(cells), dtype="Int64"),
                "value": [cell.value for cell in cells],
                "class": [cell.of_class for cell in cells],
                "n": found.n,
                "estimate": found.estimate,
            }
            tables.append(pd.DataFrame(columns | {name: _known(column) for name, column in numbers.items()}))
        return pd.concat(tables, ignore_index=True)

    def _repr_html_(self) -> str:
        names = ", ".join(source.campaign.header.name for source in self.sources)
        about: dict[str, object] = {"campaign": names, "reports": self.reports}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        for source in self.sources:
            if source.reports < source.campaign.min_batch_size:
                return facts("Estimates", {**about, "smallest batch": f"{source.campaign.min_batch_size}, not reached"})
        about |= {"assumed": self.populations["assumes"]}
        return facts("Estimates", about) + table(COLUMNS, rows(self))

    def to_json(self) -> dict[str, Any]:
        """Output of ``hearsay estimate --json``. Variances and interval ends are null for a question without answers.

        Statistics of one source hold ``counts`` in every question. Joined statistics hold the list ``sources``.
        """
        if len(self.sources) == 1:
            counts = [{"counts": self.source.counts(place)} for place in range(len(self.questions))]
            found = zip(self.questions, counts, strict=True)
            return {**self.source.to_json(), "questions": [self._question_json(*one) for one in found]}
        return {
            "reports": self.reports,
            "rejected": dict(self.rejected),
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations,
            "sources": [source.to_json() for source in self.sources],
            "questions": [self._question_json(found, {}) for found in self.questions],
        }

    def _question_json(self, found: QuestionEstimate, counts: dict[str, list[int]]) -> dict[str, Any]:
        kind, feature, _, power, of_class = found.subject
        return {
            "kind": kind,
            "feature": None if feature is None else self.schema.observed[feature].name,
            "power": power,
            "class": None if of_class is None else self.schema.label.classes[of_class],
            "cells": cell_names(found.subject, self.schema),
            "n": found.n,
            **counts,
            "estimates": _finite(found.estimate),
            "variances": _finite(found.variance),
            "low": _finite(found.low),
            "high": _finite(found.high),
            "devices_variances": _finite(found.devices_variance),
            "devices_low": _finite(found.devices_interval.low),
            "devices_high": _finite(found.devices_interval.high),
        }


def _known(values: Floats) -> Floats:
    """The values with NaN, which tables show as a blank, for every infinite value. Float64 of one shape."""
    return np.where(np.isfinite(values), values, np.nan)


def _finite(values: Floats) -> list[float | None]:
    """The values with None, which JSON writes as null, for every value that is not finite."""
    return [value if isfinite(value) else None for value in values.tolist()]
