"""A vectorised stand-in for the device: the same report bytes, for fleets too large to run one by one.

Nothing here is private: the randomness is numpy's, from a seed, and ids are random numbers instead of
HMACs of secrets. A test holds its distribution against the device's; benchmarks say how fast it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.models.encoding import NO_NUMBER, Sight
from protocol import SCALE
from protocol.batches.report import ID_BYTES
from protocol.mechanisms import BITS, SINGLE
from protocol.mechanisms.base import ONE
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.bits import Bits
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.duchi import Duchi
from protocol.mechanisms.hybrid import Hybrid
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import HALF
from protocol.mechanisms.piecewise import CELLS, Piecewise
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.unary import UnaryMechanism
from protocol.questions import CELL, CLASS, MOMENTS, OUTCOME, PRESENT, SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from protocol.batches.report import Layout
    from protocol.documents.campaign import Campaign
    from protocol.mechanisms import Mechanism
    from protocol.questions import Question


def vector_reports(
    campaign: Campaign,
    sight: Sight,
    labels: NDArray[np.int64],
    period: int,
    rng: np.random.Generator,
    predicted: NDArray[np.int64] | None = None,
) -> NDArray[np.uint8]:
    """All reports of a fleet in one period.

    Args:
        campaign: what is asked.
        sight: codes and numbers of every person and observed feature, as reports use them.
        labels: shape (N,), class code of every person.
        period: the period that all of them answer in.
        rng: the simulation's randomness.
        predicted: shape (N,), class codes that the evaluated model predicts, in an ``outcome`` campaign.

    Returns:
        shape (N·r, L): one report per row; person i's answers are rows i·r … i·r + r − 1.
    """
    people = len(labels)
    fleet = _Fleet(sight, labels, labels if predicted is None else predicted)
    records = np.empty((people, campaign.answers, campaign.layout.record_length), np.uint8)
    for stratum in range(campaign.answers):
        records[:, stratum] = _stratum(campaign, stratum, fleet, period, rng)
    return records.reshape(people * campaign.answers, -1)


class _Fleet(NamedTuple):
    """What the questions see of everybody."""

    sight: Sight
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> _Fleet:
        return _Fleet(Sight(self.sight.codes[rows], self.sight.numbers[rows]), self.labels[rows], self.predicted[rows])


def _stratum(
    campaign: Campaign, stratum: int, fleet: _Fleet, period: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Everybody's answer to one stratum."""
    layout, people = campaign.layout, len(fleet.labels)
    prefix = len(layout.prefix)
    rows = np.zeros((people, layout.record_length), np.uint8)
    rows[:, :prefix] = np.frombuffer(layout.prefix, np.uint8)
    identifiers = rng.integers(0, 256, (people, ID_BYTES), np.uint8)
    rows[:, prefix : prefix + 8] = identifiers
    rows[:, prefix + 8 : prefix + 12] = np.frombuffer(period.to_bytes(4, "big"), np.uint8)
    places = identifiers[:, :4].copy().view(">u4").ravel()
    for number, question in enumerate(campaign.questions):
        if question.stratum != stratum:
            continue
        low, high = campaign.assignment.interval(number, stratum)
        asked = np.flatnonzero((places >= low) & (places < high))
        if not asked.size:
            continue
        rows[asked, prefix + 12 : prefix + 14] = np.frombuffer(number.to_bytes(2, "big"), np.uint8)
        inputs = _inputs(campaign, question, fleet.take(asked))
        answers = _answer_bytes(question.mechanism, inputs, layout, rng)
        rows[asked, prefix + 14 : prefix + 14 + answers.shape[1]] = answers
    return rows


def _inputs(campaign: Campaign, question: Question, fleet: _Fleet) -> NDArray[np.int64]:
    """What :meth:`protocol.questions.Question.input_of` says, for everybody asked."""
    kind, feature, size, power, of_class = question.subject
    classes = len(campaign.schema.label.classes)
    labels = fleet.labels
    if kind == CLASS:
        return labels
    if kind == OUTCOME:
        return labels * classes + fleet.predicted
    if kind == MOMENTS:
        vectors = np.zeros((len(labels), size), np.int64)
        for place, index in enumerate(campaign.schema.numeric):
            vectors[np.arange(len(labels)), place * classes + labels] = _moment(fleet.sight.numbers[:, index], power)
        return vectors
    if kind == CELL:
        return np.asarray(fleet.sight.codes[:, feature] * classes + labels, np.int64)
    numbers = fleet.sight.numbers[:, feature]
    if kind == PRESENT:
        return np.asarray((numbers != NO_NUMBER) * classes + labels, np.int64)
    values = _moment(numbers, power)
    if of_class is None:
        vectors = np.zeros((len(labels), classes), np.int64)
        vectors[np.arange(len(labels)), labels] = values
        return vectors
    values = np.where(labels == of_class, values, 0)
    return 2 * values - SCALE if power == SQUARE else values


def _moment(numbers: NDArray[np.int64], power: int | None) -> NDArray[np.int64]:
    """u, or ⌊u²/S⌋; 0 where there is no number."""
    numbers = np.where(numbers == NO_NUMBER, 0, numbers)
    return np.asarray(numbers if power != SQUARE else numbers * numbers // SCALE, np.int64)


def _answer_bytes(
    mechanism: Mechanism, inputs: NDArray[np.int64], layout: Layout, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The answer fields of one question, as wide as the mechanism needs."""
    if isinstance(mechanism, Direct):
        return _as_bytes(_direct(mechanism, inputs, rng), _single(layout))
    if isinstance(mechanism, UnaryMechanism):
        return np.packbits(_unary(mechanism, inputs, rng), axis=1)
    if isinstance(mechanism, SummedHistogram):
        return _as_bytes(_histogram(mechanism, inputs, rng), ">i4")
    if isinstance(mechanism, Bit):
        return _as_bytes(_coins(inputs, mechanism.threshold, rng).astype(np.int64), _single(layout))
    if isinstance(mechanism, Piecewise):
        return _as_bytes(_piecewise(mechanism, inputs, rng), _single(layout))
    if isinstance(mechanism, Hybrid):
        chosen = rng.integers(0, ONE, len(inputs)) < mechanism.share
        bits = CELLS + _coins(inputs, mechanism.bit.threshold, rng)
        return _as_bytes(np.where(chosen, _piecewise(mechanism.piecewise, inputs, rng), bits), _single(layout))
    if isinstance(mechanism, Bits):
        return np.packbits(_coins(inputs, mechanism.threshold, rng), axis=1)
    if isinstance(mechanism, Duchi):
        return np.packbits(_duchi(mechanism, inputs, rng), axis=1)
    if isinstance(mechanism, Laplace):
        return _as_bytes(_laplace(mechanism, inputs, rng), ">i4")
    raise TypeError(f"the vector engine does not know the mechanism {mechanism.name}")


def _as_bytes(values: NDArray[Any], kind: str) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(len(values), -1)


def _direct(mechanism: Direct, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    others = rng.integers(0, mechanism.size - 1, len(inputs))
    truthful = rng.integers(0, ONE, len(inputs)) < mechanism.keep
    return np.where(truthful, inputs, others + (others >= inputs))


def _unary(mechanism: UnaryMechanism, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    words = rng.integers(0, ONE, (len(inputs), mechanism.size), np.uint32)
    bits = words < mechanism.one_if_other
    rows = np.arange(len(inputs))
    bits[rows, inputs] = words[rows, inputs] < mechanism.one_if_true
    return bits


def _histogram(mechanism: SummedHistogram, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The difference of two geometric numbers is discrete Laplace noise of the same rate."""
    shape = (len(inputs), mechanism.size)
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = rng.geometric(leave, shape) - rng.geometric(leave, shape)
    noise[np.arange(len(inputs)), inputs] += GRID
    return np.asarray(np.clip(noise, *mechanism.bounds), np.int64)


def _single(layout: Layout) -> str:
    """How a single value is written in a layout."""
    return ">u2" if layout.kind in (SINGLE, BITS) else ">u4"


def _coins(inputs: NDArray[np.int64], threshold: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """One coin per number, bent as in ``bit``."""
    return rng.integers(0, ONE, inputs.shape) < HALF + inputs * (threshold - HALF) // SCALE


def _piecewise(mechanism: Piecewise, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    start, rest = np.divmod((inputs + SCALE) * (CELLS - mechanism.window), 2 * SCALE)
    start += rng.integers(0, 2 * SCALE, len(inputs)) < rest
    inside = rng.integers(0, ONE, len(inputs)) < mechanism.threshold
    near = start + rng.integers(0, mechanism.window, len(inputs))
    far = rng.integers(0, CELLS - mechanism.window, len(inputs))
    return np.where(inside, near, np.where(far < start, far, far + mechanism.window))


def _laplace(mechanism: Laplace, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    steps, rest = np.divmod(inputs * GRID, SCALE)
    steps += rng.integers(0, SCALE, inputs.shape) < rest
    leave = -np.expm1(-mechanism.s / mechanism.t)
    steps += rng.geometric(leave, inputs.shape) - rng.geometric(leave, inputs.shape)
    return np.asarray(np.clip(steps, *mechanism.bounds), np.int64)


def _duchi(mechanism: Duchi, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Corners drawn until each lies on the side that its coin says."""
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
