"""Large batches of random acceptable reports, drawn with numpy: ids, periods, questions and answers.

The distribution of the answers does not matter for the benchmarks. Devices would take minutes for as many reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.batches.batch import Header, trailer
from protocol.batches.report import FIXED_BYTES
from protocol.documents.campaign import Campaign
from protocol.mechanisms import BITS, INTEGERS, SINGLE, Mechanism

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.publisher import NOW, Publisher
from support.reports import RAW, made, mixed, opened

__all__ = ["FILE_REPORTS", "NOW", "RAW", "Publisher", "batch", "files", "made", "mixed", "opened", "records", "write"]
FILE_REPORTS = 1_000_000
"""Records that are drawn at a time."""


def records(campaign: Campaign, count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Draw N reports of L bytes of the current period, each id in the interval of its question: (N, L) uint8."""
    generator = np.random.default_rng(seed)
    layout = campaign.layout
    head = len(layout.prefix)
    rows = np.zeros((count, layout.record_length), np.uint8)
    rows[:, :head] = np.frombuffer(layout.prefix, np.uint8)
    rows[:, head : head + 8] = generator.integers(0, 256, (count, 8), dtype=np.uint8)
    rows[:, head + 8 : head + 12] = np.frombuffer(campaign.period_at(NOW).to_bytes(4, "big"), np.uint8)
    asked = _questions(campaign, rows[:, head : head + 4], generator)
    rows[:, head + 12 : head + FIXED_BYTES] = asked.astype(">u2").view(np.uint8).reshape(count, 2)
    for number, question in enumerate(campaign.questions):
        chosen = np.flatnonzero(asked == number)
        field = _answers(question.mechanism, layout.kind, len(chosen), generator)
        place = head + FIXED_BYTES
        rows[chosen, place : place + field.shape[1]] = field
    return rows


def batch(campaign: Campaign, rows: NDArray[np.uint8]) -> bytes:
    """Encode a complete batch of records, (N, L) uint8."""
    layout = campaign.layout
    body = Header(campaign.id, layout.kind, layout.record_length).to_bytes() + rows.tobytes()
    return body + trailer(len(rows), sha256(body).digest())


def files(
    folder: Path,
    campaign: Campaign,
    reports: int,
    per_file: int = FILE_REPORTS,
    change: Callable[[NDArray[np.uint8], int], None] | None = None,
) -> list[Path]:
    """Write N reports into files of one batch with ``per_file`` records, and return the files.

    ``change``: changes the records (M, L) uint8 of each drawn part, whose number from 0 it gets too, in place.
    """
    found = []
    for number in range(-(-reports // FILE_REPORTS)):
        drawn = records(campaign, min(FILE_REPORTS, reports - number * FILE_REPORTS), number)
        if change is not None:
            change(drawn, number)
        for start in range(0, len(drawn), per_file):
            found.append(folder / f"{number:06d}-{start:06d}.hsr")
            found[-1].write_bytes(batch(campaign, drawn[start : start + per_file]))
    return found


def write(path: Path, campaign: Campaign, count: int, at_once: int) -> None:
    """Write a file of one batch with ``count`` records, ``at_once`` records in memory at a time."""
    layout = campaign.layout
    head = Header(campaign.id, layout.kind, layout.record_length).to_bytes()
    digest = sha256(head)
    with path.open("wb") as file:
        file.write(head)
        for number in range(-(-count // at_once)):
            some = records(campaign, min(at_once, count - number * at_once), number).tobytes()
            digest.update(some)
            file.write(some)
        file.write(trailer(count, digest.digest()))


def _questions(campaign: Campaign, first: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the question of each id in a stratum drawn at random: (N,) int64."""
    u = np.ascontiguousarray(first).view(">u4")[:, 0].astype(np.uint64)
    strata = np.array([question.stratum for question in campaign.questions])
    stratum = generator.integers(0, strata.max() + 1, len(u))
    asked = np.zeros(len(u), np.int64)
    for number in range(strata.max() + 1):
        own = np.flatnonzero(strata == number)
        bounds = np.array([campaign.questions[question].bound for question in own], np.uint64)
        chosen = stratum == number
        asked[chosen] = own[np.searchsorted(bounds, u[chosen], side="right")]
    return asked


def _answers(mechanism: Mechanism, kind: int, count: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw N possible answers of a mechanism: (N, bytes per answer) uint8."""
    if mechanism.layout == SINGLE:
        width = 4 if kind == INTEGERS else 2
        values = generator.integers(0, mechanism.answers, count)
        return values.astype(f">u{width}").view(np.uint8).reshape(count, width)
    if mechanism.layout == BITS:
        return np.packbits(generator.integers(0, 2, (count, mechanism.answers), dtype=np.uint8), axis=1)
    parts = generator.integers(-5000, 5000, (count, mechanism.answers))
    return parts.astype(">i4").view(np.uint8).reshape(count, 4 * mechanism.answers)
