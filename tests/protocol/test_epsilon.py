"""ε as a text or number becomes an integer number of millionths, or is refused."""

import decimal
import re
from decimal import Decimal
from fractions import Fraction
from math import exp, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason

from protocol import mechanisms
from protocol.epsilon import MICRO, check_answer_micro, exp_below, format_micro, micro_epsilon
from protocol.mechanisms.direct import Direct

NO_EPSILON = [
    *(nan, inf, -inf, -1, 0, 0.0, -0.0, 1e-7, 1e6, True, False, None, b"1", 1j, [1], Fraction(1, 2), 10**400),
    *map(Decimal, ("NaN", "sNaN", "Infinity", "1e-999999", "1e999999")),
    *("1/2", "0x1", "ε", "1,5", "nan", "inf", "-1", "0", "", "x", "0.0000001", "1_0", "\uff10.1", "\u0663", " 1"),
    *("1\n", "+1", "1e", ".", "0.12345600000000000000000000000000000000001", "1e-99999999999999999999", "1" * 101),
    *("0." + "0" * 10**6, np.float64(nan)),
]


@given(st.integers(1, 999_999 * MICRO))
def test_every_multiple_of_a_millionth_comes_back_from_its_text(micro):
    text = format_micro(micro)
    assert len(text) <= 13
    assert not re.search(r"\.\d*0$", text)
    assert micro_epsilon(text) == micro
    assert micro_epsilon(Decimal(text)) == micro
    assert Fraction(text) == Fraction(micro, MICRO)
    assert micro_epsilon(text + ("000000000000000000000000000000" if "." in text else "")) == micro


@given(st.integers(1, 100 * MICRO))
def test_a_float_is_read_by_its_shortest_text(micro):
    assert micro_epsilon(micro / MICRO) == micro
    assert micro_epsilon(np.float64(micro / MICRO)) == micro


def test_numbers_of_numpy_are_numbers():
    assert micro_epsilon(np.int64(2)) == micro_epsilon(np.uint8(2)) == 2 * MICRO
    assert mechanisms.from_epsilon("the", 1, 4, theta=np.float64(0.3)).theta_micro == 300_000


@pytest.mark.parametrize("bad", NO_EPSILON, ids=lambda value: type(value).__name__)
def test_what_is_no_epsilon_is_refused(bad):
    assert reason(micro_epsilon, bad) == "epsilon_invalid"
    assert reason(mechanisms.from_epsilon, "direct", bad, 4) == "epsilon_invalid"


def test_the_callers_decimal_context_does_not_matter():
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.Inexact] = True
        context.traps[decimal.Rounded] = True
        assert micro_epsilon("0.123456") == 123_456
        exp_below.cache_clear()
        mechanism = Direct.from_micro(1_000_000, 6)
        assert mechanism.to_dict()["keep"] == 1512633486
        assert mechanism.privacy_loss() <= 1.0
        assert reason(micro_epsilon, "x") == "epsilon_invalid"
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False
        assert reason(micro_epsilon, "x") == "epsilon_invalid"


def test_an_answer_spends_from_a_thousandth_to_16():
    for micro in (0, 999, 16_000_001, 1.0, "1000", None, True):
        assert reason(check_answer_micro, micro) == "epsilon_invalid"
    assert reason(check_answer_micro, 1_000) == reason(check_answer_micro, 16_000_000) is None


@pytest.mark.parametrize("name", ["", "Direct", "laplace ", None, 3, ["direct"]])
def test_unknown_mechanisms(name):
    assert reason(mechanisms.from_epsilon, name, 1, 4) == "mechanism_unknown"


@given(st.integers(-20 * MICRO, 20 * MICRO))
def test_the_exponential_is_below_and_close(micro):
    below, above = exp_below(micro), 1 / exp_below(-micro)
    assert below < above
    assert (above - below) * 10**49 < above
    assert float(below) == pytest.approx(exp(micro / MICRO))
