"""Random answers and counts of simulated devices: the one place where the noise of mechanisms is drawn by numpy.

:func:`draw` draws the answers of N devices one by one, :func:`count_law` counts for fleets of any size. numpy's
generator is not secure: these functions are for simulations and forecasts only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from protocol import SCALE
from protocol.documents.memory_terms import Remembered
from protocol.errors import InputError
from protocol.mechanisms import INTEGERS, SINGLE, FrequencyMechanism
from protocol.mechanisms.base import ONE, Mechanism
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.bits import Bits
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.duchi import Duchi
from protocol.mechanisms.hybrid import Hybrid
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import HALF, CoinMechanism
from protocol.mechanisms.piecewise import CELLS, Piecewise
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.subset import Subset
from protocol.mechanisms.unary import UnaryMechanism
from protocol.questions import CELL, CLASS, MOMENTS, OUTCOME, PRESENT, RIGHT, SQUARE, Subject
from protocol.schema import Schema

Bools = NDArray[np.bool_]
_MOST_HALVED = 256
"""Most values of ``subset`` whose counts are drawn exactly; for more values an exact draw takes long."""


def inputs_of(
    schema: Schema, subject: Subject, encoded: EncodedFrame, labels: Integers, predicted: Integers | None = None
) -> Integers:
    """Return the inputs of a question's mechanism for the records of N people, as ``Subject.input_of`` does for one.

    ``encoded``: codes and numbers of the records, (N, observed features) int64 each; ``labels``: (N,) int64, class
    codes; ``predicted``: (N,) int64, class codes that the question's model predicts, None: all are right. Returns (N,)
    int64 for one value or number per person, (N, size) int64 for vectors of moments.
    """
    kind, feature, size, power, of_class = subject[:5]
    classes = len(schema.label.classes)
    if kind == CLASS:
        return labels
    if kind == OUTCOME:
        return labels * classes + (labels if predicted is None else predicted)
    if kind == RIGHT:
        return np.asarray(labels == (labels if predicted is None else predicted), np.int64)
    if kind == MOMENTS:
        vectors = np.zeros((len(labels), size), np.int64)
        for place, index in enumerate(schema.numeric):
            vectors[np.arange(len(labels)), place * classes + labels] = _moment(encoded.numbers[:, index], power)
        return vectors
    if kind == CELL:
        return np.asarray(encoded.codes[:, feature] * classes + labels, np.int64)
    numbers = encoded.numbers[:, feature]
    if kind == PRESENT:
        return np.asarray((numbers != NO_NUMBER) * classes + labels, np.int64)
    values = _moment(numbers, power)
    if of_class is None:
        vectors = np.zeros((len(labels), classes), np.int64)
        vectors[np.arange(len(labels)), labels] = values
        return vectors
    values = np.where(labels == of_class, values, 0)
    return 2 * values - SCALE if power == SQUARE else values


def _moment(numbers: Integers, power: int | None) -> Integers:
    """Return the moments of scaled numbers u of −S … S, (N,) int64: u for power 1, ⌊u²/S⌋ for power 2; 0 if missing."""
    numbers = np.where(numbers == NO_NUMBER, 0, numbers)
    return np.asarray(numbers if power != SQUARE else numbers * numbers // SCALE, np.int64)


@ByFamily
def draw(mechanism: Mechanism, inputs: Integers, rng: np.random.Generator) -> NDArray[Any]:
    """Draw independent random answers of N devices. ``mechanism.answers`` is A: possible answers, or places in a row.

    ``inputs``: (N,) int64 for values or single numbers, (N, size) int64 for vectors of numbers. Returns (N,) int64 for
    the layout ``SINGLE``, (N, A) bool for ``BITS``, (N, A) int64 for ``INTEGERS``. Raises InputError
    ``mechanism_incomplete``: the mechanism's family has no registered draw.
    """
    del inputs, rng
    raise InputError("mechanism_incomplete", f"there is no vectorised draw for the mechanism {mechanism.name}")


def discrete_laplace(rate: float, shape: tuple[int, ...], rng: np.random.Generator) -> Integers:
    """Draw integers k with P(k) ∝ e^{−rate·|k|}, int64 of ``shape``, as differences of two geometric numbers."""
    stop = -np.expm1(-rate)
    return rng.geometric(stop, shape) - rng.geometric(stop, shape)


def counts_of(mechanism: Mechanism, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw N answers as :func:`draw` does, and return the tally's counts of them: (A,) int64, A possible answers."""
    answers = draw(mechanism, inputs, rng)
    if mechanism.layout == SINGLE:
        return np.bincount(answers, minlength=mechanism.answers).astype(np.int64)
    if mechanism.layout == INTEGERS:
        answers = np.clip(answers, *mechanism.counted)
    return np.asarray(answers.sum(axis=0), np.int64)


@draw.register(Direct)
def draw_direct(mechanism: Direct, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``direct``: each is the true value or a uniform other value. (N,) int64 → (N,) int64."""
    others = rng.integers(0, mechanism.size - 1, len(inputs))
    truthful = rng.integers(0, ONE, len(inputs)) < mechanism.keep
    return np.where(truthful, inputs, others + (others >= inputs))


@draw.register(UnaryMechanism)
def draw_unary(mechanism: UnaryMechanism, inputs: Integers, rng: np.random.Generator) -> Bools:
    """Draw answers of unary encodings: one random bit for each of A values. (N,) int64 → (N, A) bool."""
    words = rng.integers(0, ONE, (len(inputs), mechanism.size), np.uint32)
    bits = words < mechanism.one_if_other
    rows = np.arange(len(inputs))
    bits[rows, inputs] = words[rows, inputs] < mechanism.one_if_true
    return bits


@draw.register(Remembered)
def draw_remembered(mechanism: Remembered, inputs: Integers, rng: np.random.Generator) -> Integers | Bools:
    """Draw kept answers, and one report of each: (N,) int64 → (N,) int64, or (N, A) bool for rows of bits."""
    return draw_again(mechanism, draw(mechanism.permanent, inputs, rng), rng)


def draw_again(mechanism: Remembered, kept: Integers | Bools, rng: np.random.Generator) -> Integers | Bools:
    """Draw one report of each of N ``kept`` answers of a campaign with memory, in their shape."""
    if mechanism.layout == SINGLE:
        return draw_direct(
            Direct(mechanism.epsilon_micro, mechanism.size, mechanism.keep), np.asarray(kept, np.int64), rng
        )
    return np.asarray(kept ^ (rng.integers(0, ONE, kept.shape, np.uint32) >= mechanism.keep))


@draw.register(Subset)
def draw_subset(mechanism: Subset, inputs: Integers, rng: np.random.Generator) -> Bools:
    """Draw answers of ``subset``: the w smallest of K random keys; the true value's is least or largest."""
    keys = rng.random((len(inputs), mechanism.size))
    is_in = rng.integers(0, ONE, len(inputs)) < mechanism.threshold
    keys[np.arange(len(inputs)), inputs] = np.where(is_in, -1.0, 2.0)
    bits, w = np.zeros(keys.shape, np.bool_), mechanism.ones
    np.put_along_axis(bits, np.argpartition(keys, w - 1, axis=1)[:, :w], values=True, axis=1)
    return bits


@draw.register(SummedHistogram)
def draw_histogram(mechanism: SummedHistogram, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``she``: 1024 at the true value plus discrete Laplace noise, clipped. (N, values) int64."""
    shape = (len(inputs), mechanism.size)
    noise = discrete_laplace(mechanism.s / mechanism.t, shape, rng)
    noise[np.arange(len(inputs)), inputs] += GRID
    return np.asarray(np.clip(noise, *mechanism.bounds), np.int64)


@draw.register(Bit)
def draw_bit(mechanism: Bit, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``bit``: one random bit per device. (N,) int64 → (N,) int64."""
    return coins(inputs, mechanism.threshold, rng).astype(np.int64)


@draw.register(Bits)
def draw_bits(mechanism: Bits, inputs: Integers, rng: np.random.Generator) -> Bools:
    """Draw answers of ``bits``: one random bit for each of A numbers of a device. (N, A) int64 → (N, A) bool."""
    return coins(inputs, mechanism.threshold, rng)


def coins(inputs: Integers, threshold: int, rng: np.random.Generator) -> Bools:
    """Draw one random bit per number with the probabilities of ``bit``. Int64 → bool of the same shape.

    ``inputs``: scaled numbers from −S to S, S = :data:`protocol.SCALE`. ``threshold``: probability of a 1 for S, times
    2³².
    """
    return rng.integers(0, ONE, inputs.shape) < HALF + inputs * (threshold - HALF) // SCALE


@draw.register(Piecewise)
def draw_piecewise(mechanism: Piecewise, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``piecewise``: cells in the window around a number, or outside it, by index. (N,) int64."""
    start, rest = np.divmod((inputs + SCALE) * (CELLS - mechanism.window), 2 * SCALE)
    start += rng.integers(0, 2 * SCALE, len(inputs)) < rest
    inside = rng.integers(0, ONE, len(inputs)) < mechanism.threshold
    near = start + rng.integers(0, mechanism.window, len(inputs))
    far = rng.integers(0, CELLS - mechanism.window, len(inputs))
    return np.where(inside, near, np.where(far < start, far, far + mechanism.window))


@draw.register(Hybrid)
def draw_hybrid(mechanism: Hybrid, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``hybrid``: one of ``piecewise``, or one of ``bit`` plus the number of cells. (N,) int64."""
    chosen = rng.integers(0, ONE, len(inputs)) < mechanism.share
    bits = CELLS + draw_bit(mechanism.bit, inputs, rng)
    return np.where(chosen, draw_piecewise(mechanism.piecewise, inputs, rng), bits)


@draw.register(Laplace)
def draw_laplace(mechanism: Laplace, inputs: Integers, rng: np.random.Generator) -> Integers:
    """Draw answers of ``laplace``: numbers rounded at random to a grid, plus discrete Laplace noise, clipped."""
    steps, rest = np.divmod(inputs * GRID, SCALE)
    steps += rng.integers(0, SCALE, inputs.shape) < rest
    steps += discrete_laplace(mechanism.s / mechanism.t, inputs.shape, rng)
    return np.asarray(np.clip(steps, *mechanism.bounds), np.int64)


@draw.register(Duchi)
def draw_duchi(mechanism: Duchi, inputs: Integers, rng: np.random.Generator) -> Bools:
    """Draw answers of ``duchi``: the first A coordinates of a random corner of a cube, as bits. (N, A) bool.

    A device's A numbers, padded with zeros, are rounded at random to a corner v. A random bit chooses one half of the
    cube: the corners that agree with v in most coordinates, or all others. The answer's corner is uniform in that half.
    """
    people, d = len(inputs), mechanism.dimensions
    padded = np.zeros((people, d), np.int64)
    padded[:, : mechanism.size] = inputs
    corners = rng.integers(0, 2 * SCALE, (people, d)) < padded + SCALE
    sides = rng.integers(0, ONE, people) < mechanism.threshold
    answers = np.zeros((people, d), bool)
    waiting = np.arange(people)
    while waiting.size:
        drawn = rng.integers(0, 2, (waiting.size, d)).astype(bool)
        agreeing = (drawn == corners[waiting]).sum(axis=1)
        fits = (2 * agreeing > d) == sides[waiting]
        answers[waiting[fits]] = drawn[fits]
        waiting = waiting[~fits]
    return answers[:, : mechanism.size]


class CountLaw(Protocol):
    """The distribution of the counts of one question."""

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        """Draw the counts of ``n`` random answers, as a tally has them: shape (A,) int64, A = ``mechanism.answers``."""


@ByFamily
def count_law(mechanism: Mechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the distribution of the counts of one question in a population.

    ``inputs``: of N different records, from :func:`inputs_of`. ``shares``: (N,) float64, share of the population of
    each.
    """
    return _Drawn(mechanism, inputs, shares)


class _Drawn(NamedTuple):
    mechanism: Mechanism
    inputs: Integers
    shares: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return counts_of(self.mechanism, self.inputs[rng.choice(len(self.inputs), n, p=self.shares)], rng)


class _Single(NamedTuple):
    """Law of counts of single answers: multinomial. ``chance``: (A,) float64, probability of each of A answers."""

    chance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return rng.multinomial(n, self.chance)


class _Unary(NamedTuple):
    """Law of counts of noisy bits, one per value: binomial, given the shares of holders of each of K values."""

    held: Floats
    if_true: float
    if_other: float

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        holders = rng.multinomial(n, self.held)
        return np.asarray(rng.binomial(holders, self.if_true) + rng.binomial(n - holders, self.if_other), np.int64)


class _Sets(NamedTuple):
    """Law of counts of random sets of w = ``ones`` of K values. Its time does not depend on the number of answers.

    A share ``uniform`` of the answers, (1 − p)/(1 − w/K), are uniform sets. Each other answer has the true value and
    w − 1 uniform ones beside it. So the true value is in a set with probability p. Blocks of values are halved until
    each value is alone. Of an answer's values in a block, a hypergeometric number is in the left half.

    ``halvings``: for each of them the share of a block's holders whose value is in its left half, (blocks, 1), and the
    chances of :func:`_halvings`. ``is_one``: which of the blocks after the last halving have a value.
    """

    ones: int
    uniform: float
    halvings: tuple[tuple[Floats, Floats], ...]
    is_one: Bools

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        # How many answers have r values in each block: not the true one (0); or the true one and r others (1).
        answers = np.zeros((2, 1, self.ones + 1), np.int64)
        answers[0, 0, -1] = uniform = rng.binomial(n, self.uniform)
        answers[1, 0, -2] = n - uniform
        for true_left, chance in self.halvings:
            r, blocks = np.arange(chance.shape[-1]), len(true_left)
            without, beside = answers[..., : len(r)]
            in_left = rng.binomial(beside, true_left)
            drawn = rng.multinomial(np.array([without, in_left, beside - in_left]), chance)
            left, right = drawn.sum(axis=2), drawn[..., r[:, None], r[:, None] - r].sum(axis=2)
            answers = np.empty((2, blocks, 2, len(r)), np.int64)
            answers[0, :, 0], answers[0, :, 1] = left[0] + left[2], right[0] + right[1]
            answers[1, :, 0], answers[1, :, 1] = left[1], right[2]
            answers = answers.reshape(2, 2 * blocks, len(r))
        return np.asarray((answers[0, :, 1] + answers[1, :, 0])[self.is_one], np.int64)


@lru_cache(maxsize=64)
def _halvings(size: int, ones: int) -> tuple[list[tuple[Integers, Floats]], Bools]:
    """Return the halvings of ``size`` values for :class:`_Sets`, and which of the blocks after the last have one value.

    A halving has the sizes of its B blocks, and the chances, (3, B, R, R), that of r values in a block j are in its
    left half: among all its values; or among all but the true one, which is in the left half; or in the right one.
    """
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])

    def choose(n: Integers, k: Integers) -> Floats:
        possible = (k >= 0) & (k <= n)
        n, k = np.where(possible, n, 0), np.where(possible, k, 0)
        return np.where(possible, logs[n] - logs[k] - logs[n - k], -np.inf)

    found, sizes = [], np.array([size])
    while sizes.max() > 1:
        left, right = (sizes + 1) // 2, sizes // 2
        j = np.arange(min(ones, int(sizes.max())) + 1)
        r = j[:, None]
        lefts, rights = (
            np.array(each)[..., None, None] for each in ((left, left - 1, left), (right, right, right - 1))
        )
        with np.errstate(invalid="ignore"):
            chance = np.nan_to_num(np.exp(choose(lefts, j) + choose(rights, r - j) - choose(lefts + rights, r)))
        chance[..., 0] += chance.sum(axis=-1) == 0  # r is more than the block holds: no answer has so many there
        found.append((sizes, chance / chance.sum(axis=-1, keepdims=True)))
        sizes = np.stack([left, right], axis=1).ravel()
    return found, sizes == 1


class _Balanced(NamedTuple):
    """Nearly the law of :class:`_Sets`, for many values: independent bits, in all brought to w = ``ones`` per answer.

    All counts move by equal steps. The variance of a count is a part 1/K too small.
    """

    bits: _Unary
    ones: int

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        drawn = self.bits.counts(n, rng)
        each, rest = divmod(n * self.ones - int(drawn.sum()), len(drawn))
        return np.clip(drawn + each + (rng.permutation(len(drawn)) < rest), 0, n)


class _Bits(NamedTuple):
    """Law of counts of set bits: binomial. ``chance``: (A,) float64, of a 1 at each of the A bits of an answer."""

    chance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return np.asarray(rng.binomial(n, self.chance), np.int64)


class _Sums(NamedTuple):
    """Law of sums of noisy integers: normal, rounded. ``mean``, ``variance``: (A,), of each of an answer's A."""

    mean: Floats
    variance: Floats

    def counts(self, n: int, rng: np.random.Generator) -> Integers:
        return np.rint(rng.normal(n * self.mean, np.sqrt(n * self.variance))).astype(np.int64)


def _held(mechanism: Mechanism, inputs: Integers, shares: Floats) -> Floats:
    """Return for each of the K values of a mechanism the share of the population that has it: shape (K,) float64."""
    found = np.bincount(inputs, shares, minlength=mechanism.size)
    return np.asarray(found / found.sum(), np.float64)


def _normalised(chance: Floats) -> Floats:
    return np.asarray(chance / chance.sum(), np.float64)


@count_law.register(Direct)
def direct_law(mechanism: FrequencyMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``direct``: answer i has probability q + (p − q)f_i, with f_i the share of value i."""
    p, q = float(mechanism.p), float(mechanism.q)
    return _Single(_normalised(q + (p - q) * _held(mechanism, inputs, shares)))


@count_law.register(Remembered)
def remembered_law(mechanism: Remembered, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law of one report of each of different devices with memory."""
    if mechanism.layout == SINGLE:
        return direct_law(mechanism, inputs, shares)
    return _Unary(_held(mechanism, inputs, shares), float(mechanism.p), float(mechanism.q))


@count_law.register(UnaryMechanism)
def unary_law(mechanism: UnaryMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the distribution for unary encodings (:class:`_Unary`)."""
    held = _held(mechanism, inputs, shares)
    return _Unary(held, mechanism.one_if_true / ONE, mechanism.one_if_other / ONE)


@count_law.register(Subset)
def subset_law(mechanism: Subset, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``subset``: exactly w ones in each answer (:class:`_Sets`)."""
    held, size, w = _held(mechanism, inputs, shares), mechanism.size, mechanism.ones
    if size > _MOST_HALVED:
        return _Balanced(_Unary(held, float(mechanism.p), float(mechanism.q)), w)
    found, is_one = _halvings(size, w)
    ends, halvings = np.concatenate([[0.0], np.cumsum(held)]), []
    for sizes, chance in found:
        begin = np.cumsum(sizes) - sizes
        half, whole = (ends[begin + taken] - ends[begin] for taken in ((sizes + 1) // 2, sizes))
        halvings.append((np.clip(half / np.where(whole > 0, whole, 1), 0, 1)[:, None], chance))
    return _Sets(w, float((1 - mechanism.p) * size / (size - w)), tuple(halvings), is_one)


@count_law.register(SummedHistogram)
def histogram_law(mechanism: SummedHistogram, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``she``: discrete Laplace noise, plus M = 1024 at the true value, clipped to [0, M].

    Noise j has the probability (1 − q)/(1 + q)·q^|j| with q = e^{−s/t}, where s/t is the mechanism's rate. Entries with
    and without M mirror each other about M/2.
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
    """Return the law for ``bit``: answer 1 has probability (1 + x/B)/2 for the number x; B is the estimate from a 1."""
    one = float(shares @ _chance_of_one(inputs, float(mechanism.estimate(1))))
    return _Single(np.array([1 - one, one]))


@count_law.register(CoinMechanism)
def bits_law(mechanism: CoinMechanism, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``bits`` and ``duchi``: a bit is 1 with probability (1 + x/B)/2; B is x estimated from a 1."""
    size = float(mechanism.estimate((1,) * mechanism.answers)[0])
    return _Bits(np.asarray(shares @ _chance_of_one(inputs, size)))


def _chance_of_one(inputs: Integers, size: float) -> Floats:
    return np.asarray((1 + inputs / size) / 2)


@count_law.register(Piecewise)
def piecewise_law(mechanism: Piecewise, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``piecewise``: every cell has the probability of :func:`_cells`."""
    return _Single(_normalised(_cells(mechanism, inputs, shares)))


@count_law.register(Hybrid)
def hybrid_law(mechanism: Hybrid, inputs: Integers, shares: Floats) -> CountLaw:
    """Return the law for ``hybrid``: with a fixed probability that of ``piecewise``, else that of ``bit``."""
    of_cells = mechanism.share / ONE
    one = float(shares @ _chance_of_one(inputs, float(mechanism.bit.estimate(1))))
    cells = of_cells * _cells(mechanism.piecewise, inputs, shares)
    return _Single(_normalised(np.append(cells, [(1 - of_cells) * (1 - one), (1 - of_cells) * one])))


def _cells(mechanism: Piecewise, inputs: Integers, shares: Floats) -> Floats:
    """Return the probability of every cell (answer) of ``piecewise`` in a population with ``inputs``: (cells,)."""
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
    """Return the law for ``laplace``: 1024 times the number, rounded at random, plus unclipped discrete Laplace noise.

    The noise has the variance 2q/(1 − q)² with q = e^{−s/t}, where s/t is the mechanism's rate.
    """
    steps, rest = np.divmod(inputs * GRID, SCALE)
    part = rest / SCALE
    exact = steps + part
    mean = shares @ exact
    rate = mechanism.s / mechanism.t
    noise = 2 * np.exp(-rate) / np.expm1(-rate) ** 2
    return _Sums(np.asarray(mean), np.asarray(shares @ (exact - mean) ** 2 + shares @ (part * (1 - part)) + noise))
