"""Common parts of the numeric mechanisms: scaled inputs, estimates and their variances.

A real number of [−1, 1] is represented by an integer x of [−S, S], S = 65536. Source: docs/math.md, section 2.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from protocol import SCALE
from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.mechanisms.base import (
    ONE,
    SINGLE,
    Mechanism,
    check_size,
    out_of_domain,
    read_integers,
    unbounded,
    uninformative,
)

if TYPE_CHECKING:
    from fractions import Fraction

HALF = ONE // 2


class NumericMechanism(Mechanism):
    """A mechanism whose input is a number, or a vector of numbers, in [−S, S], S = 65536.

    The mean of :meth:`estimate` over the random answers is the input, except for the rounding of probabilities to
    multiples of 2^−32 and, for ``laplace``, the clipping of rare noise. Estimates are in units of 1/S, variances in
    units of 1/S².

    Attributes:
        asks_for_all: whether the input is the vector of all numbers of a record, not one number of one class.
    """

    __slots__ = ()
    asks_for_all: ClassVar[bool] = False

    @abstractmethod
    def estimate(self, answer: Any) -> Any:
        """Return the estimate of the input from ``answer``: a Fraction, or a tuple of one Fraction per coordinate."""

    @abstractmethod
    def variance(self, x: int) -> Fraction:
        """Return the variance of the estimate of one coordinate x: exact, except to 49 digits for ``laplace``."""


class SingleNumberMechanism(NumericMechanism):
    """A numeric mechanism of one number whose answer is one small integer, so that counts of the answers suffice."""

    __slots__ = ()
    layout = SINGLE

    def impossible(self, answers: Any) -> None:
        """Return None: every small integer below :attr:`answers` is a possible answer."""
        del answers


def check_number(value: object) -> None:
    """Refuse (``value_out_of_domain``) a value that is no integer of [−65536, 65536], and do not name it."""
    if type(value) is not int or not -SCALE <= value <= SCALE:
        raise out_of_domain(f"an integer from −{SCALE} to {SCALE}")


def check_vector(value: object, size: int, most_nonzero: int | None = None) -> None:
    """Refuse (``value_out_of_domain``) what is no tuple or list of ``size`` integers of [−65536, 65536].

    At most ``most_nonzero`` coordinates may differ from 0; None for all.
    """
    numbers = value if isinstance(value, tuple | list) else ()
    if len(numbers) != size or not all(type(x) is int and -SCALE <= x <= SCALE for x in numbers):
        raise out_of_domain(f"{size} integers from −{SCALE} to {SCALE}")
    if most_nonzero is not None and sum(x != 0 for x in numbers) > most_nonzero:
        raise out_of_domain(f"{size} integers of which at most {most_nonzero} are not 0")


def coin_threshold(epsilon_micro: int) -> int:
    """Return T = ⌊2^32 · E/(1 + E)⌋ with E = e^ε and ε = ``epsilon_micro``/10⁶.

    A coin that shows its true side with probability T/2^32 costs at most ε.
    """
    power = exp_below(epsilon_micro)
    return int(ONE * power // (1 + power))


def check_threshold(threshold: int) -> None:
    """Refuse a coin with the probability T/2^32, T = ``threshold``, that is useless or not private.

    Raises:
        InputError: ``parameters_invalid``: T ≤ 2^31; ``loss_unbounded``: T is 0 or 2^32.
    """
    if threshold in (0, ONE):
        raise unbounded()
    if threshold <= HALF:
        raise uninformative()


def bent(x: int, threshold: int) -> int:
    """Return 2^32 times the probability of the bit 1 for input ``x``: 2^31 + ⌊x(T − 2^31)/S⌋, T = ``threshold``."""
    return HALF + x * (threshold - HALF) // SCALE


def bit_estimate(bit: int, threshold: int) -> Fraction:
    """Return the estimate of the input from ``bit`` b: S(2b − 1)/(2T/2^32 − 1) with S = 65536, T = ``threshold``."""
    from fractions import Fraction

    return Fraction(SCALE * (2 * bit - 1) * HALF, threshold - HALF)


def bit_variance(x: int, threshold: int) -> Fraction:
    """Return the variance B²·4p(1 − p) of :func:`bit_estimate`; p is the probability of a 1, B the estimate from it."""
    from fractions import Fraction

    p = Fraction(bent(x, threshold), ONE)
    return bit_estimate(1, threshold) ** 2 * 4 * p * (1 - p)


class CoinMechanism(NumericMechanism):
    """A numeric mechanism with one bit per coordinate and one parameter T.

    T/2^32 is the largest probability that a coin shows its true side: T = ⌊2^32 · E/(1 + E)⌋ with E = e^ε. The bits 1
    and 0 have the estimates B and −B, a number that :meth:`estimate` derives from T. The worst ratio is T/(2^32 − T);
    the docstring of each mechanism says why.
    """

    __slots__ = ("threshold",)
    MAX_SIZE: ClassVar[int]

    def __init__(self, epsilon_micro: int, size: int, threshold: int) -> None:
        """Make the mechanism for T = ``threshold``, 2^32 times the largest probability of a coin's true side."""
        super().__init__(epsilon_micro, size)
        self.threshold = threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int = 1) -> Self:
        """Return the mechanism of 1 … ``MAX_SIZE`` coordinates with the T that follows from ε."""
        check_answer_micro(epsilon_micro)
        return cls._checked(epsilon_micro, size, coin_threshold(epsilon_micro))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, threshold = read_integers(parameters, ("threshold",))
        return cls._checked(micro, size, threshold)

    @classmethod
    def _checked(cls, epsilon_micro: int, size: int, threshold: int) -> Self:
        check_size(size, 1, cls.MAX_SIZE)
        check_threshold(threshold)
        return cls(epsilon_micro, size, threshold)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. Its ``threshold`` is T."""
        return self._stated(threshold=self.threshold)

    def impossible(self, answers: Any) -> None:
        """Return None: every row of bits is a possible answer."""
        del answers

    def set_bits_law(self) -> None:
        """Return None: the number of ones depends on the input."""

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss ln(T/(2^32 − T)), with T = ``threshold``."""
        from fractions import Fraction

        return PrivacyLoss(Fraction(self.threshold, ONE - self.threshold))
