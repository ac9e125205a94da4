"""A vectorised stand-in for the device: the same report bytes, for fleets too large to run one by one.

Nothing here is private: the randomness is numpy's, from a seed, and ids are random numbers instead of
HMACs of secrets. A test holds its distribution against the device's; benchmarks say how fast it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from protocol.mechanisms import BITS, SINGLE
from protocol.mechanisms.base import ONE
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.unary import UnaryMechanism
from protocol.report import ID_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from protocol.campaign import Campaign
    from protocol.mechanisms import Mechanism
    from protocol.questions import Question
    from protocol.report import Layout


def vector_reports(
    campaign: Campaign, codes: NDArray[np.int64], labels: NDArray[np.int64], period: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """All reports of a fleet in one period.

    Args:
        campaign: what is asked.
        codes: shape (N, F), value code of every person and feature.
        labels: shape (N,), class code of every person.
        period: the period that all of them answer in.
        rng: the simulation's randomness.

    Returns:
        shape (N·r, L): one report per row; person i's answers are rows i·r … i·r + r − 1.
    """
    people = len(labels)
    records = np.empty((people, campaign.answers, campaign.layout.record_length), np.uint8)
    for stratum in range(campaign.answers):
        records[:, stratum] = _stratum(campaign, stratum, codes, labels, period, rng)
    return records.reshape(people * campaign.answers, -1)


def _stratum(
    campaign: Campaign,
    stratum: int,
    codes: NDArray[np.int64],
    labels: NDArray[np.int64],
    period: int,
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    """Everybody's answer to one stratum."""
    layout, people = campaign.layout, len(labels)
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
        rows[asked, prefix + 12 : prefix + 14] = np.frombuffer(number.to_bytes(2, "big"), np.uint8)
        inputs = _inputs(campaign, question, codes[asked], labels[asked])
        answers = _answer_bytes(question.mechanism, inputs, layout, rng)
        rows[asked, prefix + 14 : prefix + 14 + answers.shape[1]] = answers
    return rows


def _inputs(
    campaign: Campaign, question: Question, codes: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    if question.feature is None:
        return labels
    return codes[:, question.feature] * len(campaign.schema.label.classes) + labels


def _answer_bytes(
    mechanism: Mechanism, inputs: NDArray[np.int64], layout: Layout, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """The answer fields of one question, as wide as the mechanism needs."""
    if isinstance(mechanism, Direct):
        kind = ">u2" if layout.kind in (SINGLE, BITS) else ">u4"
        return _as_bytes(_direct(mechanism, inputs, rng), kind)
    if isinstance(mechanism, UnaryMechanism):
        return np.packbits(_unary(mechanism, inputs, rng), axis=1)
    if isinstance(mechanism, SummedHistogram):
        return _as_bytes(_histogram(mechanism, inputs, rng), ">i4")
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
    limits = np.iinfo(np.int32)
    return np.asarray(np.clip(noise, limits.min, limits.max), np.int64)
