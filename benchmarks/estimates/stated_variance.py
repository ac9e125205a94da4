"""Stated variances over exact ones, for every mechanism, question and number of a campaign.

    python -m benchmarks.estimates.stated_variance [--json]

The tally holds the expected counts of many answers, so estimates are the truth and nothing is random. The exact
variance of one answer is computed from the mechanism's distribution (values) or from its variance at every input
(numbers), and from the population's true values. The campaigns are those of ``drawn_campaigns``, with one and three
answers per device.
"""

from __future__ import annotations

import json
import sys
from itertools import product

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import sign_size
from aggregator.estimates.reports import estimate
from aggregator.reports.tally.tally import Tally
from benchmarks.estimates.coverage import FREQUENCY, NUMERIC, shares_of
from benchmarks.estimates.drawn_campaigns import CLASSES, NUMBERS, Setting, clipped_laws, setting
from benchmarks.shared.harness import arguments, machine
from protocol import SCALE
from protocol.mechanisms import SINGLE, Mechanism
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.mechanisms.she import SummedHistogram
from protocol.questions import CELL, CLASS, SQUARE, Question

N = 10**8
_MOST_BITS = 8
"""All answers of a unary encoding of at most so many bits are enumerated; longer encodings use the bits' chances."""


def supports(mechanism: Mechanism, value: int) -> Floats:
    """Exact probability that an answer about ``value`` supports each value: shape (K,) float64."""
    size = mechanism.size
    if mechanism.layout == SINGLE:
        law = mechanism.distribution(value)
        return np.array([float(law[answer]) for answer in range(size)])
    if size > _MOST_BITS:
        return np.array([float(mechanism.p if value == place else mechanism.q) for place in range(size)])
    law = mechanism.distribution(value)
    return np.sum([float(law[bits]) * np.array(bits) for bits in product((0, 1), repeat=size)], axis=0)


def of_values(mechanism: Mechanism, shares: Floats) -> tuple[list[int], Floats]:
    """Expected counts of N answers about values, and the exact variance of the estimate of a share from one answer."""
    if isinstance(mechanism, SummedHistogram):
        grid = np.arange(GRID + 1)
        own, other = ((law @ grid, law @ grid**2) for law in clipped_laws(mechanism))
        gain = own[0] - other[0]
        first = shares * own[0] + (1 - shares) * other[0]
        second = shares * own[1] + (1 - shares) * other[1]
        return np.rint(N * first).astype(np.int64).tolist(), (second - first**2) / gain**2
    table = np.array([supports(mechanism, value) for value in range(mechanism.size)])
    chances = shares @ table
    gain = table[0, 0] - table[1, 0]
    return np.rint(N * chances).astype(np.int64).tolist(), chances * (1 - chances) / gain**2


def of_numbers(question: Question, joint: Floats) -> tuple[list[int], Floats]:
    """Expected counts of N answers about numbers, and the exact variance of the estimate of each mean.

    ``joint``: shape (values, 4) float64, shares of all pairs of number and class.
    """
    mechanism, subject = question.mechanism, question.subject
    assert isinstance(mechanism, NumericMechanism)
    power = subject.power or 1
    columns = range(4) if subject.of_class is None else [subject.of_class]
    stretched = subject.of_class is not None and power == SQUARE
    counts: list[Floats] = []
    variances = []
    for column in columns:
        values = np.append(np.rint(NUMBERS**power * SCALE), 0).astype(np.int64)
        chances = np.append(joint[:, column], 1 - joint[:, column].sum())
        inputs = 2 * values - SCALE if stretched else values
        noise = np.array([float(mechanism.variance(int(value))) for value in inputs]) / SCALE**2
        mean = chances @ values / SCALE
        variances.append(chances @ noise / (4 if stretched else 1) + chances @ (values / SCALE) ** 2 - mean**2)
        if mechanism.layout == SINGLE:
            laws = [mechanism.distribution(int(value)) for value in inputs]
            table = np.array([[float(law[answer]) for answer in range(mechanism.answers)] for law in laws])
            counts.append(N * (chances @ table))
        elif isinstance(mechanism, CoinMechanism):
            counts.append(np.array([N * (1 + mean / sign_size(mechanism)) / 2]))
        else:
            counts.append(np.array([N * GRID * mean]))
    return np.rint(np.concatenate(counts)).astype(np.int64).tolist(), np.array(variances)


def ratios(given: Setting) -> dict[str, Floats]:
    """Stated over exact variance of all numbers of all questions, by kind of question."""
    campaign = given.campaign
    truth = [(CLASSES, table * CLASSES) for table in given.tables]
    counts, exact = [], []
    for question in campaign.questions:
        if question.kind in (CLASS, CELL):
            found = of_values(question.mechanism, shares_of(question.subject, truth))
        else:
            found = of_numbers(question, truth[question.feature or 0][1])
        counts.append(tuple(found[0]))
        exact.append(found[1])
    statistics = estimate(campaign, Tally(campaign.id, (N,) * len(counts), tuple(counts)))
    collected: dict[str, list[Floats]] = {}
    for one, variance in zip(statistics.questions, exact, strict=True):
        name = one.subject.kind if one.subject.power is None else f"{one.subject.kind} {one.subject.power}"
        # One stratum's questions share N answers each; the population's variance is that of N different devices.
        collected.setdefault(name, []).append(one.variance / N / variance)
    return {name: np.concatenate(parts) for name, parts in collected.items()}


def main() -> None:
    """Compute, print."""
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    rows = []
    for mechanism in (*FREQUENCY, *NUMERIC):
        for epsilon in (0.5, 1.0, 4.0):
            for answers in (1, 3):
                for name, found in ratios(setting(mechanism, epsilon, answers, 1)).items():
                    about = {"mechanism": mechanism, "epsilon": epsilon, "answers": answers, "question": name}
                    ends = {"least": float(found.min()), "most": float(found.max()), "numbers": len(found)}
                    rows.append(about | ends)
    if options.json:
        json.dump({"title": "Stated variances", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return
    print("mechanism  ε    r  question    stated over exact variance: least, most; numbers")
    for row in rows:
        where = f"{row['mechanism']:<10} {row['epsilon']:<4g} {row['answers']}  {row['question']:<10}"
        print(f"{where}  {row['least']:.4f}  {row['most']:.4f}  {row['numbers']:>3}")
    print(f"least {min(row['least'] for row in rows):.4f}, most {max(row['most'] for row in rows):.4f}")


if __name__ == "__main__":
    main()
