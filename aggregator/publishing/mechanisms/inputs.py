"""Inputs of a question's mechanism for many records at once."""

from __future__ import annotations

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from protocol import SCALE
from protocol.questions import CELL, CLASS, MOMENTS, OUTCOME, PRESENT, RIGHT, SQUARE, Subject
from protocol.schema import Schema


def inputs_of(
    schema: Schema, subject: Subject, encoded: EncodedFrame, labels: Integers, predicted: Integers | None = None
) -> Integers:
    """The inputs of a question's mechanism for the records of N people.

    Equal to :meth:`protocol.questions.Question.input_of` of each record.

    Args:
        schema: the campaign's schema.
        subject: of the question.
        encoded: codes and numbers of the records, (N, observed features) int64 each, from
            :func:`aggregator.models.encoding.observe`.
        labels: (N,) int64, class code of every record.
        predicted: (N,) int64, class codes that the question's model predicts; read for ``outcome`` and ``right``
            questions only. None means that all predictions are right.

    Returns:
        (N,) int64 for one value or number per person, (N, size) int64 for vectors of moments.
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
    """The moments of numbers u, (N,) int64: u for power 1, ⌊u²/S⌋ for power 2, 0 for a missing number."""
    numbers = np.where(numbers == NO_NUMBER, 0, numbers)
    return np.asarray(numbers if power != SQUARE else numbers * numbers // SCALE, np.int64)
