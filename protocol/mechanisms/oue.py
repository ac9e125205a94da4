"""Optimised unary encoding: the unary encoding with the smallest variance for rare values."""

from __future__ import annotations

from protocol.epsilon import ceiling, check_answer_micro, exp_below
from protocol.mechanisms.base import ONE, check_size
from protocol.mechanisms.unary import UnaryMechanism


class OptimisedUnary(UnaryMechanism):
    """Optimised unary encoding: P = 2^31, Q = ⌈2^32 / (1 + E)⌉ with E = e^ε.

    P/2^32 is the probability that the true value's bit is 1, Q/2^32 that any other bit is 1.
    Source: Wang et al., USENIX Security 2017, section 4.3; docs/math.md, section 1.
    """

    __slots__ = ()
    name = "oue"

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> OptimisedUnary:
        """Return the mechanism of 2 … 65536 values with the Q that follows from ε, rounded up."""
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 65536)
        return cls._checked(epsilon_micro, size, ONE // 2, ceiling(ONE / (1 + exp_below(epsilon_micro))))
