"""The vertical form: products of all parties are opened exactly; everything else is a mismatch or refused."""

from __future__ import annotations

import random
from hashlib import sha256
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.masked_toys import hashed, raised

from protocol.errors import DocumentError, InputError
from protocol.masked import cipher as groups
from research.products import ORDER, PRIME, base_of_squares, mask_number, opened_product, product_keys, require_room

CAMPAIGN = bytes(range(32))
KEYS = product_keys(3, random.Random(1).randbytes)
BOUNDS = (2000, 10, 10**6)
VALUES = (1727, 0, 999_999)


def sent(values=VALUES, period=4, number=2, keys=KEYS, bounds=BOUNDS):
    rows = zip(values, bounds, keys.secrets, strict=True)
    return [mask_number(value, bound, secret, CAMPAIGN, period, number) for value, bound, secret in rows]


def opened(ciphertexts, period=4, number=2, aggregator=KEYS.aggregator, bounds=BOUNDS, campaign=CAMPAIGN):
    return opened_product(ciphertexts, bounds, aggregator, campaign, period, number)


def pi_times(power):
    """⌊π · 2^power⌋ by Machin's formula: π = 16·arctan(1/5) − 4·arctan(1/239), with 64 bits to spare."""

    def arctangent(inverse):
        term, total, place = (1 << power + 64) // inverse, 0, 0
        while term:
            total += (-1) ** place * (term // (2 * place + 1))
            term //= inverse**2
            place += 1
        return total

    return 16 * arctangent(5) - 4 * arctangent(239) >> 64


def probably_prime(candidate):
    """Miller and Rabin's test with 20 fixed bases."""
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for number in range(20):
        value = groups.power(int(sha256(bytes([number])).hexdigest(), 16), odd, candidate)
        if value not in {1, candidate - 1} and all(
            (value := value * value % candidate) != candidate - 1 for _ in range(twos - 1)
        ):
            return False
    return True


def test_the_prime_is_that_of_the_standard_and_keys_are_uniform_below_its_order():
    assert 2**2048 - 2**1984 - 1 + 2**64 * (pi_times(1918) + 124476) == PRIME
    assert 2 * ORDER + 1 == PRIME
    # A source that first returns the order, and then one less: the first is drawn again.
    drawn = iter([ORDER, ORDER - 1, 0])
    keys = product_keys(2, lambda size: next(drawn).to_bytes(size, "big"))
    assert keys == ((ORDER - 1, 0), 1)


@pytest.mark.slow
def test_the_prime_is_a_safe_prime():
    assert probably_prime(PRIME)
    assert probably_prime(ORDER)
    assert not probably_prime(PRIME + 2)


KNOWN = "70d40a3fbaab34a78992b1d3f98a2a25a96b3a86d5337af38b731f7d90522281"


def test_known_answer_of_a_product():
    """A ciphertext by the formula: hash, square, power by squaring and multiplying."""
    secret = int(sha256(b"secret").hexdigest() * 7, 16)
    base = raised(hashed(b"hearsay/1/products", CAMPAIGN, 4, 2) % PRIME, 2, PRIME)
    assert base_of_squares(CAMPAIGN, 4, 2) == base
    expected = 1728 * 1728 * raised(base, secret, PRIME) % PRIME
    assert mask_number(1727, 2000, secret, CAMPAIGN, 4, 2) == expected
    assert sha256(expected.to_bytes(256, "big")).hexdigest() == KNOWN


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**16)), min_size=2, max_size=6), st.integers(0, 2**32 - 1)
)
@examples(12)
def test_products_of_all_parties_are_opened(pairs, period):
    values, bounds = [value for value, _ in pairs], [value + more for value, more in pairs]
    keys = product_keys(len(values), random.Random(period).randbytes)
    assert sum(keys.secrets) + keys.aggregator == (sum(keys.secrets) // ORDER + 1) * ORDER
    ciphertexts = sent(values, period, 0, keys, bounds)
    assert opened(ciphertexts, period, 0, keys.aggregator, bounds) == prod(value + 1 for value in values)


FITS = [2**204 - 1] * 5


def test_what_does_not_fit_is_refused():
    require_room(FITS)
    for refused in (lambda: require_room([*FITS, 15]), lambda: opened([1] * 6, bounds=[*FITS, 15])):
        with pytest.raises(InputError, match="product_overflow"):
            refused()
    for value in (-1, 11):
        with pytest.raises(InputError, match="slot_overflow: a number of a product is outside 0 to its public bound"):
            mask_number(value, 10, 5, CAMPAIGN, 0, 0)
    for parties in (-1, 0, 1):
        with pytest.raises(InputError, match="parties_too_few"):
            product_keys(parties, random.randbytes)


def test_python_s_own_power_gives_the_same(monkeypatch):
    fast = sent()
    monkeypatch.setattr(groups, "in_use", groups.PLAIN)
    assert sent() == fast
    assert opened(fast) == 1728 * 10**6


def test_anything_else_is_a_mismatch():
    """A square times a ciphertext is an honest one of another number: a party can lie about its own number only."""
    right = sent()
    assert opened([right[0], 9 * right[1], right[2]]) == 3 * 1728 * 10**6
    for wrong in (
        lambda: opened(sent(period=5)),
        lambda: opened(right, period=5),
        lambda: opened(right, number=3),
        lambda: opened(right, campaign=bytes(32)),
        lambda: opened(right, aggregator=KEYS.aggregator + 1),
        lambda: opened([*right[:2], right[1]]),
        lambda: opened([*right[:2], 1]),
        lambda: opened([*right[:2], 0]),
        lambda: opened([*right[:2], PRIME]),
        lambda: opened([*right[:2], -right[2]]),
        lambda: opened([*right[:2], right[2] * 2]),
        lambda: opened(right[:2]),
        lambda: opened([*right, 1]),
        lambda: opened(right, bounds=(2000, 10, 10)),
    ):
        with pytest.raises(DocumentError, match="mask_mismatch"):
            wrong()
    for bit in range(0, 2048, 41):
        with pytest.raises(DocumentError, match="mask_mismatch"):
            opened([right[0] ^ (1 << bit), *right[1:]])


def test_a_wrong_key_shows_no_quotient_of_numbers():
    """What a mismatch leaves is uniform on the group: with 120 wrong keys about 60 are in the upper half.

    False alarms: a deviation of 44 from 60, eight standard deviations, has a probability below 10^-14. With
    the right key each is in the lower half."""
    [first, *_] = sent()
    generator, base = random.Random(2), base_of_squares(CAMPAIGN, 4, 2)

    def upper(key):
        return first * groups.power(base, key, PRIME) % PRIME > PRIME // 2

    assert abs(sum(upper(generator.randrange(ORDER)) for _ in range(120)) - 60) < 44
    assert not upper(-KEYS.secrets[0])
