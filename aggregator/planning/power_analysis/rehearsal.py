"""Rehearsals: simulated campaigns on a population, from random counts to the accuracy of a model.

Records outside a fold answer, those of the fold test. The accuracy on the fold is too low on average, that on records
that answered too high, by the same size to first order (Amari, Murata, Neural Computation 5 (1993), 140-153): the
expected accuracy is their mean. Source: decision 59.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.statistics import Shared, shared_statistics
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.debias import Z95
from aggregator.estimates.joining import joined_questions
from aggregator.estimates.recurrence import KNOWN, ONCE, Recurrence
from aggregator.estimates.reports import estimate
from aggregator.estimates.source import Origin
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import Curator, NoisySum, of_sums
from aggregator.models.baselines import plain_gaussian_model, plain_model
from aggregator.models.population import Population
from aggregator.models.scoring import Model, model_of
from aggregator.publishing.mechanisms.draws import CountLaw, count_law, inputs_of
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import GAUSSIAN, Campaign
from protocol.epsilon import MICRO
from protocol.noise.sums import summed_subjects
from protocol.questions import CLASS
from protocol.shared.report import terms_of

_WORD = 1 << 32


class Fleet(NamedTuple):
    """Number of devices, and number of periods in which each of them answers."""

    devices: int
    periods: int = 1


class Fold(NamedTuple):
    """One division of the records into those that answer (``learned``) and those that only test the model (``tested``).

    ``learned_rows``, ``tested_rows``: indices of these records. ``whole``: all records, if ``campaign`` is of this fold
    alone, since ``learned`` chose its features or its projection; None if all folds have one campaign. The records that
    both answer and test are ``learned``, or with ``whole`` those of ``tested``, which chose nothing.
    """

    campaign: Campaign
    learned: Population
    learned_rows: Integers
    tested: Population
    tested_rows: Integers
    whole: Population | None = None

    @property
    def answering(self) -> tuple[Population, ...]:
        """The records that answer: those outside the fold, and if the campaign is of this fold alone, also all."""
        return (self.learned,) if self.whole is None else (self.learned, self.whole)


def shares_of_questions(campaign: Campaign) -> list[tuple[int, float]]:
    """Return for every question its stratum (group of questions), and its share of the answers to the stratum."""
    found = []
    for number, question in enumerate(campaign.questions):
        low, high = campaign.assignment.interval(number, question.stratum)
        found.append((question.stratum, (high - low) / _WORD))
    return found


class _Hits:
    def __init__(self, records: int) -> None:
        self._right, self._times = np.zeros((2, records)), np.zeros((2, records))

    def add(self, models: Sequence[Model], fold: Fold) -> float:
        """Count the right predictions of one model for each of ``fold.answering``; return the expected accuracy."""
        own = (fold.learned, fold.learned_rows) if fold.whole is None else (fold.tested, fold.tested_rows)
        shares = []
        for place, (part, rows) in enumerate(((fold.tested, fold.tested_rows), own)):
            predicted = models[place % len(models)].scores_of(part.scored).argmax(axis=1)
            right = np.where(part.known, predicted == part.truth, np.nan)
            self._right[place, rows] += right
            self._times[place, rows] += 1
            shares.append(float(np.nanmean(right)))
        return sum(shares) / 2

    def by_record(self) -> Floats:
        """Return the expected share of right predictions for every record: (N,) float64; NaN for one without class."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self._right / self._times).mean(axis=0))


class Rehearsal:
    """Simulates campaigns of one design for one fleet, as often as asked, and forecasts the accuracy.

    ``counted``: whether the model is also of the records' exact counts, as of people who joined a pilot.
    """

    def __init__(
        self, folds: Sequence[Fold], records: int, fleet: Fleet, rng: np.random.Generator, *, counted: bool = False
    ) -> None:
        self._folds, self._records, self._fleet, self._rng, self._counted = folds, records, fleet, rng, counted
        self._laws: dict[tuple[int, int], list[CountLaw]] = {}
        self._hits = _Hits(records)
        self._single: list[list[float]] = [[] for _ in folds]

    @property
    def folds(self) -> int:
        """Number of divisions of the records."""
        return len(self._folds)

    @property
    def campaigns(self) -> int:
        """Number of simulated campaigns so far."""
        return sum(len(of_fold) for of_fold in self._single)

    def run(self, times: int) -> None:
        """Simulate ``times`` more campaigns per fold. Raises the errors of :func:`aggregator.models.fitting.fit`."""
        for place, fold in enumerate(self._folds):
            for _ in range(times):
                models = [
                    model_of(self._statistics(people, place, part), fold.campaign.fit.postprocess)
                    for part, people in enumerate(fold.answering)
                ]
                self._single[place].append(self._hits.add(models, fold))

    def _statistics(self, people: Population, place: int, part: int) -> Statistics:
        campaign, fleet, rng = self._folds[place].campaign, self._fleet, self._rng
        rows = len(people.labels)
        equal = np.full(rows, 1 / rows)
        if campaign.shared is not None:
            return shared_totals(campaign, people, fleet, rng)
        if campaign.answers * fleet.periods == 1:
            if (place, part) not in self._laws:
                self._laws[place, part] = laws_of(campaign, people, equal)
            laws = self._laws[place, part]
        else:
            laws = laws_of(campaign, people, rng.multinomial(fleet.devices, equal) / fleet.devices)
        found = simulated(campaign, laws, fleet, rng)
        if not self._counted:
            return found
        # The records are the population here, so the pilot is a random sample of them.
        return with_pilot(found, campaign, people, rng.multinomial(self._records, equal))

    @property
    def by_record(self) -> Floats:
        """Expected share of right predictions for every record: (N,) float64; NaN for a record without class."""
        return self._hits.by_record()

    def forecast(self) -> Forecast:
        """Return the expected accuracy from all simulated campaigns so far; there must be two or more per fold."""
        noise = float(np.mean([np.var(of_fold, ddof=1) for of_fold in self._single])) / self.campaigns
        return Forecast.of(self.by_record, noise)


class Forecast(NamedTuple):
    """An expected accuracy, with its standard errors from the number of simulated campaigns, and from the pilot too."""

    accuracy: float
    noise: float
    error: float

    @classmethod
    def of(cls, right: Floats, noise: float) -> Forecast:
        """Return the mean of :attr:`Rehearsal.by_record`. ``noise``: the variance from the number of simulations."""
        known = right[np.isfinite(right)]
        return cls(float(known.mean()), sqrt(noise), sqrt(float(known.var()) / len(known) + noise))

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval, at least 0."""
        return max(0.0, self.accuracy - Z95 * self.error)

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval, at most 1."""
        return min(1.0, self.accuracy + Z95 * self.error)


def laws_of(campaign: Campaign, population: Population, shares: Floats) -> list[CountLaw]:
    """Return the distribution of every question's counts. ``shares``: (N,) float64, share of devices per record."""
    return [
        count_law(
            question.mechanism,
            inputs_of(campaign.schema, question.subject, population.reported, population.labels),
            shares,
        )
        for question in campaign.questions
    ]


def simulated(campaign: Campaign, laws: Sequence[CountLaw], fleet: Fleet, rng: np.random.Generator) -> Statistics:
    """Simulate one campaign by random counts from ``laws`` (:func:`laws_of`); return statistics without intervals."""
    answers = fleet.devices * fleet.periods
    shares = shares_of_questions(campaign)
    numbers = np.zeros(len(shares), np.int64)
    for stratum in range(campaign.answers):
        members = [place for place, (of, _) in enumerate(shares) if of == stratum]
        chance = np.array([shares[place][1] for place in members])
        numbers[members] = rng.multinomial(answers, chance / chance.sum())
    counts = tuple(
        tuple(np.atleast_1d(law.counts(n, rng)).tolist()) for law, n in zip(laws, numbers.tolist(), strict=True)
    )
    tally = Tally(campaign.id, tuple(numbers.tolist()), counts)
    basis = ONCE if fleet.periods == 1 else KNOWN
    strata = (answers,) * campaign.answers
    recurrence = Recurrence(basis, strata, (1 / fleet.devices,) * campaign.answers)
    return estimate(campaign, tally, recurrence=recurrence, with_intervals=False)


def with_pilot(found: Statistics, campaign: Campaign, people: Population, members: Integers) -> Statistics:
    """Return statistics joined with the exact counts of a pilot, as by ``hearsay count`` and ``hearsay publish``.

    ``members``: (N,) int64, how often each of the N ``people`` is in the pilot.
    """
    sums = []
    for subject in summed_subjects(campaign.schema, campaign.fit.family):
        cells = inputs_of(campaign.schema, subject, people.reported, people.labels)
        counts = np.bincount(cells, members, subject.size).astype(np.float64)
        sums.append(NoisySum(subject, counts, np.zeros(subject.size), (), subject.kind != CLASS, 0.0))
    source = Curator(Origin(b"", "pilot", "pilot"), int(members.sum()), (), {})
    pilot = of_sums(sums, campaign.schema, campaign.fit, source, is_counted=True)
    return replace(found, questions=joined_questions([found, pilot], disjoint=False))


def shared_totals(campaign: Campaign, population: Population, fleet: Fleet, rng: np.random.Generator) -> Statistics:
    """Simulate the totals of two collectors: exact counts of random devices with their noise, one for each period."""
    rows = len(population.labels)
    members = rng.multinomial(fleet.devices, np.full(rows, 1 / rows))
    terms, blocks = terms_of(campaign), campaign.blocks
    cells = [inputs_of(campaign.schema, block, population.reported, population.labels) for block in blocks]
    counts = [np.bincount(cell, members, block.size) for cell, block in zip(cells, blocks, strict=True)]
    exact = np.concatenate(counts).astype(np.int64)
    noise = SharedNoise(campaign.epsilon_micro, terms.delta_pico, terms.noise)
    totals = {
        period: tuple((exact + noise.draw(len(blocks), len(exact), rng)).tolist()) for period in range(fleet.periods)
    }
    return shared_statistics(Shared(campaign, totals, dict.fromkeys(totals, fleet.devices)))


def plain_accuracy(folds: Sequence[Fold], records: int) -> float:
    """Return the expected accuracy of the model without privacy and with infinitely many devices, from N records."""
    hits = _Hits(records)
    for fold in folds:
        schema, fit_of = fold.campaign.schema, fold.campaign.fit
        models = []
        for people in fold.answering:
            if fit_of.family == GAUSSIAN:
                floor = fit_of.variance_floor_micro / MICRO
                models.append(plain_gaussian_model(people.reported, people.labels, schema, floor))
            else:
                models.append(plain_model(people.reported, people.labels, schema))
        hits.add(models, fold)
    return float(np.nanmean(hits.by_record()))
