"""Random real numbers whose binary digits are drawn when a decision needs them.

A lazy real is a random number with a fixed distribution. At every moment an interval that holds the number is known;
more random bits make the interval shorter. A comparison draws bits until its result is certain, so its result is that
of the exact numbers. Two different numbers are told apart after finitely many bits, with probability 1.

Source: Karney, "Sampling Exactly from the Normal Distribution", ACM Transactions on Mathematical Software 42 (2016).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.stream import Stream

WORD = 64
"""Bits that a lazy uniform number draws at a time."""


class LazyReal(ABC):
    """A random real number, known as precisely as it was asked for."""

    @abstractmethod
    def bounds(self, bits: int) -> tuple[int, int]:
        """Integers (low, high) with low ≤ value·2^bits ≤ high.

        The interval shrinks to the value as ``bits`` grows: high − low is a small number for large ``bits``, but not
        bounded by 1. A call may draw from the stream. Repeated calls are about the same value.
        """


class Uniform(LazyReal):
    """A uniform number between 0 and 1. Draws words of 64 bits from the stream as they are needed."""

    __slots__ = ("_count", "_digits", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._digits = 0
        self._count = 0

    def bounds(self, bits: int) -> tuple[int, int]:
        """The first ``bits`` binary digits as an integer d, and d + 1."""
        while self._count < bits:
            self._digits = self._digits << WORD | self._stream.u64()
            self._count += WORD
        digits = self._digits >> (self._count - bits)
        return digits, digits + 1


class Signed(LazyReal):
    """A lazy real of given magnitude, negative with probability ½. Draws the sign when it is made."""

    __slots__ = ("_magnitude", "_negative")

    def __init__(self, stream: Stream, magnitude: LazyReal) -> None:
        self._negative = stream.below(2) == 1
        self._magnitude = magnitude

    def bounds(self, bits: int) -> tuple[int, int]:
        """The bounds of the magnitude, or their negatives in reverse order."""
        low, high = self._magnitude.bounds(bits)
        return (-high, -low) if self._negative else (low, high)


class Shifted(LazyReal):
    """The sum of a non-negative integer and a lazy real."""

    __slots__ = ("_integer", "_real")

    def __init__(self, integer: int, real: LazyReal) -> None:
        self._integer = integer
        self._real = real

    def bounds(self, bits: int) -> tuple[int, int]:
        """The bounds of the lazy real plus the integer·2^bits."""
        low, high = self._real.bounds(bits)
        return (self._integer << bits) + low, (self._integer << bits) + high


def decide(certain: Callable[[int], bool | None]) -> bool:
    """The answer of a question about lazy reals.

    Args:
        certain: for a number of bits True or False if the bounds of that precision decide the question, else None.
    """
    bits = WORD
    while (answer := certain(bits)) is None:
        bits *= 2
    return answer


def is_below(left: LazyReal, right: LazyReal) -> bool:
    """Whether ``left`` < ``right``, for two different lazy reals."""

    def certain(bits: int) -> bool | None:
        left_low, left_high = left.bounds(bits)
        right_low, right_high = right.bounds(bits)
        return True if left_high <= right_low else False if left_low >= right_high else None

    return decide(certain)
