"""Fig. 1 of Huai et al. (2015) again; and masked totals, sums in the clear and one curator, by number of nodes.

    python -m benchmarks.masked.figures car [--repeats 10]
    python -m benchmarks.masked.figures nodes [--data adult …] [--repeats 20]

Each writes ``masked-COMMAND.csv`` and ``.svg`` (:mod:`benchmarks.shared.study`). ``car``: accuracy by ε over ten folds
× repeats. *Horizontal*: n parties with one record and 1/n of the noise each, γ = 1 (the noise of all is needed),
``halves``; *vertical*: six parties with one feature each. ``per count`` gives every count ε, ``in total`` a seventh.
``nodes``: by number of nodes, ``floored``: sums in the clear, masked totals with both kinds of noise (``diluted`` with
δ = 10^−5 in total), and one curator with ``sums``. The numbers u of the parties are those of the dealer's setup.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np

from aggregator.common.plots import Line, line_chart
from aggregator.models.baselines import plain_model
from aggregator.models.encoding import EncodedFrame
from benchmarks.federated.data import Data, Split, part
from benchmarks.masked.data import FOLDS, folds, masked_campaign, masked_statistics
from benchmarks.masked.reference_rows import COUNTS, DELTA, per_count
from benchmarks.shared import study
from protocol.documents.masked_terms import DILUTED, DIVIDED
from protocol.epsilon import MICRO, micro_epsilon
from protocol.questions import discrete_subjects
from research.vertical import VerticalTerms
from simulation.drawn import exact_sums
from simulation.vertical import draw_tables, predict

EPSILONS = ("0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4")
READINGS = ("per count", "in total")
DATA, BUDGETS = ("adult", "mushroom"), ("0.1", "1")
NODES = (1, 2, 10, 30, 100, 300, 1000, 3000, 10_000)
LEAST_RECORDS = 2
"""Fewest records per node."""
PLAIN, CENTRAL = "in the clear", "one curator"
_TITLES = {DIVIDED: "masked, divided", DILUTED: "masked, diluted"}


def car_jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``car``."""
    data = Data.load("car")
    yield study.single({"form": "no noise", "reading": "", "epsilon": ""}, exact_accuracy, data, options)
    for form in (DIVIDED, DILUTED, "vertical"):
        for reading in READINGS:
            for epsilon in options.epsilons:
                names = {"form": form, "reading": reading, "epsilon": epsilon}
                yield study.single(names, on_car, data, options, form, reading, epsilon)


def on_car(data: Data, options: argparse.Namespace, form: str, reading: str, epsilon: str) -> study.TableRow:
    """Return the accuracy on car in one form and reading of ε, over all folds and repeats."""
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
    return study.spread(found)


def vertical_accuracy(data: Data, share: int, split: Split, rng: np.random.Generator) -> float:
    """Return the accuracy of decrypted products on one split. ``share``: ε of a count in millionths."""
    learning = split.learning
    encoded = EncodedFrame(data.observed.codes[learning], data.observed.numbers[learning])
    owners = np.zeros(len(learning), np.int64)
    exact = exact_sums(discrete_subjects(data.schema), encoded, data.labels[learning], owners, 1)[0]
    tables = draw_tables(exact, data.schema, VerticalTerms(bytes(32), 0, share, len(learning)), rng)
    found = predict(tables, data.recognised.codes[split.test])
    return float((found == data.labels[split.test]).mean())


def exact_accuracy(data: Data, options: argparse.Namespace) -> study.TableRow:
    """Return the accuracy of Naive Bayes on the exact counts."""
    splits, found = folds(data, np.random.default_rng(options.seed)), []
    for _ in range(options.repeats * FOLDS):
        learning, test = next(splits)
        model = plain_model(part(data.observed, learning), data.labels[learning], data.schema)
        found.append(data.accuracy_of(model, test))
    return study.spread(found)


def nodes_jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``nodes``."""
    for name in options.data:
        data = Data.load(name)
        repeats = options.repeats if name == "adult" else 5 * options.repeats
        learning = len(data.split(np.random.default_rng(0)).learning)
        for epsilon in options.epsilons:
            names = {"data": name, "epsilon": epsilon, "kind": CENTRAL, "nodes": ""}
            yield study.single(names, of_curator, data, epsilon, repeats)
            for nodes in NODES:
                if nodes > 1 and LEAST_RECORDS * nodes > learning:
                    continue
                for kind in (PLAIN, DIVIDED, DILUTED)[: 1 if nodes == 1 else 3]:
                    names = {"data": name, "epsilon": epsilon, "kind": kind, "nodes": str(nodes)}
                    yield study.single(names, of_nodes, data, epsilon, kind, nodes, repeats)


def of_nodes(data: Data, epsilon: str, kind: str, nodes: int, repeats: int) -> study.TableRow:
    """Return the accuracy of sums in the clear or of masked totals."""
    rng, found = np.random.default_rng(), []
    for _ in range(repeats):
        split = data.split(rng)
        if kind == PLAIN:
            campaign = data.campaign(epsilon, 2 * -(-len(split.learning) // nodes))
            statistics = data.noisy(campaign, split.learning, nodes, rng)
        else:
            delta = DELTA if kind == DILUTED else None
            campaign = masked_campaign(data, epsilon, nodes, len(split.learning), kind, delta)
            statistics = masked_statistics(data, campaign, split.learning, nodes, rng)
        found.append(data.accuracy(statistics, "floored", split.test))
    return study.spread(found)


def of_curator(data: Data, epsilon: str, repeats: int) -> study.TableRow:
    """Return the accuracy of a curator's fits with the method ``sums`` and the same post-processing."""
    rng = np.random.default_rng()
    return study.spread([data.curator_accuracy(epsilon, data.split(rng), "floored") for _ in range(repeats)])


def draw_car(rows: list[study.TableRow]) -> str:
    """Draw the accuracy against ε, a line for each form and reading; a chart for figure 1 a and one for 1 b."""
    exact = next(100 * float(row["accuracy"]) for row in rows if row["form"] == "no noise")
    charts = []
    for title, forms in (("car, horizontal", (DIVIDED, DILUTED)), ("car, vertical", ("vertical",))):
        lines = [
            study.line(f"ε {reading}" if form == "vertical" else f"{form}, ε {reading}", chosen, "epsilon")
            for (form, reading), chosen in study.grouped(rows, "form", "reading").items()
            if form in forms
        ]
        without = Line("no noise", lines[0].xs, [exact] * len(lines[0].xs))
        charts.append(line_chart(title, [without, *lines], x_label="ε", y_label="accuracy, %"))
    return study.panels(charts, 2)


def draw_nodes(rows: list[study.TableRow]) -> str:
    """Draw the accuracy against the number of nodes, a line for each kind; a chart per data set and ε."""
    charts = []
    for (name, epsilon), own in study.grouped(rows, "data", "epsilon").items():
        by_kind = study.grouped(own, "kind")
        curator = 100 * float(by_kind.pop((CENTRAL,))[0]["accuracy"])
        lines = [study.line(_TITLES.get(kind, kind), chosen, "nodes") for (kind,), chosen in by_kind.items()]
        charts.append(
            study.accuracies(f"{name}, ε = {epsilon}", [study.level(CENTRAL, curator, lines), *lines], "nodes")
        )
    return study.panels(charts, 2)


STUDIES = {
    "car": study.Study("masked-car", car_jobs, draw_car),
    "nodes": study.Study("masked-nodes", nodes_jobs, draw_nodes),
}


def main() -> int:
    """Measure and draw."""
    parser = study.arguments(
        "figures of masked sums", DATA, repeats="car: of ten folds; nodes: five times as many of mushroom"
    )
    parser.add_argument("command", choices=STUDIES)
    options = parser.parse_args()
    quick, budgets = options.quick, EPSILONS if options.command == "car" else BUDGETS
    options.repeats = options.repeats or (1 if quick else 10 if options.command == "car" else 20)
    options.epsilons = options.epsilons or (budgets[::3] if quick else budgets)
    options.data = options.data or (["mushroom"] if quick else list(DATA))
    return study.run(STUDIES[options.command], options)


if __name__ == "__main__":
    sys.exit(main())
