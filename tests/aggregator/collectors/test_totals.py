"""A total that its leader signed, and a store of totals: what can not be is refused, and nothing counts twice."""

from __future__ import annotations

import shutil

import pytest
from support.collectors import DAY, PERIOD
from support.failures import reason_of
from support.publisher import NOW
from support.shared import COLLECTOR_KEYS, shared_campaign, shared_file

from aggregator.collectors.noise import variance_of
from aggregator.collectors.total import MOST, Total, read_total, sign_total
from aggregator.collectors.totals import TotalStore
from protocol.errors import DocumentError, StorageError

RAW, CAMPAIGN = shared_file(min_batch_size=5), shared_campaign(min_batch_size=5)
HEADER = CAMPAIGN.header
GOOD = Total(CAMPAIGN.id, PERIOD, 10, (5,) * 12, {"proof_invalid": 3})
REACH = int(64 * (1 + variance_of(CAMPAIGN) ** 0.5))
REASONS = {"a" * length: 1 for length in range(1, 65)}
TAKEN = {
    "many reasons": {"refused": REASONS},
    "as it is": {},
    "the most": {"numbers": (10 + REACH, *GOOD.numbers[1:])},
    "the least": {"numbers": (-REACH, *GOOD.numbers[1:])},
    "the smallest batch": {"accepted": 5},
    "the first period": {"period": HEADER.not_before // DAY},
    "the last period": {"period": (HEADER.expires - 1) // DAY},
}
REFUSED = {
    "more than counts and noise": ({"numbers": (11 + REACH, *GOOD.numbers[1:])}, "collector_fault"),
    "less than noise": ({"numbers": (-REACH - 1, *GOOD.numbers[1:])}, "collector_fault"),
    "so many that their sum overflows": ({"numbers": (MOST - 1,) * 12}, "collector_fault"),
    "more than 64 bits, which signing cuts": ({"numbers": (-(1 << 100), *GOOD.numbers[1:])}, "collector_fault"),
    "fewer cells": ({"numbers": GOOD.numbers[1:]}, "malformed"),
    "too few reports": ({"accepted": 4}, "collector_fault"),
    "no report": ({"accepted": 0}, "malformed"),
    "before the campaign": ({"period": HEADER.not_before // DAY - 1}, "collector_fault"),
    "after the campaign": ({"period": -(-HEADER.expires // DAY)}, "collector_fault"),
    "a reason that clears a terminal": ({"refused": {"\x1b[2J": 1}}, "malformed"),
    "a reason without end": ({"refused": {"a" * 100: 1}}, "malformed"),
    "reasons without end": ({"refused": {**REASONS, "b": 1}}, "malformed"),
    "another campaign": ({"campaign": bytes(32)}, "unrecognized_campaign"),
}


def signed(**changes):
    return sign_total(GOOD._replace(**changes), COLLECTOR_KEYS[0])


@pytest.mark.parametrize("which", TAKEN)
def test_a_total_that_can_be_is_taken(which):
    assert read_total(signed(**TAKEN[which]), CAMPAIGN) == GOOD._replace(**TAKEN[which])


@pytest.mark.parametrize("which", REFUSED)
def test_a_total_that_can_not_be_is_refused_though_the_leader_signed_it_and_no_store_has_it(tmp_path, which):
    change, reason = REFUSED[which]
    assert reason_of(DocumentError, read_total, signed(**change), CAMPAIGN) == reason
    (tmp_path / "x.hsz").write_bytes(signed(**change))
    store = TotalStore.make(tmp_path / "store", RAW)
    assert reason_of(DocumentError, store.ingest, [tmp_path / "x.hsz"]) == reason
    assert store.periods() == []


def test_the_helper_signs_no_total():
    assert reason_of(DocumentError, read_total, sign_total(GOOD, COLLECTOR_KEYS[1]), CAMPAIGN) == "bad_signature"


def test_each_period_counts_once_whatever_its_files_are_called(tmp_path):
    for day in range(2):
        (tmp_path / f"{day}").write_bytes(signed(period=PERIOD + day))
    store = TotalStore.make(tmp_path / "store", RAW)
    found = store.ingest([tmp_path / "0", tmp_path / "1", tmp_path / "1"])
    assert found == (3, 2, 1, 2)
    for name in (f"0{PERIOD}", f"+{PERIOD}", f" {PERIOD}", "x", f"{PERIOD}.copy", str(1 << 70)):
        shutil.copy(store.path / f"{PERIOD}.hsz", store.path / f"{name}.hsz")
    assert store.periods() == [PERIOD, PERIOD + 1]
    assert store.status().reports == 20
    shutil.copy(store.path / f"{PERIOD}.hsz", store.path / f"{PERIOD + 1}.hsz")
    assert reason_of(StorageError, store.totals) == "store_damaged"


def test_two_totals_of_a_period_are_refused_whichever_came_first(tmp_path):
    (tmp_path / "a").write_bytes(signed())
    (tmp_path / "b").write_bytes(signed(accepted=11))
    store = TotalStore.make(tmp_path / "store", RAW)
    assert reason_of(DocumentError, store.ingest, [tmp_path / "a", tmp_path / "b"]) == "equivocation"
    assert store.periods() == []
    store.ingest([tmp_path / "b"])
    assert reason_of(DocumentError, store.ingest, [tmp_path / "a"]) == "equivocation"
    assert (store.status().reports, NOW // DAY) == (11, PERIOD)
