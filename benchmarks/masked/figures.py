"""Fig. 1 of Huai et al. (2015) again, and masked totals between nodes in the clear and one curator, over the nodes.

    python -m benchmarks.masked.figures car [--repeats 10]
    python -m benchmarks.masked.figures nodes [--data adult …] [--repeats 20]

Each writes ``benchmarks/results/masked-COMMAND.csv`` row by row, and then draws ``docs/plots/masked-COMMAND.svg``.
``--quick`` takes few repeats and budgets and writes to ``--folder`` (default: the working folder). ``--draw`` draws the
rows that are there.

``car`` (figures 1 a and b): accuracy on car by ε from 0.1 to 0.4, means over ten folds × repeats. *Horizontal*: one
record per party with the number u = n, post-processing ``halves``, γ = 1, noise ``divided`` or ``diluted`` with δ =
10^−5 for each count. *Vertical*: six parties with one feature each, who know the labels. ``per count`` gives every
count ε, so a record that is added or removed costs 7ε; ``in total`` divides ε by seven.

``nodes``: accuracy by the number of nodes, adding or removing one record, post-processing ``floored``: nodes that send
their sums in the clear, masked totals with both kinds of noise (``diluted`` with δ = 10^−5 in total), γ = 1, and one
curator with the method ``sums``. The numbers u of the parties are those of the dealer's setup. A masked campaign has
two nodes at least.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from aggregator.common.plots import Line, line_chart
from aggregator.curator.fitting import fit
from aggregator.curator.terms import FitTerms
from aggregator.models.baselines import plain_model
from aggregator.models.encoding import EncodedFrame
from benchmarks.central.figures import Job, measured, read_rows
from benchmarks.federated.data import FLOOR_MICRO, Data, Split, noisy_statistics
from benchmarks.masked.data import FOLDS, folds, masked_campaign, masked_statistics
from benchmarks.masked.reference_rows import COUNTS, DELTA, per_count
from benchmarks.shared.harness import machine
from benchmarks.shared.panels import panels
from benchmarks.shared.reference import NOT_HERE, available
from protocol.documents.masked_terms import DILUTED, DIVIDED
from protocol.epsilon import MICRO, micro_epsilon
from protocol.questions import discrete_subjects
from protocol.sums.adjacency import ADD_REMOVE
from research.vertical import VerticalTerms
from simulation.drawn import exact_sums
from simulation.vertical import draw_tables, predict

Found = dict[str, Any]


ROOT = Path(__file__).parents[2]
RESULTS, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "plots"
EPSILONS = ("0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4")
READINGS = ("per count", "in total")
DATA, BUDGETS = ("adult", "mushroom"), ("0.1", "1")
NODES = (1, 2, 10, 30, 100, 300, 1000, 3000, 10_000)
LEAST_RECORDS = 2
"""Fewest records per node."""
PLAIN, CENTRAL = "in the clear", "one curator"
_TITLES = {DIVIDED: "masked, divided", DILUTED: "masked, diluted"}


def car_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``car``."""
    data = Data.load("car")
    yield Job({"form": "no noise", "reading": "", "epsilon": ""}, lambda: exact_accuracy(data, options))
    for form in (DIVIDED, DILUTED, "vertical"):
        for reading in READINGS:
            for epsilon in options.epsilons:
                names = {"form": form, "reading": reading, "epsilon": epsilon}
                yield Job(names, lambda names=names: on_car(data, options, **names))  # type: ignore[misc]


def on_car(data: Data, options: argparse.Namespace, *, form: str, reading: str, epsilon: str) -> Found:
    """Accuracy on car in one form, over all folds and repeats."""
    splits, rng = folds(data, np.random.default_rng(options.seed)), np.random.default_rng()
    micro = micro_epsilon(epsilon) if reading == "per count" else micro_epsilon(epsilon) // COUNTS
    found = []
    for _ in range(options.repeats * FOLDS):
        split = next(splits)
        if form == "vertical":
            found.append(vertical_accuracy(data, micro, split, rng))
            continue
        delta = per_count(COUNTS) if form == DILUTED else None
        parties = len(split.learning)
        campaign = masked_campaign(data, f"{COUNTS * micro / MICRO:.6f}", parties, parties, form, delta)
        statistics = masked_statistics(data, campaign, split.learning, parties, rng, {parties: parties})
        found.append(data.accuracy(statistics, "halves", split.test))
    return spread(found)


def vertical_accuracy(data: Data, share: int, split: Split, rng: np.random.Generator) -> float:
    """Accuracy of opened products on one split. ``share``: ε of a count in millionths."""
    learning = split.learning
    encoded = EncodedFrame(data.observed.codes[learning], data.observed.numbers[learning])
    owners = np.zeros(len(learning), np.int64)
    exact = exact_sums(discrete_subjects(data.schema), encoded, data.labels[learning], owners, 1)[0]
    tables = draw_tables(exact, data.schema, VerticalTerms(bytes(32), 0, share, len(learning)), rng)
    found = predict(tables, data.recognised.codes[split.test])
    return float((found == data.labels[split.test]).mean())


def exact_accuracy(data: Data, options: argparse.Namespace) -> Found:
    """Accuracy of Naive Bayes on the exact counts."""
    splits, found = folds(data, np.random.default_rng(options.seed)), []
    for _ in range(options.repeats * FOLDS):
        learning, test = next(splits)
        model = plain_model(part(data.observed, learning), data.labels[learning], data.schema)
        scores = model.scores_of(part(data.recognised, test))
        found.append(float((scores.argmax(axis=1) == data.labels[test]).mean()))
    return spread(found)


def part(encoded: EncodedFrame, rows: np.ndarray[Any, Any]) -> EncodedFrame:
    """Some rows of an encoded frame."""
    return EncodedFrame(encoded.codes[rows], encoded.numbers[rows])


def nodes_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``nodes``."""
    for name in options.data:
        data = Data.load(name)
        repeats = options.repeats if name == "adult" else 5 * options.repeats
        learning = len(data.split(np.random.default_rng(0)).learning)
        for epsilon in options.budgets:
            names = {"data": name, "epsilon": epsilon, "kind": CENTRAL, "nodes": ""}
            yield Job(names, lambda data=data, epsilon=epsilon, repeats=repeats: of_curator(data, epsilon, repeats))  # type: ignore[misc]
            for nodes in NODES:
                if nodes > 1 and LEAST_RECORDS * nodes > learning:
                    continue
                for kind in (PLAIN, DIVIDED, DILUTED)[: 1 if nodes == 1 else 3]:
                    names = {"data": name, "epsilon": epsilon, "kind": kind, "nodes": str(nodes)}
                    given = (data, epsilon, kind, nodes, repeats)
                    yield Job(names, lambda given=given: of_nodes(*given))  # type: ignore[misc]


def of_nodes(data: Data, epsilon: str, kind: str, nodes: int, repeats: int) -> Found:
    """Accuracy of nodes in the clear or of a masked total."""
    rng, found = np.random.default_rng(), []
    for _ in range(repeats):
        split = data.split(rng)
        if kind == PLAIN:
            campaign = data.campaign(epsilon, 2 * -(-len(split.learning) // nodes))
            statistics = noisy_statistics(data.exact(campaign, split.learning, nodes, rng), campaign, rng)
        else:
            delta = DELTA if kind == DILUTED else None
            campaign = masked_campaign(data, epsilon, nodes, len(split.learning), kind, delta)
            statistics = masked_statistics(data, campaign, split.learning, nodes, rng)
        found.append(data.accuracy(statistics, "floored", split.test))
    return spread(found)


def of_curator(data: Data, epsilon: str, repeats: int) -> Found:
    """Accuracy of a curator's fits with the method ``sums`` and the same post-processing."""
    rng, found, records = np.random.default_rng(), [], data.records
    fitting = FitTerms(
        "sums", micro_epsilon(epsilon), adjacency=ADD_REMOVE, family=data.family, variance_floor_micro=FLOOR_MICRO
    )
    for _ in range(repeats):
        split = data.split(rng)
        statistics = fit(records.part(split.learning), fitting, os.urandom(32)).statistics
        found.append(data.accuracy(statistics, "floored", split.test))
    return spread(found)


def spread(found: list[float]) -> Found:
    """Mean and standard error."""
    error = stdev(found) / sqrt(len(found)) if len(found) > 1 else 0.0
    return {"accuracy": round(fmean(found), 5), "error": round(error, 5), "runs": len(found)}


def draw_car(rows: list[Found]) -> str:
    """Accuracy against ε, a line for each form and reading; a chart for figure 1 a and one for 1 b."""
    exact = next(100 * float(row["accuracy"]) for row in rows if row["form"] == "no noise")
    charts = []
    for title, forms in (("car, horizontal", (DIVIDED, DILUTED)), ("car, vertical", ("vertical",))):
        own = [row for row in rows if row["form"] in forms]
        epsilons = sorted({float(row["epsilon"]) for row in own})
        lines = [Line("no noise", epsilons, [exact] * len(epsilons))]
        for form, reading in dict.fromkeys((row["form"], row["reading"]) for row in own):
            chosen = [row for row in own if (row["form"], row["reading"]) == (form, reading)]
            name = f"ε {reading}" if form == "vertical" else f"{form}, ε {reading}"
            ys = [100 * float(row["accuracy"]) for row in chosen]
            lines.append(Line(name, [float(row["epsilon"]) for row in chosen], ys))
        charts.append(line_chart(title, lines, x_label="ε", y_label="accuracy, %"))
    return panels(charts, 2)


def draw_nodes(rows: list[Found]) -> str:
    """Accuracy against the number of nodes, a line for each kind; a chart per data set and ε."""
    charts = []
    for name, epsilon in dict.fromkeys((row["data"], row["epsilon"]) for row in rows):
        own = [row for row in rows if (row["data"], row["epsilon"]) == (name, epsilon)]
        largest = max(float(row["nodes"] or 1) for row in own)
        lines = []
        for kind in dict.fromkeys(row["kind"] for row in own):
            chosen = [row for row in own if row["kind"] == kind]
            ys = [100 * float(row["accuracy"]) for row in chosen]
            xs = [1.0, largest] if kind == CENTRAL else [float(row["nodes"]) for row in chosen]
            lines.append(Line(_TITLES.get(kind, kind), xs, 2 * ys if kind == CENTRAL else ys))
        title = f"{name}, ε = {epsilon}"
        charts.append(line_chart(title, lines, x_label="nodes", y_label="accuracy, %", log_x=True, from_zero=False))
    return panels(charts, 2)


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Job]], Callable[[list[Found]], str]]] = {
    "car": (car_jobs, draw_car),
    "nodes": (nodes_jobs, draw_nodes),
}


def main() -> int:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="figures of masked sums")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--data", nargs="+", choices=DATA, default=[])
    parser.add_argument(
        "--repeats", type=int, default=0, help="car: of ten folds; nodes: five times as many of mushroom"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the folds of car")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--draw", action="store_true", help="draw the rows that are there")
    parser.add_argument("--folder", type=Path, help="of table and drawing")
    options = parser.parse_args()
    if not available() and not options.draw:
        print(NOT_HERE, file=sys.stderr)
        return 2
    options.repeats = options.repeats or (1 if options.quick else 10 if options.command == "car" else 20)
    options.epsilons = EPSILONS[::3] if options.quick else EPSILONS
    options.budgets = BUDGETS[:1] if options.quick else BUDGETS
    options.data = options.data or (["mushroom"] if options.quick else list(DATA))
    folder = options.folder or (Path() if options.quick else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    jobs, draw = COMMANDS[options.command]
    table = (folder or RESULTS) / f"masked-{options.command}.csv"
    began = time.perf_counter()
    rows = read_rows(table) if options.draw else measured(jobs(options), table)
    (folder or PLOTS).joinpath(f"masked-{options.command}.svg").write_text(draw(rows), encoding="utf-8")
    print(f"{len(rows)} rows, {time.perf_counter() - began:.0f} s; {machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
