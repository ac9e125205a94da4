"""The steps of a device of a shared campaign in fault tests. What must hold is what must hold for every device.

So a period never has two different pairs of shares, and the δ of each report is counted with its ε.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edge_sdk import Device
from edge_sdk.answering.answer import AboutRecord
from edge_sdk.storage import ledger
from support.faults.harness import Mistake, Scenario
from support.faults.lives import READY, RECORD, Life, Said, documents
from support.shared import ALLOWED, gaussian, shared_campaign, shared_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DELTA_PICO = 1_000_000
RECORD_BYTES = shared_campaign().layout.record_length
PREFIX = 4
"""Bytes before the id in a long report."""


class Shares(Said):
    """One report that others have seen."""

    @property
    def id(self) -> bytes:
        return self.raw[PREFIX : PREFIX + 8]


@cache
def _documents() -> dict[str, bytes]:
    shared = gaussian(delta_pico=DELTA_PICO)
    return {
        **documents(),
        **{f"campaign {version}": shared_file(version=version, shared=shared) for version in (1, 2)},
    }


class SharedLife(Life):
    """A device whose reports are two shares."""

    delta_pico = DELTA_PICO

    def __init__(self, root: Path, policy: Mapping[str, object]) -> None:
        super().__init__(
            root, {"collectors": ALLOWED, "delta_per_period": "0.000001", "delta_lifetime": "0.001", **policy}
        )

    @property
    def documents(self) -> dict[str, bytes]:
        return _documents()

    @staticmethod
    def said(campaign: bytes, raw: bytes) -> Iterator[Said]:
        for start in range(0, len(raw), RECORD_BYTES):
            record = raw[start : start + RECORD_BYTES]
            yield Shares(campaign, int.from_bytes(record[PREFIX + 8 : PREFIX + 12]), record)


LIFE = SharedLife
SCENARIOS = {
    "shared report": Scenario(READY, ("open", "report")),
    "shared first report": Scenario(("open", "enrol"), ("open", "report")),
    "shared enrol": Scenario(("open",), ("open", "enrol")),
    "shared enrol a successor": Scenario(READY, ("open", "enrol_next")),
    "shared report into a full spool": Scenario(
        ("open", "enrol", "report", "later", "report", "later"), ("open", "report"), {"spool_reports": 2}
    ),
    "shared drain": Scenario((*READY, "report", "drain", "send", "ack", "later", "report"), ("open", "drain")),
    "shared reset": Scenario((*READY, "report", "drain", "send", "lose"), ("reset",)),
    "shared sync": Scenario((*READY, "publish", "sync", "later", "report"), ("open", "sync")),
}


def _splits_anew() -> None:
    """A repeated call splits the period's record with other random bytes."""

    def report(self: Device, campaign_id: bytes, record: Mapping[str, object], label: object) -> bytes:
        found = self.answer(campaign_id, record, label)
        if not found.repeated:
            return found.reports
        reporting = self._reporting
        making = AboutRecord(
            RECORD, "e", models=reporting.models, meanings=None, entropy=self._entropy, state=self._state
        )
        return b"".join(making.make(reporting.campaign(campaign_id), reporting.secret(), found.period))

    Device.report = report


def _delta_apart() -> None:
    """The δ of a report is counted in a transaction of its own, after the report."""
    plain, plain_add = Device.report, ledger.Deltas.add

    def report(self: Device, *given: object, **named: object) -> bytes:
        counted = []
        ledger.Deltas.add = lambda _, *line: counted.append(line)
        found = plain(self, *given, **named)
        with self._state.transaction():
            for line in counted:
                plain_add(self._reporting.ledger.deltas, *line)
        return found

    Device.report = report


MUTATIONS = {
    "shared record is split anew": Mistake("shared report", "restart", _splits_anew),
    "shared delta apart": Mistake("shared report", "kill", _delta_apart),
}
