"""Devices with one deliberate mistake each. The fault harness must find every mistake."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import edge_sdk.answering.reporting
import edge_sdk.answering.sealing
import edge_sdk.opening
import edge_sdk.storage.atomic_files
import edge_sdk.storage.database
import edge_sdk.storage.ledger
import edge_sdk.transport.folder
from edge_sdk import Device
from support.faults.harness import Mistake, with_less_synchronisation, without_journal, without_synchronisation


def _two_transactions() -> None:
    """The spending is committed before the report is kept."""
    plain = edge_sdk.storage.ledger.Ledger.spend

    def spend(self, campaign, period, answered_at, reports, micro):
        run = self._state.run
        found = plain(self, campaign, period, answered_at, reports, micro)
        run("COMMIT")
        run("BEGIN IMMEDIATE")
        return found

    edge_sdk.storage.ledger.Ledger.spend = spend


def _series_apart() -> None:
    """The name of an answered series is kept after the answer, in a transaction of its own."""
    plain, plain_answer = edge_sdk.storage.ledger.Ledger.spend, edge_sdk.answering.reporting.Reporting.answer

    def spend(self, campaign, period, answered_at, reports, micro):
        return plain(self, campaign._replace(series=None), period, answered_at, reports, micro)

    def answer(self, campaign_id, making):
        found = plain_answer(self, campaign_id, making)
        series = self.campaign(campaign_id).series
        if series is not None and not found.repeated:
            with self._state.transaction():
                self.ledger._series.add((series.name, 1))
                self.ledger._current_tally().series[series.name] = 1
        return found

    edge_sdk.storage.ledger.Ledger.spend = spend
    edge_sdk.answering.reporting.Reporting.answer = answer


def _no_flush_of_folders() -> None:
    for module in (edge_sdk.storage.atomic_files, edge_sdk.opening, edge_sdk.transport.folder):
        module.flush_folder = lambda _: None


def _no_flush_of_files() -> None:
    plain = os.fsync

    def fsync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            plain(descriptor)

    os.fsync = fsync


def _in_place() -> None:
    """Batch files are written under their final names."""

    def write_new(path, write):
        with Path(path).open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        edge_sdk.storage.atomic_files.flush_folder(Path(path).parent)

    edge_sdk.answering.sealing.write_new = write_new


def _drain_forgets() -> None:
    """Sealing empties the spool, as it once did."""
    plain = Device.drain

    def drain(self, path):
        sealed = plain(self, path)
        with contextlib.suppress(Exception):
            self.ack(path)
        return sealed

    Device.drain = drain


def _unsettled() -> None:
    """Data that another process committed but did not flush are used without a flush."""
    edge_sdk.storage.database.State._flush_journal = lambda self, connection: None


MUTATIONS = {
    "no synchronisation": Mistake("report", "kill", without_synchronisation),
    "less synchronisation": Mistake("report", "kill", with_less_synchronisation),
    "no journal": Mistake("report", "kill", without_journal),
    "two transactions": Mistake("report", "kill", _two_transactions),
    "series apart": Mistake("report in a series", "kill", _series_apart),
    "no flush of folders": Mistake("sync again", "kill", _no_flush_of_folders),
    "no flush of files": Mistake("drain", "kill", _no_flush_of_files),
    "batches in place": Mistake("drain", "tear", _in_place),
    "drain forgets": Mistake("drain", "kill", _drain_forgets),
    "unsettled": Mistake("report", "restart", _unsettled),
}
