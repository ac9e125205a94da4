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

from benchmarks.federated.data import NAMES, Data, Split, noisy_statistics
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.reference import NOT_HERE, Comparison, available, federated_cases
from simulation.drawn import statistics_of

LIKE_VOTES = (0.94, 0.96)
"""Accuracies without noise of the splits of votes that are like the reference's: 41 of 43 records."""


def line(found: Comparison) -> str:
    """Return a row as one line of the table."""
    return f"{found.case.data:13} {found.case.answers:>10} ε = {found.case.epsilon_total:>4} {found.text}"


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
        noisy = noisy_statistics(data.exact(campaign, split.learning, nodes, rng), campaign, rng)
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


def rows(options: argparse.Namespace) -> bool:
    """Measure all rows of the chosen data sets. Return whether every row holds."""
    good = True
    for name in options.data or NAMES:
        data = Data.load(name)
        between = between_splits(data, options.seed)
        for case in federated_cases():
            if case.data == name:
                nodes = int(case.answers.split()[0])
                splits, chosen = random_splits(data, options.seed), [options.postprocess]
                measured = accuracies(data, case.epsilon_total, nodes, chosen, options.repeats, splits)
                found = Comparison(case, measured[options.postprocess], between)
                good &= found.verdict != "differs"
                print(line(found), flush=True)
    return good


def like_votes(options: argparse.Namespace) -> bool:
    """Measure the rows of votes, on splits like the reference's. Return whether every row holds."""
    data, drawn = Data.load("votes"), 0
    alike: list[Split] = []
    for split in random_splits(data, options.seed):
        drawn += 1
        if LIKE_VOTES[0] < without_noise(data, split) < LIKE_VOTES[1]:
            alike.append(split)
        if len(alike) == options.repeats:
            break
    good = True
    for case in federated_cases():
        if case.data == "votes":
            nodes = int(case.answers.split()[0])
            found = accuracies(data, case.epsilon_total, nodes, ["printed"], options.repeats, iter(alike))
            row = Comparison(case, found["printed"])
            good &= row.verdict == "="
            print(line(row), flush=True)
    print(f"{drawn} random splits drawn, of which {len(alike)} are like the reference's")
    return good


def main() -> int:
    """Measure and print. Return 1 if a row differs, else 0."""
    parser = arguments("accuracy of simulated nodes against the reference")
    parser.add_argument("--data", nargs="+", choices=NAMES)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--postprocess", default="printed")
    parser.add_argument("--like-votes", action="store_true", help="votes, on splits like the reference's")
    parser.add_argument("--seed", type=int, default=1, help="of the splits; noise is always fresh")
    options = parser.parse_args()
    if not available():
        print(NOT_HERE, file=sys.stderr)
        return 0
    print(machine())
    return 0 if (like_votes if options.like_votes else rows)(options) else 1


if __name__ == "__main__":
    sys.exit(main())
