"""What every noise distribution offers: a sampler, and proven bounds of the privacy cost.

A statistic f is released as f(x) + k·S(x)·Z. Z is noise of a law, S(x) a number that changes by at most the factor e^β
between neighbours x and y, and |f(x) − f(y)| ≤ min(S(x), S(y)). Then the outputs for x and y are two copies of Z of
which one is stretched by at most e^β and shifted by at most 1/k. docs/smooth.md derives what this costs for every law.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from protocol.errors import InputError

if TYPE_CHECKING:
    from fractions import Fraction

    from protocol.noise.lazy import LazyReal
    from protocol.stream import Stream


class Law(ABC):
    """A distribution of noise, symmetric around 0.

    Attributes:
        name: its name in the table of ``calibrating``.
        variance: the variance of Z; infinite for heavy tails.
    """

    name: str
    variance: float

    @abstractmethod
    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly, as a number whose digits are drawn as they are needed."""

    @abstractmethod
    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """An ε for which releases with k = ``multiplier`` and β = ``beta`` are proven (ε, δ)-differentially private.

        Raises:
            InputError: ``noise_unfit``: this law has no finite ε for δ = 0.
        """

    @abstractmethod
    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """The law, a multiplier k and a smoothing β that cost about ``epsilon``.

        The numbers are rounded; the caller makes k slightly larger and proves the cost with :meth:`epsilon_above`.

        Args:
            epsilon, delta: the budget.
            beta: the smoothing, or None for a default that leaves about half of the budget to β.

        Raises:
            InputError: ``beta_invalid``: ``beta`` alone costs all of ε; ``noise_unfit``: the law needs δ > 0.
        """

    def rho_above(self, multiplier: Fraction, beta: Fraction) -> Fraction | None:
        """A ρ for which releases are proven ρ-zero-concentrated differentially private; None if there is no such ρ."""
        del multiplier, beta
        return None


class PureLaw(Law):
    """A law that gives pure ε-differential privacy: it needs no δ."""

    def rho_above(self, multiplier: Fraction, beta: Fraction) -> Fraction | None:
        """ε²/2 (Bun and Steinke, "Concentrated Differential Privacy", 2016, Proposition 3.3)."""
        from fractions import Fraction

        return self.epsilon_above(multiplier, beta, Fraction(0)) ** 2 / 2


def left_for_shift(epsilon: float, spent: float) -> float:
    """``epsilon`` − ``spent``, what is left of the budget after the smoothing β has cost ``spent``.

    Raises:
        InputError: ``beta_invalid``: nothing is left.
    """
    if not 0 < spent < epsilon:
        raise InputError("beta_invalid", "the smoothing β alone costs the whole ε: take a smaller β")
    return epsilon - spent


def needs_delta(name: str) -> InputError:
    """The error for a law that is not offered with δ = 0."""
    return InputError("noise_unfit", f"{name} noise is not private with δ = 0: state δ, or take cauchy or student-t")
