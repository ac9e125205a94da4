"""Coverage of the intervals of a ranking of models: how often all of a column's intervals hold together.

Every ranking draws how many devices answer about each model, and their answers, by the exact law of ``direct``. A row
also has the share of rankings in which the best model is among those that can not be told from the best, and the mean
number of these. The rows are printed as they come.

    python -m benchmarks.asking.ranking --rankings 2000
"""

from __future__ import annotations

import argparse

import numpy as np

from aggregator.estimates.debias import noise_law
from aggregator.estimates.question_estimate import Right
from aggregator.publishing.mechanisms.best import Share, against_the_best, together
from benchmarks.shared.harness import machine
from protocol.epsilon import format_micro
from protocol.mechanisms import FrequencyMechanism, from_micro

ACCURACIES = {
    "five equal": (0.8,) * 5,
    "five apart": (0.9, 0.88, 0.8, 0.7, 0.5),
    "two": (0.95, 0.9),
    "nine, two best": (0.9, 0.9, 0.85, 0.85, 0.8, 0.8, 0.7, 0.6, 0.5),
}
SETTINGS = ((200, 1_000_000), (5_000, 1_000_000), (100_000, 1_000_000), (200, 4_000_000))
"""Numbers of devices, and ε in millionths."""


def row(truth: np.ndarray, people: int, micro: int, rankings: int, rng: np.random.Generator) -> list[float]:
    """Coverage of the accuracies, of the differences, of the best, and the mean number of candidates.

    Args:
        truth: accuracies of the models, shape (m,) float64.
        people: number of devices.
        micro: ε in millionths.
        rankings: number of rankings to draw.
        rng: randomness.
    """
    mechanism = from_micro("direct", micro, 2)
    law = noise_law(mechanism)
    assert isinstance(mechanism, FrequencyMechanism)
    assert law is not None
    p, q = float(mechanism.p), float(mechanism.q)
    difference = truth - np.array([np.delete(truth, place).max() for place in range(len(truth))])
    held = np.zeros(4)
    for _ in range(rankings):
        n = np.maximum(rng.multinomial(people, np.full(len(truth), 1 / len(truth))), 2)
        shares = (rng.binomial(n, q + truth * (p - q)) / n - q) / (p - q)
        given = [Share(Right(float(share), law), int(count)) for share, count in zip(shares, n, strict=True)]
        ends, against = np.array(together(given)), against_the_best(given)
        held += (
            ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all(),
            ((against.low <= difference) & (difference <= against.high)).all(),
            against.high[truth.argmax()] > 0,
            (against.high > 0).sum(),
        )
    return (held / rankings).tolist()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rankings", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(machine())
    print(f"\n{options.rankings} rankings a row\n")
    print(
        f"{'models':<16}{'devices':>9}{'ε':>4}{'accuracies':>12}{'differences':>13}{'best kept':>11}{'candidates':>12}"
    )
    for name, truth in ACCURACIES.items():
        for people, micro in SETTINGS:
            one, two, best, count = row(np.array(truth), people, micro, options.rankings, rng)
            print(
                f"{name:<16}{people:>9}{format_micro(micro):>4}{one:>12.1%}{two:>13.1%}{best:>11.1%}{count:>12.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
