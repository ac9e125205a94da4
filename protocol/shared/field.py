"""Prime fields with roots of unity, and polynomials that are known by their values at these roots.

A field element is an integer in [0, p), p the modulus. A polynomial of fewer than n coefficients (n a power of two) is
the list of its values at 1, ω, ω², …, ω^(n−1), where ω is the field's root of unity of order n.
Source: draft-irtf-cfrg-vdaf-20, section 6.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Field(NamedTuple):
    """A prime field.

    Attributes:
        modulus: the prime p.
        size: bytes of an encoded element.
        generator: a root of unity of order ``2**log_order``.
        log_order: the largest k for which the field has a root of unity of order 2^k.
    """

    modulus: int
    size: int
    generator: int
    log_order: int

    def encode(self, elements: Sequence[int]) -> bytes:
        """Return the elements as bytes, each little-endian in ``size`` bytes."""
        return b"".join([element.to_bytes(self.size, "little") for element in elements])

    def decode(self, encoded: bytes) -> list[int]:
        """Return the elements that bytes encode.

        Raises:
            DocumentError: ``value_out_of_domain``: a number is not below the modulus; ``malformed``: the length is not
                a multiple of an element's.
        """
        if len(encoded) % self.size:
            raise DocumentError("malformed", f"the length of encoded field elements is not a multiple of {self.size}")
        size = self.size
        elements = [int.from_bytes(encoded[at : at + size], "little") for at in range(0, len(encoded), size)]
        if elements and max(elements) >= self.modulus:
            raise DocumentError("value_out_of_domain", "a field element is not below the modulus")
        return elements

    def inverse(self, element: int) -> int:
        """Return the inverse of an element that is not 0."""
        return pow(element, -1, self.modulus)


FIELD64 = Field(2**32 * 4294967295 + 1, 8, pow(7, 4294967295, 2**32 * 4294967295 + 1), 32)
FIELD128 = Field(2**66 * 4611686018427387897 + 1, 16, pow(7, 4611686018427387897, 2**66 * 4611686018427387897 + 1), 66)


@lru_cache(maxsize=64)
def roots(field: Field, n: int) -> tuple[int, ...]:
    """Return 1, ω, …, ω^(n−1), the powers of the field's root of unity of order n, a power of two."""
    root = pow(field.generator, 2**field.log_order // n, field.modulus)
    powers = [1]
    for _ in range(n - 1):
        powers.append(powers[-1] * root % field.modulus)
    return tuple(powers)


def transformed(field: Field, coefficients: Sequence[int]) -> list[int]:
    """Return the values at the n-th roots of unity of a polynomial with n coefficients, the constant one first.

    This is the number-theoretic transform, by halves: p(x) = e(x²) + x·o(x²), e and o the even and odd coefficients.
    """
    n, p = len(coefficients), field.modulus
    if n == 1:
        return list(coefficients)
    even, odd = transformed(field, coefficients[::2]), transformed(field, coefficients[1::2])
    turned = [root * value % p for root, value in zip(roots(field, n), odd, strict=False)]
    low = [(one + other) % p for one, other in zip(even, turned, strict=True)]
    return low + [(one - other) % p for one, other in zip(even, turned, strict=True)]


def doubled(field: Field, values: Sequence[int]) -> list[int]:
    """Return the 2n values at the roots of unity of order 2n, of a polynomial that is known by n values."""
    n, p = len(values), field.modulus
    scale = field.inverse(n)
    # The inverse transform is the transform with the inverse root: the same values in the order 0, n − 1, …, 1.
    sums = transformed(field, values)
    coefficients = [sums[-at % n] * scale % p for at in range(n)]
    shifted = [coefficient * root % p for coefficient, root in zip(coefficients, roots(field, 2 * n), strict=False)]
    between = transformed(field, shifted)
    return [value for pair in zip(values, between, strict=True) for value in pair]


def weights_at(field: Field, n: int, point: Any) -> list[Any]:
    """Return the n weights w_i with p(x) = Σ w_i·p(ω^i) for every polynomial p of fewer than n coefficients.

    With d_j = x − ω^j the weight is w_i = ω^i/n · Π_{j≠i} d_j, since Π_{j≠i} (ω^i − ω^j) = n·ω^(−i).

    Args:
        field: the field.
        n: a power of two.
        point: x, an element, or an array of elements that computes like one.
    """
    p, nodes, scale = field.modulus, roots(field, n), field.inverse(n)
    distances = [(point - node) % p for node in nodes]
    before: list[Any] = [scale]
    for distance in distances[:-1]:
        before.append(before[-1] * distance % p)
    weights, after = [], 1
    for node, distance, product in zip(reversed(nodes), reversed(distances), reversed(before), strict=True):
        weights.append(product * after % p * node % p)
        after = after * distance % p
    return weights[::-1]
