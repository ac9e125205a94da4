"""Thresholded histogram encoding: bit j is 1 if 1 (for the true value) or 0, plus Laplace noise, is above θ.

The device draws the bits directly, so the aggregator receives bits and never a noisy vector.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Self

from protocol.epsilon import MICRO, ceiling, check_answer_micro, exp_below, millionths
from protocol.errors import InputError
from protocol.mechanisms.base import ONE, check_size, read_integers
from protocol.mechanisms.unary import UnaryMechanism

DEFAULT_THETA_MICRO = 250_000


class ThresholdedHistogram(UnaryMechanism):
    """Thresholded histogram encoding, for a threshold 0 < θ < 1.

    P = ⌊2^32 (1 − ½e^{−(ε/2)(1−θ)})⌋ and Q = ⌈2^32 · ½e^{−εθ/2}⌉: 2^32 times the probabilities that the true value's
    bit, and any other bit, is 1. The noise is that of SHE (``she``), which would cost ε for the whole noisy vector. The
    bits reveal less: the exact loss is ln[(2e^a − 1)(2e^b − 1)] with a = ε(1−θ)/2 and b = εθ/2; at ε = 1 only 0.883.
    Source: Wang et al., USENIX Security 2017, section 4.2, with the sign slip of its p corrected (docs/math.md, section
    8.2).

    Attributes:
        theta_micro: θ in millionths.
    """

    __slots__ = ("theta_micro",)
    name = "the"
    option_names = ("theta",)

    def __init__(
        self, epsilon_micro: int, size: int, one_if_true: int, one_if_other: int, theta_micro: int = DEFAULT_THETA_MICRO
    ) -> None:
        """Make the mechanism for P = ``one_if_true``, Q = ``one_if_other`` and θ = ``theta_micro`` millionths."""
        super().__init__(epsilon_micro, size, one_if_true, one_if_other)
        self.theta_micro = theta_micro

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int, *, theta: str | float | Decimal = "0.25") -> Self:
        """Return the mechanism of 2 … 65536 values with the P and Q that follow from ε and θ.

        ``theta`` is θ, a number between 0 and 1 with at most six decimal places (else ``theta_invalid``).
        """
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 65536)
        theta_micro = _read_theta(theta)
        halves = 2 * MICRO * MICRO
        above = 1 / exp_below(epsilon_micro * (MICRO - theta_micro), halves)
        below = 1 / exp_below(epsilon_micro * theta_micro, halves)
        one_if_true = (ONE * (1 - above / 2)).__floor__()
        mechanism = cls._checked(epsilon_micro, size, one_if_true, ceiling(ONE * below / 2))
        mechanism.theta_micro = theta_micro
        return mechanism

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, one_if_true, one_if_other, theta_micro = read_integers(parameters, ("p", "q", "theta_micro"))
        mechanism = cls._checked(micro, size, one_if_true, one_if_other)
        mechanism.theta_micro = theta_micro
        return mechanism

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign: that of a :class:`UnaryMechanism`, and ``theta_micro``, θ in millionths."""
        return {**super().to_dict(), "theta_micro": self.theta_micro}

    def options(self) -> dict[str, Any]:
        """Return the option θ as an exact decimal, under the key ``theta``."""
        return {"theta": Decimal(self.theta_micro).scaleb(-6)}


def _read_theta(theta: str | float | Decimal) -> int:
    micro = millionths(theta)
    if micro is None or micro >= MICRO:
        raise InputError("theta_invalid", "θ lies between 0 and 1, with at most six decimal places")
    return micro
