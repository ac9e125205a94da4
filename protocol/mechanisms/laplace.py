"""Exact discrete Laplace noise on a vector of numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

from protocol import SCALE
from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.errors import InputError
from protocol.mechanisms.base import check_size, read_integers
from protocol.mechanisms.noise import GRID, ApproximateTable, NoisyIntegers, discrete_laplace, rate
from protocol.mechanisms.numeric import NumericMechanism, check_vector
from protocol.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

TAG = b"hearsay/1/laplace"
MAX_SIZE = 4096
_MAX_TABLE = 100_000


class Laplace(NoisyIntegers, NumericMechanism):
    """A mechanism that rounds every coordinate of a vector to a grid and adds exact discrete Laplace noise.

    Coordinate x becomes x·M/S, M = 1024 and S = 65536, rounded at random to an integer. The noise n has P(n) ∝
    e^{−|n|s/t}, where s/t = ε/(ΔM). At most Δ/2 coordinates of an input differ from 0. So two inputs differ by at most
    ΔM steps in the sum over coordinates, and the loss is exactly ε. With Δ = 2·size all coordinates may differ from 0.
    Source: Yilmaz, Al-Rubaie, Chang 2019, section 3.2, approaches 1 and 3, with the noise of Canonne, Kamath, Steinke
    2020; docs/math.md, section 2.

    Attributes:
        delta: Δ, an even number from 2 to 2·size.
    """

    __slots__ = ("delta",)
    name = "laplace"
    option_names = ("delta",)

    def __init__(self, epsilon_micro: int, size: int, delta: int, s: int, t: int) -> None:
        """Make the mechanism for Δ = ``delta`` and the rate ``s``/``t`` of the noise."""
        super().__init__(epsilon_micro, size, s, t)
        self.delta = delta

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int, *, delta: int | None = None) -> Laplace:
        """Return the mechanism of 1 … 4096 coordinates with the noise's rate s/t per step that follows from ε and Δ.

        ``delta`` is Δ, twice the largest number of coordinates that may differ from 0; None for all of them. Noise that
        does not fit into 32 bits is refused as ``parameters_invalid``.
        """
        check_answer_micro(epsilon_micro)
        check_size(size, 1, MAX_SIZE)
        delta = 2 * size if delta is None else delta
        _check_delta(delta, size)
        return cls(epsilon_micro, size, delta, *rate(epsilon_micro, delta))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Laplace:
        """Read the mechanism from ``parameters``, its map in a campaign; Δ is an even number of 2 … 2·size."""
        size, micro, delta, s, t = read_integers(parameters, ("delta", "s", "t"), most=1 << 50)
        check_size(size, 1, MAX_SIZE)
        _check_delta(delta, size)
        return cls(micro, size, delta, s, t)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. ``delta`` is Δ (:class:`Laplace`), ``s``/``t`` the rate of the noise."""
        return self._stated(delta=self.delta, s=self.s, t=self.t)

    def options(self) -> dict[str, Any]:
        """Return the option ``delta``: twice the largest number of coordinates that may differ from 0."""
        return {"delta": self.delta}

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in an answer: ±(1024 + H). H is the largest noise (:attr:`reach`)."""
        return -GRID - self.reach, GRID + self.reach

    @property
    def most_nonzero(self) -> int:
        """The largest number of coordinates of an input that may differ from 0: half of :attr:`delta`."""
        return self.delta // 2

    def perturb(self, value: Sequence[int], seed: bytes) -> tuple[int, ...]:
        """Draw the answer for the vector ``value`` from the stream of ``seed``.

        The stream is read, per coordinate, by ``Stream.below(S)`` for the rounding, S = 65536, and then for one
        discrete Laplace noise, which is added to the rounded coordinate.
        """
        check_vector(value, self.size, self.most_nonzero)
        stream = Stream(seed, TAG)
        answer = []
        for x in value:
            step, rest = divmod(x * GRID, SCALE)
            step += stream.below(SCALE) < rest
            answer.append(self.clamp(step + discrete_laplace(stream, self.s, self.t)))
        return tuple(answer)

    def exponent(self, value: Sequence[int], answer: Sequence[int]) -> int:
        """Return the exponent n in P(answer | value) = C·q^n with q = e^{−s/t}, where C does not depend on ``value``.

        The result is right for inputs whose coordinates x become integers x·M/S, M = 1024 and S = 65536.
        """
        check_vector(value, self.size, self.most_nonzero)
        return sum(abs(part - x * GRID // SCALE) for part, x in zip(answer, value, strict=True))

    def distribution(self, value: Sequence[int], radius: int = 2) -> ApproximateTable:
        """Return probabilities, to 49 digits, of at most 100,000 answers near the input: answer → probability.

        In these answers every integer differs by at most ``radius`` steps from one of the two integers to which its
        coordinate may be rounded.
        """
        check_vector(value, self.size, self.most_nonzero)
        if (2 * radius + 2) ** self.size > _MAX_TABLE:
            raise InputError("too_many_answers", "a table of this size and radius has too many answers")
        q = 1 / exp_below(self.s, self.t)
        at_zero = (1 - q) / (1 + q)
        columns = []
        for x in value:
            step, rest = divmod(x * GRID, SCALE)
            up = Fraction(rest, SCALE)
            near = range(step - radius, step + radius + 2)
            columns.append({n: at_zero * ((1 - up) * q ** abs(n - step) + up * q ** abs(n - step - 1)) for n in near})
        table = ApproximateTable()
        for answer in product(*columns):
            probability = Fraction(1)
            for part, column in zip(answer, columns, strict=True):
                probability *= column[part]
            table[answer] = probability
        return table

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss Δ·1024·s/t: inputs differ by at most Δ·1024 steps.

        s/t is the rate of the noise per step.
        """
        return PrivacyLoss(Fraction(1), Fraction(self.delta * GRID * self.s, self.t))

    def estimate(self, answer: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the estimates of all coordinates, in units of 1/65536: 64·a for an integer a of ``answer``."""
        return tuple(Fraction(part * SCALE, GRID) for part in answer)

    def variance(self, x: int) -> Fraction:
        """Return the variance of the estimate of one coordinate x, to 49 digits, in units of 1/S², S = 65536.

        It is (2q/(1 − q)² + f(1 − f))·S²/M², M = 1024. The first term is the variance of the noise, q = e^{−s/t}; the
        second is that of the rounding, where f is the fractional part of x·M/S.
        """
        q = 1 / exp_below(self.s, self.t)
        fraction = Fraction(x * GRID % SCALE, SCALE)
        return (2 * q / (1 - q) ** 2 + fraction * (1 - fraction)) * Fraction(SCALE, GRID) ** 2


def _check_delta(delta: object, size: int) -> None:
    if type(delta) is not int or not 2 <= delta <= 2 * size or delta % 2:
        raise InputError("delta_invalid", f"Δ is an even number from 2 to {2 * size}")
