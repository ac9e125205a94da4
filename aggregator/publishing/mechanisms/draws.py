"""Vectorised draws: simulated answers of many devices at once, one function per family of mechanisms.

The draws use numpy's random generator, which is not secure. They are for simulations and benchmarks only; devices use
the mechanism's ``perturb``. ``tests/aggregator/test_mechanism_contract.py`` compares the draws with the exact
distributions.

A new family registers its function with :data:`draw`. A campaign is not signed if one of its mechanisms has no draw
(:mod:`aggregator.publishing.mechanisms.completeness`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from protocol import SCALE
from protocol.errors import InputError
from protocol.mechanisms.base import ONE, Mechanism
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.bits import Bits
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.duchi import Duchi
from protocol.mechanisms.hybrid import Hybrid
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import HALF
from protocol.mechanisms.piecewise import CELLS, Piecewise
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.unary import UnaryMechanism

Bools = NDArray[np.bool_]


@ByFamily
def draw(mechanism: Mechanism, inputs: Integers, rng: np.random.Generator) -> NDArray[Any]:
    """Independent random answers of N devices.

    Args:
        mechanism: the mechanism; A is ``mechanism.answers``.
        inputs: the devices' true inputs: shape (N,) int64 for values or single numbers, shape (N, size) int64 for
            vectors of numbers.
        rng: source of randomness.

    Returns:
        By the mechanism's layout, a constant of :mod:`protocol.mechanisms.base`: shape (N,) int64 for ``SINGLE``,
        (N, A) bool for ``BITS``, (N, A) int64 for ``INTEGERS``.

    Raises:
        InputError: ``mechanism_incomplete``: the mechanism's family has no registered draw.
    """
    del inputs, rng
    raise InputError("mechanism_incomplete", f"there is no vectorised draw for the mechanism {mechanism.name}")


@draw.register(Direct)
def draw_direct(mechanism: Direct, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``direct``: each answer is the true value or a uniform other value. (N,) int64 → (N,) int64."""
    others = rng.integers(0, mechanism.size - 1, len(inputs))
    truthful = rng.integers(0, ONE, len(inputs)) < mechanism.keep
    return np.where(truthful, inputs, others + (others >= inputs))


@draw.register(UnaryMechanism)
def draw_unary(mechanism: UnaryMechanism, inputs: Integers, rng: np.random.Generator) -> Bools:
    """:func:`draw` for unary encodings: one random bit for each of A values. (N,) int64 → (N, A) bool."""
    words = rng.integers(0, ONE, (len(inputs), mechanism.size), np.uint32)
    bits = words < mechanism.one_if_other
    rows = np.arange(len(inputs))
    bits[rows, inputs] = words[rows, inputs] < mechanism.one_if_true
    return bits


@draw.register(SummedHistogram)
def draw_histogram(mechanism: SummedHistogram, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``she``: one-hot vector plus discrete Laplace noise, the difference of two geometric numbers.

    The sums are clipped to ``mechanism.bounds``. (N,) int64 → (N, A) int64.
    """
    shape = (len(inputs), mechanism.size)
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = rng.geometric(leave, shape) - rng.geometric(leave, shape)
    noise[np.arange(len(inputs)), inputs] += GRID
    return np.asarray(np.clip(noise, *mechanism.bounds), np.int64)


@draw.register(Bit)
def draw_bit(mechanism: Bit, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``bit``: one random bit per device. (N,) int64 → (N,) int64."""
    return coins(inputs, mechanism.threshold, rng).astype(np.int64)


@draw.register(Bits)
def draw_bits(mechanism: Bits, inputs: Integers, rng: np.random.Generator) -> Bools:
    """:func:`draw` for ``bits``: one random bit for each of A numbers of a device. (N, A) int64 → (N, A) bool."""
    return coins(inputs, mechanism.threshold, rng)


def coins(inputs: Integers, threshold: int, rng: np.random.Generator) -> Bools:
    """One random bit per number, with the probabilities of ``bit``. Int64 → bool of the same shape.

    Args:
        inputs: scaled numbers from −S to S.
        threshold: probability of a 1 for the number S, times 2³².
        rng: source of randomness.
    """
    return rng.integers(0, ONE, inputs.shape) < HALF + inputs * (threshold - HALF) // SCALE


@draw.register(Piecewise)
def draw_piecewise(mechanism: Piecewise, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``piecewise``: a cell of the window around the device's number, or a cell outside the window.

    (N,) int64 → (N,) int64.
    """
    start, rest = np.divmod((inputs + SCALE) * (CELLS - mechanism.window), 2 * SCALE)
    start += rng.integers(0, 2 * SCALE, len(inputs)) < rest
    inside = rng.integers(0, ONE, len(inputs)) < mechanism.threshold
    near = start + rng.integers(0, mechanism.window, len(inputs))
    far = rng.integers(0, CELLS - mechanism.window, len(inputs))
    return np.where(inside, near, np.where(far < start, far, far + mechanism.window))


@draw.register(Hybrid)
def draw_hybrid(mechanism: Hybrid, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``hybrid``: an answer of ``piecewise``, or an answer of ``bit`` plus the number of cells.

    (N,) int64 → (N,) int64.
    """
    chosen = rng.integers(0, ONE, len(inputs)) < mechanism.share
    bits = CELLS + draw_bit(mechanism.bit, inputs, rng)
    return np.where(chosen, draw_piecewise(mechanism.piecewise, inputs, rng), bits)


@draw.register(Laplace)
def draw_laplace(mechanism: Laplace, inputs: Integers, rng: np.random.Generator) -> Integers:
    """:func:`draw` for ``laplace``: each number is rounded at random to the grid, and gets discrete Laplace noise.

    The sums are clipped to ``mechanism.bounds``. Int64 → int64 of the same shape.
    """
    steps, rest = np.divmod(inputs * GRID, SCALE)
    steps += rng.integers(0, SCALE, inputs.shape) < rest
    leave = -np.expm1(-mechanism.s / mechanism.t)
    steps += rng.geometric(leave, inputs.shape) - rng.geometric(leave, inputs.shape)
    return np.asarray(np.clip(steps, *mechanism.bounds), np.int64)


@draw.register(Duchi)
def draw_duchi(mechanism: Duchi, inputs: Integers, rng: np.random.Generator) -> Bools:
    """:func:`draw` for ``duchi``: an answer is a random corner of a cube, A bits.

    A device's numbers are rounded at random to a corner v. A random bit chooses one half of the cube: the corners that
    agree with v in most coordinates, or all others. The answer is a uniform corner of that half: corners are drawn
    again until each is in its half. (N, A) int64 → (N, A) bool.
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
