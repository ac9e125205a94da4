"""Figures of a curator's fits: all methods side by side, weights of the budget, running time, sizes of the noise.

    python -m benchmarks.central.figures methods [--repeats 5] [--data adult …] [--census EXTRACT.csv --states 18 …]
    python -m benchmarks.central.figures weights [--repeats 5]
    python -m benchmarks.central.figures time [--rows 1000 10000 …]
    python -m benchmarks.central.figures noise

Each writes ``benchmarks/results/central-COMMAND.csv`` row by row, and then draws ``docs/plots/central-COMMAND.svg``;
``noise`` prints and draws nothing. ``--quick`` takes fewer repeats, budgets, data sets and records. It and ``--census``
write to ``--folder`` (default: the working folder) in place of both. ``--draw`` draws the rows that are there.

``methods``: accuracy over ten folds × repeats, the product's terms, adjacency ``change-features`` (which all methods
cover) and, for ``sums``, ``change`` too. ``weights``: ``sums`` with w parts of ε for a number, and one part for a
category and for the class counts; w = 1 is the division ``equal``, w = 2 is ``2:1``. ``time``: processor time of one
fit on synthetic records. ``noise``: sizes of the noise of means and variances, from the exact records.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd

from aggregator.common.plots import Line, line_chart
from aggregator.curator.accounting import divide
from aggregator.curator.fitting import fit
from aggregator.curator.methods import sums
from aggregator.curator.methods.sums import vector_epsilons
from aggregator.curator.noise import calibrate
from aggregator.curator.records import read_records
from aggregator.curator.smooth_sensitivity import (
    BoundedValues,
    global_sensitivity_of_mean,
    global_sensitivity_of_variance,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
)
from aggregator.curator.terms import DIVISIONS, EQUAL, TWO_TO_ONE, WORTH, FitTerms
from aggregator.models.encoding import recognise
from benchmarks.central.accuracy import METHODS, NOISE, Data
from benchmarks.central.records import CATEGORICAL, NUMERIC, census, synthetic
from benchmarks.shared.harness import interleaved_seconds, machine
from benchmarks.shared.panels import panels
from benchmarks.shared.reference import NOT_HERE, available
from protocol import SCALE
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.questions import MOMENT, PRESENT, Subject
from protocol.schema import Schema
from protocol.sums.adjacency import CHANGE, CHANGE_FEATURES, SENSITIVITIES
from protocol.sums.vectors import summed_subjects

ROOT = Path(__file__).parents[2]
RESULTS, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "plots"
DATA = ("adult", "mushroom", "skin", "seeds", "glass")
MIXED = ("adult", "synthetic, categories tell", "synthetic, numbers tell")
EPSILONS = ("0.1", "0.5", "1", "2", "5", "10")
WEIGHTS = ("0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20")
WEIGHT_EPSILONS = ("0.1", "0.5", "2")
ROWS = (1_000, 10_000, 100_000, 1_000_000)
NO_NOISE = "100000"
"""An ε of which the noise of sums is less than one count in all."""
Found = dict[str, Any]


class Job(NamedTuple):
    """One row of a table: what names it, and how to measure the rest of it."""

    names: Found
    measure: Callable[[], Found]


def accuracy(data: Data, terms: FitTerms, options: argparse.Namespace) -> Found:
    """Mean accuracy, its standard error over all folds, and the seconds of all fits and their scores."""
    began = time.perf_counter()
    found = data.accuracies(terms, options.repeats, options.seed)
    return {
        "accuracy": round(fmean(found), 5),
        "error": round(stdev(found) / sqrt(len(found)), 5),
        "runs": len(found),
        "seconds": round(time.perf_counter() - began, 1),
    }


def made(frame: pd.DataFrame, schema: Schema) -> Data:
    """A frame for fits and for scoring."""
    return Data(read_records(frame, schema), recognise(frame, schema))


def data_of(name: str, options: argparse.Namespace) -> Data:
    """The data set ``name``, a synthetic one, or a state of a Census extract."""
    if name == MIXED[1]:
        return made(*synthetic(CATEGORICAL, seed=options.seed))
    if name == MIXED[2]:
        return made(*synthetic(NUMERIC, seed=options.seed))
    if name.startswith("census "):
        return made(*census(options.census, int(name.split()[1]), options.wage))
    return Data.load(name)


def compared(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``methods``."""
    for name in options.data:
        data = data_of(name, options)
        ways = [(method, CHANGE_FEATURES) for method in METHODS.values()] + [("sums", CHANGE)]
        jobs = [("sums", CHANGE_FEATURES, NO_NOISE), *((*way, epsilon) for epsilon in options.epsilons for way in ways)]
        for method, adjacency, epsilon in jobs:
            terms = FitTerms(
                method, micro_epsilon(epsilon), adjacency=adjacency, noise=NOISE.get(method), family=data.family
            )
            names = {"data": name, "method": method, "adjacency": adjacency, "epsilon": epsilon}
            yield Job(names, lambda data=data, terms=terms: accuracy(data, terms, options))  # type: ignore[misc]


def weighted(weight: Fraction) -> Callable[..., list[int]]:
    """A function in place of :func:`divide`: one part for class counts and categories, ``weight`` parts for numbers.

    The vectors of one number share its part equally.
    """

    def divided(
        epsilon_micro: int, subjects: Sequence[Subject], classes: int, adjacency: str, division: str
    ) -> list[int]:
        del classes, division
        parts = []
        for one in subjects:
            is_number = one.kind in (MOMENT, PRESENT)
            fellows = sum(other.feature == one.feature for other in subjects) if is_number else 1
            needs = SENSITIVITIES[one.kind, one.power][adjacency] > 0
            parts.append((weight if is_number else Fraction(1)) / fellows * needs)
        return [int(epsilon_micro * part / sum(parts)) for part in parts]

    return divided


def weight_of_worth(schema: Schema, family: str) -> float:
    """ε of the mean number over ε of the mean category in the division ``worth``."""
    terms = FitTerms("sums", 1000 * MICRO, division=WORTH, family=family)
    subjects = summed_subjects(schema, terms.family)
    parts = divide(terms.epsilon_micro, subjects, len(schema.label.classes), terms.adjacency, WORTH)
    of_numbers = sum(part for part, one in zip(parts, subjects, strict=True) if one.kind in (MOMENT, PRESENT))
    of_categories = sum(parts[1:]) - of_numbers
    numbers = len(schema.numeric)
    return (of_numbers / numbers) / (of_categories / (len(schema.features) - numbers))


def weighed(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``weights``: divisions by name, then the sweep of the weight."""
    for name in options.data:
        data = data_of(name, options)
        schema = data.records.schema
        positions: dict[str, float] = {EQUAL: 1, TWO_TO_ONE: 2, WORTH: weight_of_worth(schema, data.family)}
        for epsilon in (NO_NOISE, *options.epsilons):
            divisions = (TWO_TO_ONE,) if epsilon == NO_NOISE else DIVISIONS
            for division in divisions:
                terms = FitTerms("sums", micro_epsilon(epsilon), division=division)
                names = {"data": name, "epsilon": epsilon, "division": division, "weight": f"{positions[division]:.3g}"}
                yield Job(names, lambda data=data, terms=terms: accuracy(data, terms, options))  # type: ignore[misc]
            for weight in () if epsilon == NO_NOISE else options.weights:
                terms = FitTerms("sums", micro_epsilon(epsilon))

                def swept(data: Data = data, terms: FitTerms = terms, weight: str = weight) -> Found:
                    with patch.object(sums, "divide", weighted(Fraction(weight))):
                        return accuracy(data, terms, options)

                yield Job({"data": name, "epsilon": epsilon, "division": "weight", "weight": weight}, swept)


def timed(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``time``: all methods in turn on the same records, so a slow moment of the machine concerns all.

    ``times_sums``: seconds over those of ``sums`` for the same records. ``growth``: a if seconds grow by n^a from the
    row's number of records to the one before.
    """
    before: dict[str, tuple[int, float]] = {}
    for rows in options.rows:
        frame, schema = synthetic(NUMERIC, rows, options.seed)
        began = time.process_time()
        records = read_records(frame, schema)
        reading = time.process_time() - began
        terms = [
            FitTerms(method, MICRO, adjacency=CHANGE_FEATURES, noise=NOISE.get(method)) for method in METHODS.values()
        ]
        actions = [lambda one=one, records=records: fit(records, one, os.urandom(32)) for one in terms]
        found = dict(zip(METHODS.values(), interleaved_seconds(actions, options.turns, time.process_time), strict=True))
        found["reading"] = reading
        for method, seconds in found.items():
            row = {
                "seconds": f"{seconds:.5f}",
                "times_sums": f"{seconds / found['sums']:.2f}",
                "growth": growth(before[method], (rows, seconds)) if method in before else "",
                "machine": machine(),
            }
            before[method] = rows, seconds
            yield Job({"method": method, "rows": str(rows)}, lambda row=row: row)  # type: ignore[misc]


def sizes(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``noise``: medians over features and classes of S/GS, and of the median |noise| over Laplace noise's.

    S is the smooth sensitivity, GS the global one. |Cauchy noise| has the median kS, |Laplace noise| (GS/ε) ln 2.
    """
    for name in options.data:
        data = data_of(name, options)
        records, schema = data.records, data.records.schema
        cells = [
            BoundedValues(records.numbers[records.labels == of_class, feature], -SCALE, SCALE)
            for feature in schema.numeric
            for of_class in range(len(schema.label.classes))
        ]
        for epsilon in options.epsilons:
            terms = FitTerms("smooth", micro_epsilon(epsilon), adjacency=CHANGE_FEATURES, noise="cauchy")
            part = Fraction(vector_epsilons(schema, terms)[-1], MICRO)
            noise = calibrate("cauchy", part)

            def measure(cells: list[BoundedValues] = cells, part: Fraction = part, noise: Any = noise) -> Found:
                means = [
                    float(smooth_sensitivity_of_mean(one, noise.beta).value)
                    / float(global_sensitivity_of_mean(one.n, one.width))
                    for one in cells
                ]
                variances = [
                    float(smooth_sensitivity_of_variance(one, noise.beta).value)
                    / float(global_sensitivity_of_variance(one.n, one.width))
                    for one in cells
                ]
                factor = float(noise.multiplier * part) / log(2)
                return {
                    "mean_s": f"{median(means):.4f}",
                    "variance_s": f"{median(variances):.4f}",
                    "mean_noise": f"{factor * median(means):.2f}",
                    "variance_noise": f"{factor * median(variances):.2f}",
                    "variance_noise_least": f"{factor * min(variances):.2f}",
                    "variance_noise_largest": f"{factor * max(variances):.2f}",
                }

            yield Job({"data": name, "epsilon": epsilon, "share": f"{float(part):.5f}"}, measure)


def draw_methods(rows: list[Found]) -> str:
    """Accuracy against ε, one chart per data set."""
    charts = []
    for name in dict.fromkeys(row["data"] for row in rows):
        of_data = [row for row in rows if row["data"] == name]
        limit = next(row for row in of_data if row["epsilon"] == NO_NOISE)
        kept = [row for row in of_data if row is not limit]
        lines = [
            _line(f"{method}{', change' if adjacency == CHANGE else ''}", "epsilon", chosen)
            for method, adjacency in dict.fromkeys((row["method"], row["adjacency"]) for row in kept)
            if (chosen := [row for row in kept if (row["method"], row["adjacency"]) == (method, adjacency)])
        ]
        ends = [min(lines[0].xs), max(lines[0].xs)]
        lines.append(Line("without noise", ends, [100 * float(limit["accuracy"])] * 2))
        charts.append(line_chart(name, lines, x_label="total ε", y_label="accuracy, %", log_x=True, from_zero=False))
    return panels(charts, 2)


def _line(name: str, x: str, rows: list[Found]) -> Line:
    return Line(name, [float(row[x]) for row in rows], [100 * float(row["accuracy"]) for row in rows])


def draw_weights(rows: list[Found]) -> str:
    """Points lost by noise, against the weight, one chart per data set; the divisions by name as marks."""
    charts = []
    for name in dict.fromkeys(row["data"] for row in rows):
        of_data = [row for row in rows if row["data"] == name]
        limit = float(next(row for row in of_data if row["epsilon"] == NO_NOISE)["accuracy"])
        lines, marks = [], []
        for epsilon in dict.fromkeys(row["epsilon"] for row in of_data if row["epsilon"] != NO_NOISE):
            chosen = [row for row in of_data if row["epsilon"] == epsilon]
            swept = [row for row in chosen if row["division"] == "weight"]
            lost = [100 * (limit - float(row["accuracy"])) for row in swept]
            lines.append(Line(f"ε = {epsilon}", [float(row["weight"]) for row in swept], lost))
            marks += [
                (float(row["weight"]), max(100 * (limit - float(row["accuracy"])), 0.0), row["division"])
                for row in chosen
                if row["division"] in DIVISIONS
            ]
        charts.append(
            line_chart(
                name,
                lines,
                x_label="ε of a number, over ε of a category",
                y_label="points lost to noise",
                log_x=True,
                marks=marks,
            )
        )
    return panels(charts, 2)


def draw_time(rows: list[Found]) -> str:
    """Seconds against records."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        chosen = [row for row in rows if row["method"] == method]
        lines.append(Line(method, [float(row["rows"]) for row in chosen], [float(row["seconds"]) for row in chosen]))
    return line_chart(
        "One fit: five categories, five numbers, two classes",
        lines,
        x_label="records n",
        y_label="processor seconds",
        log_x=True,
        log_y=True,
    )


def growth(first: tuple[int, float], second: tuple[int, float]) -> str:
    """The a of seconds ~ n^a between two points (n, seconds)."""
    return f"{log(second[1] / first[1]) / log(second[0] / first[0]):.2f}"


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Job]], Callable[[list[Found]], str] | None]] = {
    "methods": (compared, draw_methods),
    "weights": (weighed, draw_weights),
    "time": (timed, draw_time),
    "noise": (sizes, None),
}


def measured(jobs: Iterator[Job], file: Path) -> list[Found]:
    """Measure all rows, and write each to ``file`` as soon as it is known."""
    rows: list[Found] = []
    with file.open("w", newline="", encoding="utf-8") as out:
        for job in jobs:
            row = {**job.names, **job.measure()}
            writer = csv.DictWriter(out, list(row), lineterminator="\n")
            if not rows:
                writer.writeheader()
            writer.writerow(row)
            out.flush()
            rows.append(row)
            print("  ".join(f"{value}" for name, value in row.items() if name != "machine"), flush=True)
    return rows


def read_rows(file: Path) -> list[Found]:
    """The rows of an earlier run."""
    with file.open(newline="", encoding="utf-8") as source:
        return list(csv.DictReader(source))


def set_sizes(options: argparse.Namespace) -> None:
    """Fill in the sizes that depend on the command and on ``--quick``."""
    default: tuple[str, ...] = {"weights": MIXED, "noise": tuple(name for name in DATA if name != "mushroom")}.get(
        options.command, DATA
    )
    budgets = WEIGHT_EPSILONS if options.command == "weights" else EPSILONS
    quick: bool = options.quick
    if options.census:
        options.data += [f"census {state}" for state in options.states]
    elif not options.data:
        options.data = list(default[-2:] if quick else default)
    options.epsilons = options.epsilons or list(budgets[1:2] if quick else budgets)
    options.weights = list(WEIGHTS[::4] if quick else WEIGHTS)
    options.rows = options.rows or list(ROWS[:2] if quick else ROWS)
    options.repeats = options.repeats or (1 if quick else 5)
    options.turns = 3 if quick else 5


def main() -> int:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="figures of a curator's fits")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--data", nargs="+", default=[])
    parser.add_argument("--epsilons", nargs="+", default=[])
    parser.add_argument("--rows", nargs="+", type=int, default=[])
    parser.add_argument("--repeats", type=int, default=0, help="repetitions of the ten folds")
    parser.add_argument("--seed", type=int, default=1, help="of folds and synthetic records; noise is always fresh")
    parser.add_argument("--census", type=Path, help="extract of the 1940 Census; see central_data.py")
    parser.add_argument("--states", nargs="+", type=int, default=[], help="FIPS codes of states in the extract")
    parser.add_argument("--wage", type=int, default=1000, help="the Census' label: a wage of so many dollars or more")
    parser.add_argument("--quick", action="store_true", help="under two minutes")
    parser.add_argument("--draw", action="store_true", help="draw the rows that are there")
    parser.add_argument("--folder", type=Path, help="of table and drawing")
    options = parser.parse_args()
    jobs, draw = COMMANDS[options.command]
    folder = options.folder or (Path() if options.quick or options.census else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    table = (folder or RESULTS) / f"central-{options.command}.csv"
    if bool(options.census) != bool(options.states):
        parser.error("--census and --states go together")
    set_sizes(options)
    is_uci = options.command != "time" and any(name in DATA for name in options.data)
    if is_uci and not options.draw and not available():
        print(NOT_HERE, file=sys.stderr)
        return 2
    began = time.perf_counter()
    try:
        rows = read_rows(table) if options.draw else measured(jobs(options), table)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if draw is not None:
        (folder or PLOTS).joinpath(f"central-{options.command}.svg").write_text(draw(rows), encoding="utf-8")
    print(f"{len(rows)} rows, {time.perf_counter() - began:.0f} s; {machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
