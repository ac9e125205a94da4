"""A profile holds what a tally holds, whatever the order of the periods; counts by period are those of each period."""

from __future__ import annotations

import numpy as np
import pytest
from support.failures import reason_of

from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally import profile as period_sums
from aggregator.reports.tally.profile import PeriodSums, ProfileCounter
from aggregator.reports.tally.tally import count, settle
from benchmarks.guarantees import alarms as bench
from benchmarks.shared.made_batches import NOW, batch, records
from protocol.errors import StorageError

N = 400


def made(mechanism, ago):
    """A campaign, and its records whose periods are so many periods ago."""
    campaign = bench.campaign_of(bench.Setting(mechanism, "1", (3, 9)))
    rows, head = records(campaign, len(ago)), len(campaign.layout.prefix)
    period = campaign.period_at(NOW) - ago
    rows[:, head + 8 : head + 12] = period.astype(">u4").view(np.uint8).reshape(-1, 4)
    return campaign, settle(decode_batches(batch(campaign, rows), campaign, now=NOW).records).records


RANDOM = np.random.default_rng(2).integers(0, 20, N)
ORDERS = {"one": np.full(N, 3), "runs": np.sort(RANDOM)[::-1], "random": RANDOM, "some again": RANDOM // 10 * 5}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", ["direct", "oue", "she"])
@pytest.mark.parametrize(("long_run", "together"), [(1 << 12, 1 << 14), (30, 60), (4, 1)])
def test_counts_by_period_add_up_to_the_tally(mechanism, order, long_run, together, monkeypatch):
    monkeypatch.setattr(period_sums, "_LONG_RUN", long_run)
    monkeypatch.setattr(period_sums, "_TOGETHER", together)
    campaign, found = made(mechanism, ORDERS[order])
    profiled, sums = ProfileCounter(campaign), PeriodSums(campaign)
    for part in (slice(0, 150), slice(150, 150), slice(150, N)):
        profiled.add(found.take(part))
        sums.add(found.take(part))
    assert profiled.tally() == count(campaign, found)
    width = sum(question.mechanism.answers + 1 for question in campaign.questions)
    key, number = sums.counts()
    for period in np.unique(found.period).tolist():
        own = count(campaign, found.take(found.period == period))
        expected = np.concatenate([[n, *cells] for n, cells in zip(own.n, own.counts, strict=True)])
        chosen = key // width == 2 * period + 1
        table = np.zeros(width, np.int64)
        table[key[chosen] % width] = number[chosen]
        assert table.tolist() == expected.tolist()


@pytest.mark.parametrize("order", ["one", "random"])
def test_a_question_that_is_none_is_refused(order):
    campaign, found = made("oue", ORDERS[order])
    found.question[17] = 99
    assert reason_of(StorageError, ProfileCounter(campaign).add, found) == "store_damaged"
