"""Time of decoding: the bytes of one batch in memory → counts by question and value, with all checks.

The baseline of layout 1 has no checks: SHA-256 of the same bytes, an array over them, and a histogram of decoded
codes. Times are processor time of one core, so other programs do not count.
"""

from __future__ import annotations

import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.shared import made_batches
from benchmarks.shared.harness import Row, interleaved_seconds
from benchmarks.speed.raw_counts import count_batches
from protocol import mechanisms

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.publisher import NOW
from support.reports import made, mixed

from protocol.documents.campaign import Campaign

BASELINE = "SHA-256, np.frombuffer, np.bincount"


def decoding(reports: int, runs: int) -> list[Row]:
    """Measure all rows: layout 1; layout 2 with 32 bits and a quarter of the reports; with 128 bits and a sixteenth."""
    return [*_values(reports, runs), *_bits(32, reports // 4, runs), *_bits(128, reports // 16, runs)]


def _values(reports: int, runs: int) -> list[Row]:
    campaign = made()
    rows = made_batches.records(campaign, reports)
    data = made_batches.batch(campaign, rows)
    code = np.ascontiguousarray(rows[:, -4:]).view(">u2").astype(np.int64) @ (8, 1)
    del rows

    def baseline() -> None:
        sha256(data).digest()
        np.frombuffer(data, np.uint8)
        np.bincount(code)

    least, plain, verified = interleaved_seconds(
        [baseline, *_counting(data, campaign, reports)], runs, time.process_time
    )
    name = f"layout 1, {reports:,} reports"
    return [
        _row(f"{name}: {BASELINE}", reports, least),
        _row(f"{name}, digest verified", reports, verified, BASELINE, least),
        _row(f"{name}, without the digest", reports, plain, BASELINE, least),
    ]


def _bits(size: int, reports: int, runs: int) -> list[Row]:
    campaign = mixed(mechanisms.from_epsilon("oue", "1", size))
    data = made_batches.batch(campaign, made_batches.records(campaign, reports))
    actions = [lambda: sha256(data).digest(), *_counting(data, campaign, reports)]
    digest, plain, verified = interleaved_seconds(actions, runs, time.process_time)
    name = f"layout 2, {size} bits, {reports:,} reports"
    return [
        _row(f"{name}, digest verified", reports, verified, "SHA-256 alone", digest),
        _row(f"{name}, without the digest", reports, plain, "SHA-256 alone", digest),
    ]


def _counting(data: bytes, campaign: Campaign, reports: int) -> list:
    """Return two functions that count, without and with a check of the digest, after one trial call of each."""

    def count(*, verify: bool) -> None:
        found = count_batches(data, campaign, now=NOW, verify=verify)
        assert (found.proven if verify else found.unproven) == reports

    count(verify=True)
    return [lambda: count(verify=False), lambda: count(verify=True)]


def _row(name: str, reports: int, seconds: float, baseline: str = "", compared: float | None = None) -> Row:
    return Row(name, reports / seconds / 1e6, "million a second", baseline, compared and compared / seconds)
