"""The groups in which nodes encrypt: powers, and bases that nobody chooses.

Two groups are in use. Sums: Z*_{N²} for the modulus N = pq of a campaign, 2048 bits, of which nobody knows p and q.
Products: the squares modulo the prime p of RFC 3526, group 14 (:mod:`research.products`). A base H is a hash of
campaign, period and the running number of the ciphertext, so it is new for each ciphertext of a node.

Powers take nearly all of the time. With gmpy2 installed they are about nine times as fast. Neither gmpy2's nor Python's
power takes constant time: whoever can measure the processor while a node encrypts may learn about the exponent.
Source: docs/math.md, section 6; decision 85.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from protocol.digest import sha256
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Arithmetic(NamedTuple):
    """Arithmetic on long integers, of Python or of gmpy2. Both give equal numbers."""

    wide: Callable[[int], int]
    """Convert an integer to the form whose products and remainders are fastest."""
    read: Callable[[bytes, Literal["big"]], int]
    """Read a big-endian integer in that form."""
    power: Callable[[int, int, int], int]
    """base^exponent mod modulus."""


PLAIN = Arithmetic(int, int.from_bytes, pow)
"""Python's own integers."""


def fastest() -> Arithmetic:
    """The arithmetic of gmpy2 if it is installed (the extra ``masked``), else :data:`PLAIN`."""
    try:
        from gmpy2 import mpz, powmod
    except ImportError:
        return PLAIN
    return Arithmetic(mpz, getattr(mpz, "from_bytes", PLAIN.read), powmod)  # before 2.2 mpz has no from_bytes


in_use = fastest()
"""The arithmetic of this module. Tests and benchmarks put :data:`PLAIN` here."""

MODULUS_BITS = 2048
"""Length of N in a campaign. Functions here take other lengths too, for tests."""

SUMS = b"hearsay/1/masked"
PRODUCTS = b"hearsay/1/products"
_BLOCKS = 17
"""17 · 32 bytes = 4352 bits: 256 more than N² has, so H is within 2^-256 of uniform modulo N²."""


def wide(value: int) -> int:
    """The same integer in the form whose products and remainders are fastest: gmpy2's ``mpz`` if it is installed."""
    return in_use.wide(value)


def wide_each(raw: bytes, size: int) -> Iterator[int]:
    """Read joined big-endian numbers of ``size`` bytes each, in the form of :func:`wide`; also a shorter last one."""
    read = in_use.read
    return (read(raw[start : start + size], "big") for start in range(0, len(raw), size))


def power(base: int, exponent: int, modulus: int) -> int:
    """Return base^exponent mod modulus, of {0 … modulus − 1}, as a plain ``int``.

    Args:
        base: any integer.
        exponent: any integer. For a negative one the base must have an inverse.
        modulus: at least 2.

    Raises:
        InputError: ``not_invertible``: the exponent is negative, and base and modulus have a common divisor.
    """
    try:
        return int(in_use.power(base, exponent, modulus))
    except (ValueError, ZeroDivisionError):
        raise InputError("not_invertible", "a base shares a factor with its modulus: the modulus is unfit") from None


def expanded(tag: bytes, campaign_id: bytes, period: int, number: int) -> int:
    """Hash campaign, period and number of the ciphertext into an integer of 4352 bits.

    The big-endian integer of ‖_{i=0}^{16} SHA-256(u32(i) ‖ tag ‖ campaign id ‖ u32(period) ‖ u32(number)), where u32 is
    four big-endian bytes.

    Args:
        tag: purpose and version: :data:`SUMS` or :data:`PRODUCTS`.
        campaign_id: 32 bytes.
        period: the campaign's period, 0 … 2^32 − 1.
        number: the ciphertext's running number within a message, from 0.

    Raises:
        InputError: ``argument_invalid``: the id is not 32 bytes, or period or number is not from 0 to 2^32 − 1.
    """
    if len(campaign_id) != 32:
        raise InputError("argument_invalid", "a campaign's id is 32 bytes")
    if not (0 <= period < 1 << 32 and 0 <= number < 1 << 32):
        raise InputError("argument_invalid", "period and number of a ciphertext are from 0 to 2^32 - 1")
    rest = tag + campaign_id + period.to_bytes(4, "big") + number.to_bytes(4, "big")
    blocks = [sha256(index.to_bytes(4, "big") + rest).digest() for index in range(_BLOCKS)]
    return int.from_bytes(b"".join(blocks), "big")


def hash_to_group(campaign_id: bytes, period: int, number: int, modulus: int) -> int:
    """H: the base of one ciphertext of sums, :func:`expanded` with the tag :data:`SUMS`, mod N².

    Args:
        campaign_id: 32 bytes.
        period: the campaign's period.
        number: the ciphertext's running number within a message, from 0.
        modulus: N.
    """
    return expanded(SUMS, campaign_id, period, number) % (modulus * modulus)


def below(bound: int, entropy: Callable[[int], bytes]) -> int:
    """Draw an integer uniformly from {0 … bound − 1}, exactly, by rejection.

    Args:
        bound: at least 1.
        entropy: returns as many secret random bytes as it is asked for, like ``os.urandom``.

    Raises:
        InputError: ``argument_invalid``: the source returned another number of bytes.
    """
    bits = (bound - 1).bit_length()
    size, mask = (bits + 7) // 8, (1 << bits) - 1
    while True:
        raw = entropy(size)
        if len(raw) != size:
            raise _other_length(size)
        drawn = int.from_bytes(raw, "big") & mask
        if drawn < bound:
            return drawn


def secret_bytes(size: int, entropy: Callable[[int], bytes]) -> int:
    """Draw an integer uniformly from {0 … 256^size − 1}.

    Raises:
        InputError: ``argument_invalid``: the source returned another number of bytes.
    """
    raw = entropy(size)
    if len(raw) != size:
        raise _other_length(size)
    return int.from_bytes(raw, "big")


def _other_length(size: int) -> InputError:
    return InputError("argument_invalid", f"the source of randomness was asked for {size} bytes and returned others")
