"""The cipher of masked sums (Joye, Libert 2013, with longer keys): a node encrypts, and a set's total is opened.

With N of the campaign, H(t, j) of :func:`protocol.masked.groups.hash_to_group` for period t and ciphertext j, x_i the
plaintext and sk_i the key of node i:

    C_{i,j} = (1 + (x_i mod N)·N) · H(t, j)^{sk_i} mod N²
    R_j     = H(t, j)^{−Σ_{i∈A} sk_i} mod N²                     (the dealer's release for the set A)
    V_j     = R_j · Π_{i∈A} C_{i,j} mod N² = 1 + (Σ_{i∈A} x_i mod N)·N

V_j ≡ 1 modulo N, or something does not belong together: ``mask_mismatch``. Nodes run :func:`mask`, the dealer
:func:`new_secret` and :func:`release_elements`, the aggregator :class:`Unmasking`.
Source: docs/math.md, section 6; decision 85.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from protocol.errors import DocumentError
from protocol.masked.groups import hash_to_group, power, secret_bytes, wide, wide_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SECRET_BITS = 4224
"""Length of a key: 2·2048 + 128 bits, so H^sk is within 2^-127 of uniform on the group that H generates."""

SECRET_BYTES = SECRET_BITS // 8


def new_secret(entropy: Callable[[int], bytes]) -> int:
    """Draw a node's key, uniformly from [0, 2^4224).

    Args:
        entropy: returns as many secret random bytes as it is asked for, like ``os.urandom``.

    Raises:
        InputError: ``argument_invalid``: the source returned another number of bytes.
    """
    return secret_bytes(SECRET_BYTES, entropy)


def mask(plaintext: int, secret: int, campaign_id: bytes, period: int, number: int, modulus: int) -> int:
    """Encrypt one plaintext. Two ciphertexts of one key, campaign, period and number tell the plaintexts' difference.

    Args:
        plaintext: x, any integer; only x mod N can be decrypted.
        secret: the node's key.
        campaign_id: 32 bytes.
        period: the campaign's period.
        number: the ciphertext's running number within the message, from 0.
        modulus: N.

    Returns:
        (1 + (x mod N)·N) · H^secret mod N².
    """
    square = modulus * modulus
    pad = power(hash_to_group(campaign_id, period, number, modulus), secret, square)
    return (1 + plaintext % modulus * modulus) * pad % square


def mask_all(plaintexts: Sequence[int], secret: int, campaign_id: bytes, period: int, modulus: int) -> list[int]:
    """Encrypt a node's plaintexts of one period with :func:`mask`; the numbers of the ciphertexts are 0, 1, …."""
    return masked_with(plaintexts, pads(secret, campaign_id, period, len(plaintexts), modulus), modulus)


def pads(secret: int, campaign_id: bytes, period: int, count: int, modulus: int) -> list[int]:
    """The slow part of :func:`mask_all`, which needs no plaintext: H^secret mod N² for the numbers 0 … count − 1.

    A pad is as secret as the key, and serves for one ciphertext.
    """
    square = modulus * modulus
    return [power(hash_to_group(campaign_id, period, number, modulus), secret, square) for number in range(count)]


def masked_with(plaintexts: Sequence[int], pads: Sequence[int], modulus: int) -> list[int]:
    """The quick part of :func:`mask_all`: (1 + (x mod N)·N) · pad mod N² for each plaintext x and its pad."""
    square = modulus * modulus
    return [(1 + x % modulus * modulus) * pad % square for x, pad in zip(plaintexts, pads, strict=True)]


def release_elements(secrets_sum: int, campaign_id: bytes, period: int, count: int, modulus: int) -> list[int]:
    """What the dealer releases for one set of nodes: R_j = H(t, j)^{−secrets_sum} mod N², j = 0 … count − 1.

    Args:
        secrets_sum: Σ of the keys of the set, over the integers.
        campaign_id: 32 bytes.
        period: the campaign's period.
        count: J, the number of ciphertexts of a message.
        modulus: N.

    Raises:
        InputError: ``not_invertible``: a base shares a factor with N. The campaign's modulus is unfit.
    """
    square = modulus * modulus
    return [power(hash_to_group(campaign_id, period, number, modulus), -secrets_sum, square) for number in range(count)]


def are_units(elements: Iterable[int], modulus: int) -> bool:
    """Whether all elements have an inverse modulo N, as every honest ciphertext and release has.

    One greatest common divisor, of N and the product of all. An element that fails it would make each product with it
    undecryptable, also after it was taken out again.
    """
    product, divisor = wide(1), wide(modulus)
    for element in elements:
        product = product * (element % divisor) % divisor
    return gcd(int(product), modulus) == 1


class Unmasking:
    """The running products of the ciphertexts of a set of nodes, and their decryption.

    Adding and removing a node costs J products modulo N², whatever the number of other nodes.

    Args:
        modulus: N.
        count: J, the number of ciphertexts of a message.
    """

    __slots__ = ("_added", "_modulus", "_removed", "_size", "_square")

    def __init__(self, modulus: int, count: int) -> None:
        self._modulus = modulus
        self._square = wide(modulus) * modulus
        self._size = element_size(modulus)
        self._added = [wide(1)] * count
        self._removed = [wide(1)] * count

    def add(self, ciphertexts: Sequence[int]) -> None:
        """Take in the J ciphertexts of one node. A node that is added twice is not noticed before :meth:`opened`.

        Raises:
            DocumentError: ``mask_mismatch``: another number of ciphertexts than J.
        """
        self._check(ciphertexts)
        self._multiply(self._added, ciphertexts)

    def add_bytes(self, ciphertexts: bytes) -> None:
        """Take in the J ciphertexts of one node from their stored form: J big-endian numbers of equal length, joined.

        Raises:
            DocumentError: ``mask_mismatch``: the bytes are not J numbers of the length of N².
        """
        if len(ciphertexts) != len(self._added) * self._size:
            raise DocumentError("mask_mismatch", f"{len(self._added)} ciphertexts of {self._size} bytes are expected")
        self._multiply(self._added, wide_each(ciphertexts, self._size))

    def remove(self, ciphertexts: Sequence[int]) -> None:
        """Take out the J ciphertexts of a node that was added.

        Raises:
            DocumentError: ``mask_mismatch``: another number of ciphertexts than J.
        """
        self._check(ciphertexts)
        self._multiply(self._removed, ciphertexts)

    def opened(self, released: Sequence[int]) -> list[int]:
        """Decrypt the sums of the plaintexts of all nodes that were added and not removed. Changes nothing.

        Args:
            released: R, the J elements of the dealer's release for exactly this set of nodes and this period.

        Returns:
            J integers of (−N/2, N/2): the sums modulo N.

        Raises:
            DocumentError: ``mask_mismatch``: release, set, period and ciphertexts do not belong together, or one of
                them was changed.
        """
        self._check(released)
        return [
            self._open(product, gone, element)
            for product, gone, element in zip(self._added, self._removed, released, strict=True)
        ]

    def _open(self, product: int, gone: int, element: int) -> int:
        if gcd(int(gone), self._modulus) != 1:
            raise DocumentError("mask_mismatch", "a removed ciphertext shares a factor with the modulus")
        value = product * element % self._square
        if gone != 1:
            value = value * power(gone, -1, int(self._square)) % self._square
        total, rest = divmod(int(value) - 1, self._modulus)
        if rest:
            raise DocumentError(
                "mask_mismatch", "ciphertexts and release do not belong together: other nodes, period or campaign"
            )
        return total - self._modulus if total > self._modulus // 2 else total

    def _multiply(self, products: list[int], ciphertexts: Iterable[int]) -> None:
        square = self._square
        for place, ciphertext in enumerate(ciphertexts):
            products[place] = products[place] * ciphertext % square

    def _check(self, given: Sequence[int]) -> None:
        if len(given) != len(self._added):
            raise DocumentError("mask_mismatch", f"{len(self._added)} ciphertexts are expected, not {len(given)}")


def element_size(modulus: int) -> int:
    """The number of bytes of one ciphertext or released element: those of N², 512 for a modulus of 2048 bits."""
    return -(-2 * modulus.bit_length() // 8)
