"""A year of monitoring at one total ε: kept answers, daily answers, a few, or one; on records that stay or change.

    python -m benchmarks.models.memory [--data car mushroom chess] [--repeats 20] [--quick]

N devices have ε = 3 for 365 days. ``static``: accuracy of the model of all reports, on a tenth of the records that no
device has. ``changed``: on day 183 every record's class becomes the next one of the label's; accuracy, on the new
classes, of the model of the last 30 days' reports, or of all reports where none came in these days. Counts are drawn
from their laws. The rows go to ``memory.csv``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.estimates.recurrence import KNOWN, Recurrence, at_most
from aggregator.estimates.reports import estimate
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.scoring import Model, model_of
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import count_law, counts_of, inputs_of
from aggregator.reports.tally.tally import Tally
from aggregator.reports.tally.turnout import Turnout
from benchmarks.federated.data import Data, part
from benchmarks.shared import study
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.memory_terms import Remembered
from protocol.epsilon import MICRO
from protocol.mechanisms import SINGLE
from protocol.questions import Question
from protocol.stream import sha256
from simulation.trust import SIMULATED_NOW

DAYS, CHANGE, RECENT, TOTAL = 365, 183, 30, 3 * MICRO
SIZES = (10_000, 100_000)


class Way(NamedTuple):
    """A way to spend the year's ε: ``answers`` at equal times; or kept answers, with so many renewals."""

    name: str
    answers: int
    renewals: int | None = None


WAYS = (
    Way("one answer on the first day", 1),
    Way("an answer every day", DAYS),
    Way("an answer every 122 days", 3),
    Way("memory, no renewal", DAYS, 0),
    Way("memory, 2 renewals", DAYS, 2),
)


class Year(NamedTuple):
    """A fleet's records of one split: row numbers of ``size`` devices, and the test rows."""

    data: Data
    devices: Integers
    test: Integers

    def labels(self, day: int, *, changes: bool, rows: Integers) -> Integers:
        """Return the class codes of ``rows`` on a day."""
        found = self.data.labels[rows]
        return (found + 1) % len(self.data.schema.label.classes) if changes and day >= CHANGE else found

    def accuracy(self, model: Model, *, changes: bool) -> float:
        """Return the share of the test rows that the model classifies rightly at the year's end."""
        scores = model.scores_of(part(self.data.recognised, self.test))
        return float((scores.argmax(axis=1) == self.labels(DAYS, changes=changes, rows=self.test)).mean())


def campaign_of(data: Data, way: Way) -> Campaign:
    """Return the campaign of one way."""
    kept = way.renewals is not None
    micro = TOTAL // (1 + (way.renewals or 0) if kept else way.answers)
    terms = CampaignParameters("year", micro, lifetime_seconds=DAYS * 86_400)
    terms = terms._replace(memory=(way.renewals, micro // 2)) if way.renewals is not None else terms
    return parse_campaign(build_campaign(data.schema, terms, 1, SIMULATED_NOW))


def again(mechanism: Remembered, kept: Integers, devices: int, periods: int, rng: np.random.Generator) -> Integers:
    """Draw the counts of reports of ``periods`` periods from counts of the devices' kept answers: (K,) int64 each."""
    p, q = map(float, mechanism.fresh)
    if mechanism.layout != SINGLE:
        return np.asarray(rng.binomial(periods * kept, p) + rng.binomial(periods * (devices - kept), q))
    rows = np.full((len(kept), len(kept)), q)
    np.fill_diagonal(rows, p)
    rows /= rows.sum(axis=1, keepdims=True)
    return np.asarray(rng.multinomial(periods * kept, rows).sum(axis=0))


def year_of(year: Year, way: Way, rng: np.random.Generator, *, changes: bool) -> float:
    """Return the accuracy at the end of one year."""
    campaign = campaign_of(year.data, way)
    memory = campaign.memory
    ends = np.cumsum(
        [
            (question.bound - low) / 2**32
            for question, low in zip(campaign.questions, [0, *(one.bound for one in campaign.questions)], strict=False)
        ]
    )
    days = range(DAYS) if way.answers == DAYS else [turn * DAYS // way.answers for turn in range(way.answers)]
    recent = [day for day in days if day >= DAYS - RECENT] or [*days][-1:]
    counted = recent if changes else [*days]
    chosen = np.searchsorted(ends, rng.random(len(year.devices)), side="right")
    n, totals = np.zeros(len(ends), np.int64), [np.zeros(q.mechanism.answers, np.int64) for q in campaign.questions]

    def inputs(question: Question, mine: Integers, day: int) -> Integers:
        labels = year.labels(day, changes=changes, rows=mine)
        return inputs_of(campaign.schema, question.subject, part(year.data.observed, mine), labels)

    if memory is None:
        equal = np.full(len(year.devices), 1 / len(year.devices))
        for is_late in (False, True):
            days_here = [day for day in counted if (day >= CHANGE) == is_late]
            asked = rng.multinomial(len(days_here) * len(year.devices), np.diff([0, *ends])) if days_here else []
            for number, (question, answers) in enumerate(zip(campaign.questions, asked, strict=False)):
                held = inputs(question, year.devices, days_here[0])
                n[number] += answers
                totals[number] += count_law(question.mechanism, held, equal).counts(int(answers), rng)
        recurrence = Recurrence(KNOWN, (int(n.sum()),), (1 / len(year.devices),))
    else:
        stretch = np.array([memory.number(memory.first + day) for day in counted])
        for begun in np.unique(stretch).tolist():
            periods = int((stretch == begun).sum())
            for number, question in enumerate(campaign.questions):
                mine, mechanism = year.devices[chosen == number], question.mechanism
                assert isinstance(mechanism, Remembered)
                kept = counts_of(mechanism.permanent, inputs(question, mine, begun * memory.stretch), rng)
                n[number] += periods * len(mine)
                totals[number] += again(mechanism, kept, len(mine), periods, rng)
        turnout = Turnout(1, memory.first + np.array(counted), np.full(len(counted), len(year.devices)))
        recurrence = at_most(campaign, Tally(campaign.id, tuple(n.tolist()), ()), turnout)
    tally = Tally(campaign.id, tuple(n.tolist()), tuple(tuple(total.tolist()) for total in totals))
    found = estimate(campaign, tally, recurrence=recurrence, with_intervals=False)
    return year.accuracy(model_of(found, DEFAULT), changes=changes)


def jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield all rows."""
    for name in options.data:
        data = Data.load(name)
        for size in SIZES[:1] if options.quick else SIZES:
            for changes in (False, True):
                for way in WAYS:
                    names = {"data": name, "devices": size, "records": "changed" if changes else "static"}
                    yield study.single(names | {"way": way.name}, measured, data, way, size, changes, options)


def measured(data: Data, way: Way, size: int, changes: bool, options: argparse.Namespace) -> study.TableRow:  # noqa: FBT001
    """Return mean and error of the accuracies of all repeats, each on a split of its own."""
    found = []
    for turn in range(options.repeats):
        seed = [options.seed, turn, *sha256(data.name.encode()).digest()[:4]]
        split = data.split(np.random.default_rng(seed))
        rng = np.random.default_rng([*seed, size])
        devices = split.learning[rng.integers(0, len(split.learning), size)]
        found.append(year_of(Year(data, devices, split.test), way, rng, changes=changes))
    return study.spread(found)


def main() -> int:
    """Run the study."""
    options = study.arguments(__doc__ or "", repeats="splits").parse_args()
    options.data = options.data or ["car", "mushroom", "chess"]
    options.repeats = options.repeats or (4 if options.quick else 20)
    return study.run(study.Study("memory", jobs), options)


if __name__ == "__main__":
    sys.exit(main())
