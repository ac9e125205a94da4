"""Rehearsals: simulated campaigns on a population, from random counts to the accuracy of a model.

Records outside a fold answer, those of the fold test. The accuracy on the fold is too low on average, that on the
records that answered too high, by the same size to first order (Amari, Murata, Neural Computation 5 (1993), 140-153):
the expected accuracy is their mean, or with a fitted projection the fold's alone. Source: decision 59.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.statistics import Shared, shared_statistics
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.debias import Z95
from aggregator.estimates.recurrence import KNOWN, ONCE, Recurrence
from aggregator.estimates.reports import estimate
from aggregator.estimates.statistics import Statistics
from aggregator.models.baselines import plain_gaussian_model, plain_model
from aggregator.models.population import Population
from aggregator.models.scoring import Model, model_of
from aggregator.publishing.mechanisms.draws import CountLaw, count_law, inputs_of
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import GAUSSIAN, Campaign
from protocol.epsilon import MICRO
from protocol.shared.report import terms_of

_WORD = 1 << 32


class Fleet(NamedTuple):
    """Number of devices, and number of periods in which each of them answers."""

    devices: int
    periods: int = 1


class Fold(NamedTuple):
    """One division of the records into those that answer (``learned``) and those that only test the model (``tested``).

    ``learned_rows``, ``tested_rows``: indices of these records. ``campaign``: a fitted projection differs between
    folds.
    """

    campaign: Campaign
    learned: Population
    learned_rows: Integers
    tested: Population
    tested_rows: Integers


def shares_of_questions(campaign: Campaign) -> list[tuple[int, float]]:
    """Return for every question its stratum (group of questions), and its share of the answers to the stratum."""
    found = []
    for number, question in enumerate(campaign.questions):
        low, high = campaign.assignment.interval(number, question.stratum)
        found.append((question.stratum, (high - low) / _WORD))
    return found


class _Hits:
    def __init__(self, folds: Sequence[Fold], records: int) -> None:
        self._own = own_weight(folds)
        self._right, self._times = np.zeros((2, records)), np.zeros((2, records))

    def add(self, model: Model, fold: Fold) -> float:
        """Count the right predictions of a model, and return its expected accuracy from both parts of the records."""
        shares = []
        for place, (part, rows) in enumerate(((fold.tested, fold.tested_rows), (fold.learned, fold.learned_rows))):
            predicted = model.scores_of(part.scored).argmax(axis=1)
            right = np.where(part.known, predicted == part.truth, np.nan)
            self._right[place, rows] += right
            self._times[place, rows] += 1
            shares.append(float(np.nanmean(right)))
        return self._own * shares[1] + (1 - self._own) * shares[0]

    def by_record(self) -> Floats:
        """Return the expected share of right predictions for every record: (N,) float64; NaN for one without class."""
        with np.errstate(invalid="ignore"):
            away, own = self._right / self._times
        return np.asarray(self._own * own + (1 - self._own) * away)


class Rehearsal:
    """Simulates campaigns of one design for one fleet, as often as asked, and forecasts the accuracy."""

    def __init__(self, folds: Sequence[Fold], records: int, fleet: Fleet, rng: np.random.Generator) -> None:
        self._folds, self._fleet, self._rng = folds, fleet, rng
        self._laws: list[list[CountLaw] | None] = [None] * len(folds)
        self._hits = _Hits(folds, records)
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
                self._single[place].append(self._hits.add(self._model(place), fold))

    def _model(self, place: int) -> Model:
        fold, fleet, rng = self._folds[place], self._fleet, self._rng
        campaign = fold.campaign
        rows = len(fold.learned.labels)
        if campaign.shared is not None:
            found = shared_totals(campaign, fold.learned, fleet, rng)
            return model_of(found, campaign.fit.postprocess)
        if campaign.answers * fleet.periods == 1:
            laws = self._laws[place]
            if laws is None:
                laws = self._laws[place] = laws_of(campaign, fold.learned, np.full(rows, 1 / rows))
        else:
            members = rng.multinomial(fleet.devices, np.full(rows, 1 / rows)) / fleet.devices
            laws = laws_of(campaign, fold.learned, members)
        return model_of(simulated(campaign, laws, fleet, rng), campaign.fit.postprocess)

    @property
    def by_record(self) -> Floats:
        """Expected share of right predictions for every record: (N,) float64; NaN for a record without class."""
        return self._hits.by_record()

    def forecast(self) -> Forecast:
        """Return the expected accuracy from all simulated campaigns so far; there must be two or more per fold."""
        found = self.by_record
        found = found[np.isfinite(found)]
        noise = float(np.mean([np.var(of_fold, ddof=1) for of_fold in self._single])) / self.campaigns
        return Forecast(float(found.mean()), sqrt(noise), sqrt(float(found.var()) / len(found) + noise))


def own_weight(folds: Sequence[Fold]) -> float:
    """Return the weight of the accuracy on records that a model learned from: ½; 0 if folds have own projections."""
    return 0.0 if len({fold.campaign.id for fold in folds}) > 1 else 0.5


class Forecast(NamedTuple):
    """An expected accuracy, with its standard errors from the number of simulated campaigns, and from the pilot too."""

    accuracy: float
    noise: float
    error: float

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
    hits = _Hits(folds, records)
    for fold in folds:
        schema, fit_of = fold.campaign.schema, fold.campaign.fit
        if fit_of.family == GAUSSIAN:
            floor = fit_of.variance_floor_micro / MICRO
            model = plain_gaussian_model(fold.learned.reported, fold.learned.labels, schema, floor)
        else:
            model = plain_model(fold.learned.reported, fold.learned.labels, schema)
        hits.add(model, fold)
    return float(np.nanmean(hits.by_record()))
