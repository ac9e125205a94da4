"""A million reports with repeats, damage and conflicts, and with exact counts known beforehand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.fleets import honest, sealed
from support.publisher import NOW
from support.reports import CAMPAIGN, PERIOD, RAW

from aggregator.operations.report_store import create_store
from aggregator.reports.tally.scope import Scope
from protocol.batches.batch import TRAILER_BYTES

REPORTS, REPEATS, DAMAGED, CONFLICTS = 1_000_000, 50_000, 10_000, 1_000


def tallied(records):
    """n and counts if all of these records are counted."""
    sizes = [question.mechanism.answers for question in CAMPAIGN.questions]
    n = np.bincount(records["question"], minlength=len(sizes))
    counts = [
        np.bincount(records["value"][records["question"] == question], minlength=size)
        for question, size in enumerate(sizes)
    ]
    return tuple(n.tolist()), tuple(tuple(cells.tolist()) for cells in counts)


def fleet():
    """Records, and files with these records, with repeats in other files, conflicts and truncated batches."""
    made = honest(CAMPAIGN, REPORTS, PERIOD, 1)
    assert len(np.unique(made["id"])) == REPORTS
    rng = np.random.default_rng(2)
    order = rng.permutation(REPORTS)
    repeats, lies = order[:REPEATS], order[REPEATS : REPEATS + CONFLICTS]
    other = made[lies].copy()
    sizes = np.array([question.mechanism.answers for question in CAMPAIGN.questions])
    other["value"] = (other["value"] + 1) % sizes[other["question"]]
    unproven = order[-DAMAGED:]
    whole = np.setdiff1d(np.arange(REPORTS), unproven, assume_unique=True)
    files = [sealed(CAMPAIGN, made[part]) for part in np.array_split(whole, 7)]
    files += [sealed(CAMPAIGN, made[part])[:-TRAILER_BYTES] for part in np.array_split(unproven, 5)]
    files += [sealed(CAMPAIGN, made[part]) for part in np.array_split(repeats, 50)]
    files += [sealed(CAMPAIGN, other)]
    counted = np.delete(made, lies)
    return counted, files


@pytest.mark.slow
def test_a_million_reports_have_the_counts_that_are_known_beforehand_in_any_split(tmp_path):
    counted, files = fleet()
    paths = []
    for number, data in enumerate(files):
        paths.append(tmp_path / f"{number:03d}.hsr")
        paths[-1].write_bytes(data)
    joined = tmp_path / "joined.hsr"
    joined.write_bytes(b"".join(reversed(files)))
    one = create_store(tmp_path / "one", RAW)
    summary = one.ingest(paths, now=NOW)
    assert (summary.proven, summary.unproven) == (REPORTS - DAMAGED + REPEATS + CONFLICTS, DAMAGED)
    assert summary.rejected == {}
    found = one.tally_report()
    assert (found.tally.n, found.tally.counts) == tallied(counted)
    assert found.reports == REPORTS - CONFLICTS
    assert (found.unproven, found.superseded) == (DAMAGED, 0)
    assert found.rejected == {"report_replayed": REPEATS, "report_conflict": 2 * CONFLICTS}
    assert one.tally_report(Scope(proven_only=True)).reports == REPORTS - CONFLICTS - DAMAGED

    other = create_store(tmp_path / "other", RAW, buckets=2)
    other.memory_bytes = 1 << 20  # each bucket in partitions
    other.workers = 1
    for start in range(0, len(paths), 13):
        other.ingest(paths[::-1][start : start + 13], now=NOW)
    other.ingest(paths, now=NOW)
    assert other.tally_report() == found

    third = create_store(tmp_path / "third", RAW, buckets=64)
    third.ingest([joined], now=NOW)
    last = third.tally_report()
    assert last.tally.to_bytes() == found.tally.to_bytes()
    assert Counter(last.rejected) == Counter(found.rejected)
