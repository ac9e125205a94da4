"""Masked sums written again from the formulas of docs/math.md, section 6, and nothing of the package.

Slow and short on purpose: OpenSSL's SHA-256, powers modulo p² and q² joined by the Chinese remainder theorem, (1+N)^x
as a power and not as 1 + x·N, slots as digits. The factors of the modulus are public on purpose too: they are the
primes that follow √3·2^1023 and √2.5·2^1023.
"""

from hashlib import sha256
from math import isqrt

P, Q = isqrt(3 << 2046) + 537, isqrt(5 << 2045) + 1424
MODULUS = P * Q


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


def raised_by_parts(base, exponent):
    """base^exponent mod (P·Q)², from its remainders modulo P² and Q²."""
    one, other = raised(base, exponent, P * P), raised(base, exponent, Q * Q)
    inverse = raised(P * P, Q * (Q - 1) - 1, Q * Q)
    return one + P * P * ((other - one) * inverse % (Q * Q))


def packed(numbers, bits, each):
    """Plaintexts modulo N: the number s of a plaintext times 2^(bits·s)."""
    rows = [numbers[start : start + each] for start in range(0, len(numbers), each)]
    return [sum(value * 2 ** (bits * place) for place, value in enumerate(row)) % MODULUS for row in rows]


def encrypted(plaintext, secret, campaign, period, number):
    """One ciphertext."""
    base = hashed(b"hearsay/1/masked", campaign, period, number) % MODULUS**2
    return raised_by_parts(1 + MODULUS, plaintext) * raised_by_parts(base, secret) % MODULUS**2


def released(secrets, campaign, period, number):
    """One element of a dealer's release: the inverse of the power of the sum, by the order of the group."""
    order = P * Q * (P - 1) * (Q - 1)
    base = hashed(b"hearsay/1/masked", campaign, period, number) % MODULUS**2
    return raised_by_parts(base, -sum(secrets) % order)
