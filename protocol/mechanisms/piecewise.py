"""The piecewise mechanism on a grid of cells: cells near the input are likely, all other cells are unlikely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import SCALE
from protocol.epsilon import MICRO, PrivacyLoss, check_answer_micro, exp_below
from protocol.mechanisms.base import ONE, check_size, read_integers, unbounded, uninformative
from protocol.mechanisms.numeric import SingleNumberMechanism, check_number
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/piecewise"
CELLS = 4096


class Piecewise(SingleNumberMechanism):
    """The piecewise mechanism: the answer is one of N = 4096 cells of a grid, likely one near the input x.

    With probability T/2^32 the answer is in a window of w cells around x. The window starts at cell s, rounded at
    random to an integer with mean s.

        s = (x + S)(N − w)/2S with S = 65536
        w = round(N(C − 1)/2C) with C = (e^{ε/2} + 1)/(e^{ε/2} − 1),  that is N/(e^{ε/2} + 1)
        T = ⌊2^32 · Ew/(Ew + N − w)⌋ with E = e^ε

    A cell inside the window has the probability T/(2^32 w), a cell outside (2^32 − T)/(2^32 (N − w)), left or right.
    The printed algorithm gives the left and the right part probability ½ each, which is not ε-private.
    Source: Wang et al., ICDE 2019, Algorithm 2 (PM), on a grid; docs/math.md, sections 2 and 8.3.
    """

    __slots__ = ("threshold", "window")
    name = "piecewise"

    def __init__(self, epsilon_micro: int, window: int, threshold: int) -> None:
        """Make the mechanism for w = ``window`` cells and T = ``threshold``."""
        super().__init__(epsilon_micro, 1)
        self.window = window
        self.threshold = threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int = 1) -> Piecewise:
        """Return the mechanism whose w (width of the window) and T (2^32 times its probability) follow from ε."""
        check_answer_micro(epsilon_micro)
        check_size(size, 1, 1)
        window = round(CELLS / (exp_below(epsilon_micro, 2 * MICRO) + 1))
        inside = exp_below(epsilon_micro) * window
        return cls._checked(epsilon_micro, window, int(ONE * inside // (inside + CELLS - window)))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Piecewise:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, window, threshold = read_integers(parameters, ("window", "threshold"))
        check_size(size, 1, 1)
        return cls._checked(micro, window, threshold)

    @classmethod
    def _checked(cls, epsilon_micro: int, window: int, threshold: int) -> Piecewise:
        if 1 <= window < CELLS and threshold in (0, ONE):
            raise unbounded()
        if not 1 <= window < CELLS or threshold * (CELLS - window) <= (ONE - threshold) * window:
            raise uninformative()
        return cls(epsilon_micro, window, threshold)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign, with w as ``window`` and T as ``threshold``."""
        return self._stated(window=self.window, threshold=self.threshold)

    @property
    def answers(self) -> int:
        """The number of possible answers: the 4096 cells."""
        return CELLS

    def perturb(self, value: int, seed: bytes) -> int:
        """Draw a cell for the number ``value`` from the stream of ``seed``.

        The stream is read by ``Stream.below(2S)`` for the window's start and ``Stream.coin(T)``, which is true for a
        cell inside the window; then by ``Stream.below(w)`` for a cell inside, or ``Stream.below(N − w)`` for a cell
        outside. S = 65536, T is ``threshold``, w is ``window``, N = 4096.
        """
        check_number(value)
        return self.answer(value, Stream(seed, TAG))

    def answer(self, value: int, stream: Stream) -> int:
        """Draw a cell for the number ``value``, which is not checked, from ``stream``. ``hybrid`` calls this, too."""
        start, rest = self._start(value)
        start += stream.below(2 * SCALE) < rest
        if stream.coin(self.threshold):
            return start + stream.below(self.window)
        outside = stream.below(CELLS - self.window)
        return outside if outside < start else outside + self.window

    def _start(self, value: int) -> tuple[int, int]:
        """Return ⌊s⌋ for the input ``value``, and 2S times the probability that the window starts at ⌊s⌋ + 1."""
        return divmod((value + SCALE) * (CELLS - self.window), 2 * SCALE)

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"one number of {self.answers}, likelier near the true one ({self.name})"

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Return cell → probability for the number ``value``: a mixture over the two starts of the window."""
        from fractions import Fraction

        check_number(value)
        start, rest = self._start(value)
        later = Fraction(rest, 2 * SCALE)
        inside, outside = self._heights()
        table = dict.fromkeys(range(CELLS), outside)
        table |= dict.fromkeys(range(start, start + self.window), inside)
        if later:
            table[start] = inside - later * (inside - outside)
            table[start + self.window] = outside + later * (inside - outside)
        return table

    def _heights(self) -> tuple[Fraction, Fraction]:
        """Return the probability of one cell inside the window, and that of one cell outside it."""
        from fractions import Fraction

        rest = CELLS - self.window
        return Fraction(self.threshold, ONE * self.window), Fraction(ONE - self.threshold, ONE * rest)

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss: ln(p/q) for a cell of probability p inside a window and q outside another."""
        inside, outside = self._heights()
        return PrivacyLoss(inside / outside)

    @property
    def gain(self) -> Fraction:
        """κ, the factor of :meth:`estimate`: 1/(p(N − w) − (1 − p)w).

        p is the probability of an answer in the window, w the number of the window's cells, N = 4096 that of all.
        """
        from fractions import Fraction

        p = Fraction(self.threshold, ONE)
        return 1 / (p * (CELLS - self.window) - (1 - p) * self.window)

    def estimate(self, answer: int) -> Fraction:
        """Return the estimate of the input from the answer, cell c: κ(2c + 1 − N)S.

        κ is :attr:`gain`, N = 4096 the number of cells, S = 65536.
        """
        return self.gain * (2 * answer + 1 - CELLS) * SCALE

    def variance(self, x: int) -> Fraction:
        """Return the exact variance of the estimate for the input ``x``: (κS)²·M − x².

        κ is :attr:`gain`, S = 65536, and M the mean of (2c + 1 − N)² over the random cell c, N = 4096.
        """
        from fractions import Fraction

        start, rest = self._start(x)
        later = Fraction(rest, 2 * SCALE)
        square = (1 - later) * self._square(start) + later * self._square(start + 1)
        return (self.gain * SCALE) ** 2 * square - x**2

    def _square(self, start: int) -> Fraction:
        """Return the mean of (2c + 1 − 4096)² over the answered cell c, if the window starts at cell ``start``."""
        inside, outside = self._heights()
        w = self.window
        within = w * (2 * start + w - CELLS) ** 2 + w * (w**2 - 1) // 3
        everywhere = CELLS * (CELLS**2 - 1) // 3
        return inside * within + outside * (everywhere - within)
