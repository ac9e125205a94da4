"""A vectorised stand-in for the device: the same report bytes, for fleets too large to run one by one.

Nothing here is private: the randomness is numpy's, from a seed, and ids are random numbers instead of
HMACs of secrets. A test holds its distribution against the device's; benchmarks say how fast it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from aggregator.planning.draws import draw
from protocol import SCALE
from protocol.batches.report import ID_BYTES
from protocol.mechanisms import BITS, INTEGERS, SINGLE
from protocol.questions import CELL, CLASS, MOMENTS, OUTCOME, PRESENT, SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from protocol.batches.report import Layout
    from protocol.documents.campaign import Campaign
    from protocol.mechanisms import Mechanism
    from protocol.questions import Question


def vector_reports(
    campaign: Campaign,
    sight: EncodedFrame,
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

    sight: EncodedFrame
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> _Fleet:
        return _Fleet(
            EncodedFrame(self.sight.codes[rows], self.sight.numbers[rows]), self.labels[rows], self.predicted[rows]
        )


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
    answers = draw(mechanism, inputs, rng)
    if mechanism.layout == BITS:
        return np.packbits(answers, axis=1)
    width = ">i4" if mechanism.layout == INTEGERS else _single(layout)
    return np.ascontiguousarray(answers.astype(width)).view(np.uint8).reshape(len(answers), -1)


def _single(layout: Layout) -> str:
    """How a single value is written in a layout."""
    return ">u2" if layout.kind in (SINGLE, BITS) else ">u4"
