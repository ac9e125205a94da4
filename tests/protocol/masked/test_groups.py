"""Powers with and without gmpy2, the hash into the groups, and exact uniform integers."""

import random
from hashlib import sha256
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.masked_reference import MODULUS, hashed, raised

from protocol.errors import InputError
from protocol.masked import cipher as groups
from protocol.masked.cipher import PLAIN, PRODUCTS, SUMS, below, expanded, fastest, hash_to_group, power, wide_each

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
def test_a_power_of_a_campaign_s_size_is_that_of_squaring_and_multiplying():
    exponent = int(sha256(b"exponent").hexdigest() * 17, 16) >> 128
    base = hash_to_group(CAMPAIGN, 1, 2, MODULUS)
    assert exponent.bit_length() > 4200
    assert power(base, exponent, MODULUS**2) == raised(base, exponent, MODULUS**2)
    assert power(base, exponent, MODULUS**2) * power(base, -exponent, MODULUS**2) % MODULUS**2 == 1


@pytest.mark.usefixtures("arithmetic")
@given(st.lists(st.integers(0, 2**64 - 1)))
@examples(20)
def test_joined_numbers_are_read_in_order(numbers):
    raw = b"".join(number.to_bytes(8, "big") for number in numbers)
    assert list(wide_each(raw, 8)) == numbers


def test_the_hash_is_that_of_the_formula_and_depends_on_everything():
    assert expanded(SUMS, CAMPAIGN, 20_000, 3) == hashed(SUMS, CAMPAIGN, 20_000, 3)
    assert hash_to_group(CAMPAIGN, 20_000, 3, MODULUS) == hashed(b"hearsay/1/masked", CAMPAIGN, 20_000, 3) % MODULUS**2
    others = {
        expanded(tag, campaign, period, number)
        for tag in (SUMS, PRODUCTS)
        for campaign in (CAMPAIGN, bytes(32))
        for period in (0, 1, 2**32 - 1)
        for number in (0, 1, 2**32 - 1)
    }
    assert len(others) == 36
    assert max(others).bit_length() > 4340


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
