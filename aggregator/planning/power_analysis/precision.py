"""Expected standard errors of every statistic of a campaign, in closed form, before any device answers.

A stratum is a group of questions of which a device is asked one per period. With N devices and T periods, question j
gets n_j = N·T·π_j answers, π_j its part of the stratum. Its estimate of a share or mean m has the variance

    φ/n_j + s²·[(1 − π_j)/n_j + 1/N]

with φ the mechanism's noise variance of one answer and s² the variance of the true value between devices: f(1 − f) for
a share f, E x² − m² for a number x. Source: docs/math.md, sections 1 and 2; decision 59.
"""

from __future__ import annotations

from math import ceil, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.collectors.noise import variance_of
from aggregator.common.arrays import Floats
from aggregator.estimates.cells import question_name
from aggregator.estimates.debias import Z95, Law, marginal, noise_law
from aggregator.estimates.question_estimate import Sample, Vote, is_share, is_stretched
from aggregator.models.population import Population
from aggregator.planning.power_analysis.rehearsal import Fleet, shares_of_questions
from aggregator.publishing.mechanisms.draws import inputs_of
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.mechanisms import Mechanism
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import CELL, CLASS, PRESENT, SQUARE, Question

CLASSES = "classes, from all questions"


class Spread(NamedTuple):
    """Parts of the variance of K shares or means, (K,) each: φ (mechanism's noise) and s² (between devices)."""

    noise: Floats
    between: Floats


class Precision(NamedTuple):
    """Expected standard errors of the shares or means of one question.

    ``answers``: their expected number; ``errors``: (K,) float64, one per share or mean; ``span``: width of the range: 1
    for shares and means of squares, 2 for means of numbers in [−1, 1].
    """

    question: str
    answers: float
    errors: Floats
    span: float = 1.0

    @property
    def worst(self) -> float:
        """The largest standard error of the question."""
        return float(self.errors.max())

    @property
    def median(self) -> float:
        """The median of the question's standard errors."""
        return float(np.median(self.errors))

    @property
    def width(self) -> float:
        """Width of the widest 95 % interval, 2·1.96 times the largest standard error, not clipped."""
        return 2 * Z95 * self.worst

    @property
    def clipped_width(self) -> float:
        """Width of the widest 95 % interval, at most the range of the question's statistics."""
        return min(self.width, self.span)


def precisions(campaign: Campaign, fleet: Fleet, population: Population | None) -> list[Precision]:
    """Return expected standard errors of every question; then, if a question tells of classes, of the classes' shares.

    ``population``: records that stand for those of the devices. None assumes equal shares of all values, and uniformly
    distributed numbers in classes of the same size.
    """
    if campaign.shared is not None:
        return _of_totals(campaign, fleet, population)
    found = []
    for question, (_, share) in zip(campaign.questions, shares_of_questions(campaign), strict=True):
        spread = spread_of(campaign, question, population)
        answers = fleet.devices * fleet.periods * share
        scatter = (1 - share) / answers + 1 / fleet.devices
        errors = np.sqrt(spread.noise / answers + spread.between * scatter)
        span = 1.0 if is_share(question.subject) or question.subject.power == SQUARE else 2.0
        found.append(Precision(question_name(question.subject, campaign.schema), answers, errors, span))
    classes = _classes(campaign, fleet, population)
    return found if classes is None else [*found, classes]


def _of_totals(campaign: Campaign, fleet: Fleet, population: Population | None) -> list[Precision]:
    """Return the errors of totals of two collectors: v noise of a cell, T periods of N devices: T·v/(N·T)² + s²/N.

    A class's share is summed from the cells of each feature, and combined by inverse variance.
    """
    answers, classes = fleet.devices * fleet.periods, len(campaign.schema.label.classes)
    noise, found, precise = fleet.periods * variance_of(campaign) / answers**2, [], 0.0
    for block in campaign.blocks:
        shares = np.full(block.size, 1 / block.size)
        if population is not None:
            inputs = inputs_of(campaign.schema, block, population.reported, population.labels)
            shares = np.bincount(inputs, minlength=block.size) / len(inputs)
        errors = np.sqrt(noise + shares * (1 - shares) / fleet.devices)
        found.append(Precision(question_name(block, campaign.schema), answers, errors))
        precise += classes / (block.size * noise)
    share = np.full(classes, 1 / classes)
    if population is not None:
        share = np.bincount(population.labels, minlength=classes) / len(population.labels)
    return [*found, Precision(CLASSES, answers, np.sqrt(1 / precise + share * (1 - share) / fleet.devices))]


def spread_of(campaign: Campaign, question: Question, population: Population | None) -> Spread:
    """Return the two parts of the variance of a question's shares or means."""
    if is_share(question.subject):
        return _of_shares(campaign, question, population)
    mechanism = question.mechanism
    assert isinstance(mechanism, NumericMechanism)
    at_zero, at_one = (float(mechanism.variance(x) / SCALE**2) for x in (0, SCALE))
    mean, square = _moments(campaign, question, population)
    noise, between = at_zero + (at_one - at_zero) * square, square - mean**2
    if is_stretched(question.subject):  # devices perturb 2v − S in place of v
        noise, between = noise / 4, between / 4
    return Spread(noise, between)


def _of_shares(campaign: Campaign, question: Question, population: Population | None) -> Spread:
    size = question.size
    if population is None:
        shares = np.full(size, 1 / size)
    else:
        inputs = inputs_of(campaign.schema, question.subject, population.reported, population.labels)
        shares = np.bincount(inputs, minlength=size) / len(inputs)
    law = noise_law(question.mechanism)
    assert law is not None
    return Spread(law.at(shares), shares * (1 - shares))


def _moments(campaign: Campaign, question: Question, population: Population | None) -> tuple[Floats, Floats]:
    """Return E x and E x² of the K inputs x of a question about moments, x in [−1, 1]: shape (K,) float64 each."""
    subject = question.subject
    if population is not None:
        inputs = inputs_of(campaign.schema, subject, population.reported, population.labels) / SCALE
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        return inputs.mean(axis=0), (inputs**2).mean(axis=0)
    share = 1 / len(campaign.schema.label.classes)
    of_power = (0.0, 1 / 3, 1 / 5)  # means of u, u², u⁴ for u uniform in [−1, 1]
    mean, square = (0.0, share / 3) if subject.power == 1 else (share * of_power[1], share * of_power[2])
    if is_stretched(subject):
        mean, square = 2 * mean - 1, 4 * square - 4 * mean + 1
    return np.full(subject.size, mean), np.full(subject.size, square)


def _classes(campaign: Campaign, fleet: Fleet, population: Population | None) -> Precision | None:
    classes = len(campaign.schema.label.classes)
    share = np.full(classes, 1 / classes)
    if population is not None:
        share = np.bincount(population.labels, minlength=classes) / len(population.labels)
    answers = fleet.devices * fleet.periods
    votes = []
    for question, (stratum, part) in zip(campaign.questions, shares_of_questions(campaign), strict=True):
        law = _class_law(question.mechanism, classes) if question.kind in (CLASS, CELL, PRESENT) else None
        if law is not None:
            votes.append(Vote(Sample(0, stratum, answers, 1 / fleet.devices), max(1, ceil(answers * part)), share, law))
    if not votes:
        return None
    weights = np.array([1 / vote.planned_variance for vote in votes])
    weights /= weights.sum()
    squares = np.array([weight**2 / vote.n for weight, vote in zip(weights, votes, strict=True)])
    by_stratum = np.zeros(campaign.answers)
    for weight, vote in zip(weights, votes, strict=True):
        by_stratum[vote.sample.stratum] += weight
    chosen = squares.sum() - (by_stratum**2).sum() / answers
    scatter = max(0.0, chosen) + 1 / fleet.devices
    noise = sum(square * vote.law.at(share) for square, vote in zip(squares, votes, strict=True))
    return Precision(CLASSES, sum(vote.n for vote in votes), np.sqrt(noise + share * (1 - share) * scatter))


def _class_law(mechanism: Mechanism, classes: int) -> Law | None:
    found = marginal(mechanism, 1, (0,) * mechanism.size, classes)
    return None if found is None else found.law


def widest(found: list[Precision]) -> Precision:
    """Return the entry of the question with the widest interval."""
    return max(found, key=lambda one: one.worst)


def typical_error(found: list[Precision]) -> float:
    """Return the root of the mean variance over all statistics of all questions, which measures a design."""
    variances = np.concatenate([one.errors**2 for one in found if one.question != CLASSES])
    return sqrt(float(variances.mean()))


def devices_for_width(found: list[Precision], devices: int, width: float) -> int:
    """Return the number N of devices at which the widest interval has the width ``width``.

    All variances are proportional to 1/N, so N = ``devices``·(width at ``devices``/``width``)², rounded up. ``found``:
    standard errors at ``devices`` devices, by :func:`precisions`.
    """
    needed = devices * (widest(found).width / width) ** 2
    assert isfinite(needed)
    return max(1, ceil(needed))
