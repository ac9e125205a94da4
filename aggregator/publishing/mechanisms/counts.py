"""Random counts of one question for a fleet of any size: the law of the sums of n answers, drawn without the answers.

Each answer is from another, random device of a population. The population is a table of inputs, each with a share.
``tests/aggregator/planning/test_counts.py`` compares the means and variances of the counts with those of
:mod:`aggregator.publishing.mechanisms.draws`, for every mechanism.

A family of mechanisms without a law of its own uses its vectorised draw, whose time grows with the number of answers.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.publishing.mechanisms.draws import draw
from protocol import SCALE
from protocol.mechanisms import INTEGERS, SINGLE, FrequencyMechanism
from protocol.mechanisms.base import ONE, Mechanism
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.hybrid import Hybrid
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism
from protocol.mechanisms.piecewise import CELLS, Piecewise
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.unary import UnaryMechanism


class CountLaw(Protocol):
    """The distribution of the counts of one question."""

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        """Counts of ``n`` random answers, as a tally has them: shape (A,) int64, with A = ``mechanism.answers``."""


@ByFamily
def count_law(mechanism: Mechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """The distribution of the counts of one question in a population.

    Args:
        mechanism: of the question.
        inputs: the different records' inputs, from :func:`aggregator.publishing.mechanisms.inputs.inputs_of`: shape
            (N,) int64, or (N, size) int64 for vectors.
        shares: shape (N,) float64, the share of the population with each input; sums to 1.
    """
    return _Drawn(mechanism, inputs, shares)


class _Drawn(NamedTuple):
    """Counts of answers that are drawn one by one."""

    mechanism: Mechanism
    inputs: Integers
    shares: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        answers = draw(self.mechanism, self.inputs[rng.choice(len(self.inputs), n, p=self.shares)], rng)
        if self.mechanism.layout == SINGLE:
            return np.bincount(answers, minlength=self.mechanism.answers).astype(np.int64)
        if self.mechanism.layout == INTEGERS:
            answers = np.clip(answers, *self.mechanism.counted)
        return np.asarray(answers.sum(axis=0), np.int64)


class _Single(NamedTuple):
    """Counts of single answers: multinomial. ``chance``: shape (A,) float64, the probability of every answer."""

    chance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return rng.multinomial(n, self.chance)


class _Unary(NamedTuple):
    """Counts of unary encodings: binomial, given the numbers of devices with each value.

    Attributes:
        held: shape (K,) float64, share of every value.
        if_true, if_other: probability of a 1 at the true value, and at any other value.
    """

    held: Floats
    if_true: float
    if_other: float

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        holders = rng.multinomial(n, self.held)
        return np.asarray(rng.binomial(holders, self.if_true) + rng.binomial(n - holders, self.if_other), np.int64)


class _Bits(NamedTuple):
    """Counts of bits: binomial. ``chance``: shape (A,) float64, the probability of a 1 at every coordinate.

    The counts of two coordinates are drawn independently. In a real campaign they have a small correlation.
    """

    chance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return np.asarray(rng.binomial(n, self.chance), np.int64)


class _Sums(NamedTuple):
    """Sums of noisy integers: normal, rounded, independent between coordinates.

    ``mean`` and ``variance`` of one answer: shape (A,) float64 each.
    """

    mean: Floats
    variance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return np.rint(rng.normal(n * self.mean, np.sqrt(n * self.variance))).astype(np.int64)


def _held(mechanism: Mechanism, inputs: Integers, shares: Floats) -> Floats:
    """Share of the population with each of the K values of a mechanism: shape (K,) float64, sums to 1."""
    found = np.bincount(inputs, shares, minlength=mechanism.size)
    return np.asarray(found / found.sum(), np.float64)


def _normalised(chance: Floats) -> Floats:
    """Probabilities without the rounding errors that numpy's multinomial refuses. Float64 of one shape (A,)."""
    return np.asarray(chance / chance.sum(), np.float64)


@count_law.register(Direct)
def direct_law(mechanism: FrequencyMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """``direct``: answer i has the probability q + (p − q)f_i, with f_i the share of value i."""
    p, q = float(mechanism.p), float(mechanism.q)
    return _Single(_normalised(q + (p - q) * _held(mechanism, inputs, shares)))


@count_law.register(UnaryMechanism)
def unary_law(mechanism: UnaryMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """Unary encodings: see :class:`_Unary`."""
    held = _held(mechanism, inputs, shares)
    return _Unary(held, mechanism.one_if_true / ONE, mechanism.one_if_other / ONE)


@count_law.register(SummedHistogram)
def histogram_law(mechanism: SummedHistogram, inputs: Integers, shares: Floats) -> CountLaw:
    """``she``: a component is discrete Laplace noise, plus M = 1024 at the true value, clipped to [0, M] by the tally.

    Noise j has the probability (1 − q)/(1 + q)·q^|j| with q = e^{−s/t}. The two kinds of component mirror each other
    about M/2.
    """
    rate = mechanism.s / mechanism.t
    steps = np.arange(GRID + 1)
    chance = np.tanh(rate / 2) * np.exp(-rate * steps)
    chance[-1] = np.exp(-rate * GRID) / (1 + np.exp(-rate))
    chance[0] = 1 - chance[1:].sum()
    low = float(chance @ steps)
    spread = float(chance @ steps**2) - low**2
    held = _held(mechanism, inputs, shares)
    apart = GRID - 2 * low
    return _Sums(low + held * apart, spread + held * (1 - held) * apart**2)


@count_law.register(Bit)
def bit_law(mechanism: Bit, inputs: Integers, shares: Floats) -> CountLaw:
    """``bit``: answer 1 has the probability (1 + x/B)/2 for the number x, and an answer is the estimate ±B."""
    one = float(shares @ _chance_of_one(inputs, float(mechanism.estimate(1))))
    return _Single(np.array([1 - one, one]))


@count_law.register(CoinMechanism)
def bits_law(mechanism: CoinMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """``bits`` and ``duchi``: bit 1 has the probability (1 + x/B)/2 at a coordinate x, and is the estimate B."""
    size = float(mechanism.estimate((1,) * mechanism.answers)[0])
    return _Bits(np.asarray(shares @ _chance_of_one(inputs, size)))


def _chance_of_one(inputs: Integers, size: float) -> Floats:
    """(1 + x/B)/2 for all numbers x, with B = ``size``. Float64 of the shape of ``inputs``."""
    return np.asarray((1 + inputs / size) / 2)


@count_law.register(Piecewise)
def piecewise_law(mechanism: Piecewise, inputs: Integers, shares: Floats) -> CountLaw:
    """``piecewise``: see :func:`_cells`."""
    return _Single(_normalised(_cells(mechanism, inputs, shares)))


@count_law.register(Hybrid)
def hybrid_law(mechanism: Hybrid, inputs: Integers, shares: Floats) -> CountLaw:
    """``hybrid``: the cells of ``piecewise`` with a fixed probability, else the two answers of ``bit``."""
    of_cells = mechanism.share / ONE
    one = float(shares @ _chance_of_one(inputs, float(mechanism.bit.estimate(1))))
    cells = of_cells * _cells(mechanism.piecewise, inputs, shares)
    return _Single(_normalised(np.append(cells, [(1 - of_cells) * (1 - one), (1 - of_cells) * one])))


def _cells(mechanism: Piecewise, inputs: Integers, shares: Floats) -> Floats:
    """Probability of every cell of ``piecewise``: shape (cells,) float64.

    With w the width of the window, N the number of cells and T/2³² the probability of the window, every cell has the
    probability (1 − T/2³²)/(N − w), and the cells of a device's window T/(2³²w) instead.
    """
    width = mechanism.window
    start, rest = np.divmod((inputs + SCALE) * (CELLS - width), 2 * SCALE)
    later = rest / (2 * SCALE)
    begins = np.bincount(start, shares * (1 - later), CELLS + 2) + np.bincount(start + 1, shares * later, CELLS + 2)
    begins = begins[:CELLS]
    ends = np.concatenate([np.zeros(width), begins])[:CELLS]
    covered = np.cumsum(begins - ends)
    inside = mechanism.threshold / ONE
    outside = (1 - inside) / (CELLS - width)
    return np.asarray(outside + np.clip(covered, 0, 1) * (inside / width - outside))


@count_law.register(Laplace)
def laplace_law(mechanism: Laplace, inputs: Integers, shares: Floats) -> CountLaw:
    """``laplace``: M = 1024 times the number, rounded at random, plus discrete Laplace noise with variance 2q/(1 − q)².

    q = e^{−s/t}. The clipping of rare large noise is left out.
    """
    steps, rest = np.divmod(inputs * GRID, SCALE)
    part = rest / SCALE
    exact = steps + part
    mean = shares @ exact
    rate = mechanism.s / mechanism.t
    noise = 2 * np.exp(-rate) / np.expm1(-rate) ** 2
    return _Sums(np.asarray(mean), np.asarray(shares @ (exact - mean) ** 2 + shares @ (part * (1 - part)) + noise))
