"""Accuracy of what is asked: all features, features from a pilot, features from private answers alone.

    python -m benchmarks.asking.designs [--data chess …] [--devices 100000 …] [--design all refine pilot:300 …]
                                        [--repeats 20] [--drawn]

Each repetition tests on a new random fifth of the records; the fleet draws its records from the others, without the
pilot's, and answers once in the whole series. All steps are those of ``hearsay simulate --design``; with ``--drawn``
the counts are drawn from their law. Columns: mean, standard error over repetitions, mean minus two of
these, features of the model, share of the fleet that evaluated, repetitions, difference to ``all`` and its error.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from math import exp
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.estimates.reports import estimate
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.postprocess.posterior import posterior_tables
from aggregator.planning.feature_selection import steps
from aggregator.planning.feature_selection.candidates import Measurement
from aggregator.planning.feature_selection.steps import SeriesFleet
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.mechanisms.draws import count_law
from aggregator.publishing.workspace import create_workspace
from aggregator.reports.tally.tally import Tally
from benchmarks.models.estimators import LABEL, TEST_SHARE, Data, divided, frame_of, load
from benchmarks.shared.fleets import campaign_of
from benchmarks.shared.harness import Table, arguments, mean_error
from benchmarks.shared.reference import require
from protocol.epsilon import MICRO, micro_epsilon
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from simulation.asking import collect
from simulation.design import Division
from simulation.fleet import seeded_entropy
from simulation.local import SimulationConfig
from simulation.settings import ALL, PILOT, REFINE, Asking
from simulation.trust import SIMULATED_NOW, Part

BIG = ("adult", "connect-4")
DATA = ("mushroom", "chess", "votes", "car", "australian", "pima", "adult", "connect-4")
DEVICES = (100_000, 1_000_000)
DESIGNS = ("all", "refine", "pilot")
PILOTS = {"votes": "pilot:100"}
"""Pilots of a tenth to a quarter of the records; 300 where a data set is not named."""


COLUMNS = (
    "data<14 devices>9 design>12 accuracy>10.1f ±>5.1f −_2_se>8.1f size>7.1f evaluated>11.1% repeats>9 seconds>9.0f "
    "−_all>8.1f its_±>7.1f"
)


class TrialResult(NamedTuple):
    """One trial: accuracy in points, number of features of the model, and share of the fleet that evaluated models."""

    accuracy: float
    size: int
    evaluated: float


# Trials on counts that are drawn from their law, without reports, files or signatures. They take a fifth of the time of
# a series through report files. The decisions, estimates and fits are the aggregator's own.


class DrawnFleet:
    """A fleet whose answers are only counted.

    Args:
        people: shape (people,) int64, indices of the records on the devices.
        fleet: devices and ε.
    """

    def __init__(self, data: Data, people: Integers, fleet: steps.SeriesFleet, rng: np.random.Generator) -> None:
        self.features, self.classes = data.codes.shape[1], len(data.schema.label.classes)
        self._codes, self._labels = data.codes[people], data.labels[people]
        self._fleet, self._rng = fleet, rng
        parameters = CampaignParameters("drawn", fleet.epsilon_micro, "auto", class_question=False)
        self._campaign = campaign_of(data.schema, parameters)
        classes, shares = len(data.schema.label.classes), np.full(len(people), 1 / len(people))
        self._laws = [
            count_law(question.mechanism, self._codes[:, place] * classes + self._labels, shares)
            for place, question in enumerate(self._campaign.questions)
        ]
        self.answers = [0] * self.features
        self._counts = [np.zeros(question.size, np.int64) for question in self._campaign.questions]

    def ask(self, asked: steps.FeatureCampaign) -> None:
        """Let the campaign's share of the devices answer about its features."""
        weights = np.array(asked.weights or (1,) * len(asked.features), np.float64)
        numbers = self._rng.multinomial(round(asked.share.part * self._fleet.devices), weights / weights.sum())
        for feature, n in zip(asked.features, numbers.tolist(), strict=True):
            self.answers[feature] += n
            self._counts[feature] += self._laws[feature].counts(n, self._rng)

    def tables(self, summed: int | None = None) -> Tables:
        """Estimate P(class) and P(value | class) from all answers, for a model of ``summed`` features; None: all."""
        counts = tuple(tuple(each.tolist()) for each in self._counts)
        statistics = estimate(self._campaign, Tally(self._campaign.id, tuple(self.answers), counts))
        return posterior_tables(statistics, range(self.features), summed)

    def evaluate(self, step: steps.Step) -> steps.Evaluation:
        """Let a share of the devices tell, by randomised response, whether one candidate model is right.

        Candidates are made of the answers so far, since no campaign asks about features between evaluations.
        """
        assert step.share is not None
        keep = 1 / (1 + exp(-self._fleet.epsilon_micro / MICRO))
        n = round(step.share.part * self._fleet.devices / len(step.models))
        measured = {}
        made = {count: self.tables(count) for count in set(map(len, step.models))}
        for features in step.models:
            right = float((predicted(made[len(features)], features, self._codes) == self._labels).mean())
            said = self._rng.binomial(n, 1 - keep + (2 * keep - 1) * right) / n
            share = (said - 1 + keep) / (2 * keep - 1)
            measured[features] = Measurement.of_answers(n, share, self._fleet.epsilon_micro)
        return steps.Evaluation(step.share, measured)


MADE = re.compile(r"(even|few|falling|weak|copies):([1-9][0-9]?):([1-9][0-9]{0,2})")
"""Name of a data set that is made up: its kind, number of classes k and number of features F, as ``few:10:64``."""
RECORDS = 20_000


def made_up(name: str) -> Data:
    """Return records of k classes with independent features of four values, the same for equal names (:data:`MADE`).

    P(value | class) is drawn from Dirichlet(a): the smaller a, the more a feature tells. ``even`` has a = 1.5 for all,
    ``weak`` a = 8, ``falling`` from 0.3 to 60; ``few`` has 0.3 for an eighth of the features, and the others tell
    nothing; in ``copies`` a sixth has a = 0.6, and the other features repeat this sixth in nine of ten records.
    """
    found = MADE.fullmatch(name)
    assert found is not None
    kind, classes, features = found[1], int(found[2]), int(found[3])
    rng = np.random.default_rng([1, *name.encode()])
    labels = rng.integers(0, classes, RECORDS)
    strong = max(4, features // (6 if kind == "copies" else 8))
    ways = {
        "even": [1.5] * features,
        "weak": [8.0] * features,
        "falling": np.geomspace(0.3, 60, features).tolist(),
        "few": [0.3] * strong + [1e6] * (features - strong),
        "copies": [0.6] * strong,
    }
    columns = []
    for each in ways[kind]:
        ends = np.cumsum(rng.dirichlet(np.full(4, each), classes), axis=1)[labels]
        columns.append(np.minimum((rng.random((RECORDS, 1)) > ends).sum(axis=1), 3))
    for place in range(features - len(columns)):
        again = rng.random(RECORDS) < 0.9
        columns.append(np.where(again, columns[place % strong], rng.integers(0, 4, RECORDS)))
    order = rng.permutation(features)
    asked = [Categorical(f"f{place}", list("abcd"), substitute=0) for place in range(features)]
    schema = build_schema(Label(LABEL, [f"c{number}" for number in range(classes)]), asked)
    return Data(np.column_stack([columns[place] for place in order]), labels, schema)


def predicted(tables: Tables, features: Sequence[int], codes: Integers) -> Integers:
    """Return the class that a model of some features predicts: shape (records,) int64."""
    score = np.tile(np.log(tables.prior), (len(codes), 1))
    for feature in features:
        score += np.log(tables.likelihood[feature])[codes[:, feature]]
    return np.asarray(score.argmax(axis=1), np.int64)


def drawn_trial(
    data: Data, people: Integers, test: Integers, fleet: steps.SeriesFleet, rng: np.random.Generator, *, refines: bool
) -> tuple[float, int, float]:
    """Run a trial: return accuracy in points, number of features of the model, share of the fleet that evaluated.

    ``people`` and ``test`` are indices of records, int64. Without ``refines`` all features are asked about.
    """
    crowd = DrawnFleet(data, people, fleet, rng)
    asked, waves, evaluated = [], [], 0.0
    about = crowd.features, crowd.classes, fleet
    while (step := steps.next_round(*about, asked, crowd.tables() if asked else None)) is not None:
        asked += step.asks if refines else [step.asks[0]._replace(share=step.asks[0].share._replace(high=1 << 32))]
        crowd.ask(asked[-1])
        if asked[-1].share.high == 1 << 32:
            break
    tables = crowd.tables()
    while (
        asked[-1].share.high < 1 << 32 and (found := steps.next_evaluation(tables, fleet, asked, waves, 1)) is not None
    ):
        assert found.kind == steps.EVALUATE
        waves.append(crowd.evaluate(found))
        evaluated += waves[-1].share.part
    shares = [each.share for each in asked] + [each.share for each in waves]
    end = steps.conclusion(*about, crowd.answers, waves, shares)
    for each in end.asks:
        crowd.ask(each)
    assert end.features is not None
    right = predicted(crowd.tables(len(end.features)), end.features, data.codes[test]) == data.labels[test]
    return 100 * float(right.mean()), len(end.features), evaluated


def drawn(data: Data, devices: int, design: str, epsilon: str, key: Sequence[int]) -> TrialResult:
    """Run one trial of the design ``all`` or ``refine``, on counts that are drawn from their law.

    ``key`` is the seed. Equal keys give the same test part, for every number of devices, design and ε.
    """
    people, test = divided(data, np.random.default_rng(key))
    fleet = SeriesFleet(devices, micro_epsilon(epsilon))
    rng = np.random.default_rng([*key, devices, *design.encode()])
    return TrialResult(*drawn_trial(data, people, test, fleet, rng, refines=design == REFINE))


def through_files(
    data: Data, frame: pd.DataFrame, devices: int, design: str, epsilon: str, key: Sequence[int], number: int
) -> TrialResult:
    """Run one trial of any design through report files, stores and signed documents.

    Args:
        design: ``all``, ``refine`` or ``pilot:K``.
        epsilon: ε of the one answer of a device.
    """
    [split] = Division(test_share=TEST_SHARE).splits(frame, np.random.default_rng(key))
    with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
        entropy = seeded_entropy(bytes(str([*key, devices, design]), "utf-8"))
        workspace = create_workspace(Path(folder) / "w", name="asking", now=SIMULATED_NOW, entropy=entropy)
        parameters = CampaignParameters("asking", micro_epsilon(epsilon), "auto", class_question=False)
        rng = np.random.default_rng([*key, devices, *design.encode()])
        config = SimulationConfig(workspace, parameters, "vector", parameters.postprocess, SIMULATED_NOW, rng, entropy)
        part = Part(data.schema, split, split.people, number, np.random.SeedSequence(0))
        trial = collect(config, part, devices, Asking.parse(design))
    evaluated = sum(step["part"] for step in trial.steps if step["step"] == "evaluate")
    return TrialResult(100 * trial.accuracy, len(trial.steps[-1]["features"]), evaluated)


def measure(name: str, devices: int, design: str, repeats: int, options: argparse.Namespace) -> list[TrialResult]:
    """Run all repetitions of one row. Every repetition has its own seeds; all designs have the same test parts."""
    data = made_up(name) if MADE.fullmatch(name) else load(name)
    frame = frame_of(data)
    trials = []
    for number in range(repeats):
        key = [options.seed, number, *name.encode()]
        if options.drawn:
            trials.append(drawn(data, devices, design, options.epsilon, key))
        else:
            trials.append(through_files(data, frame, devices, design, options.epsilon, key, number))
    return trials


def cells(trials: list[TrialResult], everything: list[TrialResult]) -> dict[str, float]:
    """Return the measured cells of a row.

    ``everything``: the trials of the design ``all``, with the same divisions of the records; empty if there are none.
    """
    accuracies, sizes, evaluated = zip(*trials, strict=True)
    mean, error = mean_error(accuracies)
    found = {"accuracy": mean, "±": error, "−_2_se": mean - 2 * error, "repeats": len(trials)}
    found |= {"size": fmean(sizes), "evaluated": fmean(evaluated)}
    if everything:
        better = [own.accuracy - other.accuracy for own, other in zip(trials, everything, strict=True)]
        found |= dict(zip(("−_all", "its_±"), mean_error(better), strict=True))
    return found


def main() -> None:
    """Measure the table."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="*", default=DATA, help="data sets, or made-up ones such as few:10:64")
    parser.add_argument("--devices", nargs="*", type=int, default=DEVICES)
    parser.add_argument("--design", nargs="*", default=DESIGNS, help=f"all, refine, pilot:K; {PILOT}: K by data set")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--big-repeats", type=int, default=5, help=f"of {', '.join(BIG)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drawn", action="store_true", help="draw counts, and no reports; for all and refine")
    options = parser.parse_args()
    if not all(map(MADE.fullmatch, options.data)):
        require()
    if options.drawn and set(options.design) - {ALL, REFINE}:
        parser.error("--drawn is for the designs all and refine")
    table = Table("Asking", COLUMNS, as_json=options.json)
    for name, devices in product(options.data, options.devices):
        everything: list[TrialResult] = []
        for each in options.design:
            design = PILOTS.get(name, "pilot:300") if each == PILOT else each
            repeats = min(options.repeats, options.big_repeats) if name in BIG else options.repeats
            began = time.perf_counter()
            trials = measure(name, devices, design, repeats, options)
            row = {"data": name, "devices": devices, "design": design, **cells(trials, everything)}
            table.add({**row, "seconds": time.perf_counter() - began})
            everything = trials if design == ALL else everything
    table.end()


if __name__ == "__main__":
    main()
