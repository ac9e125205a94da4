"""Figures 1 to 3 of Marchioro et al. (2022) again: accuracy, local sensitivity and error of the mean, over the nodes.

    python -m benchmarks.federated.figures accuracy [--data adult …] [--repeats 20]
    python -m benchmarks.federated.figures sensitivity
    python -m benchmarks.federated.figures means

Each writes ``benchmarks/results/federated-COMMAND.csv`` row by row, and then draws
``docs/plots/federated-COMMAND.svg``. ``--quick`` takes few repeats and budgets and writes to ``--folder`` (default: the
working folder). ``--draw`` draws the rows that are there.

``accuracy`` (figure 1): accuracy by ε for 1 to 1000 nodes and three kinds of noise and model: ``floored`` and
``printed`` on the same private sums, and for numbers ``not_private_local_sensitivity``. The rival ``central`` is one
curator who has all records, with the method ``sums`` at the same ε and the same adjacency ``add-remove``.
``sensitivity`` (figure 2): local sensitivity of the sums of x and x² over a node's records of one class, in units of
the public bound, averaged over nodes and classes.
``means`` (figure 3): median error of the class means, in units of half the public range.

The paper scales noise to the *local* sensitivity, the largest |x| among a node's own records. That noise depends on the
records, so it is not differentially private. It is here for comparison alone and nowhere in the product.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.common.plots import Line, line_chart
from aggregator.curator.fitting import fit
from aggregator.curator.terms import FitTerms
from aggregator.models.encoding import EncodedFrame
from aggregator.publishing.mechanisms.draws import discrete_laplace
from benchmarks.central.figures import Job, measured, read_rows
from benchmarks.federated.data import FLOOR_MICRO, NAMES, PERIOD, Data, noisy_statistics
from benchmarks.shared.harness import machine
from benchmarks.shared.panels import panels
from benchmarks.shared.reference import NOT_HERE, available
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign
from protocol.epsilon import MICRO, micro_epsilon
from protocol.nodes.terms import released_vectors, shares
from protocol.questions import CLASS, MOMENT, SQUARE
from protocol.sums.adjacency import ADD_REMOVE
from simulation.drawn import deal, released, statistics_of

Found = dict[str, Any]


ROOT = Path(__file__).parents[2]
RESULTS, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "plots"
EPSILONS = ("0.01", "0.0316", "0.1", "0.316", "1", "3.16", "10")
NODES = (1, 10, 100, 1000)
MORE_NODES = (1, 3, 10, 30, 100, 300, 1000, 3000)
NUMERIC = ("adult", "skin")
LARGE = ("adult", "accelerometer", "skin")
CENTRAL, NOT_PRIVATE = "central", "not_private_local_sensitivity"
LEAST_RECORDS = 2
"""Fewest records per node, as in the paper."""


def local_sensitivities(data: Data, rows: Integers, owners: Integers, nodes: int) -> NDArray[np.float64]:
    """Largest |u| of every node, numeric feature and class: shape (nodes, features, k) float64; 0 without records.

    It is the local sensitivity of Σu to removing one of these records. That of Σu² is its square.
    """
    classes, numeric = len(data.schema.label.classes), data.schema.numeric
    found = np.zeros((len(numeric), nodes * classes))
    places = owners * classes + data.labels[rows]
    for row, feature in enumerate(numeric):
        np.maximum.at(found[row], places, np.abs(data.observed.numbers[rows, feature]).astype(np.float64))
    return found.reshape(len(numeric), nodes, classes).transpose(1, 0, 2)


def not_private_local_sensitivity(
    data: Data, campaign: Campaign, rows: Integers, nodes: int, rng: np.random.Generator
) -> Integers:
    """Sums of nodes with the paper's noise, shape (N, M) int64. NOT PRIVATE: the noise depends on the records.

    Counts have the noise of the private sums. A node's sum over one class has Laplace noise of scale Δ/ε_q, Δ the local
    sensitivity of that sum among the node's own records; none at all if the node has no record of the class.
    """
    owners = deal(len(rows), nodes, rng)
    noisy = data.exact(campaign, rows, nodes, rng, owners)
    largest, start = local_sensitivities(data, rows, owners, nodes), 0
    for subject, share in zip(released_vectors(campaign), shares(campaign), strict=True):
        part = slice(start, start + subject.size)
        start = part.stop
        if subject.kind != MOMENT:
            noisy[:, part] += discrete_laplace(share / MICRO, noisy[:, part].shape, rng)
            continue
        assert subject.feature is not None
        delta = largest[:, data.schema.numeric.index(subject.feature)]
        delta = delta**2 / SCALE if subject.power == SQUARE else delta
        noisy[:, part] += np.rint(rng.laplace(size=delta.shape) * delta * MICRO / share).astype(np.int64)
    return noisy


def accuracy_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``accuracy``."""
    for name in options.data or NAMES:
        data = Data.load(name)
        repeats = options.repeats if name in LARGE else 5 * options.repeats
        for epsilon in options.epsilons:
            names = {"data": name, "nodes": CENTRAL, "epsilon": epsilon, "model": "posterior"}
            yield Job(names, lambda data=data, epsilon=epsilon, repeats=repeats: rival(data, epsilon, repeats))  # type: ignore[misc]
            for nodes in NODES:
                if nodes > 1 and LEAST_RECORDS * nodes > len(data.split(np.random.default_rng(0)).learning):
                    continue
                found: dict[str, list[float]] = {}

                def private(
                    model: str, data: Data = data, epsilon: str = epsilon, nodes: int = nodes, repeats: int = repeats,
                    found: dict[str, list[float]] = found,
                ) -> Found:  # fmt: skip
                    if not found:
                        found.update(both(data, epsilon, nodes, repeats))
                    return spread(found[model])

                names = {"data": name, "nodes": str(nodes), "epsilon": epsilon}
                for model in ("floored", "printed", *((NOT_PRIVATE,) if data.schema.numeric else ())):
                    yield Job({**names, "model": model}, lambda model=model, private=private: private(model))  # type: ignore[misc]


def both(data: Data, epsilon: str, nodes: int, repeats: int) -> dict[str, list[float]]:
    """Accuracies on the same splits: two models of private sums, and one with the paper's noise, not private."""
    campaign, rng = data.campaign(epsilon), np.random.default_rng()
    found: dict[str, list[float]] = {"floored": [], "printed": [], NOT_PRIVATE: []}
    for _ in range(repeats):
        split = data.split(rng)
        noisy = noisy_statistics(data.exact(campaign, split.learning, nodes, rng), campaign, rng)
        for model in ("floored", "printed"):
            found[model].append(data.accuracy(noisy, model, split.test))
        if data.schema.numeric:
            values = not_private_local_sensitivity(data, campaign, split.learning, nodes, rng)
            found[NOT_PRIVATE].append(data.accuracy(statistics_of(values, campaign, PERIOD), "printed", split.test))
    return found


def rival(data: Data, epsilon: str, repeats: int) -> Found:
    """Accuracy of a curator's fits with the method ``sums``, at ε for adding or removing a record."""
    rng, found, records = np.random.default_rng(), [], data.records
    family = GAUSSIAN if data.schema.numeric else DISCRETE
    terms = FitTerms(
        "sums", micro_epsilon(epsilon), adjacency=ADD_REMOVE, family=family, variance_floor_micro=FLOOR_MICRO
    )
    for _ in range(repeats):
        split = data.split(rng)
        model = fit(records.part(split.learning), terms, os.urandom(32)).model
        encoded = EncodedFrame(data.recognised.codes[split.test], data.recognised.numbers[split.test])
        found.append(float((model.scores_of(encoded).argmax(axis=1) == data.labels[split.test]).mean()))
    return spread(found)


def spread(found: list[float]) -> Found:
    """Mean and standard error."""
    error = stdev(found) / sqrt(len(found)) if len(found) > 1 else 0.0
    return {"accuracy": round(fmean(found), 5), "error": round(error, 5), "runs": len(found)}


def sensitivity_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``sensitivity``."""
    rng = np.random.default_rng(options.seed)
    for name in options.data or NUMERIC:
        data = Data.load(name)
        rows = data.split(rng).learning
        for nodes in MORE_NODES:
            largest = local_sensitivities(data, rows, deal(len(rows), nodes, rng), nodes) / SCALE
            for place, feature in enumerate(data.schema.numeric):
                means = {"sum": largest[:, place].mean(), "squares": (largest[:, place] ** 2).mean()}
                names = {"data": name, "feature": data.schema.features[feature].name, "nodes": str(nodes)}
                yield Job(names, lambda means=means: {key: f"{mean:.4f}" for key, mean in means.items()})  # type: ignore[misc]


def means_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The rows of ``means``."""
    for name in options.data or NUMERIC:
        data = Data.load(name)
        for epsilon in ("0.1", "1", "10"):
            for nodes in MORE_NODES:
                for noise in ("private", NOT_PRIVATE):
                    names = {"data": name, "epsilon": epsilon, "nodes": str(nodes), "noise": noise}
                    given = (data, epsilon, nodes, noise, options.repeats)
                    yield Job(names, lambda given=given: error_of_mean(*given))  # type: ignore[misc]


def error_of_mean(data: Data, epsilon: str, nodes: int, noise: str, repeats: int) -> Found:
    """Median, over repeats, of the mean |S/n − exact mean| over features and classes; means are clipped to [−1, 1]."""
    campaign, rng = data.campaign(epsilon), np.random.default_rng()
    errors = []
    for _ in range(repeats):
        rows = data.split(rng).learning
        exact = data.exact(campaign, rows, nodes, rng)
        if noise == NOT_PRIVATE:
            noisy = not_private_local_sensitivity(data, campaign, rows, nodes, rng)
        else:
            noisy = released(exact, campaign, rng)
        errors.append(float(np.abs(class_means(noisy, campaign) - class_means(exact, campaign)).mean()))
    return {"error": f"{median(errors):.5f}", "runs": repeats}


def class_means(values: Integers, campaign: Campaign) -> NDArray[np.float64]:
    """Mean of every number in every class from the sums of nodes, shape (N, M): shape (numbers, k) float64."""
    totals, start = values.sum(axis=0).astype(np.float64), 0
    counts, found = np.ones(1), []
    for subject in released_vectors(campaign):
        part = totals[start : start + subject.size]
        start += subject.size
        if subject.kind == CLASS:
            counts = np.maximum(part, 1)
        elif subject.kind == MOMENT and subject.power == 1:
            found.append(np.clip(part / SCALE / counts, -1, 1))
    return np.array(found)


def draw_accuracy(rows: list[Found]) -> str:
    """Accuracy of ``floored`` against ε, a line for each number of nodes and for the rival; a chart per data set."""
    charts = []
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name and row["model"] in ("floored", "posterior")]
        lines = [
            Line(
                "central" if nodes == CENTRAL else "1 node" if nodes == "1" else f"{nodes} nodes",
                [float(row["epsilon"]) for row in own if row["nodes"] == nodes],
                [100 * float(row["accuracy"]) for row in own if row["nodes"] == nodes],
            )
            for nodes in dict.fromkeys(row["nodes"] for row in own)
        ]
        charts.append(line_chart(name, lines, x_label="ε", y_label="accuracy, %", log_x=True, from_zero=False))
    return panels(charts, 2)


def draw_sensitivity(rows: list[Found]) -> str:
    """Local sensitivity of Σx against the number of nodes, a line per feature, a chart per data set."""
    charts = []
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        lines = [
            Line(
                feature,
                [float(row["nodes"]) for row in own if row["feature"] == feature],
                [float(row["sum"]) for row in own if row["feature"] == feature],
            )
            for feature in dict.fromkeys(row["feature"] for row in own)
        ]
        title = f"{name}: local sensitivity of Σx over the public bound"
        charts.append(line_chart(title, lines, x_label="nodes", y_label="mean over nodes", log_x=True))
    return panels(charts, 2)


def draw_means(rows: list[Found]) -> str:
    """Error of the class means against the number of nodes, a line per ε and kind of noise, a chart per data set."""
    charts = []
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        lines = []
        for epsilon, noise in dict.fromkeys((row["epsilon"], row["noise"]) for row in own):
            chosen = [row for row in own if (row["epsilon"], row["noise"]) == (epsilon, noise)]
            title = f"ε = {epsilon}" + ("" if noise == "private" else ", not private")
            lines.append(Line(title, [float(row["nodes"]) for row in chosen], [float(row["error"]) for row in chosen]))
        charts.append(line_chart(name, lines, x_label="nodes", y_label="error of a mean", log_x=True, log_y=True))
    return panels(charts, 2)


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Job]], Callable[[list[Found]], str]]] = {
    "accuracy": (accuracy_jobs, draw_accuracy),
    "sensitivity": (sensitivity_jobs, draw_sensitivity),
    "means": (means_jobs, draw_means),
}


def main() -> int:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="figures of nodes with many records")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--data", nargs="+", choices=NAMES, default=[])
    parser.add_argument("--epsilons", nargs="+", default=[])
    parser.add_argument("--repeats", type=int, default=0, help="of large data sets; five times as many of small ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--draw", action="store_true", help="draw the rows that are there")
    parser.add_argument("--folder", type=Path, help="of table and drawing")
    options = parser.parse_args()
    if not available() and not options.draw:
        print(NOT_HERE, file=sys.stderr)
        return 2
    options.repeats = options.repeats or (2 if options.quick else 20)
    options.epsilons = options.epsilons or list(EPSILONS[::3] if options.quick else EPSILONS)
    if options.quick and not options.data:
        options.data = ["votes", "spect"] if options.command == "accuracy" else ["adult"]
    folder = options.folder or (Path() if options.quick else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    jobs, draw = COMMANDS[options.command]
    table = (folder or RESULTS) / f"federated-{options.command}.csv"
    began = time.perf_counter()
    rows = read_rows(table) if options.draw else measured(jobs(options), table)
    (folder or PLOTS).joinpath(f"federated-{options.command}.svg").write_text(draw(rows), encoding="utf-8")
    print(f"{len(rows)} rows, {time.perf_counter() - began:.0f} s; {machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
