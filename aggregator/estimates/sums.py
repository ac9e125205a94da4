"""Statistics from noisy sums over records, those of a curator or of nodes, in the common form of all statistics.

Every record adds to every sum, so variances among the records are those of the noise alone, which may be infinite
(Cauchy). Source: docs/math.md, sections 5 and 7; decisions 68, 74.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import combined
from aggregator.estimates.debias import Law, Pairs
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import QuestionEstimate, Right, Sample, SampleWeight, Vote, is_share
from aggregator.estimates.source import Origin, Source
from aggregator.estimates.spread import SubjectEstimate, spreads
from aggregator.estimates.statistics import Statistics
from protocol import canonical
from protocol.documents.campaign import Fit
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.noise.sums import summed_subjects
from protocol.questions import CELL, CLASS, OUTCOME, PRESENT, RIGHT, Subject
from protocol.schema import Schema

NOISY_ID = b"hearsay curator's noisy numbers v1"
TABLES_ID = b"hearsay tables of another program v1"
ESTIMATOR = "sums over a curator's records, with noise"
TABLES = "tables of another program"
INTERVALS = (
    "95 % intervals of the population that the records are drawn from, which cover noise and sampling; noise of "
    "infinite variance has no interval"
)
THREATS = (
    "The curator saw the records. Noise hides every single record from readers of the model, for the adjacency that "
    "is named; nothing hides the records from the curator."
)
OF_SUMS = "learned"
"""Post-processing of sums with noise (of nodes, curators and collectors) whose terms name none (decision 122)."""
_UNIFORM_SQUARE = 1 / 3
_MOST_COUNT = 2**53


class NoisySum(NamedTuple):
    """Noisy sums over the records for one subject, which is what a question asks for.

    ``estimate`` and ``noise_variance`` (may be infinite): shape (K,) float64, in records; ``released``: K integers on
    the grid of the noise; ``is_repeated``: these sums repeat counts of another entry; ``kurtosis``: excess kurtosis of
    the noise of each sum: 3 for one Laplace noise, 3/N for a sum of N equal ones.
    """

    subject: Subject
    estimate: Floats
    noise_variance: Floats
    released: tuple[int, ...]
    is_repeated: bool = False
    kurtosis: float = 3.0


@dataclass(frozen=True, eq=False)
class Curator(Source):
    """Source of statistics: records of a curator, from which noisy sums were released.

    ``asked``: the terms' digest, name and purpose. ``records``: their public number, or an estimate, which may be below
    1. ``noisy``: the released integers of every question. ``entries``: of the model's card, about the terms.
    """

    asked: Origin
    records: int
    noisy: tuple[tuple[int, ...], ...]
    entries: Mapping[str, Any]
    campaign: None = None
    rejected: Mapping[str, int] = field(default_factory=dict)

    @property
    def origin(self) -> Origin:
        """Digest, name and purpose of the terms."""
        return self.asked

    @property
    def reports(self) -> int:
        """Number of records: public, or estimated from noisy counts; at least 1."""
        return max(self.records, 1)

    @property
    def stated_reports(self) -> int:
        """Number of records, unchanged: below 1 if the noisy counts say so."""
        return self.records

    @property
    def statistics_id(self) -> bytes:
        """SHA-256 over the terms' digest, the number of records and the released integers, never over exact sums."""
        numbers = [[str(number) for number in one] for one in self.noisy]
        return sha256(NOISY_ID + canonical.pack([self.asked.id, self.reports, numbers])).digest()

    def counts(self, question: int) -> list[int]:
        """Return the released integers of one question, on the grid of the noise; ``question`` is its index."""
        return list(self.noisy[question])

    def populations(self) -> dict[str, Any]:
        """Return texts: who each of the two intervals is about, and what the second one assumes."""
        return {
            "devices": "these records",
            "population": "the population that these records are drawn from",
            "assumes": "the records are independent",
        }

    def facts(self) -> dict[str, int]:
        """Return an empty mapping: a curator releases no count besides the noisy sums."""
        return {}

    def card(self) -> dict[str, Any]:
        """Return entries for a model's card: the terms of the fit, the estimator and the threats."""
        return {"estimator": ESTIMATOR, "intervals": INTERVALS, "threats": THREATS, **self.entries}

    def to_json(self) -> dict[str, Any]:
        """Return the part of the statistics' JSON that is about the curator: digest of the terms, records, terms."""
        return {
            "terms_id": self.asked.id.hex(),
            "reports": self.records,
            "terms": dict(self.entries),
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations(),
        }


class Table(NamedTuple):
    """Counts of records that another program released, for one feature or for the classes alone.

    ``counts`` has the shape (codes, k) float64, by a feature's code and class, or (1, k) for the classes alone; noise
    may make them negative. ``noise_variance`` is that of each count; 0 for exact counts.
    """

    counts: Floats
    noise_variance: float


def of_tables(
    schema: Schema,
    tables: Mapping[str, Table],
    *,
    records: int,
    name: str,
    trust: str,
    threats: str,
    purpose: str = "",
    postprocess: str = OF_SUMS,
    entries: Mapping[str, Any] = MappingProxyType({}),
) -> Statistics:
    """Return statistics of counts that another program released: an enclave, a survey, a system of private counts.

    Run by whoever has the tables. Models, cards and pages are made from the result as from all statistics. Raises
    InputError ``argument_invalid``: a table is missing, unknown, of another shape, or holds a number that is not
    finite; there is no record; or the trust is not stated.

    Args:
        schema: label and features; the codes of the tables are those of its features.
        tables: one table under the label's name (the class counts), and one under every feature's name.
        records: number of records, at least 1; it must be public.
        name, purpose: for people.
        trust: what the privacy of the tables rests on, in the publisher's words; devices show this text.
        threats: what the privacy does not protect from, in words; the model's card shows it as ``threats``.
        postprocess: how probabilities are made of the estimates.
        entries: further entries of a model's card, such as ``epsilon_total`` and ``delta`` as texts.
    """
    classes = len(schema.label.classes)
    subjects = summed_subjects(schema, "discrete")
    names = [schema.label.name if each.feature is None else schema.observed[each.feature].name for each in subjects]
    if set(tables) != set(names):
        raise InputError("argument_invalid", "there is one table for the label and one for every feature")
    if records < 1 or not trust.strip() or not threats.strip():
        raise InputError("argument_invalid", "say on what trust rests and what threatens it, of at least one record")
    sums = []
    for subject, each in zip(subjects, names, strict=True):
        counts, variance = np.asarray(tables[each].counts, np.float64), tables[each].noise_variance
        if counts.shape != (subject.size // classes, classes):
            shape = f"{subject.size // classes} codes and {classes} classes"
            raise InputError("argument_invalid", f"the table of '{each}' is not of {shape}")
        if not np.isfinite(counts).all() or not 0 <= variance < inf or not (abs(counts) < _MOST_COUNT).all():
            raise InputError("argument_invalid", f"the table of '{each}' holds a number that is no count")
        flat = counts.ravel()
        released = tuple(round(count * MICRO) for count in flat.tolist())
        sums.append(NoisySum(subject, flat, np.full(flat.shape, float(variance)), released))
    stated = {**entries, "trust": trust, "threats": threats, "estimator": TABLES}
    told = [name, purpose, schema.label.to_dict(), [feature.to_dict() for feature in schema.features], trust, threats]
    origin = Origin(sha256(TABLES_ID + canonical.pack(told)).digest(), name, purpose or f"statistics of {name}")
    source = Curator(origin, records, tuple(each.released for each in sums), stated)
    return of_sums(sums, schema, Fit("discrete", postprocess), source, is_counted=True)


def of_sums(
    sums: Sequence[NoisySum],
    schema: Schema,
    fit: Fit,
    source: Source,
    concentration: float | None = None,
    *,
    is_counted: bool,
    records: int | None = None,
) -> Statistics:
    """Return statistics from noisy sums over n records. Run by a curator and by the aggregator of nodes' summaries.

    Args:
        sums: noisy sums, one entry per subject; the result has one question for each, with n answers.
        schema: schema of the records.
        fit: how a model is made from the statistics.
        source: where the sums are from, with the number n ≥ 1 of records as ``source.reports``.
        concentration: c = ΣT²/(ΣT)², where T is how often each record was added; the population's sampling variance
            is n·c times that of n different records. 0 if the noise variances include the sampling variance. None if
            every record was added once: c = 1/n.
        is_counted: True if n is public; False if n comes from the sum of the noisy class counts, which is
            ``source.stated_reports``.
        records: n, if the sums were scaled to fewer records than the source has. None for ``source.reports``.
    """
    n, classes = records or source.reports, len(schema.label.classes)
    concentration = 1 / n if concentration is None else concentration
    samples = [Sample(0, place, n, concentration) for place in range(len(sums))]
    votes = [_votes(one, sample, n, classes, is_counted) for one, sample in zip(sums, samples, strict=True)]
    shares = combined([vote for group in votes for vote in group], classes).share
    table = spreads([SubjectEstimate(one.subject, n, one.estimate) for one in sums], schema, shares)
    found = []
    for one, sample, group in zip(sums, samples, votes, strict=True):
        share = np.clip(one.estimate / n, 0, 1)
        spread = share * (1 - share) if is_share(one.subject) else table.of_subject(one.subject, schema)
        made = _estimate(one, sample, group, np.asarray(spread, np.float64), classes)
        found.append(made if is_counted else replace(made, noisy_n=min(n, source.stated_reports)))
    return Statistics(schema, fit, tuple(found), (source,))


def _votes(one: NoisySum, sample: Sample, n: int, classes: int, is_counted: bool) -> tuple[Vote, ...]:  # noqa: FBT001
    """Return the classes' shares from one table of counts, summed over the values; empty if ``one`` sums numbers."""
    if one.is_repeated or one.subject.kind not in (CLASS, CELL, PRESENT):
        return ()
    table = one.estimate.reshape(-1, classes)
    noise = float(one.noise_variance.reshape(-1, classes).sum(axis=0).mean()) / n
    return (Vote(sample, n, table.sum(axis=0) / n, Law(noise, noise), is_counted),)


def _estimate(one: NoisySum, sample: Sample, votes: tuple[Vote, ...], spread: Floats, classes: int) -> QuestionEstimate:
    """Return one question's estimate; ``spread``: shape (K,) float64, variance of the true values between records."""
    n = sample.answers
    law = _law(one, n)
    drawn = n * sample.concentration
    none = Interval(one.estimate, one.estimate)
    return QuestionEstimate(
        one.subject,
        n,
        one.estimate,
        one.noise_variance,
        spread,
        0.0,
        drawn,
        none,
        none,
        _planned(one, n, classes),
        law,
        None if law is None else Pairs(0.0, 0.0),
        samples=(SampleWeight(sample, 1.0),),
        classes=votes,
        right=_right(one, n, classes),
        kurtosis=one.kurtosis,
    ).with_intervals()


def _right(one: NoisySum, n: int, classes: int) -> Right | None:
    """Return the share of right predictions, from all K cells of which r are right; None for another subject.

    The cells of n records add up to n, so the estimate is Σ right + (n − Σ all)·r/K, of the variance r(1 − r/K)·v.
    """
    kind, size = one.subject.kind, one.subject.size
    if kind not in (OUTCOME, RIGHT):
        return None
    right = np.arange(size) % (classes + 1) == 0 if kind == OUTCOME else np.arange(size) == 1
    part = float(right.mean())
    found = float(one.estimate[right].sum() + (n - one.estimate.sum()) * part)
    noise = float(one.noise_variance[right].sum()) * (1 - part) / n
    return Right(found / n, Law(noise, noise))


def _law(one: NoisySum, n: int) -> Law | None:
    """Return the noise variance per record, if it is finite and the same for all sums of counts; else None."""
    first = float(one.noise_variance[0])
    if not is_share(one.subject):
        return None
    return Law(first / n, first / n) if first < inf and bool((one.noise_variance == first).all()) else None


def _planned(one: NoisySum, n: int, classes: int) -> float:
    """Return the variance of a share or mean from the noise and n alone, assuming equal shares or uniform numbers."""
    noise = float(one.noise_variance.max()) / n**2
    equal = 1 / one.subject.size
    spread = equal * (1 - equal) if is_share(one.subject) else _UNIFORM_SQUARE / classes
    return noise + spread / n
