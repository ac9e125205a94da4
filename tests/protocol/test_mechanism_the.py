"""``the`` with other thresholds than 0.25: its exact loss, and the accepted values of θ."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import permutations
from math import nan

import pytest
from support.failures import reason

from protocol.epsilon import micro_epsilon
from protocol.mechanisms import from_dict, from_epsilon

THETAS = ("0.1", "0.25", "0.5", "0.9")
EPSILONS = ("0.001", "0.5", "1", "4")


def formula(epsilon, theta) -> Decimal:
    """ln[(2e^a − 1)(2e^b − 1)] with a = ε(1 − θ)/2 and b = εθ/2, to 50 digits."""
    with localcontext(prec=60):
        a = Decimal(epsilon) * (1 - Decimal(theta)) / 2
        b = Decimal(epsilon) * Decimal(theta) / 2
        return ((2 * a.exp() - 1) * (2 * b.exp() - 1)).ln()


def exact_loss(mechanism) -> Decimal:
    """ln of the worst ratio over all pairs of values and all rows of bits, to 50 digits."""
    tables = [mechanism.distribution(value) for value in range(mechanism.size)]
    worst = max(one[answer] / other[answer] for one, other in permutations(tables, 2) for answer in one)
    with localcontext(prec=60):
        return (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_true_loss_comes_up_to_the_formula_and_no_further(epsilon, theta):
    mechanism = from_epsilon("the", epsilon, 3, theta=theta)
    loss, bound = exact_loss(mechanism), formula(epsilon, theta)
    assert bound - Decimal("1e-8") < loss <= bound < Decimal(epsilon)
    assert float(mechanism.privacy_loss()) == pytest.approx(float(loss), abs=1e-15)
    assert not mechanism.privacy_loss().exceeds(micro_epsilon(epsilon))


def test_at_epsilon_1_it_spends_what_the_documents_say():
    assert float(from_epsilon("the", 1, 6).privacy_loss()) == pytest.approx(0.883, abs=5e-4)


@pytest.mark.parametrize("theta", THETAS)
def test_p_and_q_are_the_tails_of_laplace_noise_beyond_the_threshold(theta):
    """Noise of scale 2/ε: P(1 + noise > θ) and P(noise > θ); rounded down and up."""
    mechanism = from_epsilon("the", "1.5", 2, theta=theta)
    with localcontext(prec=60):
        half = Decimal("1.5") / 2
        p = 1 - (-half * (1 - Decimal(theta))).exp() / 2
        q = (-half * Decimal(theta)).exp() / 2
        assert mechanism.one_if_true == int(p * 2**32)
        assert mechanism.one_if_other == int(q * 2**32) + 1


@pytest.mark.parametrize(
    "theta", ["0", "1", 0, 1, -0.1, 1.1, nan, "nan", "inf", "-Infinity", "0.2500001", "", "a quarter", True, None, [1]]
)
def test_a_threshold_is_a_number_between_0_and_1_in_millionths(theta):
    assert reason(lambda: from_epsilon("the", 1, 2, theta=theta)) == "theta_invalid"


@pytest.mark.parametrize("theta", ["0.25", 0.25, Decimal("0.25"), "25e-2", "0.2500000000"])
def test_ways_to_write_a_threshold(theta):
    mechanism = from_epsilon("the", 1, 2, theta=theta)
    assert mechanism == from_epsilon("the", 1, 2)
    assert mechanism.options() == {"theta": Decimal("0.25")}


def test_the_threshold_travels_and_tells_mechanisms_apart():
    one, other = from_epsilon("the", 1, 6, theta="0.000001"), from_epsilon("the", 1, 6, theta="0.999999")
    assert (one.to_dict()["theta_micro"], other.to_dict()["theta_micro"]) == (1, 999_999)
    assert from_dict(one.to_dict()) == one != other
    assert from_dict(one.to_dict()).options() == {"theta": Decimal("0.000001")}
    assert one != from_dict({**one.to_dict(), "theta_micro": 2})


@pytest.mark.parametrize("theta", THETAS)
def test_a_document_s_integers_follow_from_epsilon_and_its_threshold(theta):
    mechanism = from_epsilon("the", 1, 6, theta=theta)
    again = type(mechanism).from_micro(mechanism.epsilon_micro, mechanism.size, **mechanism.options())
    assert again.to_dict() == mechanism.to_dict()


def test_only_the_knows_a_threshold():
    for name in ("direct", "oue", "sue", "she"):
        assert reason(lambda name=name: from_epsilon(name, 1, 2, theta="0.25")) == "option_unknown"
    stated = from_epsilon("the", 1, 2).to_dict()
    assert reason(from_dict, {key: value for key, value in stated.items() if key != "theta_micro"}) == (
        "parameters_invalid"
    )


@pytest.mark.parametrize("theta", ["0.2_5", "\uff10.25", " 0.25", "0.25" + "0" * 40 + "1"])
def test_theta_is_read_as_exactly_as_epsilon(theta):
    assert reason(from_epsilon, "the", 1, 4, theta=theta) == "theta_invalid"
