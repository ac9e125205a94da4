"""The hybrid mechanism: a coin decides between ``piecewise`` and ``bit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.epsilon import MICRO, PrivacyLoss, check_answer_micro, exp_below
from protocol.mechanisms.base import ONE, check_size, read_integers
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.numeric import SingleNumberMechanism, bent, check_number
from protocol.mechanisms.piecewise import CELLS, Piecewise
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/hybrid"
PIECEWISE_ABOVE_MICRO = 610_000


class Hybrid(SingleNumberMechanism):
    """The hybrid mechanism: the answer of ``piecewise`` with probability A/2^32, else N plus the answer of ``bit``.

    N = 4096 is the number of answers of ``piecewise``. A = ⌊2^32(1 − e^{−ε/2})⌋ above ε = 0.61, else 0. This mixture
    has the smallest worst-case variance.
    Source: Wang et al., ICDE 2019, section III-C (HM); docs/math.md, section 2.
    """

    __slots__ = ("bit", "piecewise", "share")
    name = "hybrid"

    def __init__(self, epsilon_micro: int, share: int, piecewise: Piecewise, bit: Bit) -> None:
        """Make the mechanism with the probability ``share``/2^32 of ``piecewise``. Both parts have the full ε."""
        super().__init__(epsilon_micro, 1)
        self.share = share
        self.piecewise = piecewise
        self.bit = bit

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int = 1) -> Hybrid:
        """Return the mechanism for ε. The probability of ``piecewise`` follows from ε."""
        check_answer_micro(epsilon_micro)
        check_size(size, 1, 1)
        share = 0
        if epsilon_micro > PIECEWISE_ABOVE_MICRO:
            share = int(ONE * (1 - 1 / exp_below(epsilon_micro, 2 * MICRO)) // 1)
        return cls(epsilon_micro, share, Piecewise.from_micro(epsilon_micro), Bit.from_micro(epsilon_micro))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Hybrid:
        """Read the mechanism from ``parameters``, its map in a campaign; neither part may have a fault."""
        names = ("share", "window", "piecewise_threshold", "bit_threshold")
        size, micro, share, window, inside, coin = read_integers(parameters, names)
        check_size(size, 1, 1)
        common = {"size": 1, "epsilon_micro": micro}
        piecewise = Piecewise.from_dict({"name": Piecewise.name, "window": window, "threshold": inside, **common})
        return cls(micro, share, piecewise, Bit.from_dict({"name": Bit.name, "threshold": coin, **common}))

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign: ``share``, and the parameters of ``piecewise`` and ``bit``."""
        return self._stated(
            share=self.share,
            window=self.piecewise.window,
            piecewise_threshold=self.piecewise.threshold,
            bit_threshold=self.bit.threshold,
        )

    @property
    def answers(self) -> int:
        """The number of possible answers: the 4096 cells of ``piecewise`` and the two answers of ``bit``."""
        return CELLS + 2

    def perturb(self, value: int, seed: bytes) -> int:
        """Draw the answer for the number ``value`` from the stream of ``seed``.

        If ``Stream.coin(share)`` is true, ``piecewise`` draws the answer from the same stream, else ``bit``.
        """
        check_number(value)
        stream = Stream(seed, TAG)
        if stream.coin(self.share):
            return self.piecewise.answer(value, stream)
        return CELLS + stream.coin(bent(value, self.bit.threshold))

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"one number of {self.answers}, likelier near the true one ({self.name})"

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Return answer → probability: ``piecewise``'s times A/2^32, A = ``share``; ``bit``'s times the rest."""
        from fractions import Fraction

        chosen = Fraction(self.share, ONE)
        table = {cell: chosen * chance for cell, chance in self.piecewise.distribution(value).items()}
        table.update({CELLS + bit: (1 - chosen) * chance for bit, chance in self.bit.distribution(value).items()})
        return table

    def privacy_loss(self) -> PrivacyLoss:
        """Return the larger loss of ``piecewise`` and ``bit``, if it can be drawn: an answer shows which made it."""
        losses = []
        if self.share > 0:
            losses.append(self.piecewise.privacy_loss())
        if self.share < ONE:
            losses.append(self.bit.privacy_loss())
        return max(losses, key=lambda loss: loss.ratio)

    def estimate(self, answer: int) -> Fraction:
        """Return the estimate of the input by ``piecewise`` or ``bit``, whichever made ``answer``."""
        if answer < CELLS:
            return self.piecewise.estimate(answer)
        return self.bit.estimate(answer - CELLS)

    def variance(self, x: int) -> Fraction:
        """Return the exact variance of the estimate for input x, from the moments of ``piecewise`` and ``bit``."""
        from fractions import Fraction

        chosen = Fraction(self.share, ONE)
        bit_mean = self.bit.estimate(1) * (2 * self.bit.distribution(x)[1] - 1)
        mean = chosen * x + (1 - chosen) * bit_mean
        second = chosen * (self.piecewise.variance(x) + x**2) + (1 - chosen) * (self.bit.variance(x) + bit_mean**2)
        return second - mean**2
