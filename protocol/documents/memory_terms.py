"""Campaigns with memory: a device keeps a noisy answer for a while, and reports it with fresh noise in every period.

A device answers one question for the whole campaign. It draws a *permanent answer* about its record, keeps it for a
*stretch* (a fixed number of periods), and draws another one in the next stretch, whether or not its record has changed:
so its reports do not show when a record changes. Each report is the permanent answer with fresh noise on top. Whoever
has all reports learns at most the permanent answers, 1 + c of them for c renewals. The first report pays for all.

Source: Erlingsson, Pihur, Korolova, CCS 2014 (permanent and instantaneous response); Arcolezi et al., 2021 (L-GRR,
L-OSUE); docs/formats.md, sections 2 and 5; docs/math.md, section 1.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from protocol.documents.payload import read_field, read_integer
from protocol.epsilon import MICRO, MIN_ANSWER_MICRO, PrivacyLoss, check_answer_micro, exp_below, format_micro
from protocol.errors import DocumentError, InputError
from protocol.mechanisms.base import BITS, ONE, SINGLE, FrequencyMechanism, rows_of_bits, uninformative
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.oue import OptimisedUnary
from protocol.mechanisms.unary import ones_law
from protocol.stream import Stream, hmac_sha256, sha256

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from protocol.documents.payload import Header
    from protocol.mechanisms import Mechanism
    from protocol.questions import Assignment, Question

KEY = "memory"
"""Key of the terms in a campaign's payload. It must be in ``crit`` too: an older reader then refuses the campaign."""
MOST_RENEWALS = 999
FRESH_TAG = b"hearsay/1/fresh"
PLACE_PREFIX = b"hearsay/1/memory"
_REASON = "invalid_campaign"
_WORD = 1 << 32


class Remembered(FrequencyMechanism):
    """A permanent answer with fresh noise on top, as one map from a true value to a report; a pure protocol.

    ``epsilon_micro`` is the ε of one report alone. The ε of all reports of one permanent answer is that of
    ``permanent``.

    Attributes:
        permanent: the mechanism that draws the permanent answer.
        keep: F, 2^32 times the probability that the fresh noise keeps the permanent answer (its value, or each bit).
        left: parts of the variance of fresh and of permanent noise that are left in the mean of a device's reports, for
            the aggregator's estimators; (1, 1) for one report.
    """

    __slots__ = ("keep", "left", "permanent")
    base: ClassVar[type[Direct | OptimisedUnary]]
    permanent: Direct | OptimisedUnary

    def __init__(self, permanent: Direct | OptimisedUnary, keep: int, report_micro: int) -> None:
        """Make the mechanism. ``keep`` is not checked; ``report_micro``: declared ε of one report in millionths."""
        super().__init__(report_micro, permanent.size)
        self.permanent = permanent
        self.keep = keep
        self.left = 1.0, 1.0

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int, report_micro: int = 0) -> Self:
        """Return the mechanism whose F is the largest with which one report loses at most ``report_micro``.

        ``epsilon_micro`` is the ε of the permanent answer. Raises ``parameters_invalid`` if that F says nothing.
        """
        check_answer_micro(report_micro)
        permanent = cls.base.from_micro(epsilon_micro, size)
        keep = min(ONE - 1, cls._largest(permanent, report_micro))
        if keep < cls._least(size):
            raise uninformative()
        return cls(permanent, keep, report_micro)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Return the mechanism of :meth:`to_dict`'s map; a campaign states its parts in other places."""
        return cls(cls.base.from_dict(parameters["permanent"]), parameters["fresh"], parameters["epsilon_micro"])

    def to_dict(self) -> dict[str, Any]:
        """Return name, size, ε of one report, the map of the permanent mechanism, and F."""
        return self._stated(fresh=self.keep) | {"permanent": self.permanent.to_dict()}

    def __hash__(self) -> int:
        """Return the hash of name, permanent mechanism and integers."""
        return hash((self.name, self.permanent, self.keep, self.epsilon_micro, self.left))

    def __eq__(self, other: object) -> bool:
        """Return whether the other mechanism has the same integers and the same :attr:`left`."""
        return isinstance(other, Remembered) and super().__eq__(other) and self.left == other.left

    def averaged(self, fresh: float, kept: float) -> Self:
        """Return this mechanism with these parts of its noise :attr:`left`."""
        found = type(self)(self.permanent, self.keep, self.epsilon_micro)
        found.left = fresh, kept
        return found

    @staticmethod
    @abstractmethod
    def _least(size: int) -> int:
        """Return the smallest F with which a report says something about a permanent answer of ``size`` values."""

    @staticmethod
    @abstractmethod
    def _largest(permanent: Any, report_micro: int) -> int:
        """Return the largest F with which one report loses at most ``report_micro``; it may be above 2^32 − 1."""

    @abstractmethod
    def again(self, answer: Any, seed: bytes) -> Any:
        """Return a report's answer: the permanent ``answer`` with fresh noise from the stream of ``seed``."""

    @abstractmethod
    def privacy_loss_ratio(self) -> Fraction:
        """Return the largest ratio of the probabilities of one report under two true values."""

    def perturb(self, value: int, seed: bytes) -> Any:
        """Draw a permanent answer and one report of it, from ``seed`` and its SHA-256. A device uses two seeds."""
        return self.again(self.permanent.perturb(value, seed), sha256(seed).digest())

    def impossible(self, answers: Any) -> None:
        """Return None: every answer that the layout holds is possible."""
        del answers

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss of one report alone."""
        return PrivacyLoss(self.privacy_loss_ratio())

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        kept = float(self.keep / ONE)
        part = "each bit of it" if self.layout == BITS else "it"
        chance = "over 99%" if kept > 0.995 else f"{kept:.0%}"  # never "100%"
        return f"kept answer: {self.permanent.describe()}; each report keeps {part} {chance} of the time"

    @property
    def p(self) -> Fraction:
        """Probability that a report supports the true value: p₁p₂ + (1 − p₁)q₂."""
        return self._through(self.permanent.p)

    @property
    def q(self) -> Fraction:
        """Probability that a report supports one given value that is not the true one: q₁p₂ + (1 − q₁)q₂."""
        return self._through(self.permanent.q)

    def _through(self, supported: Fraction) -> Fraction:
        """Return the chance that a report supports a value that the permanent answer supports by ``supported``."""
        p, q = self.fresh
        return supported * p + (1 - supported) * q

    @property
    def pairing(self) -> float:
        """Chance that the best guess finds which of two reports is of the device that sent a third; ½ is blind.

        The three reports are about one question, of two devices, and the two of one device about one permanent answer.
        Each value of a permanent answer by ``direct`` counts as equally likely; bits count as those of untrue values,
        and the sum of their log-likelihood ratios as normal.
        """
        from math import erf, log, sqrt

        (p, q), one = map(float, self.fresh), float(self.permanent.q)
        if self.layout == SINGLE:
            return 0.5 + (p * p + (self.size - 1) * q * q - 1 / self.size) / 2
        rate = float(self.q)
        same = one * p * p + (1 - one) * q * q, one * q * q + (1 - one) * p * p, 2 * p * q
        other = rate * rate, (1 - rate) ** 2, 2 * rate * (1 - rate)
        gains = [log(ours / theirs) for ours, theirs in zip(same, other, strict=True)]
        means = [sum(chance * gain for chance, gain in zip(law, gains, strict=True)) for law in (same, other)]
        squares = [sum(chance * gain**2 for chance, gain in zip(law, gains, strict=True)) for law in (same, other)]
        spread = sum(square - mean**2 for square, mean in zip(squares, means, strict=True))
        return 0.5 + erf((means[0] - means[1]) * sqrt(self.size / (2 * spread))) / 2

    @property
    @abstractmethod
    def fresh(self) -> tuple[Fraction, Fraction]:
        """p₂ and q₂: the chances that a report supports a value that its permanent answer supports, or does not."""


class RememberedDirect(Remembered):
    """``direct`` (GRR, k-ary randomised response) on a permanent answer by ``direct``: L-GRR."""

    __slots__ = ()
    name = "remembered direct"
    layout = SINGLE
    base = Direct

    @staticmethod
    def _least(size: int) -> int:
        return ONE // size + 1

    @staticmethod
    def _largest(permanent: Direct, report_micro: int) -> int:
        power, q = exp_below(report_micro), permanent.q  # p/q ≤ E if p, which is q₁ + p₂(p₁ − q₁), ≤ E/(E + K − 1)
        return int(ONE * (power / (power + permanent.size - 1) - q) / (permanent.p - q))

    def again(self, answer: int, seed: bytes) -> int:
        """Return ``answer``, or another value at random: what ``direct`` with T = F draws from ``seed``."""
        return Direct(self.epsilon_micro, self.size, self.keep).perturb(answer, seed)

    @property
    def fresh(self) -> tuple[Fraction, Fraction]:
        """F/2^32, and an equal part of the rest for each other value."""
        from fractions import Fraction

        p = Fraction(self.keep, ONE)
        return p, (1 - p) / (self.size - 1)

    def privacy_loss_ratio(self) -> Fraction:
        """Return p/q."""
        return self.p / self.q

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Return the probability of every report for the true ``value``."""
        self.check_value(value)
        p, q = self.p, self.q
        return {answer: p if answer == value else q for answer in range(self.size)}


class RememberedBits(Remembered):
    """A row of bits, each flipped alike, on a permanent row by ``oue``: L-OSUE."""

    __slots__ = ()
    name = "remembered oue"
    layout = BITS
    base = OptimisedUnary

    @staticmethod
    def _least(size: int) -> int:
        del size
        return ONE // 2 + 1

    @staticmethod
    def _largest(permanent: OptimisedUnary, report_micro: int) -> int:
        return _largest_of_bits(permanent.epsilon_micro, report_micro)

    def again(self, answer: Sequence[int], seed: bytes) -> tuple[int, ...]:
        """Return the row ``answer`` in which each bit stays as it is if ``Stream.coin(F)`` is true, else is flipped."""
        words = Stream(seed, FRESH_TAG).words(self.size)
        return tuple(bit ^ (word >= self.keep) for bit, word in zip(answer, words, strict=True))

    @property
    def fresh(self) -> tuple[Fraction, Fraction]:
        """F/2^32 and 1 − F/2^32."""
        from fractions import Fraction

        p = Fraction(self.keep, ONE)
        return p, 1 - p

    def privacy_loss_ratio(self) -> Fraction:
        """Return p(1 − q)/(q(1 − p)): another value changes the probabilities of two bits."""
        p, q = self.p, self.q
        return p * (1 - q) / (q * (1 - p))

    def distribution(self, value: int) -> dict[tuple[int, ...], Fraction]:
        """Return the probability of every row of at most 16 bits for the true ``value``."""
        self.check_value(value)
        if self.size > 16:
            raise InputError("too_many_answers", "2^size answers are too many to list")
        p, q = self.p, self.q
        return rows_of_bits([p if place == value else q for place in range(self.size)])

    def set_bits_law(self) -> list[float]:
        """Return the probability of b ones among the bits of K values, b = 0 … K. It is the same for every value."""
        return ones_law(self.size - 1, float(self.p), float(self.q))


@lru_cache(maxsize=16)
def _largest_of_bits(epsilon_micro: int, report_micro: int) -> int:
    """Search for the largest F of :class:`RememberedBits`, which does not depend on the number of bits."""
    permanent, allowed = OptimisedUnary.from_micro(epsilon_micro, 2), exp_below(report_micro)
    low, high = ONE // 2, ONE - 1
    while low < high:
        middle = (low + high + 1) // 2
        if RememberedBits(permanent, middle, report_micro).privacy_loss_ratio() <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


KINDS: dict[str, type[Remembered]] = {kind.base.name: kind for kind in (RememberedDirect, RememberedBits)}
"""Name of the permanent answers' mechanism → the class of the reports' mechanism."""


@lru_cache(maxsize=256)
def remembered(permanent: Mechanism, report_micro: int) -> Remembered:
    """Return the mechanism of the reports on permanent answers by ``permanent``, each of ε = ``report_micro``.

    Raises InputError ``memory_invalid``: the permanent mechanism is neither ``direct`` nor ``oue``, or the ε of a
    report is not below its ε; ``epsilon_invalid``, ``parameters_invalid``.
    """
    if permanent.name not in KINDS:
        raise InputError("memory_invalid", f"a campaign with memory asks by {' or '.join(KINDS)} only")
    if not report_micro < permanent.epsilon_micro:
        raise InputError("memory_invalid", "the ε of one report is below the ε of the answer that is kept")
    return KINDS[permanent.name].from_micro(permanent.epsilon_micro, permanent.size, report_micro=report_micro)


class Memory(NamedTuple):
    """The terms of a campaign with memory.

    Attributes:
        renewals: c: how often a device draws another permanent answer after the first.
        stretch: L: how many periods a permanent answer lasts; the last one lasts to the end.
        report_micro: ε of one report alone, in millionths.
        first: the period in which the campaign begins; stretches are counted from it.
    """

    renewals: int
    stretch: int
    report_micro: int
    first: int = 0

    def number(self, period: int) -> int:
        """Return the number of the stretch that ``period`` is in: min(c, ⌊(period − first)/L⌋), at least 0."""
        return min(self.renewals, max(0, period - self.first) // self.stretch)

    def in_words(self, epsilon_micro: int) -> str:
        """Return the terms in words; ``epsilon_micro``: that of a kept answer, as the campaign states it."""
        times = "never" if not self.renewals else "once" if self.renewals == 1 else f"{self.renewals} times"
        lasts = f" after every {self.stretch} periods" if self.renewals else ""
        whole = format_micro(epsilon_micro * (1 + self.renewals))
        return (
            f"a device has one question and keeps a noisy answer (ε = {format_micro(epsilon_micro)}), draws another "
            f"{times}{lasts}, and sends it with fresh noise in every period (ε = {format_micro(self.report_micro)} by "
            f"itself); all its reports together cost ε = {whole}"
        )

    def fields(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the map of a campaign's payload. ``questions`` have the mechanisms of the permanent answers.

        Raises the errors of :func:`remembered`.
        """
        fresh = [remembered(question.mechanism, self.report_micro).keep for question in questions]
        return {
            "renewals": self.renewals,
            "stretch": self.stretch,
            "report_micro": self.report_micro,
            "fresh": fresh,
        }


def parse_memory(
    body: dict[str, Any], header: Header, questions: tuple[Question, ...], time_precision: int
) -> tuple[Memory, tuple[Question, ...]]:
    """Read the terms of a campaign with memory. Return them, and the questions with the mechanisms of the reports.

    ``questions`` have the mechanisms of the permanent answers, which were checked against the campaign's ε.

    Raises DocumentError ``invalid_campaign``: ``memory`` is a key without being in ``crit``, or the reverse; the
    campaign has ended, or is of another kind; a value is not as docs/formats.md states; an integer of the fresh noise
    is not the one that follows from the ε of a report.
    """
    if KEY not in body or KEY not in header.crit:
        raise DocumentError(_REASON, "'memory' is a key that 'crit' does not name, or the other way round")
    others = {"series", "nodes", "shared", "model", "models"} & set(body)
    if others or not questions or questions[-1].stratum:
        raise DocumentError(_REASON, "a campaign with memory asks devices one question, in no series and of no model")
    entry = read_field(body, KEY, dict, _REASON)
    if set(entry) != {"renewals", "stretch", "report_micro", "fresh"}:
        raise DocumentError(_REASON, "'memory' has other keys than renewals, stretch, report_micro and fresh")
    memory = Memory(
        read_integer(entry, "renewals", 0, MOST_RENEWALS, _REASON),
        read_integer(entry, "stretch", 1, _WORD - 1, _REASON),
        read_integer(entry, "report_micro", MIN_ANSWER_MICRO, 16 * MICRO, _REASON),
        header.not_before // time_precision,
    )
    problem = ""
    try:
        kinds = [remembered(question.mechanism, memory.report_micro) for question in questions]
    except InputError as error:
        problem = error.detail
    if not problem and read_field(entry, "fresh", list, _REASON) != [kind.keep for kind in kinds]:
        problem = "the integers of its fresh noise are not those that follow from the ε of a report"
    if problem:
        raise DocumentError(_REASON, problem)
    asked = tuple(question._replace(mechanism=kind) for question, kind in zip(questions, kinds, strict=True))
    return memory, asked


def place(secret: bytes, campaign_id: bytes) -> bytes:
    """Return the four bytes that assign a device's question: HMAC-SHA256(secret, `hearsay/1/memory` ‖ id)[:4]."""
    return hmac_sha256(secret, PLACE_PREFIX + campaign_id)[:4]


def identify(assignment: Assignment, secret: bytes, campaign_id: bytes, identifier: bytes) -> tuple[bytes, int]:
    """Return the id of a report in a campaign with memory, and the question, which is the same in all periods.

    ``identifier`` is the id that the report would have in another campaign. Its first four bytes w become
    low + ⌊w·(high − low)/2^32⌋ in the interval [low, high) of the question, so that every reader finds the question as
    in other campaigns.
    """
    question = assignment.question_for(place(secret, campaign_id), 0)
    low, high = assignment.interval(question, 0)
    first = low + int.from_bytes(identifier[:4], "big") * (high - low) // _WORD
    return first.to_bytes(4, "big") + identifier[4:], question
