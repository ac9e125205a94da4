"""Many reports at once, made with numpy: records with given id, period, question and answer."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from protocol.batches.batch import trailer
from protocol.mechanisms import SINGLE
from support.reports import header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from protocol.documents.campaign import Campaign

RECORD = np.dtype([("head", "V2"), ("id", ">u8"), ("period", ">u4"), ("question", ">u2"), ("value", ">u2")])


def honest(campaign: Campaign, count: int, period: int, seed: int) -> NDArray[np.void]:
    """Draw ``count`` records of layout 1 with random ids and answers; each id answers its assigned question."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 1 << 64, count, np.uint64)
    bounds = np.array([question.bound for question in campaign.questions], np.uint64)
    sizes = np.array([question.mechanism.answers for question in campaign.questions])
    question = np.searchsorted(bounds, ids >> np.uint64(32), side="right")
    return records(campaign, ids, period, question, (rng.random(count) * sizes[question]).astype(np.int64))


def records(campaign: Campaign, ids: object, period: object, question: object, value: object) -> NDArray[np.void]:
    """Records of layout 1 from columns."""
    assert campaign.layout.kind == SINGLE
    made = np.zeros(len(ids), RECORD)  # type: ignore[arg-type]
    made["head"] = np.frombuffer(campaign.layout.prefix, "V2")[0]
    made["id"], made["period"], made["question"], made["value"] = ids, period, question, value
    return made


def sealed(campaign: Campaign, made: NDArray[np.void]) -> bytes:
    """Encode records, (N,) of the record dtype, as a complete batch."""
    body = header(campaign).to_bytes() + made.tobytes()
    return body + trailer(len(made), sha256(body).digest())
