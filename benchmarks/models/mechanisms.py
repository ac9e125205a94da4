"""Accuracy by the mechanism that ``auto`` chooses, against the choice before ``subset``, paired by splits and noise.

    python -m benchmarks.models.mechanisms [--data mushroom …] [--epsilon 0.5 1 2] [--devices 100000] [--repeats 200]
                                           [--law]

Each repetition draws a fleet from a random 80 % of the records and tests on the rest. The counts of both choices are
normal, with the exact means and covariances, and come from the same normal numbers; so a small difference shows.
With ``--law`` they are drawn from the mechanisms' exact laws, and only splits and questions asked alike are paired.
``former``: ``direct`` below 3e^ε + 2 values, else ``oue``. ``difference``: ``auto`` minus ``former``, with its standard
error, in points. ``variance``: mean over the questions of the variances' ratio, summed over each question's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import fmean

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.debias import noise_law, pairs_of
from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.publishing.mechanisms.choice import AUTO
from aggregator.publishing.mechanisms.draws import count_law
from aggregator.reports.tally.tally import Tally
from benchmarks.models.estimators import MOST_TESTED, Data, campaign_of, divided, load, right
from benchmarks.shared.harness import Table, arguments, mean_error
from benchmarks.shared.reference import require
from protocol.documents.campaign import Campaign
from protocol.epsilon import micro_epsilon
from protocol.mechanisms import FrequencyMechanism, Mechanism, from_micro
from protocol.questions import Question

DATA = ("mushroom", "chess", "votes", "australian", "pima", "adult", "connect-4", "car")


def former(question: Question) -> Question:
    """Return the question with the mechanism that ``auto`` chose before ``subset``."""
    micro = question.mechanism.epsilon_micro
    name = "direct" if question.size < 3 * exp(micro / 10**6) + 2 else "oue"
    return question._replace(mechanism=from_micro(name, micro, question.size))


def normal_counts(mechanism: FrequencyMechanism, held: Floats, n: int, rng: np.random.Generator) -> Integers:
    """Draw counts of ``n`` answers from the normal law with their means and covariances; ``held``: shares, (K,)."""
    p, q, pairs = float(mechanism.p), float(mechanism.q), pairs_of(mechanism)
    assert pairs is not None
    mean, some = q + (p - q) * held, held[:, None] + held
    both = (1 - some) * (pairs.at_zero * (p - q) ** 2 + q * q) + some * (pairs.at_one * (p - q) ** 2 + p * q)
    covariance = both - np.outer(mean, mean)
    np.fill_diagonal(covariance, mean * (1 - mean))
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    noise = root @ rng.standard_normal(len(held))
    return np.clip(np.rint(n * mean + np.sqrt(n) * noise), 0, n).astype(np.int64)


def tally_of(
    campaign: Campaign, n: Integers, inputs: Sequence[Integers], seed: Sequence[int], *, by_law: bool
) -> Tally:
    """Draw the counts of ``n`` answers to each question. Each question has a random generator of its own."""
    counts = []
    for place, question in enumerate(campaign.questions):
        rng, given, answers = np.random.default_rng([*seed, place]), inputs[place], int(n[place])
        if by_law:
            drawn = count_law(question.mechanism, given, np.full(len(given), 1 / len(given))).counts(answers, rng)
        else:
            assert isinstance(question.mechanism, FrequencyMechanism)
            held = np.bincount(given, minlength=question.size) / len(given)
            drawn = normal_counts(question.mechanism, held, answers, rng)
        counts.append(tuple(drawn.tolist()))
    return Tally(campaign.id, tuple(n.tolist()), tuple(counts))


def accuracies(
    data: Data, campaigns: Sequence[Campaign], devices: int, seed: Sequence[int], *, by_law: bool
) -> list[float]:
    """Return the accuracy of each campaign's model in points, with one split and one assignment for all."""
    rng = np.random.default_rng(seed)
    people, test = divided(data, rng)
    test, questions, classes = test[:MOST_TESTED], campaigns[0].questions, len(data.schema.label.classes)
    n = rng.multinomial(devices, np.full(len(questions), 1 / len(questions)))
    labels = data.labels[people]
    inputs = [
        labels if one.feature is None else data.codes[people, one.feature] * classes + labels for one in questions
    ]
    found = []
    for campaign in campaigns:
        statistics = estimate(campaign, tally_of(campaign, n, inputs, seed, by_law=by_law))
        found.append(right(*fit(statistics, DEFAULT), data.codes[test], data.labels[test]))
    return found


def variance(mechanism: Mechanism) -> float:
    """Return the noise variance of one answer, summed over the values."""
    law = noise_law(mechanism)
    assert law is not None
    return (mechanism.size - 1) * law.at_zero + law.at_one


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    parser.add_argument("--epsilon", nargs="+", default=["0.5", "1", "2"])
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--law", action="store_true", help="counts from the mechanisms' exact laws")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require()
    columns = (
        "data<11 ε<4 devices>8 subset>10 variance>10.3f former>8.2f auto>8.2f difference>12.3f error>8.3f repeats>9"
    )
    table = Table(f"{AUTO} against the choice before subset", columns, as_json=options.json)
    for name in options.data:
        data = load(name)
        for epsilon in options.epsilon:
            now = campaign_of(data.schema, epsilon)
            before = now._replace(questions=tuple(map(former, now.questions)))
            pairs = [
                (one.mechanism, other.mechanism) for one, other in zip(now.questions, before.questions, strict=True)
            ]
            chosen = sum(one.name == "subset" for one, _ in pairs)
            seeds = [
                [options.seed, *name.encode(), micro_epsilon(epsilon), repeat] for repeat in range(options.repeats)
            ]
            found = np.array(
                [accuracies(data, (before, now), options.devices, seed, by_law=options.law) for seed in seeds]
            )
            mean, error = mean_error((found[:, 1] - found[:, 0]).tolist())
            table.add(
                {
                    "data": name,
                    "ε": epsilon,
                    "devices": options.devices,
                    "subset": f"{chosen} of {len(pairs)}",
                    "variance": fmean(variance(one) / variance(other) for one, other in pairs),
                    "former": float(found[:, 0].mean()),
                    "auto": float(found[:, 1].mean()),
                    "difference": mean,
                    "error": error,
                    "repeats": options.repeats,
                }
            )
    table.end(f"least difference {min(row['difference'] for row in table.rows):.2f}")


if __name__ == "__main__":
    main()
