"""Figures 1 to 3 of Marchioro et al. (2022) again: accuracy, local sensitivity and error of the mean, over the nodes.

    python -m benchmarks.federated.figures accuracy [--data adult …] [--repeats 20]
    python -m benchmarks.federated.figures sensitivity
    python -m benchmarks.federated.figures means

Each writes ``federated-COMMAND.csv`` and ``.svg`` (:mod:`benchmarks.shared.study`). ``accuracy``: by ε for 1 to 1000
nodes, post-processings ``floored`` and ``printed``, the paper's noise, and one curator with ``sums``. ``sensitivity``:
local sensitivity of Σx and Σx² of a node and class, in units of the public bound. ``means``: median error of the class
means, in units of half the public range. The paper scales noise to the largest |x| among a node's own records: that is
not differentially private, and is here for comparison only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from statistics import median

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.common.plots import line_chart
from benchmarks.federated.data import NAMES, PERIOD, Data
from benchmarks.shared import study
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.epsilon import MICRO
from protocol.nodes.terms import released_vectors, shares
from protocol.questions import CLASS, MOMENT, SQUARE
from simulation.drawn import deal, discrete_laplace, released, statistics_of

EPSILONS = ("0.01", "0.0316", "0.1", "0.316", "1", "3.16", "10")
NODES = (1, 10, 100, 1000)
MORE_NODES = (1, 3, 10, 30, 100, 300, 1000, 3000)
NUMERIC = ("adult", "skin")
LARGE = ("adult", "accelerometer", "skin")
CENTRAL, NOT_PRIVATE = "central", "not_private_local_sensitivity"
LEAST_RECORDS = 2
"""Fewest records per node, as in the paper."""


def local_sensitivities(data: Data, rows: Integers, owners: Integers, nodes: int) -> Floats:
    """Return the largest |u| of each node, numeric feature and class: (nodes, features, k) float64; 0 without records.

    u are the scaled numbers. This is the local sensitivity of Σu to removing one of these records. That of Σu² is its
    square.
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
    """Return the sums of nodes with the paper's noise, shape (N, M) int64.

    NOT PRIVATE: the noise depends on the records. Counts have the noise of the private sums. A node's sum over one
    class has Laplace noise of scale Δ/ε_q, Δ being the local sensitivity of that sum in the node's own records. It has
    no noise if the node has no record of the class.
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


def accuracy_jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``accuracy``."""
    for name in options.data or NAMES:
        data = Data.load(name)
        repeats = options.repeats if name in LARGE else 5 * options.repeats
        models = ("floored", "printed", *((NOT_PRIVATE,) if data.schema.numeric else ()))
        for epsilon in options.epsilons:
            names = {"data": name, "nodes": CENTRAL, "epsilon": epsilon, "model": "posterior"}
            yield study.single(names, rival, data, epsilon, repeats)
            for nodes in NODES:
                if nodes == 1 or LEAST_RECORDS * nodes <= len(data.split(np.random.default_rng(0)).learning):
                    named = {"data": name, "nodes": str(nodes), "epsilon": epsilon}
                    yield study.Job(
                        [{**named, "model": model} for model in models], of_nodes, (data, epsilon, nodes, repeats)
                    )


def of_nodes(data: Data, epsilon: str, nodes: int, repeats: int) -> list[study.TableRow]:
    """Return accuracies on the same splits: two models of private sums, and one with the paper's noise, not private."""
    campaign, rng = data.campaign(epsilon), np.random.default_rng()
    found: dict[str, list[float]] = {"floored": [], "printed": []} | ({NOT_PRIVATE: []} if data.schema.numeric else {})
    for _ in range(repeats):
        split = data.split(rng)
        noisy = data.noisy(campaign, split.learning, nodes, rng)
        for model in ("floored", "printed"):
            found[model].append(data.accuracy(noisy, model, split.test))
        if data.schema.numeric:
            values = not_private_local_sensitivity(data, campaign, split.learning, nodes, rng)
            found[NOT_PRIVATE].append(data.accuracy(statistics_of(values, campaign, PERIOD), "printed", split.test))
    return [study.spread(own) for own in found.values()]


def rival(data: Data, epsilon: str, repeats: int) -> study.TableRow:
    """Return the accuracy of a curator's fits with the method ``sums``, at ε for adding or removing a record."""
    rng = np.random.default_rng()
    return study.spread([data.curator_accuracy(epsilon, data.split(rng), "posterior") for _ in range(repeats)])


def sensitivity_jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``sensitivity``."""
    rng = np.random.default_rng(options.seed)
    for name in options.data or NUMERIC:
        data = Data.load(name)
        rows = data.split(rng).learning
        features = [data.schema.features[feature].name for feature in data.schema.numeric]
        for nodes in MORE_NODES:
            largest = local_sensitivities(data, rows, deal(len(rows), nodes, rng), nodes) / SCALE
            names = [{"data": name, "feature": feature, "nodes": str(nodes)} for feature in features]
            yield study.Job(names, mean_sensitivities, (largest,))


def mean_sensitivities(largest: Floats) -> list[study.TableRow]:
    """Return the mean local sensitivities of Σx and Σx² over nodes and classes, by feature."""
    each = [largest[:, place] for place in range(largest.shape[1])]
    return [{"sum": f"{one.mean():.4f}", "squares": f"{(one**2).mean():.4f}"} for one in each]


def means_jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield the jobs that measure the rows of ``means``."""
    for name in options.data or NUMERIC:
        data = Data.load(name)
        for epsilon in ("0.1", "1", "10"):
            for nodes in MORE_NODES:
                for noise in ("private", NOT_PRIVATE):
                    names = {"data": name, "epsilon": epsilon, "nodes": str(nodes), "noise": noise}
                    yield study.single(names, error_of_mean, data, epsilon, nodes, noise, options.repeats)


def error_of_mean(data: Data, epsilon: str, nodes: int, noise: str, repeats: int) -> study.TableRow:
    """Return the median over repeats of the mean error of class means, which are clipped to [−1, 1]."""
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


def class_means(values: Integers, campaign: Campaign) -> Floats:
    """Return the mean of each number in each class from the sums of nodes, (N, M): shape (numbers, k) float64."""
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


def draw_accuracy(rows: list[study.TableRow]) -> str:
    """Draw the accuracy of ``floored`` and of ``central`` against ε, a line per number of nodes; a chart per data."""
    words = {CENTRAL: "central", "1": "1 node"}
    charts = []
    for (name,), own in study.grouped(
        (row for row in rows if row["model"] in ("floored", "posterior")), "data"
    ).items():
        by_nodes = study.grouped(own, "nodes").items()
        lines = [study.line(words.get(nodes, f"{nodes} nodes"), chosen, "epsilon") for (nodes,), chosen in by_nodes]
        charts.append(study.accuracies(name, lines, "ε"))
    return study.panels(charts, 2)


def draw_sensitivity(rows: list[study.TableRow]) -> str:
    """Draw local sensitivity of Σx against the number of nodes, a line per feature, a chart per data set."""
    charts = []
    for (name,), own in study.grouped(rows, "data").items():
        lines = [
            study.line(feature, chosen, "nodes", "sum", 1)
            for (feature,), chosen in study.grouped(own, "feature").items()
        ]
        title = f"{name}: local sensitivity of Σx over the public bound"
        charts.append(line_chart(title, lines, x_label="nodes", y_label="mean over nodes", log_x=True))
    return study.panels(charts, 2)


def draw_means(rows: list[study.TableRow]) -> str:
    """Draw the error of class means against the number of nodes: a line per ε and noise, a chart per data set."""
    charts = []
    for (name,), own in study.grouped(rows, "data").items():
        lines = [
            study.line(f"ε = {epsilon}" + ("" if noise == "private" else ", not private"), chosen, "nodes", "error", 1)
            for (epsilon, noise), chosen in study.grouped(own, "epsilon", "noise").items()
        ]
        charts.append(line_chart(name, lines, x_label="nodes", y_label="error of a mean", log_x=True, log_y=True))
    return study.panels(charts, 2)


STUDIES = {
    "accuracy": study.Study("federated-accuracy", accuracy_jobs, draw_accuracy),
    "sensitivity": study.Study("federated-sensitivity", sensitivity_jobs, draw_sensitivity),
    "means": study.Study("federated-means", means_jobs, draw_means),
}


def main() -> int:
    """Measure and draw."""
    parser = study.arguments("figures of nodes", NAMES, repeats="of large data sets; five times as many of small ones")
    parser.add_argument("command", choices=STUDIES)
    options = parser.parse_args()
    options.repeats = options.repeats or (2 if options.quick else 20)
    options.epsilons = options.epsilons or list(EPSILONS[::3] if options.quick else EPSILONS)
    if options.quick and not options.data:
        options.data = ["votes", "spect"] if options.command == "accuracy" else ["adult"]
    return study.run(STUDIES[options.command], options)


if __name__ == "__main__":
    sys.exit(main())
