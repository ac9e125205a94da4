"""What each lever gives where nobody is trusted, alone and together; and whether a plan's expectation holds.

    python -m benchmarks.asking.levers [--data mushroom car …] [--devices 10000 …] [--repeats 10] [--quick]

Each repetition divides a data set: a fifth tests, 300 records (at most half of the others) are the pilot, and the rest
is on the devices, drawn with replacement. A lever is a :class:`aggregator.planning.power_analysis.study.Design`, whose
campaign, statistics and model are those of the product; counts are drawn from their law. ``together`` is the best of
these designs by the race of ``hearsay plan`` on the pilot (which also tries other mechanisms and numbers of answers).
``levers.csv`` gets for every data set, fleet and lever the accuracy on the test part; of ``together`` also what the
plan expected (:data:`TOLD`). The status is 0 if on no data set that was not used to tune the levers (:data:`HELD_OUT`)
the mean expectation is more than two points from the mean accuracy, beyond two standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.models.population import Population
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.scoring import Model, model_of
from aggregator.planning.feature_selection.forward_selection import best_of, part_of
from aggregator.planning.feature_selection.from_pilot import asked_by
from aggregator.planning.feature_selection.from_pilot import design as choose
from aggregator.planning.feature_selection.steps import SeriesFleet
from aggregator.planning.power_analysis.plan import DEFAULT_EFFECT
from aggregator.planning.power_analysis.rehearsal import Fleet, Forecast, laws_of, simulated, with_pilot
from aggregator.planning.power_analysis.search import race, unbiased
from aggregator.planning.power_analysis.study import CHOSEN, Design, Study
from aggregator.publishing.mechanisms.choice import AUTO
from aggregator.publishing.schemas.schema_file import SchemaFile
from benchmarks.asking.designs import MADE, drawn_trial, made_up
from benchmarks.models.estimators import Data, divided, frame_of, load
from benchmarks.shared import study
from protocol.documents.campaign import DISCRETE, Campaign
from protocol.epsilon import micro_epsilon
from protocol.schema import build_schema

DATA = ("mushroom", "chess", "votes", "australian", "pima", "adult", "connect-4", "car")
HELD_OUT = ("spect", "seeds", "glass", "skin", "accelerometer", "even:3:12", "few:2:16", "copies:2:24", "falling:5:16")
DEVICES = (10_000, 100_000, 1_000_000)
PILOT = 300
MOST_TESTED = 4000
ALL, UNJOINED, REFINE, TOGETHER = "all", "chosen without joins", "refine", "together"
NEAR = 0.02
"""Largest difference of mean expectation and mean accuracy."""


TOLD = ("expected", "of_new", "gap_error", "apart", "inside", "first")
"""Columns of ``together``: mean expectation; :attr:`Trial.of_new`; standard error of their difference; mean absolute
difference of single pilots; share of intervals that hold ``of_new``; how often each lever was first."""


def levers(devices: int) -> dict[str, Design]:
    """Return the name and design of each lever for a fleet: ``all`` features by the two older mechanisms, then more."""
    everything = Design(DISCRETE, AUTO)
    chosen = everything._replace(reduction=f"{CHOSEN}:{devices}")
    return {
        ALL: everything._replace(mechanism="direct+oue"),
        "subset": everything,
        "counted": everything._replace(counted=True),
        "chosen": chosen,
        "chosen, counted": chosen._replace(counted=True),
    }


class Trial:
    """One division of a data set, with a pilot and a fleet; ``key`` is the seed.

    ``of_new``: of the last model, the mean accuracy on the test part and on the people of the devices. Where these are
    few, it is nearly that of endless people, which the plan is about (decision 59).
    """

    def __init__(self, data: Data, devices: int, epsilon_micro: int, key: list[int]) -> None:
        rng = np.random.default_rng(key)
        people, self.test = divided(data, rng)
        order = rng.permutation(people)
        pilot, self.people = np.split(order, [min(PILOT, len(order) // 2)])
        self.data, self.devices, self.epsilon_micro = data, devices, epsilon_micro
        self.rng = rng
        self.seed = key[0]
        self.study = Study(
            data.schema,
            epsilon_micro,
            DEFAULT,
            pilot=frame_of(data, pilot),
            effect=DEFAULT_EFFECT,
            seed=key[0],
            class_question=False,
        )

    def accuracy(self, design: Design) -> float:
        """Return the accuracy of a design's model on the test part."""
        return self._reached(self.study.campaign(design)[0], counted=design.counted)

    def unjoined(self) -> float:
        """Return the accuracy of the best set of features that ``hearsay design`` finds without joins."""
        schema, pilot = self.data.schema, self.study.pilot
        made = choose(pilot, SchemaFile("", schema), self.epsilon_micro, self.devices, seed=self.seed, judge=False)
        best = best_of([each for each in made.path if not each.joins])
        records, rows = Population.of_frame(pilot, schema), np.arange(len(pilot))
        ask, features = asked_by(part_of(records, schema, best.ways, rows, rows[:1]).cuts, schema)
        campaign = Design(DISCRETE, AUTO).campaign(
            build_schema(schema.label, features), self.epsilon_micro, DEFAULT, class_question=False, shares=ask
        )
        return self._reached(campaign)

    def _reached(self, campaign: Campaign, *, counted: bool = False) -> float:
        people, test = (self._population(rows, campaign.schema) for rows in (self.people, self.test[:MOST_TESTED]))
        equal = np.full(len(people.labels), 1 / len(people.labels))
        found = simulated(campaign, laws_of(campaign, people, equal), Fleet(self.devices), self.rng)
        if counted:
            pilot = self.study.population(campaign.schema)
            found = with_pilot(found, campaign, pilot, np.ones(len(pilot.labels), np.int64))
        model = model_of(found, DEFAULT)
        some = people.take(np.arange(min(MOST_TESTED, len(people.labels))))
        self.of_new = fmean(self._right(model, part) for part in (test, some))
        return self._right(model, test)

    def _right(self, model: Model, part: Population) -> float:
        return float((model.scores_of(part.scored).argmax(axis=1) == part.truth).mean())

    def _population(self, rows: Integers, schema: object) -> Population:
        return Population.of_frame(frame_of(self.data, rows), schema)

    def planned(self) -> tuple[str, Forecast]:
        """Return the lever that a plan ranks first by the pilot, and its expected accuracy."""
        named = {name: design for name, design in levers(self.devices).items() if name != ALL}
        running = {design: self.study.rehearsal(design, Fleet(self.devices)) for design in named.values()}
        race(running, lambda: None)
        first = max(named, key=lambda name: running[named[name]].forecast().accuracy)
        return first, unbiased(running, self.study.divisions)

    def refined(self) -> float:
        """Return the accuracy of a series of ``hearsay refine``, which needs no pilot."""
        fleet = SeriesFleet(self.devices, self.epsilon_micro)
        return drawn_trial(self.data, self.people, self.test[:MOST_TESTED], fleet, self.rng, refines=True)[0] / 100


def measure(name: str, devices: int, options: argparse.Namespace) -> list[study.TableRow]:
    """Measure all levers on one data set and fleet, and the plan's expectation of the first design."""
    data = made_up(name) if MADE.fullmatch(name) else load(name)
    found: dict[str, list[float]] = {}
    expected, of_new, inside, firsts = [], [], [], []
    for number in range(options.repeats):
        key = [options.seed, number, devices, *name.encode()]
        trial = Trial(data, devices, micro_epsilon(options.epsilons[0]), key)
        if name in DATA:
            for lever, design in levers(devices).items():
                found.setdefault(lever, []).append(trial.accuracy(design))
            found.setdefault(UNJOINED, []).append(trial.unjoined())
            found.setdefault(REFINE, []).append(trial.refined())
        first, forecast = trial.planned()
        reached = trial.accuracy(levers(devices)[first])
        found.setdefault(TOGETHER, []).append(reached)
        expected.append(forecast.accuracy)
        of_new.append(trial.of_new)
        inside.append(forecast.low <= trial.of_new <= forecast.high)
        firsts.append(first)
    rows = [{**study.spread(each), **dict.fromkeys(TOLD, "")} for each in found.values()]
    gaps = [said - got for said, got in zip(expected, of_new, strict=True)]
    apart, shown = fmean(map(abs, gaps)), "; ".join(f"{firsts.count(each)} {each}" for each in dict.fromkeys(firsts))
    told = fmean(expected), fmean(of_new), study.spread(gaps)["error"], round(apart, 5), fmean(inside), shown
    rows[-1] |= dict(zip(TOLD, told, strict=True))
    return rows


def jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the rows of each data set and fleet."""
    for name in options.data:
        measured = (*levers(1), UNJOINED, REFINE, TOGETHER) if name in DATA else (TOGETHER,)
        for devices in DEVICES:
            names = [{"data": name, "devices": devices, "lever": lever} for lever in measured]
            yield study.Job(names, measure, (name, devices, options))


def holds(rows: list[study.TableRow], folder: Path) -> bool:
    """Print expectations minus accuracies; return whether none of a held-out set is clearly beyond :data:`NEAR`."""
    del folder
    told = study.grouped((row for row in rows if row["lever"] == TOGETHER), "data")
    good = True
    for (name,), of in told.items():
        gap = fmean(float(row["expected"]) - float(row["of_new"]) for row in of)
        error = sqrt(sum(float(row["gap_error"]) ** 2 for row in of)) / len(of)
        print(f"{name}: expected minus reached {100 * gap:+.1f} ± {100 * error:.1f} points, mean of {len(of)} fleets")
        good = good and (name in DATA or abs(gap) - 2 * error <= NEAR)
    return good


def main() -> int:
    """Measure the table."""
    options = study.arguments("what each lever gives", (*DATA, *HELD_OUT)).parse_args()
    options.repeats = options.repeats or (2 if options.quick else 10)
    options.data = options.data or list(DATA[-1:] if options.quick else (*DATA, *HELD_OUT))
    options.epsilons = options.epsilons or ["1"]
    return study.run(study.Study("levers", jobs), options, holds)


if __name__ == "__main__":
    sys.exit(main())
