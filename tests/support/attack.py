"""The best attack on all answers of one device, computed exactly with fractions.

An attacker knows the campaigns, the mechanisms and the question of each answer: all of these are public. The attacker
guesses the device's true value, one of k values with equal prior probabilities. For answers y the best guess is the
value under which y is most probable. Over all y

    success = (1/k) Σ_y max_x P(y | x)  ≤  e^E / (e^E + k − 1)

if the answers together are E-differentially private. Proof: if m is the largest of the k probabilities of y, all
others are at least m·e^−E, so Σ_x P(y | x) ≥ m (1 + (k−1) e^−E); sum over y. One answer by ``direct`` at ε = E
attains the bound, up to the rounding of its integers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from protocol.epsilon import MICRO, exp_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from protocol.mechanisms import Mechanism

Table = tuple[tuple[Fraction, ...], ...]
"""Per answer the probabilities under each of the k values."""


def bound(micro: int, values: int) -> Fraction:
    """The upper bound of the success: just below e^E / (e^E + k − 1) with E = micro/10⁶."""
    odds = exp_below(micro, MICRO)
    return odds / (odds + values - 1)


def table(mechanism: Mechanism, inputs: Sequence[Any]) -> Table:
    """The table of a mechanism's answers, given its input for each of the k values."""
    columns = [mechanism.distribution(value) for value in inputs]
    answers = sorted({answer for column in columns for answer in column})
    return tuple(tuple(column.get(answer, Fraction(0)) for column in columns) for answer in answers)


def merged(rows: Iterable[Sequence[Fraction]]) -> Table:
    """Add the rows of answers with proportional probabilities: such answers lead to the same guess."""
    found: dict[tuple[Fraction, ...], Fraction] = {}
    for row in rows:
        total = sum(row)
        if total:
            shape = tuple(share / total for share in row)
            found[shape] = found.get(shape, Fraction(0)) + total
    return tuple(tuple(share * total for share in shape) for shape, total in found.items())


def both(first: Table, second: Table) -> Table:
    """The joint table of two answers with independent noise."""
    return merged(tuple(a * b for a, b in zip(one, other, strict=True)) for one, other in product(first, second))


def success(joint: Table) -> Fraction:
    """The probability that the best guess is right: (1/k) Σ_y max_x P(y | x)."""
    return sum((max(row) for row in joint), Fraction(0)) / len(joint[0])


def best_adaptive(offers: Sequence[tuple[int, Table]], micro: int, values: int) -> Fraction:
    """Success of the best attacker who chooses each campaign by the answers so far, until the device's ε is spent.

    Args:
        offers: what he may publish: its cost in micro-ε, and what its answers say.
        micro: what the device spends in its life.
        values: k.
    """

    @cache
    def best(shape: tuple[Fraction, ...], left: int) -> Fraction:
        """The largest expected weight of the right guess, for one unit of P(answers so far)."""
        most = max(shape)
        for cost, answers in offers:
            if cost <= left:
                total = Fraction(0)
                for row in answers:
                    joint = [have * new for have, new in zip(shape, row, strict=True)]
                    weight = sum(joint)
                    if weight:
                        total += weight * best(tuple(share / weight for share in joint), left - cost)
                most = max(most, total)
        return most

    return best((Fraction(1, values),) * values, micro)


def guess(likelihoods: Iterable[Callable[[int], Fraction]], values: int) -> int:
    """The value under which the given answers are most probable; the first one of several."""
    weights = [Fraction(1)] * values
    for likelihood in likelihoods:
        weights = [weight * likelihood(value) for value, weight in enumerate(weights)]
    return weights.index(max(weights))
