"""Schemes that leak, of papers and of careless programs, to show that an attack works before a test says that it fails.

Every toy hashes as the package does and differs in one thing only: what its docstring says.
"""

from hashlib import sha256
from math import gcd

PRIME = 2**127 - 1
OTHER_PRIME = 2**89 - 1
TAG = b"hearsay/1/masked"


def hashed(tag, campaign, period, number):
    """The integer of 4352 bits that a base comes from."""
    text = b""
    for i in range(17):
        text += sha256(
            i.to_bytes(4, "big") + tag + campaign + period.to_bytes(4, "big") + number.to_bytes(4, "big")
        ).digest()
    return int(text.hex(), 16)


def raised(base, exponent, modulus):
    """base^exponent, from the lowest bit of the exponent upwards."""
    result = 1
    for bit in reversed(f"{exponent:b}"):
        if bit == "1":
            result = result * base % modulus
        base = base * base % modulus
    return result


class PrimeModulus:
    """The cipher of sums as Huai et al. print it: the modulus is a *prime* p, so everybody knows the group's order.

    Args:
        whole: whether bases are of the whole group Z*_{p²}; else they are of its part of order p − 1.
    """

    def __init__(self, whole):
        self.whole = whole

    def base(self, campaign, period, number):
        drawn = hashed(TAG, campaign, period, number) % PRIME**2
        return drawn if self.whole else pow(drawn, PRIME, PRIME**2)

    def mask(self, plaintext, secret, campaign, period, number):
        hidden = pow(self.base(campaign, period, number), secret, PRIME**2)
        return (1 + plaintext % PRIME * PRIME) * hidden % PRIME**2


def logarithm(element, exponent, modulus):
    """x of element^exponent = 1 + exponent·x·m modulo m², or None if the power is not 1 modulo m.

    Raising an element to a multiple of the order of the group modulo m leaves the part that is a power of 1 + m, in
    which logarithms are divisions.
    """
    power = pow(element, exponent, modulus**2)
    if power % modulus != 1 or gcd(exponent, modulus) != 1:
        return None
    return (power - 1) // modulus * pow(exponent, -1, modulus) % modulus


class KnownPlaintext:
    """The attack on a linear mask: L(C) = x + sk·L(H) modulo m; one known plaintext gives sk mod m, and all others.

    Args:
        exponent: what the attacker raises to.
        modulus: m.
        base: a function of campaign, period and number of the ciphertext.
    """

    def __init__(self, exponent, modulus, base):
        self.exponent, self.modulus, self.base = exponent, modulus, base
        self.secret = None

    def learn(self, ciphertext, plaintext, *place):
        """Use one ciphertext whose plaintext is known. False if the power does not help."""
        mask = logarithm(self.base(*place), self.exponent, self.modulus)
        seen = logarithm(ciphertext, self.exponent, self.modulus)
        if mask is None or seen is None or gcd(mask, self.modulus) != 1:
            return False
        self.secret = (seen - plaintext) * pow(mask, -1, self.modulus) % self.modulus
        return True

    def read(self, ciphertext, *place):
        """The plaintext modulo m of any other ciphertext of the same key."""
        seen = logarithm(ciphertext, self.exponent, self.modulus)
        return (seen - self.secret * logarithm(self.base(*place), self.exponent, self.modulus)) % self.modulus
