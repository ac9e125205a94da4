"""Exact privacy: a proof by enumeration over all pairs of inputs and all answers."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import factorial, inf, log, nextafter

import pytest
from support.mechanisms import kinds

from protocol import mechanisms
from protocol.epsilon import PrivacyLoss, composed, exp_below, micro_epsilon
from protocol.mechanisms import BITS, SINGLE, FrequencyMechanism, from_dict, from_epsilon

EPSILONS = ("0.001", "0.1", "0.5", "0.693147", "1", "1.098613", "2.5", "8", "16")
LARGEST = {name: 6 if mechanisms.kind(name).layout == SINGLE else 5 for name in kinds(FrequencyMechanism)}
"""Largest size enumerated, by mechanism; test_mechanism_contract.py and files of their own enumerate the others."""
TIGHT = {"direct": {"keep": 1}, "oue": {"q": -1}, "sue": {"p": 1, "q": -1}}
"""The integers that use ε fully, with the smallest step that would exceed ε.

``the`` spends less than ε by design: test_mechanism_the.py compares its loss with its own formula.
"""

CASES = [
    pytest.param(name, epsilon, size, id=f"{name}-{epsilon}-{size}")
    for name, largest in LARGEST.items()
    for epsilon in EPSILONS
    for size in range(2, largest + 1)
]


def exponential_below(epsilon: Fraction) -> Fraction:
    """A partial sum of the series of e^ε, hence below it: independent of the decimal module."""
    return sum((epsilon**k / factorial(k) for k in range(200)), Fraction(0))


@pytest.mark.parametrize(("name", "epsilon", "size"), CASES)
def test_no_answer_tells_two_inputs_apart_by_more_than_epsilon(name, epsilon, size):
    mechanism = from_epsilon(name, epsilon, size)
    tables = [mechanism.distribution(value) for value in range(size)]
    assert all(sum(table.values()) == 1 for table in tables)
    assert all(table.keys() == tables[0].keys() for table in tables)
    assert all(probability > 0 for table in tables for probability in table.values())
    worst = max(one[answer] / other[answer] for one, other in permutations(tables, 2) for answer in one)
    loss = mechanism.privacy_loss()
    assert worst == loss.ratio
    assert worst <= exp_below(micro_epsilon(epsilon)) < exponential_below(Fraction(epsilon))
    assert not loss.exceeds(micro_epsilon(epsilon))


@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_rounded_integer_is_the_boldest_that_epsilon_allows(name, epsilon):
    for size in (2, 3, 1000):
        stated = from_epsilon(name, epsilon, size).to_dict()
        step = {parameter: stated[parameter] + change for parameter, change in TIGHT[name].items()}
        assert from_dict({**stated, **step}).privacy_loss().exceeds(micro_epsilon(epsilon))


@pytest.mark.parametrize("name", LARGEST)
def test_p_and_q_are_those_of_the_distribution(name):
    size = 4
    mechanism = from_epsilon(name, "0.7", size)
    for value in range(size):
        table = mechanism.distribution(value)
        for other in range(size):
            supports = sum(
                (
                    chance
                    for answer, chance in table.items()
                    if (answer[other] if mechanism.layout == BITS else answer == other)
                ),
                Fraction(0),
            )
            assert supports == (mechanism.p if other == value else mechanism.q)


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("size", [2, 6, 300, 65536])
def test_a_document_says_all_there_is(name, size):
    mechanism = from_epsilon(name, 2, size)
    assert from_dict(mechanism.to_dict()) == mechanism
    assert hash(from_dict(mechanism.to_dict())) == hash(mechanism)
    assert mechanism != from_epsilon(name, 1, size)
    assert mechanism != mechanism.to_dict()
    assert repr(mechanism).endswith(f"(epsilon=2, size={size})")
    assert mechanism.answers == size
    assert mechanism.epsilon == 2.0


def test_a_loss_is_a_float_that_is_never_too_small():
    for ratio in (Fraction(3, 2), Fraction(10**40 + 1, 10**40), Fraction(2**4000)):
        loss = float(PrivacyLoss(ratio))
        assert exponential_below(Fraction(loss) / 64) ** 64 >= ratio
        assert exponential_below(Fraction(nextafter(loss, -inf)) / 64) ** 64 < ratio
    assert PrivacyLoss(Fraction(1)) == 0.0
    assert not PrivacyLoss(Fraction(1)).exceeds(0)
    assert PrivacyLoss(Fraction(1), Fraction(1, 2)).exceeds(499_999)
    assert not PrivacyLoss(Fraction(1), Fraction(1, 2)).exceeds(500_000)


def test_composition_multiplies_ratios_and_adds_exponents():
    losses = [PrivacyLoss(Fraction(k + 1, k), Fraction(1, k)) for k in range(1, 20)]
    total = composed(losses)
    assert total.ratio == 20
    assert total.exponent == sum(Fraction(1, k) for k in range(1, 20))
    assert float(total) == pytest.approx(log(20) + float(total.exponent))
    assert (composed([]).ratio, composed([]).exponent) == (1, 0)


def test_a_unary_distribution_of_many_bits_is_refused_and_its_bits_are_not():
    many = from_epsilon("oue", 1, 17)
    with pytest.raises(mechanisms.base.InputError, match="too_many_answers"):
        many.distribution(0)
    assert many.bit_probabilities(3)[2:5] == [many.q, many.p, many.q]
