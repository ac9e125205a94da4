"""What a model's published parameters rest on: what each feature tells about the class, and what invented reports move.

**Influence** is the mutual information of a feature V and the class C, in bits:

    I(V; C) = Σ_c p_c Σ_v P(v | c) log₂(P(v | c)/P(v)),   P(v) = Σ_c p_c P(v | c),   p_c = P(class c)

Noise alone gives a positive I. So the model is fitted to :data:`DRAWS` simulated tables of a feature that tells
nothing, and the largest I is stated beside the feature's own; not for a number, whose variances have no simple noise.

**Reach of invented reports.** One or three answers that move some estimate the furthest are added to the counts, the
model is fitted again, and the largest move of a published number is stated. For a large model only answers with the
largest R/n over the share of a class are tried: R is the most that one answer changes a count, of n answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.cards.manipulation import contribution, extreme_answers
from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.joining import joined_question, of_features
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.reports import Reports, estimate, with_answers
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import NormalParameters, fit
from protocol.mechanisms import INTEGERS
from protocol.questions import CELL, MOMENT, MOMENTS, Question

_GRID = 800
_REACH = 8.0
"""The grid of a number ends so many standard deviations beyond the outermost means."""
DRAWS = 20
"""Number of models that are fitted to drawn noise."""
_LEAST_SHARE = 1e-6
INVENTED = (1, 3)
"""Numbers of invented reports whose reach is stated."""
MEAN, VARIANCE = "a mean", "a variance"
IN_HALF_RANGES = (MEAN, VARIANCE)
"""Kinds of published parameters that are about a scaled number in [−1, 1], whose half range is 1."""
_MOST_FITS = 200
_CELLS_AT_MOST = 40_000
"""Limits of the answers that are tried alone: at most :data:`_MOST_FITS`, and so few that the published numbers of all
their fits are at most :data:`_CELLS_AT_MOST`; but at least 20. A fifth of them, at least 12, are tried in sets."""
_MOST_PLACES = 4096
"""Answers with more possible values are about one number, and concern every class that their question is about."""
_BEST = 2
"""Number of sets of answers of one size that are kept, to be tried with one answer more."""


class Influence(NamedTuple):
    """What one feature tells about the class, in bits, under the published parameters.

    ``noise``: bits that noise alone exceeds in about 1 of 20 cases; None for a number, or without stated errors.
    """

    name: str
    bits: float
    noise: float | None


def influences(statistics: Statistics, postprocess: str) -> tuple[Influence, ...]:
    """Return the influence of every observed feature, largest first. Raises the errors of :func:`.fitting.fit`."""
    log_prior, terms = fit(statistics, postprocess)
    prior = np.exp(log_prior)
    asked = [one for one in statistics.questions if one.subject.kind == CELL and one.n]
    is_known = all(one.has_interval and np.isfinite(one.variance).all() for one in asked)
    tables = _noise_of_tables(statistics, postprocess, prior) if asked and is_known else {}
    found = []
    for index, feature in enumerate(statistics.schema.observed):
        term = terms[index]
        bits = _bits_of_number(prior, term) if isinstance(term, NormalParameters) else _bits(prior, np.exp(term))
        found.append(Influence(feature.name, bits, tables.get(index)))
    return tuple(sorted(found, key=lambda one: -one.bits))


def _bits(prior: Floats, given: Floats) -> float:
    """Return the mutual information in bits of class and value. ``given``: P(value | class), shape (values, k)."""
    joint = given * prior
    total = joint.sum()
    if not total > 0:
        return 0.0
    joint = joint / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    seen = joint > 0
    return max(0.0, float((joint[seen] * np.log2(joint[seen] / apart[seen])).sum()))


def _bits_of_number(prior: Floats, term: NormalParameters) -> float:
    mean, deviation = np.asarray(term.mean), np.sqrt(np.asarray(term.variance))
    # Each class has a grid of its own, so that a narrow distribution beside a wide one is not missed.
    steps = np.linspace(-_REACH, _REACH, _GRID)
    places = np.unique(mean + steps[:, None] * deviation)
    density = np.exp(-(((places[:, None] - mean) / deviation) ** 2) / 2) / deviation
    width = np.gradient(places)
    mass = density * width[:, None]
    return _bits(prior, mass / np.maximum(mass.sum(axis=0), np.finfo(float).tiny))


def _noise_of_tables(statistics: Statistics, postprocess: str, prior: Floats) -> dict[int, float]:
    """Return index → most information in bits from noise alone, for every feature with a table of counts."""
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    found: dict[int, float] = {}
    for _ in range(DRAWS):
        questions = tuple(_of_noise(one, prior, generator) for one in statistics.questions)
        shares, drawn = fit(replace(statistics, questions=questions), postprocess)
        for one in questions:
            place = one.subject.feature
            if one.subject.kind == CELL and place is not None:
                bits = _bits(np.exp(shares), np.exp(np.asarray(drawn[place])))
                found[place] = max(found.get(place, 0.0), bits)
    return found


def _of_noise(one: QuestionEstimate, prior: Floats, generator: np.random.Generator) -> QuestionEstimate:
    """Return a question about a feature's table with simulated estimates, as if it told nothing of the class."""
    if one.subject.kind != CELL or one.subject.feature is None or not one.n:
        return one
    if one.parts:
        drawn = joined_question([_of_noise(part, prior, generator) for part in one.parts], disjoint=True)
        return replace(drawn, subject=one.subject)
    values = np.maximum(one.estimate.reshape(-1, len(prior)).sum(axis=1), _LEAST_SHARE * one.n)
    mean = one.n * np.outer(values / values.sum(), prior).ravel()
    error = one.sd * generator.standard_normal(len(mean))
    if one.adds_up:  # The sum of the estimates is always n, and fixing it takes a part 1/K of the variance away.
        error *= sqrt(len(mean) / (len(mean) - 1))
        error -= error.sum() * one.variance / one.variance.sum()
    return replace(one, estimate=mean + error)


class LargestMove(NamedTuple):
    """The largest move of one kind of published numbers. ``by``: number of invented reports → the largest move."""

    kind: str
    by: dict[int, float]


class _Answer(NamedTuple):
    """An invented answer: its question's index, the counts that it adds, and how far it is likely to move numbers."""

    question: int
    counts: tuple[int, ...]
    weight: float


def reach_of_reports(statistics: Statistics, postprocess: str) -> tuple[LargestMove, ...]:
    """Return how far :data:`INVENTED` reports move the fitted model's numbers, by kind of number.

    The result is empty unless the statistics are of one source of reports. Raises the errors of :func:`.fitting.fit`.
    """
    source = statistics.sources[0]
    if len(statistics.sources) != 1 or not isinstance(source, Reports):
        return ()
    whole, names = statistics, [feature.name for feature in statistics.schema.observed]
    is_part = len(statistics.questions) < len(source.campaign.questions)
    if is_part:  # A report about a feature that the model leaves out moves the shares of the classes.
        every = estimate(source.campaign, source.tally, recurrence=source.recurrence, with_intervals=False)
        whole = replace(every, fit=statistics.fit)

    def numbers_with(added: Sequence[_Answer]) -> Floats:
        more = with_answers(whole, [(one.question, one.counts) for one in added])
        return published_numbers(of_features(more, names) if is_part else more, postprocess)[0]

    before, kinds = published_numbers(statistics, postprocess)
    answers = _likeliest(whole, source, len(before))
    moves = np.array([numbers_with([one]) - before for one in answers])
    found = [
        LargestMove(kind, {1: float(np.abs(moves[:, kinds == kind]).max())}) for kind in dict.fromkeys(kinds.tolist())
    ]
    for kind in found:
        single = np.abs(moves[:, kinds == kind.kind]).max(axis=1)
        some = np.argsort(-single, kind="stable")[: max(12, len(answers) // 5)].tolist()

        def moved(group: tuple[int, ...], kind: LargestMove = kind) -> float:
            after = numbers_with([answers[one] for one in group])
            return float(np.abs(after - before)[kinds == kind.kind].max())

        for number in INVENTED[1:]:
            kind.by[number] = max(kind.by[1], _together(moved, some, number))
    return tuple(found)


def _together(moved: Callable[[tuple[int, ...]], float], some: Sequence[int], number: int) -> float:
    """Return the largest move found by ``number`` invented answers of ``some``. ``moved``: answers → their move."""
    most = max(moved((one,) * number) for one in some)
    best: list[tuple[int, ...]] = [(one,) for one in some[:_BEST]]
    for _ in range(1, number):
        grown = sorted({tuple(sorted((*group, one))) for group in best for one in some})
        each = {group: moved(group) for group in grown}
        best = sorted(grown, key=lambda group: -each[group])[:_BEST]
        most = max(most, each[best[0]])
    return most


def published_numbers(statistics: Statistics, postprocess: str) -> tuple[Floats, NDArray[np.str_]]:
    """Return all numbers of the fitted model as one float64 array, and the kind of each as an array of its shape."""
    log_prior, terms = fit(statistics, postprocess)
    parts = [("P(class)", np.exp(log_prior))]
    for term in terms:
        if isinstance(term, NormalParameters):
            parts += [(MEAN, term.mean), (VARIANCE, term.variance)]
        else:
            parts.append(("P(value | class)", np.exp(np.asarray(term)).ravel()))
    return np.concatenate([part for _, part in parts]), np.repeat(
        [kind for kind, _ in parts], [len(part) for _, part in parts]
    )


def _likeliest(statistics: Statistics, source: Reports, cells: int) -> list[_Answer]:
    classes = len(statistics.schema.label.classes)
    share = np.maximum(np.nan_to_num(class_shares(statistics).ratio), 1 / max(source.reports, classes))
    found = []
    for place, question in enumerate(source.campaign.questions):
        own = share if question.subject.of_class is None else share[question.subject.of_class :][:1]
        width = contribution(question.mechanism).width / (source.tally.n[place] + 1)
        extremes = extreme_answers(question.mechanism, len(own))
        for counts in (*extremes, *_cancelling(question, source.tally.counts[place])):
            rare = min(counts, key=counts.count) if len(counts) <= _MOST_PLACES else None
            spoken = {place % len(own) for place, count in enumerate(counts) if count == rare}
            weight = width / float(own[list(spoken)].min() if spoken else own.min())
            found.append(_Answer(place, counts, weight))
    most = max(20, min(_MOST_FITS, _CELLS_AT_MOST // cells))
    return sorted(found, key=lambda one: -one.weight)[:most]


def _cancelling(question: Question, sums: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return invented answers that bring one of ``sums`` (about numbers), or all, near 0: the variance grows most."""
    mechanism = question.mechanism
    if mechanism.layout != INTEGERS or question.kind not in (MOMENT, MOMENTS):
        return []
    least, most = mechanism.counted
    whole = [min(max(-one, least), most) for one in sums]
    single = [tuple(one if place == own else 0 for place, one in enumerate(whole)) for own in range(len(whole))]
    return list(dict.fromkeys([tuple(whole), *single]))
