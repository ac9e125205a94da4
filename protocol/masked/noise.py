"""The noise that one party adds to its numbers, so that the total of all parties is private.

A *whole copy* is one discrete Laplace number, P(k) ∝ e^{−|k|·rate}: enough noise for one released number. Each party
adds a part that is calibrated to h, a number of honest parties that every released total contains. ``divided``: the
difference of two negative binomial numbers of shape 1/h; h such differences add up to exactly one whole copy, so δ = 0.
``diluted`` (Shi et al. 2011): a whole copy with probability β, else 0; nobody adds one with probability (1 − β)^h ≤ δ.
Drawing uses integers only and takes O(1 + ln(1/rate)/h) expected steps. Source: docs/math.md, section 6.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import expm1, log
from typing import TYPE_CHECKING, NamedTuple

from protocol.documents.masked_terms import DILUTED
from protocol.errors import InputError
from protocol.masked.cipher import below
from protocol.masked.costs import delta_share, honest_parties, masked_terms_of, rates
from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.rational_bounds import log_above
from protocol.noise.sums import laplace_variance

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.stream import Stream

COIN = 1 << 32
"""Probabilities of ``diluted`` noise are multiples of 1/COIN."""
_WORD = 1 << 64
_LONGEST = 48
"""Most bits of a rate's denominator t for which :func:`protocol.mechanisms.noise.discrete_laplace` draws whole copies.
It takes less time than :func:`divided`, but draws integers below t·k with a random k, which may not exceed 2^64. A k
above 2^16 has the probability 1/(2^16)!."""


class PartyNoise(NamedTuple):
    """The distribution of the noise that one party adds to one number.

    Attributes:
        rate: the rate of a whole copy, an integer k with P(k) ∝ e^{−|k|·rate}: the ε of the number, divided by its
            sensitivity.
        honest: h, a number of honest parties that every released total contains.
        chance: an integer b for ``diluted`` noise: with probability β = b/2^32 the party adds a whole copy, else 0.
            None: the noise is ``divided``.
    """

    rate: Fraction
    honest: int
    chance: int | None = None

    @property
    def copies(self) -> Fraction:
        """The expected number of whole copies: 1/``honest`` for ``divided``, ``chance``/2^32 for ``diluted``."""
        return Fraction(1, self.honest) if self.chance is None else Fraction(self.chance, COIN)

    @property
    def variance(self) -> float:
        """The variance of the noise: ``copies``·v, where v = 2q/(1 − q)², q = e^{−rate}, is that of a whole copy."""
        return float(self.copies) * laplace_variance(self.rate)

    @property
    def fourth_cumulant(self) -> float:
        """The fourth cumulant of the noise: (3v² + v)/h for ``divided``, β(6v² + v) − 3β²v² for ``diluted``.

        v is the variance of a whole copy (:attr:`variance`); 1/h or β is :attr:`copies`.
        """
        v, copies = laplace_variance(self.rate), float(self.copies)
        if self.chance is None:
            return copies * (3 * v**2 + v)
        return copies * (6 * v**2 + v) - 3 * (copies * v) ** 2

    def draw(self, stream: Stream) -> int:
        """Draw the noise of one number. Every call reads on in the stream and gives an independent number."""
        if self.chance is None and self.honest > 1:
            return divided(stream, self.rate, self.honest)
        return whole(stream, self.rate) if self.chance is None or stream.coin(self.chance) else 0


def noise_of(campaign: Campaign, u: int) -> tuple[PartyNoise, ...]:
    """Return the noise that a party with the number u of the key book adds: one distribution per released vector.

    Every number of a vector needs a draw of its own. Raises InputError ``campaign_not_masked``;
    ``value_out_of_domain``: u is below 1.
    """
    terms = masked_terms_of(campaign)
    honest, delta = honest_parties(terms, u), delta_share(campaign)
    return tuple(party_noise(terms.noise, each, honest, delta) for each in rates(campaign))


def party_noise(kind: str, rate: Fraction, honest: int, delta: Fraction) -> PartyNoise:
    """Return the distribution of the noise of one party for one number.

    ``kind`` is ``divided`` or ``diluted``; ``rate`` and ``honest`` are those of :class:`PartyNoise`; ``delta`` is the δ
    of the number, 0 < δ < 1, which ``divided`` noise does not use.
    """
    return PartyNoise(rate, honest, chance(honest, delta) if kind == DILUTED else None)


@lru_cache(maxsize=1 << 16)
def chance(honest: int, delta: Fraction) -> int:
    """Return the smallest integer b with (1 − b/2^32)^h ≤ δ: so rarely do h = ``honest`` parties all add 0.

    Raises InputError ``epsilon_invalid``: δ is not between 0 and 1.
    """
    if not 0 < delta < 1:
        raise InputError("epsilon_invalid", "δ of diluted noise lies between 0 and 1")
    found = round(-COIN * expm1(log(delta) / honest))  # a guess, which the loops correct
    while not _suffices(found, honest, delta):
        found += 1
    while _suffices(found - 1, honest, delta):
        found -= 1
    return found


def _suffices(b: int, honest: int, delta: Fraction) -> bool:
    """Return whether (1 − b/2^32)^h ≤ δ for h = ``honest`` and δ = ``delta``, exactly."""
    if not 0 < b < COIN:
        return b >= COIN
    base = Fraction(COIN - b, COIN)
    below_delta, above_delta = _log_bounds(delta)
    if honest * log_above(base) <= below_delta:
        return True
    if -honest * log_above(1 / base) > above_delta:
        return False
    return base**honest <= delta


@lru_cache(maxsize=16)
def _log_bounds(number: Fraction) -> tuple[Fraction, Fraction]:
    """Return fractions just below and just above ln ``number``."""
    return -log_above(1 / number), log_above(number)


def whole(stream: Stream, rate: Fraction) -> int:
    """Draw a whole copy: one discrete Laplace number k, P(k) ∝ e^{−|k|·rate}, for any positive rate."""
    s, t = rate.as_integer_ratio()
    if t.bit_length() > _LONGEST:
        return divided(stream, rate, 1)
    return discrete_laplace(stream, s, t)


def divided(stream: Stream, rate: Fraction, parties: int) -> int:
    """Draw X − Y, where X and Y are independent negative binomial numbers of shape r = 1/``parties``.

    X has P(k) = C(k + r − 1, k)·q^k·(1 − q)^r with q = e^{−rate}. The sum of ``parties`` such differences is a discrete
    Laplace number. The difference is the sum of the points of a Poisson process with r·q^|k|/|k| points on average at
    each integer k ≠ 0. It is drawn by thinning a denser process with rational averages: with T = 2^J the smallest power
    of two that is at least 1/rate, r·2^{−j} points at each |k| of [2^j, 2^{j+1}), j < J, and r·2^{−m}/T at each |k| of
    [mT, (m + 1)T), m ≥ 1. That is r for every j and r for all m together, so 2r(J + 1) points of both signs.
    """
    s, t = rate.as_integer_ratio()
    octaves, parts, a, b = _plan(s, t, parties)
    total = 0
    for _ in range(_poisson(stream, parts, a, b)):
        total += _point(stream, s, t, octaves)
    return total


@lru_cache(maxsize=1024)
def _plan(s: int, t: int, parties: int) -> tuple[int, int, int, int]:
    """Return how :func:`divided` draws the number of points: J, a number of parts, and a and b.

    The rate is s/t and r = 1/``parties``. J ≥ 0 is the smallest integer with 2^J·s/t ≥ 1. Every part has the
    mean a/b ≤ ½, and the means of all parts add up to 2r(J + 1).
    """
    octaves = (-(-t // s) - 1).bit_length()
    parts = -(-4 * (octaves + 1) // parties)
    mean = Fraction(2 * (octaves + 1), parties * parts)
    return octaves, parts, mean.numerator, mean.denominator


def _point(stream: Stream, s: int, t: int, octaves: int) -> int:
    """Draw an integer k from the denser distribution of :func:`divided`, and return it, or 0 if it is rejected."""
    octave, negative = divmod(stream.below(2 * octaves + 2), 2)
    low = 1 << octave
    if octave < octaves:
        size = _below(stream, low) + low
        keeps = _below(stream, size) < low and _keeps_exp(stream, size * s, t)
    else:
        block = 1
        while stream.below(2):
            block += 1
        size = _below(stream, low) + block * low
        keeps = (
            _below(stream, size) < low  # probability T/|k|
            and all(_alternates(stream, 1, 1, 3) for _ in range(block))  # (2/e)^m
            and _keeps_exp(stream, size * s - block * t, t)
        )
    return (-size if negative else size) if keeps else 0


def _poisson(stream: Stream, parts: int, a: int, b: int) -> int:
    """Draw the sum of ``parts`` independent Poisson numbers of mean μ = a/b ≤ ½.

    Each is drawn by rejection. The proposal n has P(N ≥ n) = μ^n/n!, so P(n) = μ^n/n!·(1 − μ/(n + 1)). It is accepted
    with probability (1 − μ)/(1 − μ/(n + 1)), which is 1 for n = 0.
    """
    total = 0
    while parts:
        n = 0
        while stream.below(b * (n + 1)) < a:
            n += 1
        if n == 0 or stream.below(b * (n + 1) - a) < (b - a) * (n + 1):
            total += n
            parts -= 1
    return total


def _keeps_exp(stream: Stream, a: int, b: int) -> bool:
    """Draw True with probability e^{−a/b}, for integers a ≥ 0 and b > 0."""
    while a > b:
        if not _alternates(stream, 1, 1, 1):
            return False
        a -= b
    return _alternates(stream, a, b, 1)


def _alternates(stream: Stream, a: int, b: int, first: int) -> bool:
    """Draw numbers below b·k for k = ``first``, ``first`` + 1, … until one is not below a.

    Return whether the last k is odd.

    0 ≤ a ≤ b. With ``first`` = 1 the result is true with probability e^{−a/b}. With ``first`` = 3 and a = b it is true
    with probability 2/e, since the walk from 1 gets to 3 with probability ½ and ends at an odd k only from there.
    """
    k = first
    while _below(stream, b * k) < a:
        k += 1
    return k % 2 == 1


def _below(stream: Stream, bound: int) -> int:
    """Draw an integer uniformly from {0 … bound − 1}, also for bounds above 2^64, where ``Stream.below`` ends."""
    return stream.below(bound) if bound <= _WORD else below(bound, stream.read)
