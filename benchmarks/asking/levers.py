"""What each lever gives where nobody is trusted, alone and together; and whether a plan's expectation holds.

    python -m benchmarks.asking.levers [--data mushroom car …] [--devices 10000 …] [--repeats 10] [--quick]

Each repetition divides a data set: a fifth tests, 300 records (at most half of the others) are the pilot, and the rest
is on the devices, drawn with replacement. A lever is a :class:`aggregator.planning.power_analysis.study.Design`, whose
campaign, statistics and model are those of the product; counts are drawn from their law. ``together`` is the best of
these designs by the race of ``hearsay plan`` on the pilot (which also tries other mechanisms and numbers of answers).
``levers.csv`` gets for every data set, fleet and lever the accuracy on the test part; of ``together`` also the plan's
expectation: its mean, the mean absolute difference of single pilots, and how many of its intervals hold the accuracy.
The status is 0 if the mean expectation is within two points on every data set that was not used to tune the levers
(:data:`HELD_OUT`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.models.population import Population
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.scoring import model_of
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
    """One division of a data set, with a pilot and a fleet.

    ``key`` is the seed. Equal keys give the same division for every fleet.
    """

    def __init__(self, data: Data, devices: int, epsilon_micro: int, key: list[int]) -> None:
        rng = np.random.default_rng(key)
        people, self.test = divided(data, rng)
        order = rng.permutation(people)
        pilot, self.people = np.split(order, [min(PILOT, len(order) // 2)])
        self.data, self.devices, self.epsilon_micro = data, devices, epsilon_micro
        self.rng = np.random.default_rng([*key, devices])
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
        return float((model_of(found, DEFAULT).scores_of(test.scored).argmax(axis=1) == test.truth).mean())

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
    expected, inside, firsts = [], [], []
    for number in range(options.repeats):
        trial = Trial(data, devices, micro_epsilon(options.epsilons[0]), [options.seed, number, *name.encode()])
        for lever, design in levers(devices).items():
            found.setdefault(lever, []).append(trial.accuracy(design))
        found.setdefault(UNJOINED, []).append(trial.unjoined())
        found.setdefault(REFINE, []).append(trial.refined())
        first, forecast = trial.planned()
        reached = trial.accuracy(levers(devices)[first])
        found.setdefault(TOGETHER, []).append(reached)
        expected.append(forecast.accuracy)
        inside.append(forecast.low <= reached <= forecast.high)
        firsts.append(first)
    rows = [{**study.spread(each), "expected": "", "apart": "", "inside": "", "first": ""} for each in found.values()]
    away = [abs(said - got) for said, got in zip(expected, found[TOGETHER], strict=True)]
    rows[-1] |= {"expected": round(fmean(expected), 5), "apart": round(fmean(away), 5), "inside": fmean(inside)}
    rows[-1]["first"] = "; ".join(f"{firsts.count(each)} {each}" for each in dict.fromkeys(firsts))
    return rows


def jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the rows of each data set and fleet."""
    for name in options.data:
        for devices in DEVICES:
            names = [
                {"data": name, "devices": devices, "lever": lever} for lever in (*levers(1), UNJOINED, REFINE, TOGETHER)
            ]
            yield study.Job(names, measure, (name, devices, options))


def holds(rows: list[study.TableRow], folder: Path) -> bool:
    """Print how far expectations are from accuracies; return whether all held-out sets are within :data:`NEAR`."""
    del folder
    told = [row for row in rows if row["lever"] == TOGETHER]
    good = True
    for kind, among in (("tuned", DATA), ("held out", HELD_OUT)):
        gaps = [float(row["expected"]) - float(row["accuracy"]) for row in told if row["data"] in among]
        if gaps:
            print(f"{kind}: mean absolute difference {fmean(map(abs, gaps)):.2%}, largest {max(gaps, key=abs):+.2%}")
            good = kind == "tuned" or max(map(abs, gaps)) <= NEAR
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
