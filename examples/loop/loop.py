"""The loop of a device: measure, answer every campaign once per period, sync at intervals.

`Loop.step` does the work that is due and returns the time until more work is due. `in_thread.py` and `in_asyncio.py`
call it. The process may be killed at any moment: reports are on disk before `Device.report` returns. The logger
`edge_sdk` tells what the device does; the logger `loop` tells what fails here.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk import Device, HearsayError
from edge_sdk.carriers import open_transport, read_token
from edge_sdk.sync import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_sdk.transport import Transport

LOG = logging.getLogger("loop")
REPORT_SECONDS, SYNC_SECONDS = 15 * 60.0, 3600.0
JITTER = 0.1  # share of a pause; else a fleet that was switched on at one moment would always sync at one moment


class Loop:
    """A device that reports and syncs at intervals.

    Args:
        device: a provisioned device; the application may use it meanwhile, from any thread.
        transport: the way to the source.
        measure: returns the record, with the label if it is known. It may raise any exception.
        campaigns: names of campaigns to enrol in, besides those that the owner's policy names.
        report_seconds: time between two calls of `report`. A call in a period that was answered costs no ε.
        sync_seconds: time between two syncs.
        monotonic: a clock in seconds that does not jump.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport,
        measure: Callable[[], dict[str, Any]],
        *,
        campaigns: Iterable[str] = (),
        report_seconds: float = REPORT_SECONDS,
        sync_seconds: float = SYNC_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device = device
        self._transport = transport
        self._measure = measure
        self._names = tuple(campaigns)
        self._every = {"report": report_seconds, "sync": sync_seconds}
        self._due = dict.fromkeys(self._every, monotonic())
        self._monotonic = monotonic

    def step(self) -> float:
        """Do the work that is due, and return the seconds until more is due. Failures are logged and not raised."""
        if self._is_due("sync"):  # first, so that a new device has its campaigns when it reports
            self._guarded(self._sync)
        if self._is_due("report"):
            self._guarded(self._report)
        return max(0.0, min(self._due.values()) - self._monotonic())

    def _is_due(self, what: str) -> bool:
        now = self._monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + self._every[what] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        return True

    def _guarded(self, work: Callable[[], object]) -> None:
        """Run one piece of work and log its failure.

        The text of a `HearsayError` contains no value of a record. Of other errors only the type is logged.
        """
        try:
            work()
        except HearsayError as error:
            LOG.warning("%s", error)
        except Exception as error:  # noqa: BLE001 - the loop goes on
            LOG.error("failed: %s", type(error).__name__)  # noqa: TRY400 - a traceback could show a record

    def _sync(self) -> None:
        sync(self.device, self._transport, campaigns=self._names)  # refusals are in the log already

    def _report(self) -> None:
        record = self._record()
        for campaign in self.device.campaigns():
            if not campaign.ended:
                with contextlib.suppress(HearsayError):  # in the log already; the next campaign is still answered
                    self.device.report(campaign.id, record)

    def _record(self) -> dict[str, Any]:
        """Measure a record. If that fails, the record is empty: a device must report when something is wrong, too."""
        try:
            return dict(self._measure())
        except Exception as error:  # noqa: BLE001 - the application's own; its text may hold a value
            LOG.warning("measuring failed, so the record is empty: %s", type(error).__name__)
            return {}


def pump() -> dict[str, Any]:
    """A made-up measurement in place of yours: the sound of a pump, and whether it has failed."""
    broken = random.random() < 0.3  # noqa: S311 - a made-up pump
    return {"sound": "rattling" if broken else "calm", "failed": "yes" if broken else "no"}


def from_command_line(description: str) -> Loop:
    """Set up logging and make the loop that the command line describes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--state", required=True, type=Path, help="this device's own folder, provisioned")
    parser.add_argument("--source", required=True, metavar="URL|DIR", help="where documents come from and reports go")
    parser.add_argument("--campaign", action="append", default=[], metavar="NAME", help="enrol in it; may be repeated")
    parser.add_argument("--token", type=Path, metavar="FILE", help="holds what to show the server as bearer of")
    parser.add_argument("--report-seconds", type=float, default=REPORT_SECONDS)
    parser.add_argument("--sync-seconds", type=float, default=SYNC_SECONDS)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        token = None if given.token is None else read_token(given.token.read_bytes())
    except OSError as error:
        parser.error(f"--token: {given.token} can not be read: {error.strerror}")
    return Loop(
        Device.open(given.state),
        open_transport(given.source, token=token),
        pump,
        campaigns=given.campaign,
        report_seconds=given.report_seconds,
        sync_seconds=given.sync_seconds,
    )
