"""Direct encoding (GRR, k-ary randomised response): the answer is the true value or a random other value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.mechanisms.base import (
    ONE,
    SINGLE,
    FrequencyMechanism,
    check_size,
    out_of_domain,
    read_integers,
    unbounded,
    uninformative,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/direct"


class Direct(FrequencyMechanism):
    """Direct encoding: the answer is the true value with probability T/2^32, else another value at random.

    T = ⌊2^32 · E / (E + K − 1)⌋ with E = e^ε and K values. The other K − 1 values are equally likely. The answer is one
    integer of {0 … K − 1}.
    Source: Wang et al., USENIX Security 2017, section 4.1; docs/math.md, section 1.
    """

    __slots__ = ("keep",)
    name = "direct"
    layout = SINGLE

    def __init__(self, epsilon_micro: int, size: int, keep: int) -> None:
        """Make the mechanism for T = ``keep``, 2^32 times the probability of the true value."""
        super().__init__(epsilon_micro, size)
        self.keep = keep

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Direct:
        """Return the mechanism of 2 … 65536 values with the T that follows from ε."""
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 65536)
        power = exp_below(epsilon_micro)
        keep = ONE * power // (power + size - 1)
        return cls._checked(epsilon_micro, size, keep)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Direct:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, keep = read_integers(parameters, ("keep",))
        check_size(size, 2, 65536)
        return cls._checked(micro, size, keep)

    @classmethod
    def _checked(cls, epsilon_micro: int, size: int, keep: int) -> Direct:
        if keep in (0, ONE):
            raise unbounded()
        if keep * size <= ONE:
            raise uninformative()
        return cls(epsilon_micro, size, keep)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. Its ``keep`` is T, 2^32 times the probability of the true value."""
        return self._stated(keep=self.keep)

    @property
    def p(self) -> Fraction:
        """Probability that the answer is the true value: T/2^32 with T = ``keep``."""
        from fractions import Fraction

        return Fraction(self.keep, ONE)

    @property
    def q(self) -> Fraction:
        """Probability of each wrong answer: (1 − p)/(K − 1) for K values, with p = :attr:`p`."""
        return (1 - self.p) / (self.size - 1)

    def perturb(self, value: int, seed: bytes) -> int:
        """Draw the answer for ``value`` from the stream of ``seed``.

        If ``Stream.coin(T)`` is true (probability T/2^32, T = ``keep``), the answer is ``value``. Else o =
        ``Stream.below(K − 1)`` is drawn, and the answer is o + (o ≥ value).
        """
        # These lines repeat check_value, since calling it would make an answer a tenth slower.
        if type(value) is not int or not 0 <= value < self.size:
            raise out_of_domain(f"an integer from 0 to {self.size - 1}")
        stream = Stream(seed, TAG)
        if stream.coin(self.keep):
            return value
        other = stream.below(self.size - 1)
        return other + (other >= value)

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        chance = "over 99%" if 200 * self.p > 199 else f"{float(self.p):.0%}"  # never "100%": other values are possible
        return f"one of {self.size} values, the true one {chance} of the time, else another at random"

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Return the probability of every answer: :attr:`p` for the true ``value``, :attr:`q` for each other value."""
        self.check_value(value)
        p, q = self.p, self.q
        return {answer: p if answer == value else q for answer in range(self.size)}

    def impossible(self, answers: Any) -> None:
        """Return None: every value is a possible answer."""
        del answers

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss ln(p/q): an answer has :attr:`p` for its own input, else :attr:`q`."""
        return PrivacyLoss(self.p / self.q)
