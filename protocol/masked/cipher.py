"""The cipher of masked sums (Joye, Libert 2013, with longer keys): a node encrypts, and a set's total is opened.

With N of the campaign, the base H(t, j) of :func:`hash_to_group` for period t and ciphertext j, x_i the plaintext and
sk_i the key of node i:

    C_{i,j} = (1 + (x_i mod N)·N) · H(t, j)^{sk_i} mod N²
    R_j     = H(t, j)^{−Σ_{i∈A} sk_i} mod N²                     (the dealer's release for the set A)
    V_j     = R_j · Π_{i∈A} C_{i,j} mod N² = 1 + (Σ_{i∈A} x_i mod N)·N

If V_j is not 1 modulo N, something does not belong together: ``mask_mismatch``. N = pq has 2048 bits, and nobody knows
p and q. Neither gmpy2's nor Python's power takes constant time: whoever can measure the processor while a node encrypts
may learn about its key. Source: docs/math.md, section 6; docs/decisions/masked-sums.md.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Literal, NamedTuple

from protocol.errors import DocumentError, InputError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Arithmetic(NamedTuple):
    """Arithmetic on long integers, of Python or of gmpy2. Python's and gmpy2's results are equal."""

    wide: Callable[[int], int]
    """Convert an integer to the form whose products and remainders are fastest."""
    read: Callable[[bytes, Literal["big"]], int]
    """Read a big-endian integer in that form."""
    power: Callable[[int, int, int], int]
    """base^exponent mod modulus."""


PLAIN = Arithmetic(int, int.from_bytes, pow)
"""Python's own integers."""


def fastest() -> Arithmetic:
    """Return the arithmetic of gmpy2 if it is installed (the extra ``masked``), else :data:`PLAIN`."""
    try:
        from gmpy2 import mpz, powmod
    except ImportError:
        return PLAIN
    return Arithmetic(mpz, getattr(mpz, "from_bytes", PLAIN.read), powmod)  # before 2.2 mpz has no from_bytes


in_use = fastest()
"""The arithmetic of this module. Tests and benchmarks put :data:`PLAIN` here."""

MODULUS_BITS = 2048
"""Length of a campaign's modulus N. The functions here take other lengths too, for tests."""

SUMS = b"hearsay/1/masked"
PRODUCTS = b"hearsay/1/products"
_BLOCKS = 17
"""Number of SHA-256 blocks in a base H: 17 · 32 bytes = 4352 bits, 256 more than N² has. So H is within 2^-256 of
uniform modulo N²."""


def wide(value: int) -> int:
    """Return the same integer in the form whose products and remainders are fastest: gmpy2's ``mpz`` if installed."""
    return in_use.wide(value)


def wide_each(raw: bytes, size: int) -> Iterator[int]:
    """Read joined big-endian numbers of ``size`` bytes each, in the form of :func:`wide`. The last may be shorter."""
    read = in_use.read
    return (read(raw[start : start + size], "big") for start in range(0, len(raw), size))


def power(base: int, exponent: int, modulus: int) -> int:
    """Return base^exponent mod modulus, of {0 … modulus − 1}, as a plain ``int``.

    Raises InputError ``not_invertible``: the exponent is negative, and base and modulus have a common divisor.
    """
    try:
        return int(in_use.power(base, exponent, modulus))
    except (ValueError, ZeroDivisionError):
        raise InputError("not_invertible", "a base shares a factor with its modulus: the modulus is unfit") from None


def expanded(tag: bytes, campaign_id: bytes, period: int, number: int) -> int:
    """Hash campaign, period and number of the ciphertext into an integer of 4352 bits.

    It is the big-endian integer of ‖_{i=0}^{16} SHA-256(u32(i) ‖ tag ‖ campaign id ‖ u32(period) ‖ u32(number)), where
    u32 is four big-endian bytes. ``tag`` is :data:`SUMS` or :data:`PRODUCTS`; ``number`` counts the ciphertexts of a
    message from 0. Raises InputError ``argument_invalid``: the id is not 32 bytes, or period or number is not from 0 to
    2^32 − 1.
    """
    if len(campaign_id) != 32:
        raise InputError("argument_invalid", "a campaign's id is 32 bytes")
    if not (0 <= period < 1 << 32 and 0 <= number < 1 << 32):
        raise InputError("argument_invalid", "period and number of a ciphertext are from 0 to 2^32 - 1")
    rest = tag + campaign_id + period.to_bytes(4, "big") + number.to_bytes(4, "big")
    blocks = [sha256(index.to_bytes(4, "big") + rest).digest() for index in range(_BLOCKS)]
    return int.from_bytes(b"".join(blocks), "big")


def hash_to_group(campaign_id: bytes, period: int, number: int, modulus: int) -> int:
    """Return H, the base of one ciphertext: :func:`expanded` with the tag :data:`SUMS`, mod N², N = ``modulus``."""
    return expanded(SUMS, campaign_id, period, number) % (modulus * modulus)


def below(bound: int, entropy: Callable[[int], bytes]) -> int:
    """Draw an integer uniformly from {0 … bound − 1}, exactly, by rejection.

    ``entropy`` returns as many secret random bytes as it is asked for, like ``os.urandom``.

    Raises InputError ``argument_invalid``: the source returned another number of bytes.
    """
    bits = (bound - 1).bit_length()
    size, mask = (bits + 7) // 8, (1 << bits) - 1
    while True:
        raw = entropy(size)
        if len(raw) != size:
            raise InputError("argument_invalid", f"the source of randomness returned {len(raw)} bytes and not {size}")
        drawn = int.from_bytes(raw, "big") & mask
        if drawn < bound:
            return drawn


SECRET_BITS = 4224
"""Length of a key sk: 2·2048 + 128 bits, so H^sk is within 2^-127 of uniform on the group that the base H generates."""

SECRET_BYTES = SECRET_BITS // 8


def mask(plaintext: int, secret: int, campaign_id: bytes, period: int, number: int, modulus: int) -> int:
    """Encrypt one plaintext. Return (1 + (x mod N)·N) · H^secret mod N².

    Two ciphertexts of one key, campaign, period and number tell the difference of the plaintexts.

    Args:
        plaintext: x, any integer; only x mod N can be decrypted.
        secret: the node's key.
        campaign_id, period, number: they determine the base H (:func:`hash_to_group`).
        modulus: N, the campaign's modulus.
    """
    square = modulus * modulus
    pad = power(hash_to_group(campaign_id, period, number, modulus), secret, square)
    return (1 + plaintext % modulus * modulus) * pad % square


def mask_all(plaintexts: Sequence[int], secret: int, campaign_id: bytes, period: int, modulus: int) -> list[int]:
    """Encrypt a node's plaintexts of one period with :func:`mask`, for the numbers 0, 1, … of ciphertexts."""
    return masked_with(plaintexts, pads(secret, campaign_id, period, len(plaintexts), modulus), modulus)


def pads(secret: int, campaign_id: bytes, period: int, count: int, modulus: int) -> list[int]:
    """Return the pads H^secret mod N² for the numbers 0 … count − 1: the slow part of :func:`mask_all`.

    A pad is as secret as the key, and serves for one ciphertext.
    """
    square = modulus * modulus
    return [power(hash_to_group(campaign_id, period, number, modulus), secret, square) for number in range(count)]


def masked_with(plaintexts: Sequence[int], pads: Sequence[int], modulus: int) -> list[int]:
    """Return the ciphertexts (1 + (x mod N)·N) · pad mod N², x a plaintext: the quick part of :func:`mask_all`."""
    square = modulus * modulus
    return [(1 + x % modulus * modulus) * pad % square for x, pad in zip(plaintexts, pads, strict=True)]


def release_elements(secrets_sum: int, campaign_id: bytes, period: int, count: int, modulus: int) -> list[int]:
    """Return what the dealer releases for one set of nodes: R_j = H(t, j)^{−secrets_sum} mod N², j = 0 … count − 1.

    Args:
        secrets_sum: Σ of the keys of the set, over the integers.
        campaign_id, period: they determine the bases H(t, j) (:func:`hash_to_group`).
        count: the number of ciphertexts of a message.
        modulus: N, the campaign's modulus.

    Raises InputError ``not_invertible``: a base shares a factor with N. The campaign's modulus is unfit.
    """
    square = modulus * modulus
    return [power(hash_to_group(campaign_id, period, number, modulus), -secrets_sum, square) for number in range(count)]


def are_units(elements: Iterable[int], modulus: int) -> bool:
    """Return whether all elements have an inverse modulo N = ``modulus``, as every honest ciphertext and release has.

    One element without an inverse would make each product with it undecryptable.
    """
    product, divisor = wide(1), wide(modulus)
    for element in elements:
        product = product * (element % divisor) % divisor
    return gcd(int(product), modulus) == 1


class Unmasking:
    """The running products of the ciphertexts of a set of nodes, and their decryption. Run by the aggregator.

    ``modulus`` is N, ``count`` the number of ciphertexts of a message. All methods raise DocumentError
    ``mask_mismatch`` for another number of ciphertexts.
    """

    __slots__ = ("_modulus", "_products", "_size", "_square")

    def __init__(self, modulus: int, count: int) -> None:
        self._modulus = modulus
        self._square = wide(modulus) * modulus
        self._size = element_size(modulus)
        self._products = [wide(1)] * count

    def add(self, ciphertexts: Sequence[int]) -> None:
        """Take in all ciphertexts of one node. A node that is added twice is not noticed before :meth:`opened`."""
        self._check(ciphertexts)
        self._multiply(ciphertexts)

    def add_bytes(self, ciphertexts: bytes) -> None:
        """Take in all ciphertexts of one node from their stored form: big-endian numbers of equal length, joined."""
        count = len(self._products)
        if len(ciphertexts) != count * self._size:
            raise DocumentError("mask_mismatch", f"{count} ciphertexts of {self._size} bytes are expected")
        self._multiply(wide_each(ciphertexts, self._size))

    def opened(self, released: Sequence[int]) -> list[int]:
        """Decrypt the sums of the plaintexts of all nodes that were added. Nothing is changed.

        ``released`` are the elements of the dealer's release for exactly this set of nodes and this period. The result
        is one integer of (−N/2, N/2) per ciphertext of a message: the sums modulo N.

        Raises DocumentError ``mask_mismatch``: release, set, period and ciphertexts do not belong together, or one was
        changed.
        """
        self._check(released)
        return [self._open(product, element) for product, element in zip(self._products, released, strict=True)]

    def _open(self, product: int, element: int) -> int:
        total, rest = divmod(int(product * element % self._square) - 1, self._modulus)
        if rest:
            raise DocumentError(
                "mask_mismatch", "ciphertexts and release do not belong together: other nodes, period or campaign"
            )
        return total - self._modulus if total > self._modulus // 2 else total

    def _multiply(self, ciphertexts: Iterable[int]) -> None:
        for place, ciphertext in enumerate(ciphertexts):
            self._products[place] = self._products[place] * ciphertext % self._square

    def _check(self, given: Sequence[int]) -> None:
        if len(given) != len(self._products):
            raise DocumentError("mask_mismatch", f"{len(self._products)} ciphertexts are expected, not {len(given)}")


def element_size(modulus: int) -> int:
    """Return the number of bytes of one ciphertext or released element: those of the square of ``modulus``."""
    return -(-2 * modulus.bit_length() // 8)
