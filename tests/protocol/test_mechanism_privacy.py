"""Exact privacy: a proof by enumeration over all pairs of inputs and all answers."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import permutations
from math import factorial, inf, log, nan, nextafter

import pytest
from support.failures import reason
from support.mechanisms import inputs_of, kinds, sizes

from protocol import mechanisms
from protocol.epsilon import PrivacyLoss, composed, exp_below, micro_epsilon
from protocol.mechanisms import SINGLE, FrequencyMechanism, from_dict, from_epsilon

EPSILONS = ("0.001", "0.1", "0.5", "0.61", "0.62", "0.693147", "1", "1.098613", "2.5", "8", "16")
LARGEST = {name: 6 if mechanisms.kind(name).layout == SINGLE else 5 for name in kinds(FrequencyMechanism)}
"""Largest size enumerated, by mechanism; test_mechanism_contract.py and files of their own enumerate the others."""
TIGHT = {
    "direct": {"keep": 1},
    "oue": {"q": -1},
    "sue": {"p": 1, "q": -1},
    "subset": {"p": 1},
    **{name: {"threshold": 1} for name in ("bit", "bits", "duchi", "piecewise")},
}
"""The integers that use ε fully, with the smallest step that would exceed ε. ``the`` spends less than ε by design."""
THETAS = ("0.1", "0.25", "0.5", "0.9")


def exponential_below(epsilon):
    """A partial sum of the series of e^ε, hence below it: independent of the decimal module."""
    return sum((epsilon**k / factorial(k) for k in range(200)), Fraction(0))


def worst_ratio(mechanism):
    tables = [mechanism.distribution(value) for value in range(mechanism.size)]
    assert all(sum(table.values()) == 1 for table in tables)
    assert all(table.keys() == tables[0].keys() for table in tables)
    assert all(probability > 0 for table in tables for probability in table.values())
    return max(one[answer] / other[answer] for one, other in permutations(tables, 2) for answer in one)


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name, largest in LARGEST.items() for size in range(2, largest + 1)]
)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_answer_tells_two_inputs_apart_by_more_than_epsilon(name, epsilon, size):
    mechanism = from_epsilon(name, epsilon, size)
    loss = mechanism.privacy_loss()
    assert worst_ratio(mechanism) == loss.ratio
    assert loss.ratio <= exp_below(micro_epsilon(epsilon)) < exponential_below(Fraction(epsilon))
    assert not loss.exceeds(micro_epsilon(epsilon))


@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_rounded_integer_is_the_boldest_that_epsilon_allows(name, epsilon):
    for size in (*sizes(name, 3), *([1000] if name in LARGEST else ())):
        stated = from_epsilon(name, epsilon, size).to_dict()
        step = {parameter: stated[parameter] + change for parameter, change in TIGHT[name].items()}
        assert from_dict({**stated, **step}).privacy_loss().exceeds(micro_epsilon(epsilon))


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


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        *((name, 2, 65536) for name in ("direct", "oue", "sue", "subset", "the")),
        *(("she", 2, 4096), ("bits", 1, 65536), ("duchi", 1, 4096), ("laplace", 1, 4096)),
        *((name, 1, 1) for name in ("bit", "piecewise", "hybrid")),
    ],
)
def test_sizes_end_where_the_formats_say(name, least, most):
    for size in (least, most):
        stated = from_epsilon(name, 1, size).to_dict()
        assert from_dict(stated).to_dict() == stated
    for size in (least - 1, most + 1):
        assert reason(from_epsilon, name, 1, size) == reason(from_dict, {**stated, "size": size}) == "size_invalid"


@pytest.mark.parametrize(
    ("name", "size"), [("oue", 17), ("subset", 24), ("bits", 17), ("duchi", 17), ("laplace", 17), ("she", 8)]
)
def test_a_table_that_is_too_long_is_refused(name, size):
    mechanism = from_epsilon(name, 1, size)
    assert reason(mechanism.distribution, inputs_of(mechanism)[0]) == "too_many_answers"


def test_the_bits_of_a_row_that_has_no_table_have_their_probabilities():
    many = from_epsilon("oue", 1, 17)
    assert many.bit_probabilities(3)[2:5] == [many.q, many.p, many.q]


# ``the`` with other thresholds than 0.25 ----------------------------------------------------------------


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "4"])
def test_the_true_loss_comes_up_to_the_formula_and_no_further(epsilon, theta):
    """ln[(2e^a − 1)(2e^b − 1)] with a = ε(1 − θ)/2 and b = εθ/2; both sides to 50 digits."""
    mechanism = from_epsilon("the", epsilon, 3, theta=theta)
    worst = worst_ratio(mechanism)
    with localcontext(prec=60):
        a, b = (Decimal(epsilon) * part / 2 for part in (1 - Decimal(theta), Decimal(theta)))
        bound = ((2 * a.exp() - 1) * (2 * b.exp() - 1)).ln()
        loss = (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()
    assert bound - Decimal("1e-8") < loss <= bound < Decimal(epsilon)
    assert float(mechanism.privacy_loss()) == pytest.approx(float(loss), abs=1e-15)
    assert not mechanism.privacy_loss().exceeds(micro_epsilon(epsilon))


@pytest.mark.parametrize(
    "theta",
    [
        *("0", "1", "nan", "inf", "-Infinity", "0.2500001", "", "a quarter", "0.2_5", "\uff10.25", " 0.25"),
        *("0.25" + "0" * 40 + "1", 0, 1, -0.1, 1.1, nan, True, None, [1]),
    ],
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
    assert type(one).from_micro(1_000_000, 6, **one.options()).to_dict() == one.to_dict()
