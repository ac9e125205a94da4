"""Nodes with random records, and their noisy summaries, made with numpy in place of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.curator.methods.sums import exact_sums
from aggregator.curator.records import read_records
from aggregator.nodes.statistics.federation import noise_variances
from protocol import SCALE
from protocol.nodes.summary import build_node_list, build_summary
from protocol.nodes.terms import ranges, released_vectors
from protocol.questions import CELL, CLASS, MOMENT
from support.nodes import PERIOD
from support.publisher import SigningKey

if TYPE_CHECKING:
    import pandas as pd

    from protocol.documents.campaign import Campaign

PRIOR = (0.6, 0.4)
ODOR = np.array([[0.7, 0.1], [0.1, 0.2], [0.1, 0.6], [0.1, 0.1]])
"""P(value | class) of the publisher's feature odor, missing last."""
MEANS = np.array([-0.25, 0.5])
"""Means of the publisher's feature width in the two classes; the numbers are uniform within 0.25 of them."""


def keys(number: int) -> list[SigningKey]:
    """Signing keys of nodes."""
    return [SigningKey.from_seed(place.to_bytes(32, "big")) for place in range(1, number + 1)]


def list_of(publisher, nodes: list[SigningKey], version: int = 1, name: str = "wards") -> bytes:
    """A signed list of these nodes."""
    return publisher.sign("nodes", build_node_list(publisher.header(name, version), [key.public for key in nodes]))


def true_sums(campaign: Campaign, records: int, generator: np.random.Generator) -> list[int]:
    """Exact sums of random records: of the classes, of odor, and of width in bins or as a number."""
    labels = (generator.random(records) > PRIOR[0]).astype(int)
    codes = (generator.random(records)[:, None] > ODOR.cumsum(axis=0).T[labels]).sum(axis=1).clip(max=3)
    numbers = np.rint(SCALE * (MEANS[labels] + generator.uniform(-0.25, 0.25, records))).astype(int)
    found: list[int] = []
    for subject in released_vectors(campaign):
        if subject.kind == CLASS:
            values = np.bincount(labels, minlength=2)
        elif subject.kind == CELL and subject.feature == 0:
            values = np.bincount(codes * 2 + labels, minlength=subject.size)
        elif subject.kind == CELL:
            values = np.bincount((numbers > 0) * 2 + labels, minlength=subject.size)
        else:
            assert subject.kind == MOMENT
            each = numbers if subject.power == 1 else numbers * numbers // SCALE
            values = np.array([each[labels == label].sum() for label in (0, 1)])
        found += values.tolist()
    return found


def noisy(campaign: Campaign, exact: list[int], epsilon_micro: int, generator: np.random.Generator) -> list[int]:
    """Sums with rounded Laplace noise of the variance that summaries have, within the allowed ranges."""
    found: list[int] = []
    start = 0
    vectors = zip(
        released_vectors(campaign),
        noise_variances(campaign, epsilon_micro),
        ranges(campaign, epsilon_micro),
        strict=True,
    )
    for subject, variance, (low, high) in vectors:
        noise = np.rint(generator.laplace(scale=np.sqrt(variance / 2), size=subject.size)).astype(int)
        part = np.array(exact[start : start + subject.size]) + noise
        found += np.clip(part, low, high).tolist()
        start += subject.size
    return found


def summaries_of(
    campaign: Campaign,
    nodes: list[SigningKey],
    records: int = 500,
    *,
    period: int = PERIOD,
    epsilon_micro: int | None = None,
    seed: int = 1,
) -> list[bytes]:
    """One signed summary per node, each of ``records`` random records."""
    generator = np.random.default_rng(seed)
    stated = campaign.epsilon_micro if epsilon_micro is None else epsilon_micro
    return [
        build_summary(
            campaign, key, period, noisy(campaign, true_sums(campaign, records, generator), stated, generator), stated
        )
        for key in nodes
    ]


def summaries_of_frames(campaign: Campaign, holders: dict[SigningKey, pd.DataFrame], seed: int = 1) -> list[bytes]:
    """The signed summary of each node's records."""
    generator = np.random.default_rng(seed)
    found = []
    for key, frame in holders.items():
        records = read_records(frame, campaign.schema)
        sums = [number for vector in exact_sums(records, released_vectors(campaign)) for number in vector]
        found.append(build_summary(campaign, key, PERIOD, noisy(campaign, sums, campaign.epsilon_micro, generator)))
    return found
