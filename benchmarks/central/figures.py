"""Figures of a curator's fits: all methods side by side, weights of the budget, running time.

    python -m benchmarks.central.figures methods [--repeats 5] [--data adult …] [--census EXTRACT.csv --states 18 …]
    python -m benchmarks.central.figures weights [--repeats 5]
    python -m benchmarks.central.figures time [--rows 1000 10000 …]

Each writes ``central-COMMAND.csv`` and ``.svg`` (:mod:`benchmarks.shared.study`). ``methods``: accuracy over ten folds
× repeats, adjacency ``change-features`` and, for ``sums``, ``change`` too. ``weights``: ``sums`` with w parts of ε for
a number, and one for a category and the classes. ``time``: processor time of one fit on synthetic records.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import log
from pathlib import Path
from unittest.mock import patch

from aggregator.common.plots import line_chart
from aggregator.curator.accounting import divide
from aggregator.curator.fitting import fit
from aggregator.curator.methods import sums
from aggregator.curator.records import read_records
from aggregator.curator.terms import DIVISIONS, EQUAL, TWO_TO_ONE, WORTH, FitTerms
from benchmarks.central.accuracy import METHODS, NOISE, accuracies
from benchmarks.central.records import CATEGORICAL, NUMERIC, census, synthetic
from benchmarks.federated.data import Data
from benchmarks.shared import study
from benchmarks.shared.harness import interleaved_seconds, machine
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.noise.sums import summed_subjects
from protocol.questions import CHANGE, CHANGE_FEATURES, MOMENT, PRESENT, SENSITIVITIES, Subject
from protocol.schema import Schema

DATA = ("adult", "mushroom", "skin", "seeds", "glass")
MIXED = ("adult", "synthetic, categories tell", "synthetic, numbers tell")
EPSILONS = ("0.1", "0.5", "1", "2", "5", "10")
WEIGHTS = ("0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20")
WEIGHT_EPSILONS = ("0.1", "0.5", "2")
ROWS = (1_000, 10_000, 100_000, 1_000_000)
NO_NOISE = "100000"
"""An ε of which the noise of sums is less than one count in all."""

FITS = FitTerms("sums", MICRO, postprocess="posterior")
"""Terms of all fits: with the post-processing with which the results were measured."""


def accuracy(data: Data, terms: FitTerms, options: argparse.Namespace) -> study.TableRow:
    """Return mean accuracy, its standard error over all folds, and the seconds of all fits and their scores."""
    began = time.perf_counter()
    found = accuracies(data, terms, options.repeats, options.seed)
    return {**study.spread(found), "seconds": round(time.perf_counter() - began, 1)}


def data_of(name: str, options: argparse.Namespace) -> Data:
    """Return the data set ``name``, a synthetic one, or a state of a Census extract."""
    if name == MIXED[1]:
        return Data.of(name, *synthetic(CATEGORICAL, seed=options.seed))
    if name == MIXED[2]:
        return Data.of(name, *synthetic(NUMERIC, seed=options.seed))
    if name.startswith("census "):
        return Data.of(name, *census(options.census, int(name.split()[1]), options.wage))
    return Data.load(name)


def compared(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``methods``."""
    for name in options.data:
        data = data_of(name, options)
        ways = [(method, CHANGE_FEATURES) for method in METHODS.values()] + [("sums", CHANGE)]
        jobs = [("sums", CHANGE_FEATURES, NO_NOISE), *((*way, epsilon) for epsilon in options.epsilons for way in ways)]
        for method, adjacency, epsilon in jobs:
            terms = FITS._replace(
                method=method,
                epsilon_micro=micro_epsilon(epsilon),
                adjacency=adjacency,
                noise=NOISE.get(method),
                family=data.family,
            )
            names = {"data": name, "method": method, "adjacency": adjacency, "epsilon": epsilon}
            yield study.single(names, accuracy, data, terms, options)


def weighted(weight: Fraction) -> Callable[..., list[int]]:
    """Return a substitute for :func:`divide`: one part for class counts and categories, ``weight`` parts for numbers.

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
    """Return the mean ε of a number divided by the mean ε of a category, in the division ``worth``."""
    terms = FitTerms("sums", 1000 * MICRO, division=WORTH, family=family)
    subjects = summed_subjects(schema, terms.family)
    parts = divide(terms.epsilon_micro, subjects, len(schema.label.classes), terms.adjacency, WORTH)
    of_numbers = sum(part for part, one in zip(parts, subjects, strict=True) if one.kind in (MOMENT, PRESENT))
    of_categories = sum(parts[1:]) - of_numbers
    numbers = len(schema.numeric)
    return (of_numbers / numbers) / (of_categories / (len(schema.features) - numbers))


def weighed(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the rows of ``weights``: divisions by name, then the sweep of the weight."""
    for name in options.data:
        data = data_of(name, options)
        schema = data.schema
        positions: dict[str, float] = {EQUAL: 1, TWO_TO_ONE: 2, WORTH: weight_of_worth(schema, data.family)}
        for epsilon in (NO_NOISE, *options.epsilons):
            of_cell, micro = {"data": name, "epsilon": epsilon}, micro_epsilon(epsilon)
            for division in (TWO_TO_ONE,) if epsilon == NO_NOISE else DIVISIONS:
                terms = FITS._replace(epsilon_micro=micro, division=division)
                names = {**of_cell, "division": division, "weight": f"{positions[division]:.3g}"}
                yield study.single(names, accuracy, data, terms, options)
            for weight in () if epsilon == NO_NOISE else WEIGHTS[::4] if options.quick else WEIGHTS:
                names = {**of_cell, "division": "weight", "weight": weight}
                yield study.single(names, swept, data, FITS._replace(epsilon_micro=micro), weight, options)


def swept(data: Data, terms: FitTerms, weight: str, options: argparse.Namespace) -> study.TableRow:
    """Return the accuracy if a weight replaces the terms' division of ε."""
    with patch.object(sums, "divide", weighted(Fraction(weight))):
        return accuracy(data, terms, options)


def timed(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the rows of ``time``: all methods in turn on the same records, so that slow moments affect all of them.

    ``times_sums``: seconds divided by those of ``sums`` for the same records. ``growth``: a if seconds grow by n^a from
    the number of records before to that of the row.
    """
    before: dict[str, tuple[int, float]] = {}
    for rows in options.rows or (ROWS[:2] if options.quick else ROWS):
        names = [{"method": method, "rows": str(rows)} for method in (*METHODS.values(), "reading")]
        yield study.Job(names, seconds_of, (rows, before, options))


def seconds_of(rows: int, before: dict[str, tuple[int, float]], options: argparse.Namespace) -> list[study.TableRow]:
    """Return processor seconds of every method, and of reading. ``before``: method → the last rows and seconds."""
    frame, schema = synthetic(NUMERIC, rows, options.seed)
    began = time.process_time()
    records = read_records(frame, schema)
    reading = time.process_time() - began
    terms = [FitTerms(method, MICRO, adjacency=CHANGE_FEATURES, noise=NOISE.get(method)) for method in METHODS.values()]
    actions = [lambda one=one: fit(records, one, os.urandom(32)) for one in terms]
    taken = interleaved_seconds(actions, 3 if options.quick else 5, time.process_time)
    found = []
    for method, seconds in zip((*METHODS.values(), "reading"), (*taken, reading), strict=True):
        times = f"{seconds / taken[list(METHODS.values()).index('sums')]:.2f}"
        a = growth(before[method], (rows, seconds)) if method in before else ""
        found.append({"seconds": f"{seconds:.5f}", "times_sums": times, "growth": a, "machine": machine()})
        before[method] = rows, seconds
    return found


def growth(first: tuple[int, float], second: tuple[int, float]) -> str:
    """Return the exponent a of seconds ~ n^a between two points (n, seconds)."""
    return f"{log(second[1] / first[1]) / log(second[0] / first[0]):.2f}"


def draw_methods(rows: list[study.TableRow]) -> str:
    """Draw the accuracy against ε, one chart per data set."""
    charts = []
    for (name,), of_data in study.grouped(rows, "data").items():
        limit = next(row for row in of_data if row["epsilon"] == NO_NOISE)
        lines = [
            study.line(f"{method}{', change' if adjacency == CHANGE else ''}", chosen, "epsilon")
            for (method, adjacency), chosen in study.grouped(
                (row for row in of_data if row is not limit), "method", "adjacency"
            ).items()
        ]
        lines.append(study.level("without noise", 100 * float(limit["accuracy"]), lines[:1]))
        charts.append(study.accuracies(name, lines, "total ε"))
    return study.panels(charts, 2)


def draw_weights(rows: list[study.TableRow]) -> str:
    """Draw the points that noise costs, against the weight, a chart per data set; the named divisions as marks."""
    charts = []
    for (name,), of_data in study.grouped(rows, "data").items():
        limit = float(next(row for row in of_data if row["epsilon"] == NO_NOISE)["accuracy"])
        rest = [{**row, "lost": limit - float(row["accuracy"])} for row in of_data if row["epsilon"] != NO_NOISE]
        lines = [
            study.line(f"ε = {epsilon}", [row for row in chosen if row["division"] == "weight"], "weight", "lost")
            for (epsilon,), chosen in study.grouped(rest, "epsilon").items()
        ]
        marks = [
            (float(row["weight"]), max(100 * row["lost"], 0.0), row["division"])
            for row in rest
            if row["division"] in DIVISIONS
        ]
        label = "ε of a number, over ε of a category"
        charts.append(line_chart(name, lines, x_label=label, y_label="points lost to noise", log_x=True, marks=marks))
    return study.panels(charts, 2)


def draw_time(rows: list[study.TableRow]) -> str:
    """Draw the seconds against the number of records."""
    lines = [
        study.line(method, chosen, "rows", "seconds", 1) for (method,), chosen in study.grouped(rows, "method").items()
    ]
    title = "One fit: five categories, five numbers, two classes"
    return line_chart(title, lines, x_label="records n", y_label="processor seconds", log_x=True, log_y=True)


STUDIES = {
    "methods": study.Study("central-methods", compared, draw_methods),
    "weights": study.Study("central-weights", weighed, draw_weights),
    "time": study.Study("central-time", timed, draw_time),
}


def main() -> int:
    """Measure and draw."""
    parser = study.arguments("figures of a curator's fits", repeats="repetitions of the ten folds")
    parser.add_argument("command", choices=STUDIES)
    parser.add_argument("--rows", nargs="+", type=int, default=[])
    parser.add_argument("--census", type=Path, help="extract of the 1940 Census; see records.py")
    parser.add_argument("--states", nargs="+", type=int, default=[], help="FIPS codes of states in the extract")
    parser.add_argument("--wage", type=int, default=1000, help="the Census' label: a wage of so many dollars or more")
    options = parser.parse_args()
    if bool(options.census) != bool(options.states):
        parser.error("--census and --states go together")
    quick, weights = options.quick, options.command == "weights"
    data, budgets = (MIXED, WEIGHT_EPSILONS) if weights else (DATA, EPSILONS)
    if options.census:
        options.data += [f"census {state}" for state in options.states]
        options.folder = options.folder or Path()
    options.data = options.data or list(data[-2:] if quick else data)
    options.epsilons = options.epsilons or list(budgets[1:2] if quick else budgets)
    options.repeats = options.repeats or (1 if quick else 5)
    needed = options.command != "time" and any(name in DATA for name in options.data)
    try:
        return study.run(STUDIES[options.command], options, needs_data=needed)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
