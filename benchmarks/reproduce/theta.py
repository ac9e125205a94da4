"""Accuracy and variance of the mechanism ``the`` by its threshold θ, at ε = 1 per answer.

Accuracy: one or all answers per person, post-processing ``paper``; a person who gives all answers about n features
spends n + 1 in total. Variance: q(1 − q)/(p − q)² per answer, of the count of a value that nobody has; p and q are the
mechanism's probabilities to support a true and another value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aggregator.common.plots import Line, line_chart
from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.models.scoring import Model
from aggregator.publishing.campaigns import CampaignParameters
from benchmarks.reproduce.discrete import accuracy
from benchmarks.reproduce.jobs import Job, Row, Size
from benchmarks.reproduce.released import FIFTH, sample
from benchmarks.shared.fleets import campaign_of, tally_of
from benchmarks.shared.study import line, panels
from protocol import mechanisms
from protocol.epsilon import MICRO
from protocol.mechanisms.base import FrequencyMechanism

DATA = ("car", "chess", "mushroom")
THETAS = [f"{step / 20:.2f}" for step in range(1, 20)]
EPSILONS = ("0.5", "1", "2", "4")
"""ε of the drawn variances."""
VALUES = 4
"""Number of values of the questions of which the variance is drawn. The variance does not depend on the number."""


def jobs(size: Size) -> list[Job]:
    """Return the jobs: every threshold, data set and number of answers. All thresholds have the same divisions."""
    thetas = THETAS[1::6] if size.quick else THETAS
    found = []
    for name in DATA[:1] if size.quick else DATA:
        for answers in ("one", "all"):
            questions = 1 if answers == "one" else len(sample(name).schema.features) + 1
            rows = tuple(
                {"data": name, "answers": answers, "epsilon_total": str(questions), "theta": theta} for theta in thetas
            )
            found.append(Job(rows, 5 if size.quick else 60, measure, (name, questions, thetas)))
    return found


def measure(name: str, answers: int, thetas: Sequence[str], repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies for every threshold."""
    data = sample(name)
    dividing, rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    campaigns = [
        campaign_of(
            data.schema,
            CampaignParameters("theta", answers * MICRO, "the", answers, options={"theta": theta}),
        )
        for theta in thetas
    ]
    found: list[list[float]] = [[] for _ in thetas]
    for _ in range(repeats):
        people, test = data.split(name, FIFTH, dividing)
        for place, campaign in enumerate(campaigns):
            statistics = estimate(campaign, tally_of(campaign, people, rng), with_intervals=False)
            model = fit(statistics, "paper")
            found[place].append(accuracy(Model(data.schema, *model), test))
    return found


def variance(theta: str, epsilon: str) -> float:
    """Return the variance per answer of the count of a value that nobody has (formula: module docstring)."""
    mechanism = mechanisms.from_epsilon("the", epsilon, VALUES, theta=theta)
    assert isinstance(mechanism, FrequencyMechanism)
    p, q = mechanism.p, mechanism.q
    return float(q * (1 - q) / (p - q) ** 2)


def files(rows: Sequence[Row], size: Size) -> Mapping[str, str]:
    """Return one plot, the accuracies of each data set and the variances; and the variances as a table."""
    del size
    names = dict.fromkeys(row["data"] for row in rows)
    table = ["epsilon,theta,variance"]
    table += [f"{epsilon},{theta},{variance(theta, epsilon):.5f}" for epsilon in EPSILONS for theta in THETAS]
    return {
        "reproduce-theta.svg": panels([*(_accuracies(name, rows) for name in names), _variances()], 2),
        "theta-variance.csv": "\n".join(table) + "\n",
    }


def _accuracies(name: str, rows: Sequence[Row]) -> str:
    lines = []
    for answers in ("one", "all"):
        chosen = [row for row in rows if (row["data"], row["answers"]) == (name, answers)]
        lines.append(line(f"{answers}, total ε = {chosen[0]['epsilon_total']}", chosen, "theta"))
    title = f"Accuracy of 'the' on {name}, ε = 1 per answer"
    return line_chart(title, lines, x_label="θ", y_label="accuracy, %")


def _variances() -> str:
    xs = [float(theta) for theta in THETAS]
    lines = [Line(f"ε = {epsilon}", xs, [variance(theta, epsilon) for theta in THETAS]) for epsilon in EPSILONS]
    return line_chart("Variance of a count, per answer", lines, x_label="θ", y_label="variance", log_y=True)
