"""Powers with and without gmpy2, the hash into the groups, and exact uniform integers."""

import random
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from protocol.errors import InputError
from protocol.masked import cipher as groups
from protocol.masked.cipher import PLAIN, SUMS, below, expanded, fastest, power, wide_each

CAMPAIGN = bytes(range(32))
KINDS = {"gmpy2": fastest(), "pow": PLAIN}


@pytest.fixture(params=KINDS)
def arithmetic(request, monkeypatch):
    if request.param == "gmpy2":
        pytest.importorskip("gmpy2")
    monkeypatch.setattr(groups, "in_use", KINDS[request.param])


def test_gmpy2_is_used_where_it_is_installed():
    gmpy2 = pytest.importorskip("gmpy2")
    assert groups.in_use.power is gmpy2.powmod
    assert type(groups.wide(3)) is gmpy2.mpz


@pytest.mark.usefixtures("arithmetic")
@given(st.integers(-(2**300), 2**300), st.integers(-(2**80), 2**80), st.integers(2, 2**300))
@examples(60)
def test_powers_are_plain_integers_that_both_libraries_agree_on(base, exponent, modulus):
    if exponent < 0 and gcd(base, modulus) > 1:
        with pytest.raises(InputError, match="not_invertible"):
            power(base, exponent, modulus)
        return
    found = power(base, exponent, modulus)
    assert type(found) is int
    assert found == pow(base, exponent, modulus)
    assert 0 <= found < modulus


@pytest.mark.usefixtures("arithmetic")
@given(st.lists(st.integers(0, 2**64 - 1)))
@examples(20)
def test_joined_numbers_are_read_in_order(numbers):
    raw = b"".join(number.to_bytes(8, "big") for number in numbers)
    assert list(wide_each(raw, 8)) == numbers


@pytest.mark.parametrize(
    ("campaign", "period", "number"),
    [
        (bytes(31), 0, 0),
        (bytes(33), 0, 0),
        (CAMPAIGN, -1, 0),
        (CAMPAIGN, 2**32, 0),
        (CAMPAIGN, 0, -1),
        (CAMPAIGN, 0, 2**32),
    ],
)
def test_the_hash_refuses_what_its_bytes_can_not_say(campaign, period, number):
    with pytest.raises(InputError, match="argument_invalid"):
        expanded(SUMS, campaign, period, number)


def test_integers_below_a_bound_are_uniform():
    """Each of the 256 bytes once: 0 … 9 come from the low four bits, 16 times each, and the rest is drawn again."""
    source = iter(range(256))
    counts = [0] * 10
    while True:
        try:
            counts[below(10, lambda size: bytes(next(source) for _ in range(size)))] += 1
        except RuntimeError:  # the source has no more
            break
    assert counts == [16] * 10
    assert below(1, lambda size: b"") == 0


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_source_of_randomness_that_returns_too_few_or_too_many_bytes_is_refused(size):
    with pytest.raises(InputError, match="argument_invalid"):
        below(2**16, lambda wanted: random.Random(1).randbytes(size))
