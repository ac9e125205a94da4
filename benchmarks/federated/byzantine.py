"""Ten of a hundred nodes lie: what plain addition, a trimmed mean, the median and Krum make of it, on adult.

    python -m benchmarks.federated.byzantine [--epsilons 1 10] [--repeats 20] [--data adult]

Records are dealt to 100 nodes at random. Liars know the campaign and send any numbers within the range that intake
accepts: from −H to max_records + H for counts, H = ⌈64Δ/ε_q⌉. ``max_records`` is twice a node's share of the records.

    random     every number uniform within its range
    scaled     the node's exact sums times −5, clipped to the range
    targeted   the sums of records with the classes exchanged, as many as the range allows: every count, sum and sum of
               squares of a class is the honest mean of the other class, scaled up to max_records

Rules see noisy sums only. Krum and the trimmed mean are told the right number of liars. ``honest`` has no liar: its
difference from plain addition is what a rule costs where nobody lies. The target is that the trimmed mean loses at
most 3 points under each attack, against plain addition of honest nodes.
"""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.nodes.robust import parse_rule
from aggregator.plots import Bars, bar_chart
from benchmarks.central.figures import Job, measured, read_rows
from benchmarks.federated.data import NAMES, PERIOD, Data
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.panels import panels
from benchmarks.shared.reference import NOT_HERE, available
from protocol.nodes.terms import ranges, released_vectors
from simulation.federation.vector import released, statistics_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from protocol.documents.campaign import Campaign

    Integers = NDArray[np.int64]
    Found = dict[str, Any]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "results" / "federated-byzantine.csv"
PLOT = ROOT / "docs" / "plots" / "federated-byzantine.svg"
NODES, LIARS = 100, 10
RULES = {"plain": None, "trimmed-mean": "trimmed-mean:0.1", "median": "median", "krum": "krum:10"}
SCALED = -5
ALLOWED = 0.03
HONEST = "honest"


def limits(campaign: Campaign) -> tuple[Integers, Integers]:
    """Smallest and largest allowed number of every place: shape (M,) int64 each."""
    sizes = [subject.size for subject in released_vectors(campaign)]
    ends = ranges(campaign)
    low, high = (np.repeat(np.array([pair[side] for pair in ends], np.int64), sizes) for side in (0, 1))
    return low, high


def random(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Every number of :data:`LIARS` nodes uniform within its range: shape (LIARS, M) int64."""
    low, high = limits(campaign)
    return rng.integers(low, high, (LIARS, exact.shape[1]), endpoint=True)


def scaled(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """The liars' exact sums times :data:`SCALED`, within the range: shape (LIARS, M) int64."""
    del rng
    return np.clip(SCALED * exact[:LIARS], *limits(campaign))


def targeted(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Sums of records with exchanged classes, as many as the range allows: shape (LIARS, M) int64.

    The classes rotate by one place, so that each class gets the numbers of the next one.
    """
    del rng
    assert campaign.nodes is not None
    classes = released_vectors(campaign)[0].size
    honest = exact.mean(axis=0).reshape(-1, classes)  # every vector ends with the classes
    counts = honest[0]
    exchanged = np.roll(honest, 1, axis=1) * campaign.nodes.max_records / counts.sum()
    return np.tile(np.clip(np.rint(exchanged.ravel()).astype(np.int64), *limits(campaign)), (LIARS, 1))


ATTACKS: dict[str, Callable[[Integers, Campaign, np.random.Generator], Integers] | None] = {
    HONEST: None,
    "random": random,
    "scaled": scaled,
    "targeted": targeted,
}


def accuracies(data: Data, epsilon: str, attack: str, repeats: int) -> dict[str, list[float]]:
    """Accuracies by rule, on the same noisy sums."""
    rng = np.random.default_rng()
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for _ in range(repeats):
        split = data.split(rng)
        campaign = data.campaign(epsilon, most=2 * -(-len(split.learning) // NODES))
        exact = data.exact(campaign, split.learning, NODES, rng)
        values = released(exact, campaign, rng)
        lie = ATTACKS[attack]
        if lie is not None:
            values[:LIARS] = lie(exact, campaign, rng)
        for rule, text in RULES.items():
            statistics = statistics_of(values, campaign, PERIOD, None if text is None else parse_rule(text))
            found[rule].append(data.accuracy(statistics, "floored", split.test))
    return found


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """One row per ε, attack and rule."""
    data = Data.load(options.data)
    for epsilon in options.epsilons:
        for attack in ATTACKS:
            found: dict[str, list[float]] = {}

            def measure(rule: str, epsilon: str = epsilon, attack: str = attack, found: Found = found) -> Found:
                if not found:
                    found.update(accuracies(data, epsilon, attack, options.repeats))
                own = found[rule]
                return {
                    "accuracy": round(fmean(own), 5),
                    "error": round(stdev(own) / sqrt(len(own)), 5),
                    "least": round(min(own), 5),
                    "runs": len(own),
                }

            for rule in RULES:
                names = {"data": options.data, "epsilon": epsilon, "attack": attack, "rule": rule}
                yield Job(names, lambda rule=rule, measure=measure: measure(rule))  # type: ignore[misc]


def reached(rows: list[Found]) -> bool:
    """Print how far the trimmed mean is below honest plain addition. Returns whether that is at most 3 points."""
    good = True
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        own = {(row["attack"], row["rule"]): float(row["accuracy"]) for row in rows if row["epsilon"] == epsilon}
        for attack in ATTACKS:
            loss = own[HONEST, "plain"] - own[attack, "trimmed-mean"]
            good &= loss <= ALLOWED
            print(f"ε = {epsilon}: trimmed mean, {attack}: {100 * loss:+.1f} points lost (at most {100 * ALLOWED:.0f})")
    return good


def draw(rows: list[Found]) -> str:
    """Bars of the accuracy by attack, one colour per rule, one chart per ε."""
    charts = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        series = [
            Bars(
                rule,
                [
                    100 * float(row["accuracy"])
                    for attack in ATTACKS
                    for row in rows
                    if (row["epsilon"], row["attack"], row["rule"]) == (epsilon, attack, rule)
                ],
            )
            for rule in RULES
        ]
        title = f"{rows[0]['data']}, {LIARS} of {NODES} nodes lie, ε = {epsilon}"
        charts.append(bar_chart(title, list(ATTACKS), series, y_label="accuracy, %"))
    return panels(charts, 2)


def main() -> int:
    """Measure, print and draw. Returns 1 if the trimmed mean misses its target, else 0."""
    parser = arguments("accuracy where some nodes lie")
    parser.add_argument("--data", choices=NAMES, default="adult")
    parser.add_argument("--epsilons", nargs="+", default=["1", "10"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--draw", action="store_true", help="draw the rows that are there")
    parser.add_argument("--folder", type=Path, help="of table and drawing; by default the project's")
    options = parser.parse_args()
    if not available() and not options.draw:
        print(NOT_HERE, file=sys.stderr)
        return 0
    table, plot = (place if options.folder is None else options.folder / place.name for place in (TABLE, PLOT))
    rows = read_rows(table) if options.draw else measured(jobs(options), table)
    plot.write_text(draw(rows), encoding="utf-8")
    good = reached(rows)
    print(machine())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
