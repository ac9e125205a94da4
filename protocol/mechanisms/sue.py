"""Symmetric unary encoding: the unary encoding of basic RAPPOR. Zeros and ones are flipped equally often."""

from __future__ import annotations

from protocol.epsilon import MICRO, check_answer_micro, exp_below
from protocol.mechanisms.base import ONE, check_size
from protocol.mechanisms.unary import UnaryMechanism


class SymmetricUnary(UnaryMechanism):
    """Symmetric unary encoding: P = ⌊2^32 · √E / (1 + √E)⌋ with E = e^ε, and Q = 2^32 − P.

    P/2^32 is the probability that the true value's bit is 1, Q/2^32 that any other bit is 1.
    Source: Erlingsson et al., CCS 2014 (basic one-time RAPPOR); Wang et al., USENIX Security 2017, section 4.2;
    docs/math.md, section 1.
    """

    __slots__ = ()
    name = "sue"

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> SymmetricUnary:
        """Return the mechanism of 2 … 65536 values with the P that follows from ε, rounded down."""
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 65536)
        root = exp_below(epsilon_micro, 2 * MICRO)
        one_if_true = ONE * root // (1 + root)
        return cls._checked(epsilon_micro, size, one_if_true, ONE - one_if_true)
