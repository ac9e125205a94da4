"""Bounds are on the right side of the number, and near it."""

from decimal import Context
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from protocol.noise.rational_bounds import (
    exp_above,
    exp_below,
    integer_root,
    log_above,
    root_above,
    round_down,
    round_up,
)

POSITIVE = st.fractions(Fraction(1, 10**6), 10**6)
_PRECISE = Context(prec=120)


def precise(function, x):
    """A function of a fraction to 119 digits, by decimal arithmetic of twice the digits that the bounds use."""
    argument = _PRECISE.divide(_PRECISE.create_decimal(x.numerator), _PRECISE.create_decimal(x.denominator))
    return Fraction(function(_PRECISE, argument))


@given(POSITIVE)
@examples(100)
def test_bounds_are_on_their_sides(x):
    assert 1 < root_above(x) / precise(Context.sqrt, x) < 1 + Fraction(1, 10**55)
    small = x / 10**4
    for each in (small, -small):
        value = precise(Context.exp, each)
        assert value < exp_above(each) < value * (1 + Fraction(1, 10**54))
        assert value > exp_below(each) > value * (1 - Fraction(1, 10**54))
    value = precise(Context.ln, x)
    assert value < log_above(x) < value + Fraction(1, 10**54)


@given(POSITIVE, st.integers(2, 100))
@examples(100)
def test_rounding_keeps_the_side_and_the_bits(x, bits):
    above, below = round_up(x, bits), round_down(x, bits)
    assert below <= x <= above < x * (1 + Fraction(2) ** (1 - bits))
    assert below > x * (1 - Fraction(2) ** (1 - bits))
    for found in (above, below):
        assert found.denominator & (found.denominator - 1) == 0
        odd = found.numerator // (found.numerator & -found.numerator)
        assert odd.bit_length() <= bits + 1


@given(st.integers(0, 1 << 400), st.integers(1, 70))
@examples(200)
def test_an_integer_root_is_the_largest(number, degree):
    root = integer_root(number, degree)
    assert root**degree <= number < (root + 1) ** degree


def test_nothing_is_rounded_to_nothing():
    assert round_up(Fraction(0)) == round_down(Fraction(0)) == 0
