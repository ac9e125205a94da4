"""Plot of accuracy and variance of ``the`` by its threshold θ: docs/plots/theta.svg.

    python -m benchmarks.models.theta [--repeats 40] [--out FILE] [--json]

Accuracy: data set car, ε = 1 per answer, one or all answers per device, vector engine, post-processing ``paper``.
Variance: q(1 − q)/(p − q)² per answer, of the count of a value that nobody has, from the mechanism's integers.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from aggregator.plots import Line, line_chart
from aggregator.publishing.campaigns import CampaignParameters
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.panels import panels
from benchmarks.shared.reference import NOT_HERE, available, categorical_data
from protocol import mechanisms
from protocol.epsilon import MICRO
from protocol.mechanisms.base import FrequencyMechanism
from simulation.design import Design
from simulation.running import run_simulation, summarise
from simulation.splits import Division

PLOT = Path(__file__).parents[2] / "docs" / "plots" / "theta.svg"
DATA = "car"
THETAS = [f"{step / 20:.2f}" for step in range(1, 20)]
EPSILONS = ("0.5", "1", "2", "4")


class Point(NamedTuple):
    """Mean accuracy at one threshold, with its standard error."""

    theta: str
    answers: str
    accuracy: float
    error: float


def variance(theta: str, epsilon: str) -> float:
    """Variance of the count of a value that nobody has, per answer: q(1 − q)/(p − q)²."""
    mechanism = mechanisms.from_epsilon("the", epsilon, 4, theta=theta)
    assert isinstance(mechanism, FrequencyMechanism)
    p, q = mechanism.p, mechanism.q
    return float(q * (1 - q) / (p - q) ** 2)


def accuracy(theta: str, answers: str, repeats: int, seed: int) -> Point:
    """Simulate one threshold. The seed is the same for every θ, so all thresholds have the same splits."""
    frame, schema = categorical_data(DATA)
    count = 1 if answers == "one" else len(schema.features) + 1
    parameters = CampaignParameters("theta", count * MICRO, "the", count, options={"theta": theta})
    trials = run_simulation(
        frame, Design(schema), parameters, Division(), postprocess="paper", engine="vector", repeats=repeats, seed=seed
    )
    result = summarise(trials, parameters, "vector", repeats)
    return Point(theta, answers, result["accuracy"], (result["accuracy_sd"] or 0.0) / sqrt(repeats))


def main() -> int:
    """Measure on all cores, draw, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=PLOT)
    options = parser.parse_args()
    if not available():
        print(NOT_HERE, file=sys.stderr)
        return 2
    jobs = [(theta, answers) for answers in ("one", "all") for theta in THETAS]
    with ProcessPoolExecutor() as pool:
        pending = [pool.submit(accuracy, *job, options.repeats, options.seed) for job in jobs]
        points = [future.result() for future in pending]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(panels([_accuracies(points), _variances()], 2), encoding="utf-8")
    if options.json:
        rows = [point._asdict() for point in points]
        json.dump({"title": "Theta", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return 0
    for point in points:
        print(
            f"{point.answers:<4} θ = {point.theta}  accuracy {point.accuracy:.1%} ± {point.error:.1%}"
            f"  variance per answer {variance(point.theta, '1'):.2f}"
        )
    for epsilon in EPSILONS:
        best = min(THETAS, key=lambda theta: variance(theta, epsilon))
        kept = variance("0.25", epsilon) / variance(best, epsilon)
        print(f"ε = {epsilon}: least variance at θ = {best}; 0.25 has {kept:.2f} times as much")
    return 0


def _accuracies(points: list[Point]) -> str:
    lines = []
    for answers in ("one", "all"):
        chosen = [point for point in points if point.answers == answers]
        xs = [float(point.theta) for point in chosen]
        lines.append(Line(f"{answers}: mean", xs, [100 * point.accuracy for point in chosen]))
    title = f"Accuracy of 'the' on {DATA}, ε = 1 per answer"
    return line_chart(title, lines, x_label="θ", y_label="accuracy, %")


def _variances() -> str:
    xs = [float(theta) for theta in THETAS]
    lines = [Line(f"ε = {epsilon}", xs, [variance(theta, epsilon) for theta in THETAS]) for epsilon in EPSILONS]
    return line_chart("Variance of a count, per answer", lines, x_label="θ", y_label="variance", log_y=True)


if __name__ == "__main__":
    sys.exit(main())
