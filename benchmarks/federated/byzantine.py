"""Accuracy on adult if ten of a hundred nodes lie: plain addition, trimmed mean, median and Krum.

    python -m benchmarks.federated.byzantine [--epsilons 1 10] [--repeats 20] [--most 2 10]

Liars send any numbers in the range that intake accepts: from −H to max_records + H for counts, H = ⌈64Δ/ε_q⌉ (Δ, ε_q:
sensitivity and ε of the vector), ``max_records`` being 2 or 10 times a node's share. Kinds of lies:

    random     every number uniform within its range
    scaled     the node's exact sums times −5, clipped to the range
    targeted   the honest means of the other class, scaled up to max_records
    hidden     the honest mean and 1.28 standard deviations between honest nodes, which a trimmed mean keeps

The trimmed mean leaves out the liars' share, or twice as much; Krum knows the number of liars; ``honest`` has no liar.
Target: twice the share loses at most 3 points under random, scaled and targeted lies, against honest addition.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.common.plots import Bars, bar_chart
from aggregator.nodes.statistics import robust as robust_estimate
from aggregator.nodes.statistics.robust import parse_rule
from benchmarks.federated.data import NAMES, PERIOD, Data
from benchmarks.shared.study import Job, Study, TableRow, arguments, grouped, panels, run, spread
from protocol.documents.campaign import Campaign
from protocol.nodes.terms import ranges, released_vectors
from simulation.drawn import released, statistics_of

NODES, LIARS = 100, 10
HONEST, PLAIN, BEYOND = "honest", "plain", "hidden"
RULES = (PLAIN, "trimmed-mean:0.1", "trimmed-mean:0.2", "median", "krum:10")
JUDGED = "trimmed-mean:0.2"
SCALED = -5
HIDDEN = 1.28
"""Standard deviations: a tenth of a normal distribution is beyond."""
ALLOWED = 0.03


def limits(campaign: Campaign) -> tuple[Integers, Integers]:
    """Return the smallest and the largest allowed value of each of the M sums: shape (M,) int64 each."""
    sizes = [subject.size for subject in released_vectors(campaign)]
    ends = ranges(campaign)
    low, high = (np.repeat(np.array([pair[side] for pair in ends], np.int64), sizes) for side in (0, 1))
    return low, high


def random(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Return M sums for each of :data:`LIARS` nodes, uniform within their ranges: shape (LIARS, M) int64."""
    low, high = limits(campaign)
    return rng.integers(low, high, (LIARS, exact.shape[1]), endpoint=True)


def scaled(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Return the liars' exact sums times :data:`SCALED`, within the range: shape (LIARS, M) int64."""
    del rng
    return np.clip(SCALED * exact[:LIARS], *limits(campaign))


def targeted(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Return sums of as many records as the range allows, with exchanged classes: shape (LIARS, M) int64."""
    del rng
    sums = np.rint(exchanged(exact, campaign)).astype(np.int64)
    return np.tile(np.clip(sums, *limits(campaign)), (LIARS, 1))


def hidden(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Return the honest means, moved 1.28 standard deviations towards exchanged classes: shape (LIARS, M) int64."""
    honest = released(exact, campaign, rng)
    mean, spread = honest.mean(axis=0), honest.std(axis=0)
    shifted = mean + HIDDEN * spread * np.sign(exchanged(exact, campaign) - mean)
    return np.tile(np.clip(np.rint(shifted).astype(np.int64), *limits(campaign)), (LIARS, 1))


def exchanged(exact: Integers, campaign: Campaign) -> Floats:
    """Return the sums of max_records average records whose class is replaced by the next one: shape (M,) float64."""
    assert campaign.nodes is not None
    classes = released_vectors(campaign)[0].size
    honest = exact.mean(axis=0).reshape(-1, classes)  # the last axis of every vector is the class
    return np.asarray(np.roll(honest, 1, axis=1).ravel() * campaign.nodes.max_records / honest[0].sum(), np.float64)


ATTACKS: dict[str, Callable[[Integers, Campaign, np.random.Generator], Integers] | None] = {
    HONEST: None,
    "random": random,
    "scaled": scaled,
    "targeted": targeted,
    "hidden": hidden,
}


def by_rule(data: Data, epsilon: str, attack: str, repeats: int, most: int) -> list[TableRow]:
    """Return the accuracies of all rules on the same noisy sums."""
    rng = np.random.default_rng()
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for _ in range(repeats):
        split = data.split(rng)
        campaign = data.campaign(epsilon, most=most * -(-len(split.learning) // NODES))
        exact = data.exact(campaign, split.learning, NODES, rng)
        values = released(exact, campaign, rng)
        lie = ATTACKS[attack]
        if lie is not None:
            values[:LIARS] = lie(exact, campaign, rng)
        for rule in RULES:
            statistics = statistics_of(values, campaign, PERIOD, None if rule == PLAIN else parse_rule(rule))
            found[rule].append(data.accuracy(statistics, "floored", split.test))
    return [
        {"accuracy": one["accuracy"], "error": one["error"], "least": round(min(own), 5), "runs": one["runs"]}
        for own in found.values()
        for one in [spread(own)]
    ]


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield one row per ε, allowed number of records, attack and rule."""
    for name in options.data or ["adult"]:
        data = Data.load(name)
        for epsilon, most, attack in product(options.epsilons or ["1", "10"], options.most, ATTACKS):
            names = {"data": name, "epsilon": epsilon, "most": str(most), "attack": attack}
            rows = [{**names, "rule": rule} for rule in RULES]
            yield Job(rows, by_rule, (data, epsilon, attack, options.repeats or 20, most))


def accuracies(rows: list[TableRow]) -> dict[tuple[str, str], float]:
    """Return (attack, rule) → accuracy."""
    return {(row["attack"], row["rule"]): float(row["accuracy"]) for row in rows}


def reached(rows: list[TableRow], folder: Path) -> bool:
    """Print by how many points each rule is below honest plain addition. Return whether the target is reached."""
    del folder
    good = True
    for (epsilon, most), chosen in grouped(rows, "epsilon", "most").items():
        own = accuracies(chosen)
        for attack in ATTACKS:
            lost = {rule: own[HONEST, PLAIN] - own[attack, rule] for rule in RULES}
            good &= attack == BEYOND or lost[JUDGED] <= ALLOWED
            shown = "  ".join(f"{rule} {100 * loss:+5.1f}" for rule, loss in lost.items())
            print(f"ε = {epsilon:>2}, at most {most:>2} shares, {attack:8}: points lost by {shown}")
    return good


def draw(rows: list[TableRow]) -> str:
    """Draw bars of the accuracy by attack, one colour per rule, one chart per ε and allowed number of records."""
    charts = []
    for (epsilon, most), chosen in grouped(rows, "epsilon", "most").items():
        own = accuracies(chosen)
        series = [Bars(rule, [100 * own[attack, rule] for attack in ATTACKS]) for rule in RULES]
        title = f"{rows[0]['data']}, {LIARS} of {NODES} nodes lie, ε = {epsilon}, at most {most} shares of records"
        charts.append(bar_chart(title, list(ATTACKS), series, y_label="accuracy, %"))
    return panels(charts, 2)


def main() -> int:
    """Measure, print and draw. Return 1 if the trimmed mean misses its target, else 0."""
    parser = arguments("accuracy where some nodes lie", NAMES)
    parser.add_argument("--most", type=int, nargs="+", default=[2, 10], help="max_records, in shares of a node")
    options = parser.parse_args()
    # What a rule costs is measured here, so the simulated loss that statistics state is left out.
    with patch.object(robust_estimate, "expected_loss", lambda *_: "not simulated"):
        return run(Study("federated-byzantine", jobs, draw), options, reached)


if __name__ == "__main__":
    sys.exit(main())
