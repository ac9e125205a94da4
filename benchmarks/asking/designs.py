"""Accuracy of what is asked: all features, features from a pilot, features from private answers alone.

    python -m benchmarks.asking.designs [--data chess …] [--devices 100000 …] [--design all refine pilot:300 …]
                                        [--repeats 20] [--drawn]

Each repetition tests on a new random fifth of the records; the fleet draws its records from the others, without the
pilot's, and answers once in the whole series. All steps are those of ``hearsay simulate --design``; with ``--drawn``
the counts are drawn from their law (``drawn.py``). Columns: mean, standard error over repetitions, mean minus two of
these, features of the model, share of the fleet that evaluated, repetitions, difference to ``all`` and its error.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.planning.feature_selection.steps import SeriesFleet
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.workspace import create_workspace
from benchmarks.asking.drawn import MADE, drawn_trial, made_up
from benchmarks.models.estimators import TEST_SHARE, Data, divided, frame_of, load
from benchmarks.shared.harness import Table, arguments, mean_error
from benchmarks.shared.reference import require
from protocol.epsilon import micro_epsilon
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
