"""Accuracy of simulated nodes against the independent reference, rows of setting ``federated``.

    python -m benchmarks.federated.reference_rows [--data adult …] [--repeats 60] [--postprocess printed]
    python -m benchmarks.federated.reference_rows --like-votes [--repeats 300]

A row holds (``=``) if its mean differs from the reference's by at most 2 points plus three standard errors of the
difference. The reference has one random split of each data set, which its error leaves out; ``(=)`` says that a row
holds only if the standard deviation between splits, measured without noise, is added. ``--like-votes`` compares votes
on random splits like the reference's: the model without noise is right about 41 of the 43 test records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from statistics import stdev

import numpy as np

from benchmarks.federated.data import NAMES, Data, Split
from benchmarks.shared.harness import arguments
from benchmarks.shared.reference import Comparison, cases, compare, require
from simulation.drawn import statistics_of

LIKE_VOTES = (0.94, 0.96)
"""Accuracies without noise of the splits of votes that are like the reference's: 41 of 43 records."""


def accuracies(
    data: Data,
    epsilon: str,
    nodes: int,
    postprocess: Sequence[str],
    repeats: int,
    splits: Iterator[Split],
    noise_seed: int | None = None,
) -> dict[str, list[float]]:
    """Return the accuracies of every post-processing on the same noisy sums. Each repeat has a new split and new noise.

    ``noise_seed`` fixes which node has which record, and the noise; None takes entropy of the operating system.
    """
    campaign, rng = data.campaign(epsilon), np.random.default_rng(noise_seed)
    found: dict[str, list[float]] = {name: [] for name in postprocess}
    for _ in range(repeats):
        split = next(splits)
        noisy = data.noisy(campaign, split.learning, nodes, rng)
        for name in postprocess:
            found[name].append(data.accuracy(noisy, name, split.test))
    return found


def random_splits(data: Data, seed: int) -> Iterator[Split]:
    """Yield endless random splits; equal seeds give equal splits.

    If the data set has predefined parts, all splits are equal.
    """
    rng = np.random.default_rng(seed)
    while True:
        yield data.split(rng)


def without_noise(data: Data, split: Split, postprocess: str = "printed") -> float:
    """Return the accuracy on one split without noise: exact sums, and statistics as for a very large ε."""
    campaign, rng = data.campaign("100000"), np.random.default_rng(0)
    return data.accuracy(
        statistics_of(data.exact(campaign, split.learning, 1, rng), campaign, 20_000), postprocess, split.test
    )


def between_splits(data: Data, seed: int, number: int = 20) -> float:
    """Return the variance of the accuracy without noise over random splits; 0 with predefined parts."""
    if data.training is not None:
        return 0.0
    rng = np.random.default_rng(seed)
    return stdev(without_noise(data, data.split(rng)) for _ in range(number)) ** 2


def votes_alike(data: Data, options: argparse.Namespace) -> Iterator[Split]:
    """Yield random splits of votes like the reference's, one for each repeat, and print how many were drawn."""
    found = 0
    for drawn, split in enumerate(random_splits(data, options.seed), 1):
        if LIKE_VOTES[0] < without_noise(data, split) < LIKE_VOTES[1]:
            found += 1
            yield split
        if found == options.repeats:
            print(f"{drawn} random splits drawn, of which {found} are like the reference's")
            return


def rows(options: argparse.Namespace) -> Iterator[tuple[str, Comparison]]:
    """Yield data set, nodes and ε of each chosen row of the reference, and what was measured."""
    for name in ["votes"] if options.like_votes else options.data or NAMES:
        data = Data.load(name)
        alike = list(votes_alike(data, options)) if options.like_votes else None
        between = 0.0 if alike else between_splits(data, options.seed)
        for case in cases("federated"):
            if case.data == name:
                splits = iter(alike) if alike else random_splits(data, options.seed)
                nodes, chosen = int(case.answers.split()[0]), [options.postprocess]
                found = accuracies(data, case.epsilon_total, nodes, chosen, options.repeats, splits)
                about = f"{name:13} {case.answers:>10} ε = {case.epsilon_total:>4}"
                yield about, Comparison(case, found[options.postprocess], between)


def main() -> int:
    """Measure and print. Return 1 if a row differs, else 0."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", choices=NAMES)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--postprocess", default="printed")
    parser.add_argument("--like-votes", action="store_true", help="votes, on splits like the reference's")
    parser.add_argument("--seed", type=int, default=1, help="of the splits; noise is always fresh")
    options = parser.parse_args()
    require()
    return compare(rows(options), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
