"""Accuracy of shared answers: devices that split exact records for two collectors, beside a curator of the same noise.

Rows of the engine ``vector`` run what ``hearsay simulate --trust shared --engine vector`` runs: a signed campaign,
exact counts with noise of both collectors' law, a signed model, and a device that verifies it. ``--bytes`` adds rows of
the engine ``files``, for settings with an accuracy to reach and those of few devices: the bytes of devices' reports in
batch files, and both collectors' folders. Fleets are drawn with replacement from nine tenths of a data set (adult: its
training part), and the other tenth (adult: its test part) is classified. ``design`` rows choose features from a pilot
of 300 people who do not answer (``--design pilot:300``), ``refine`` rows from totals alone. ε is for a replaced record.

A row of ``central`` is a curator's fit (method ``sums``, discrete, the same bins) at ε/√2, whose noise has twice the
variance of that at ε: two collectors' noise instead of one curator's. All rows of one data set have the same splits.

``benchmarks/results/shared.csv`` gets every row as soon as it is measured; then the rows are compared with the
accuracies that shared answers must reach. ``--quick`` takes few repeats and writes to ``--folder`` (default: the
working folder).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from aggregator.planning.power_analysis.study import with_bins
from benchmarks.shared.reference import BINS, categorical_data, mixed_data, training_rows
from benchmarks.shared.study import Job, Study, TableRow, arguments, run, single, spread
from simulation.collectors import SharedTrust
from simulation.curator import CentralTrust
from simulation.design import Design, Division
from simulation.settings import CENTRAL, SHARED, Settings, checked
from simulation.trust import Simulation

DATA = ("chess", "mushroom", "car", "adult", "pima")
CATEGORIES = ("chess", "mushroom", "car")
PILOT = "pilot:300"
DELTA = "0.000001"
METHODS = ("posterior", "floored")
TEST_SHARE = 0.1
FEW = 3_000
"""Up to this number of devices real bytes are measured although no accuracy is to be reached."""
WITHIN = 0.02
"""How far shared answers may be below a curator whose noise has twice the variance."""


class Case(NamedTuple):
    """One setting of a data set. ``devices`` is None for every person of the learning part once."""

    data: str
    epsilon: str
    devices: int | None
    design: str = "all"
    least: float = 0.0


CASES = (
    Case("chess", "1", 10_000, least=0.86),
    Case("chess", "1", 1_000, PILOT, 0.89),
    Case("chess", "1", 30_000, "refine", 0.89),
    Case("chess", "1", 30_000, "refine:same", 0.89),
    Case("mushroom", "1", 1_000, least=0.86),
    Case("mushroom", "1", 300, PILOT, 0.96),
    Case("mushroom", "0.1", 3_000, PILOT, 0.96),
    Case("mushroom", "1", 10_000, "refine", 0.965),
    Case("mushroom", "1", 10_000, "refine:same", 0.965),
    Case("car", "1", 2_000),
    Case("car", "1", 10_000),
    Case("adult", "1", 3_000),
    Case("adult", "1", None),
    Case("pima", "1", None),
    Case("pima", "1", 5_000),
)
"""What is measured. ``least`` is the accuracy that one of the rows must reach; 0 compares with a curator."""


class Data(NamedTuple):
    """A data set: records of people, how to make the schema, and how to choose the test part."""

    frame: pd.DataFrame
    design: Design
    division: Division

    @classmethod
    def load(cls, name: str) -> Data:
        """Read the data set ``name``. Numbers are in bins of equal width between public bounds, adult's in ten."""
        if name in CATEGORIES:
            frame, schema = categorical_data(name)
            return cls(frame, Design(schema), Division(test_share=TEST_SHARE))
        frame, schema = mixed_data(name)
        schema, first = with_bins(schema, BINS.get(name, 10)), training_rows(name)
        if first is None:
            return cls(frame, Design(schema), Division(test_share=TEST_SHARE))
        return cls(frame.iloc[:first], Design(schema), Division(test=frame.iloc[first:]))

    def accuracies(self, settings: Settings) -> list[float]:
        """Return the accuracy of every split."""
        chosen = checked(settings)
        kind = SharedTrust if chosen.trust == SHARED else CentralTrust
        trust = kind(chosen, self.design, chosen.devices or self.division.learners(len(self.frame)))
        _, trials = Simulation(chosen, self.frame, self.design, self.division, trust).run()
        return [trial.accuracy for trial in trials]


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield all rows."""
    for name in options.data:
        data = Data.load(name)
        for case in CASES:
            if case.data != name:
                continue
            named = {**case._asdict(), "devices": case.devices or "everybody"}
            # Without a random test part only the noise differs between repeats.
            repeats = options.repeats if data.division.test is None else max(options.repeats // 4, 3)
            common = {"devices": case.devices, "repeats": repeats, "seed": options.seed}
            if case.design == "all":
                for postprocess in ("floored", "posterior"):
                    lower = f"{float(case.epsilon) / sqrt(2):.6f}"
                    settings = Settings(lower, trust=CENTRAL, family="discrete", postprocess=postprocess, **common)
                    row = {**named, "kind": CENTRAL, "engine": "", "noise": "laplace", "postprocess": postprocess}
                    yield single(row, measured, data, settings)
            # A design asks about few features, for which both kinds of noise are much the same.
            for noise, delta in (("laplace", None), ("gaussian", DELTA))[: 1 if case.design != "all" else 2]:
                for engine, postprocess in ways(case, noise, options):
                    settings = Settings(
                        case.epsilon,
                        trust=SHARED,
                        engine=engine,
                        postprocess=postprocess,
                        noise=noise,
                        delta=delta,
                        asking=None if case.design == "all" else case.design,
                        **common,
                    )
                    row = {**named, "kind": SHARED, "engine": engine, "noise": noise, "postprocess": postprocess}
                    yield single(row, measured, data, settings)


def ways(case: Case, noise: str, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return engines and post-processings of a setting: real bytes with one noise and post-processing."""
    found = [("vector", method) for method in METHODS[: 1 if case.design != "all" else 2]]
    # A refined series has tens of thousands of devices, whose totals are drawn.
    real = (case.least > 0 or (case.devices or FEW + 1) <= FEW) and not case.design.startswith("refine")
    if options.bytes and real and noise == ("gaussian" if case.design == "all" else "laplace"):
        found.append(("files", METHODS[0]))
    return found


def measured(data: Data, settings: Settings) -> TableRow:
    """Return the mean accuracy of all splits, and its standard error."""
    return spread(data.accuracies(settings))


def targets(rows: Sequence[TableRow], folder: Path) -> bool:
    """Print for every case the best row with each kind of noise, and what it must reach. Return whether all do."""
    del folder
    good = True
    for case in CASES:
        own = [row for row in rows if (row["data"], row["epsilon"], row["devices"], row["design"])
               == (case.data, case.epsilon, str(case.devices or "everybody"), case.design)]  # fmt: skip
        curators = [float(row["accuracy"]) for row in own if row["kind"] == CENTRAL]
        if not own:
            continue
        least = case.least or max(curators) - WITHIN
        for noise in ("laplace", "gaussian"):
            for engine in ("vector", "files"):
                shared = [row for row in own if (row["kind"], row["noise"], row["engine"]) == (SHARED, noise, engine)]
                if not shared:
                    continue
                best = max(shared, key=lambda row: float(row["accuracy"]))
                reached = float(best["accuracy"]) >= least
                good = good and (reached or (noise == "laplace" and case.design == "all"))
                print(
                    f"{case.data:9} ε = {case.epsilon:4} {case.devices or 'everybody':>9} {case.design:9} {noise:9}"
                    f"{engine:7}{best['postprocess']:10}{100 * float(best['accuracy']):5.1f}"
                    f" ± {100 * float(best['error']):3.1f}   at least {100 * least:4.1f}: {'yes' if reached else 'no'}"
                )
    return good


def main() -> int:
    """Measure, and compare with the targets."""
    parser = arguments("accuracy of shared answers", DATA)
    parser.add_argument("--bytes", action="store_true", help="also through real reports and both collectors")
    options = parser.parse_args()
    options.repeats = options.repeats or (3 if options.quick else 40)
    options.data = options.data or list(DATA)
    return run(Study("shared", jobs), options, targets)


if __name__ == "__main__":
    sys.exit(main())
