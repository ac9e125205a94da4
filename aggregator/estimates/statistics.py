"""The shape in which all kinds of counts end and every fit begins: unbiased estimates with variances.

The shape does not tell how counts arrived. :mod:`aggregator.estimates.reports` makes it from tallies of reports; sums
of nodes and of curators have a module each beside it. Models, planning and publishing read the shape alone.

Source: docs/math.md, section 1; docs/decisions/0052. Estimates may be negative: making probabilities of them is a
second, named step (``aggregator.models``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.estimates.cells import cell_names, cells_of, question_name
from aggregator.estimates.showing import COLUMNS, rows
from aggregator.notebooks import facts, table
from protocol.errors import InputError, PolicyError
from protocol.questions import MOMENT, MOMENTS, SQUARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.estimates.debias import Law
    from aggregator.estimates.intervals import Interval
    from protocol.documents.campaign import Campaign, Fit
    from protocol.questions import Subject
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

JOINED_ID = b"hearsay joined statistics v1"


class Sample(NamedTuple):
    """The answers that one question's answers are chosen from, without putting back.

    Attributes:
        people: samples with one number are of the same devices; samples with two numbers share no device.
        stratum: of the campaign; where every question is asked of every record, each has a stratum of its own.
        answers: N, to all questions of the stratum.
        concentration: c = ΣT²/(ΣT)², T the answers of each device: 1/N if N devices answered once.
    """

    people: int
    stratum: int
    answers: int
    concentration: float


class Vote(NamedTuple):
    """What one question says of the classes.

    Attributes:
        sample: where its answers are from.
        n: answers, at least one.
        share: shape (k,), unbiased shares of the classes; may be negative.
        law: of one answer's noise about a class's share.
    """

    sample: Sample
    n: int
    share: Floats
    law: Law

    @property
    def planned_variance(self) -> float:
        """Of a class's share, if all classes had the same: known before any answer."""
        equal = 1 / len(self.share)
        noise = self.n * float(self.law.at(np.array(equal)))
        return noise / self.n**2 + equal * (1 - equal) / self.n


class Right(NamedTuple):
    """What an outcome question says of a model.

    Attributes:
        share: of right predictions, unbiased; may be negative.
        law: of one answer's noise about that share.
    """

    share: float
    law: Law


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """What is known about one question. Estimates are in reports (or records): how many of the ``n`` asked.

    Of each number there are two variances and intervals: of n times the shares among these devices, each weighted by
    its answers (``devices_…``), and of n times those in the population that the devices are drawn from. The second
    holds the uncertainty of the first, and the chance of who takes part.

    Attributes:
        subject: what was asked.
        n: answers, or records asked.
        estimate: shape (K,), unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,), of the noise, given who was asked. Infinite if n = 0.
        spread: shape (K,), s², the variance of the true value between those asked: f(1 − f) of a share f, with
            the estimated share brought into [0, 1].
        devices_scatter: how many times n·s² the choice of who was asked adds to the variance, for these devices.
        scatter: the same for the population; 1 if n different devices were asked.
        interval: 95 % intervals for n times the population's shares or means; without finite ends if n = 0.
        devices_interval: the same for these devices.
        planned_variance: of a share or mean, at equal shares or even numbers: known before any answer.
        law: of one answer's noise, as a line in (x − least)/(1 − least), x a share or mean; None if it is no line.
        is_binomial: whether that law is a coin's, so that the counts are binomial.
        adds_up: whether the estimates sum to ``n`` whatever the noise.
        classes: what the question says of the classes: a vote for each source; empty if it says nothing.
        right: of an outcome question, what it says of the model; None if n = 0.
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
        """Whether the numbers are shares of those asked, and not means."""
        return is_share(self.subject)

    @property
    def least(self) -> int:
        """The smallest number there can be: 0 of shares and of single squares, −1 of other numbers."""
        return 0 if self.is_share or is_stretched(self.subject) else -1

    @property
    def sampling_variance(self) -> Floats:
        """Shape (K,): from whom it happened to be that was asked, of the population."""
        return np.asarray(self.n * self.spread * self.scatter)

    @property
    def variance(self) -> Floats:
        """Shape (K,), of the population: noise and sampling together."""
        return self.noise_variance + self.sampling_variance

    @property
    def devices_variance(self) -> Floats:
        """Shape (K,), of these devices: noise, and which of their answers this question got."""
        return np.asarray(self.noise_variance + self.n * self.spread * self.devices_scatter)

    @property
    def sd(self) -> Floats:
        """Shape (K,): standard deviation, of the population."""
        return np.sqrt(self.variance)

    @property
    def devices_sd(self) -> Floats:
        """Shape (K,): standard deviation, of these devices."""
        return np.sqrt(self.devices_variance)

    @property
    def low(self) -> Floats:
        """Shape (K,): lower ends of :attr:`interval`."""
        return self.interval.low

    @property
    def high(self) -> Floats:
        """Shape (K,): upper ends of the same intervals."""
        return self.interval.high


def is_share(subject: Subject) -> bool:
    """Whether a question's numbers are shares of those asked, and not means."""
    return subject.kind not in (MOMENT, MOMENTS)


def is_stretched(subject: Subject) -> bool:
    """Whether the answers are about 2v − S, v the number asked for: single squares."""
    return subject.of_class is not None and subject.power == SQUARE


def relative_spread(n: int, estimate: Floats, spread: Floats, *, least: int) -> Floats:
    """Shape (K,): the spread of numbers in [``least``, 1] as a part of the largest that their mean allows."""
    mean = estimate / n
    room = np.maximum((mean - least) * (1 - mean), np.finfo(float).tiny)
    return np.clip(spread / room, 0, 1)


class Source(ABC):
    """Where statistics came from, and what is said of it. No fit and no weight depends on it.

    Attributes:
        campaign: what was asked.
        rejected: contributions that were not used, by reason.
    """

    campaign: Campaign
    rejected: Mapping[str, int]

    @property
    @abstractmethod
    def reports(self) -> int:
        """Reports or records used."""

    @property
    @abstractmethod
    def statistics_id(self) -> bytes:
        """32 bytes: a digest of the counts."""

    @abstractmethod
    def counts(self, question: int) -> list[int]:
        """The integers that the estimate of one question of the campaign came from."""

    @abstractmethod
    def populations(self) -> dict[str, Any]:
        """``devices`` and ``population``, whom the two intervals are about, and what the second one ``assumes``."""

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """What people should know of the reports, beside their number."""

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """What a model's card says of its source: integers, booleans, text and lists of text."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All of it for programs, the campaign and the digest among it."""

    def check_publishable(self) -> None:
        """Refuse fewer reports than the campaign promises to wait for.

        Raises:
            PolicyError: ``batch_too_small`` (DAP's minimum batch size).
        """
        needed = self.campaign.min_batch_size
        if self.reports < needed:
            raise PolicyError(
                "batch_too_small",
                f"usable reports so far: {self.reports}; the campaign promises to wait for {needed}",
            )


@dataclass(frozen=True, eq=False)
class Statistics:
    """All estimates about one schema.

    Attributes:
        schema: what the subjects of the questions are about.
        fit: how a model is made of the estimates.
        questions: one estimate per question; of one source in the order of its campaign.
        sources: where they came from: one, or several that were joined (``aggregator.estimates.joining``).
    """

    schema: Schema
    fit: Fit
    questions: tuple[QuestionEstimate, ...]
    sources: tuple[Source, ...]

    @property
    def source(self) -> Source:
        """The one source.

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
        """The campaign of the one source.

        Raises:
            InputError: ``several_sources``.
        """
        return self.source.campaign

    @property
    def reports(self) -> int:
        """Reports or records used."""
        return sum(source.reports for source in self.sources)

    @property
    def statistics_id(self) -> bytes:
        """That of the one source; of several, a digest of theirs in rising order."""
        if len(self.sources) == 1:
            return self.sources[0].statistics_id
        return sha256(JOINED_ID + b"".join(sorted(source.statistics_id for source in self.sources))).digest()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Contributions that were not used, by reason, of all sources."""
        found: dict[str, int] = {}
        for source in self.sources:
            for reason, count in source.rejected.items():
                found[reason] = found.get(reason, 0) + count
        return found

    @property
    def populations(self) -> dict[str, Any]:
        """Whom the two intervals of every number are about; the first source's words, and what each assumes."""
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
        """Refuse to show or publish estimates from fewer reports than a source's campaign promises to wait for.

        Raises:
            PolicyError: ``batch_too_small``.
        """
        for source in self.sources:
            source.check_publishable()

    def frame(self) -> pd.DataFrame:
        """One row per question and cell, in reports asked.

        ``question`` and ``cell`` say in words what ``kind``, ``feature``, ``power``, ``value`` and ``class`` say in
        columns; ``value`` is the predicted class of an outcome. ``estimate`` has ``sd``, ``low`` and ``high`` of the
        population, and ``devices_sd`` … of these devices (:class:`QuestionEstimate`); missing where n = 0.
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
        """What ``hearsay estimate --json`` prints. Variances and ends are null for a question without answers.

        Statistics of one source have its ``counts`` with every question; joined ones have their ``sources``.
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
    """What is not finite as missing: tables show nothing there."""
    return np.where(np.isfinite(values), values, np.nan)


def _finite(values: Floats) -> list[float | None]:
    return [value if isfinite(value) else None for value in values.tolist()]
