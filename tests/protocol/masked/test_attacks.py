"""Attacks of docs/math.md, section 8.7: each reads plaintexts of a toy of the paper's scheme and none of ours."""

import random
from math import lcm

import pytest
from support.masked_toys import OTHER_PRIME, PRIME, KnownPlaintext, PrimeModulus, logarithm

from protocol.masked.cipher import SECRET_BITS, Unmasking, hash_to_group, mask, power, release_elements

CAMPAIGN = bytes(range(32))
COMPOSITE = PRIME * OTHER_PRIME
GENERATOR = random.Random(5)
SECRET = GENERATOR.getrandbits(SECRET_BITS)
PLAINTEXTS = [GENERATOR.randrange(10**6) for _ in range(12)]
PUBLIC_EXPONENTS = [
    COMPOSITE - 1,
    COMPOSITE,
    COMPOSITE + 1,
    COMPOSITE**2 - 1,
    (COMPOSITE - 1) ** 2,
    COMPOSITE * (COMPOSITE - 1),
]
"""What an attacker may hope to be a multiple of the order modulo N: it would be for a prime N, or its square."""


def base(campaign, period, number):
    return hash_to_group(campaign, period, number, COMPOSITE)


def ours(plaintext, period, secret=SECRET, number=0):
    return mask(plaintext, secret, CAMPAIGN, period, number, COMPOSITE)


def test_of_a_prime_modulus_a_power_shows_the_plaintext():
    """Bases of the part of order p − 1: C^(p−1) = 1 − x·p."""
    toy = PrimeModulus(whole=False)
    for period, plaintext in enumerate(PLAINTEXTS):
        sent = toy.mask(plaintext, SECRET, CAMPAIGN, period, 0)
        assert logarithm(sent, PRIME - 1, PRIME) == plaintext


def test_of_a_prime_modulus_one_known_plaintext_shows_all_others():
    """Bases of the whole group: what is left is x plus one multiple of sk modulo p."""
    toy = PrimeModulus(whole=True)
    attack = KnownPlaintext(PRIME - 1, PRIME, toy.base)
    sent = [toy.mask(plaintext, SECRET, CAMPAIGN, period, 0) for period, plaintext in enumerate(PLAINTEXTS)]
    assert logarithm(sent[0], PRIME - 1, PRIME) != PLAINTEXTS[0]
    assert attack.learn(sent[0], PLAINTEXTS[0], CAMPAIGN, 0, 0)
    assert [attack.read(one, CAMPAIGN, period, 0) for period, one in enumerate(sent)] == PLAINTEXTS


@pytest.mark.parametrize("exponent", PUBLIC_EXPONENTS)
def test_of_our_modulus_no_public_exponent_shows_anything(exponent):
    """N = pq with p, q unknown. The power stays an element that is not 1 modulo N, so there is no logarithm."""
    attack = KnownPlaintext(exponent, COMPOSITE, base)
    for period, plaintext in enumerate(PLAINTEXTS):
        assert logarithm(ours(plaintext, period), exponent, COMPOSITE) is None
        assert not attack.learn(ours(plaintext, period), plaintext, CAMPAIGN, period, 0)


def test_whoever_knows_the_factors_has_the_attack_again():
    """Why the dealer throws p and q away: with them N is no better than a prime."""
    attack = KnownPlaintext(lcm(PRIME - 1, OTHER_PRIME - 1), COMPOSITE, base)
    sent = [ours(plaintext, period) for period, plaintext in enumerate(PLAINTEXTS)]
    assert attack.learn(sent[0], PLAINTEXTS[0], CAMPAIGN, 0, 0)
    assert [attack.read(one, CAMPAIGN, period, 0) for period, one in enumerate(sent)] == PLAINTEXTS


def test_a_key_used_twice_in_one_period_shows_the_difference():
    """Why a node encrypts once per campaign and period, for ever."""
    quotient = ours(700, 3) * power(ours(642, 3), -1, COMPOSITE**2) % COMPOSITE**2
    assert quotient == 1 + 58 * COMPOSITE
    for other in (ours(642, 4), ours(642, 3, number=1), ours(642, 3, GENERATOR.getrandbits(SECRET_BITS))):
        assert (ours(700, 3) * power(other, -1, COMPOSITE**2) % COMPOSITE**2) % COMPOSITE != 1


SECRETS = [GENERATOR.getrandbits(SECRET_BITS) for _ in range(6)]
VALUES = [31, 4, 159, 26, 535, 8]
SENT = [ours(value, 9, secret) for value, secret in zip(VALUES, SECRETS, strict=True)]


def test_two_sets_of_one_period_would_show_the_difference():
    """Why the dealer's journal is durable: a second release of one period is one node's value."""
    first = release_elements(sum(SECRETS), CAMPAIGN, 9, 1, COMPOSITE)[0]
    second = release_elements(sum(SECRETS[1:]), CAMPAIGN, 9, 1, COMPOSITE)[0]
    unmasking = Unmasking(COMPOSITE, 1)
    unmasking.add([SENT[0]])
    assert unmasking.opened([first * power(second, -1, COMPOSITE**2)]) == VALUES[:1]
