"""Noise for smooth sensitivity: laws, exact samplers, and the constants of the noise with a proven cost.

A statistic f is released as f(x) + k·S(x)·Z. Z is noise of a *law* (distribution), k a multiplier, S(x) a number that
changes by at most the factor e^β between neighbours x and y, and |f(x) − f(y)| ≤ min(S(x), S(y)). docs/smooth.md
derives what this costs for every law, and how the laws are sampled. :func:`calibrated` guesses k and β in floating
point and proves them with rational bounds. Z is a :class:`LazyReal`: two different ones are told apart after finitely
many bits, with probability 1.
Source: Karney, ACM Transactions on Mathematical Software 42 (2016); Student's t: Bun and Steinke, NeurIPS 2019.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from math import floor, isqrt
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import InputError
from protocol.noise.rational_bounds import integer_root, root_above, round_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.stream import Stream

WORD = 64
"""Bits that a lazy uniform number draws at a time."""


class LazyReal(ABC):
    """A random real number whose binary digits are drawn when they are needed."""

    @abstractmethod
    def bounds(self, bits: int) -> tuple[int, int]:
        """Return integers (low, high) with low ≤ value·2^bits ≤ high; they may draw, and tighten as ``bits`` grows."""


class Uniform(LazyReal):
    """A uniform number between 0 and 1. It draws words of 64 bits from the stream as they are needed."""

    __slots__ = ("_count", "_digits", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._digits = 0
        self._count = 0

    def bounds(self, bits: int) -> tuple[int, int]:
        """Return the first ``bits`` binary digits as an integer d, and d + 1."""
        while self._count < bits:
            self._digits = self._digits << WORD | self._stream.u64()
            self._count += WORD
        digits = self._digits >> (self._count - bits)
        return digits, digits + 1


class Signed(LazyReal):
    """A lazy real of given magnitude, negative with probability ½. The sign is drawn when the object is made."""

    __slots__ = ("_magnitude", "_negative")

    def __init__(self, stream: Stream, magnitude: LazyReal) -> None:
        self._negative = stream.below(2) == 1
        self._magnitude = magnitude

    def bounds(self, bits: int) -> tuple[int, int]:
        """Return the bounds of the magnitude or, for a negative number, their negatives in reverse order."""
        low, high = self._magnitude.bounds(bits)
        return (-high, -low) if self._negative else (low, high)


class Shifted(LazyReal):
    """The sum of a non-negative integer and a lazy real."""

    __slots__ = ("_integer", "_real")

    def __init__(self, integer: int, real: LazyReal) -> None:
        self._integer = integer
        self._real = real

    def bounds(self, bits: int) -> tuple[int, int]:
        """Return the bounds of the lazy real, each plus the integer·2^bits."""
        low, high = self._real.bounds(bits)
        return (self._integer << bits) + low, (self._integer << bits) + high


def decide(certain: Callable[[int], bool | None]) -> bool:
    """Return the answer of a yes-or-no question about lazy reals, at the precision that it needs.

    ``certain`` returns for a number of bits True or False if bounds of that precision decide the question, else None.
    """
    bits = WORD
    while (answer := certain(bits)) is None:
        bits *= 2
    return answer


def is_below(left: LazyReal, right: LazyReal) -> bool:
    """Return whether ``left`` < ``right``, for two different lazy reals."""

    def certain(bits: int) -> bool | None:
        left_low, left_high = left.bounds(bits)
        right_low, right_high = right.bounds(bits)
        return True if left_high <= right_low else False if left_low >= right_high else None

    return decide(certain)


class Law(ABC):
    """A distribution of the noise Z, symmetric around 0.

    Attributes:
        name: name of the law, for example ``student-t``.
        variance: the variance of Z; infinite for heavy tails.
    """

    name: str
    variance: float

    @abstractmethod
    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly, as a number whose digits are drawn as they are needed."""

    @abstractmethod
    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return an ε for which a release f + k·S·Z is proven (ε, δ)-differentially private; k: ``multiplier``.

        Raises InputError ``noise_unfit``: this law has no finite ε for δ = 0.
        """

    @abstractmethod
    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return the law, a multiplier k and a smoothing β that cost about ``epsilon``, rounded and without a proof.

        Without a ``beta`` about half of the budget is left to β. Raises InputError ``beta_invalid``: ``beta`` alone
        costs all of ε; ``noise_unfit``: the law needs δ > 0.
        """

    def rho_above(self, multiplier: Fraction, beta: Fraction) -> Fraction | None:
        """Return a ρ for which a release with k = ``multiplier`` is proven ρ-zero-concentrated private, or None."""
        del multiplier, beta
        return None


class PureLaw(Law):
    """A law that gives pure ε-differential privacy: it needs no δ."""

    def rho_above(self, multiplier: Fraction, beta: Fraction) -> Fraction | None:
        """Return ε²/2 (Bun and Steinke, "Concentrated Differential Privacy", 2016, Proposition 3.3)."""
        return self.epsilon_above(multiplier, beta, Fraction(0)) ** 2 / 2


def left_for_shift(epsilon: float, spent: float) -> float:
    """Return what is left of ``epsilon`` after the smoothing β has cost ``spent`` (``beta_invalid`` if nothing)."""
    if not 0 < spent < epsilon:
        raise InputError("beta_invalid", "the smoothing β alone costs the whole ε: take a smaller β")
    return epsilon - spent


def needs_delta(name: str) -> InputError:
    """Return the error for a law that is not offered with δ = 0."""
    return InputError("noise_unfit", f"{name} noise is not private with δ = 0: state δ, or take cauchy or student-t")


def power_tail_magnitude(stream: Stream, gamma: Fraction, m: int = 1) -> LazyReal:
    """Draw a number with density ∝ 1/(1 + z^γ)^m, z > 0, for a fraction γ and a positive integer m with γm > 1."""
    p, q = gamma.numerator, gamma.denominator
    tail = p * m - q  # w = s^(q/tail)
    while True:
        is_inner = stream.below(p * m) < tail
        s = Uniform(stream)
        root = q if is_inner else tail  # z^γ or w^γ is s^(p/root).
        if all(_keeps(Uniform(stream), s, p, root) for _ in range(m)):
            return s if is_inner else InversePower(s, q, tail)


def _keeps(u: Uniform, s: Uniform, p: int, root: int) -> bool:
    """Return whether u·(1 + s^(p/root)) ≤ 1, for u and s uniform in [0, 1], of which bits are drawn as needed."""

    def certain(bits: int) -> bool | None:
        u_low, u_high = u.bounds(bits)
        s_low, s_high = s.bounds(bits)
        one = 1 << bits
        if u_high**root * s_high**p <= (one - u_high) ** root << bits * p:
            return True
        if u_low**root * s_low**p >= (one - u_low) ** root << bits * p:
            return False
        return None

    return decide(certain)


class InversePower(LazyReal):
    """The lazy real s^(−power/root), for a lazy uniform number s between 0 and 1."""

    __slots__ = ("_power", "_root", "_uniform")

    def __init__(self, uniform: Uniform, power: int, root: int) -> None:
        self._uniform = uniform
        self._power = power
        self._root = root

    def bounds(self, bits: int) -> tuple[int, int]:
        """Return roots of quotients of integers, rounded outwards.

        The number s is read until it is known to be above 0.
        """
        digits = bits
        while (s := self._uniform.bounds(digits))[0] == 0:
            digits *= 2
        shift = digits * self._power + bits * self._root
        low = integer_root((1 << shift) // s[1] ** self._power, self._root)
        high = integer_root((1 << shift) // s[0] ** self._power, self._root) + 1
        return low, high


DEGREES = 3


class StudentT(PureLaw):
    """Student's t with 3 degrees of freedom: density ∝ 1/(1 + z²/3)².

    A shift by d costs at most 2d/√3, a stretch by e^λ at most 3|λ|.
    """

    name = "student-t"
    variance = 3.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly: √3 times a number with density ∝ 1/(1 + y²)²."""
        return Signed(stream, TimesRoot(power_tail_magnitude(stream, Fraction(2), 2), DEGREES))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return 2/(√3·k) + 3β for k = ``multiplier`` and β = ``beta``. ``delta`` is not needed."""
        del delta
        return root_above(Fraction(4, 3)) / multiplier + DEGREES * beta

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return the law, k and β. Half of ε is for β, unless β is given."""
        del delta
        beta = epsilon / (2 * DEGREES) if beta is None else beta
        return self, (4 / 3) ** 0.5 / left_for_shift(epsilon, DEGREES * beta), beta


class TimesRoot(LazyReal):
    """The lazy real √square · y, for a lazy real y ≥ 0 and a positive integer ``square``."""

    __slots__ = ("_square", "_y")

    def __init__(self, y: LazyReal, square: int) -> None:
        self._y = y
        self._square = square

    def bounds(self, bits: int) -> tuple[int, int]:
        """Return integer roots, rounded outwards."""
        low, high = self._y.bounds(bits)
        return isqrt(self._square * low * low), isqrt(self._square * high * high) + 1


def rounded(center: Fraction, scale: Fraction, noise: LazyReal) -> int:
    """Return the integer nearest to ``center`` + ``scale``·noise, for ``scale`` > 0.

    The function reads noise until the integer is certain.
    """
    bits = WORD
    while True:
        low, high = (floor(center + scale * Fraction(end, 1 << bits) + Fraction(1, 2)) for end in noise.bounds(bits))
        if low == high:
            return low
        bits *= 2


LEAST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**6), Fraction(64)
LEAST_DELTA = Fraction(1, 10**100)


class Calibration(NamedTuple):
    """A noise and its constants: the statistic f is released as f + k·S·Z, for a smooth sensitivity S of f.

    Attributes:
        law: the distribution of Z.
        multiplier: k.
        beta: β; S may change by at most the factor e^β between neighbouring data sets.
        epsilon, delta: a release is (ε, δ)-differentially private; δ = 0 is pure.
        rho: a release is ρ-zero-concentrated differentially private; None if the law has no such bound.
    """

    law: Law
    multiplier: Fraction
    beta: Fraction
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None

    def variance(self, sensitivity: Fraction) -> float:
        """Return the variance of k·S·Z for S = ``sensitivity``; it is infinite for heavy tails.

        The result is public only if ``sensitivity`` is. With the global sensitivity it is an upper bound that may be
        published.
        """
        return self.law.variance * float(self.multiplier * sensitivity) ** 2


def calibrated(law: Law, epsilon: Fraction, delta: Fraction, beta: Fraction | None = None) -> Calibration:
    """Return the constants of a law whose release is (``epsilon``, ``delta``)-differentially private.

    A pure law does not use δ and costs none. Without a smoothing ``beta`` about half of ε is left to β. Raises
    InputError ``noise_unfit``: the law needs δ > 0; ``beta_invalid``: β alone costs all of ε; ``epsilon_invalid``: ε or
    δ is outside its range.
    """
    check_budget(epsilon, delta)
    fitted, multiplier, smoothing = law.fitted(float(epsilon), float(delta), None if beta is None else float(beta))
    if isinstance(fitted, PureLaw):
        delta = Fraction(0)
    beta = Fraction(smoothing) if beta is None else beta
    return proven(fitted, _raised(fitted, multiplier, beta, epsilon, delta), beta, epsilon, delta)


def proven(law: Law, multiplier: Fraction, beta: Fraction, epsilon: Fraction, delta: Fraction) -> Calibration:
    """Return the calibration with these constants, after a proof that its cost is at most (ε, δ) (``noise_unfit``)."""
    if law.epsilon_above(multiplier, beta, delta) > epsilon:
        raise InputError("noise_unfit", f"these constants of {law.name} noise cost more than ε: take a smaller ε")
    return Calibration(law, multiplier, beta, epsilon, delta, law.rho_above(multiplier, beta))


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    """Refuse (``epsilon_invalid``) an ε (or ρ) or a δ outside its range."""
    if not LEAST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InputError("epsilon_invalid", "ε (or ρ) of one release is between 0.000001 and 64")
    if delta and not LEAST_DELTA <= delta < 1:
        raise InputError("epsilon_invalid", "δ is 0, or between 10^-100 and 1")


def _raised(law: Law, guess: float, beta: Fraction, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return ``guess`` as a fraction, raised by the smallest margin 2^−40, 2^−38, … that makes the cost at most ε."""
    for bits in range(40, 0, -2):
        multiplier = round_up(Fraction(guess) * (1 + Fraction(1, 1 << bits)))
        if law.epsilon_above(multiplier, beta, delta) <= epsilon:
            return multiplier
    raise InputError("beta_invalid", "the smoothing β alone costs nearly the whole ε: take a smaller β")
