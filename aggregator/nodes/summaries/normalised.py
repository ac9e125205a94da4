"""Normalised parameters of every node's model, which Krum compares: nodes of different sizes become comparable."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.nodes.summaries.federation import noise_variances
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.nodes.terms import released_vectors
from protocol.questions import CLASS, MOMENT

_LEAST = 1e-9
"""Smallest floor, where a large ε leaves no noise."""


def normalised(values: NDArray[np.int64], campaign: Campaign, epsilon_micro: int, periods: int = 1) -> Floats:
    """Parameters of each node's model: P(class), P(value | class), means and mean squares of numbers given the class.

    Counts are raised to half a standard deviation of their noise, and each column of a table is divided by its own sum.
    Sums of numbers are divided by the class counts, and clipped to their possible range.

    Args:
        values: shape (N, M) int64, the summed numbers of every node.
        campaign: a campaign for nodes.
        epsilon_micro: ε of every summary, in millionths.
        periods: number of summaries in each row of ``values``.

    Returns:
        Shape (N, M) float64, every parameter in [−1, 1].
    """
    subjects = released_vectors(campaign)
    classes = subjects[0].size
    found = []
    start = 0
    counts = np.ones((len(values), classes))
    for subject, variance in zip(subjects, noise_variances(campaign, epsilon_micro), strict=True):
        part = values[:, start : start + subject.size].astype(np.float64)
        start += subject.size
        floor = max(np.sqrt(periods * variance) / 2, _LEAST)
        if subject.kind == MOMENT:
            means = part / SCALE / counts
            found.append(np.clip(means, -1.0 if subject.power == 1 else 0.0, 1.0))
            continue
        raised = np.maximum(part, floor)
        if subject.kind == CLASS:
            counts = np.maximum(raised, 1.0)
            found.append(raised / raised.sum(axis=1, keepdims=True))
        else:
            table = raised.reshape(len(values), -1, classes)
            found.append((table / table.sum(axis=1, keepdims=True)).reshape(part.shape))
    return np.concatenate(found, axis=1)
