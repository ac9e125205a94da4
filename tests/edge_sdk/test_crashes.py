"""A device that is killed at any step of any command and restarted never spends twice and never loses a report.

A child process runs the life of a device: provision, enrol, report, drain, install. Every SQL statement that changes
the state and every system call of the batch writer is a step. The child is killed with SIGKILL before step N, for every
N. Then another child runs the whole life again in the same folder.
test_killed.py does the same at every call to the kernel. The cases here are a drain in a file system without hard
links, and several kills in sequence.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from support import children
from support.children import LOOKS, Steps
from support.publisher import NOW, Publisher, installed

import edge_sdk.storage.atomic_files
import edge_sdk.storage.database
from edge_sdk import Device
from protocol.batches import batch

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {"odor": "n", "width": 3.2}
ROOT = Publisher().root()
CAMPAIGN = Publisher().campaign()
MODEL = Publisher().model()


def refused(*_: object) -> None:
    """The error of a file system without hard links."""
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def live(folder: Path, kill_at: int, *, links: bool = True) -> int:
    """One life of a device; returns the number of steps. Runs in a child."""
    step = Steps(kill_at)
    if not links:
        os.link = refused
    plain_connect = edge_sdk.storage.database.State._connect

    def connect(self):
        connection = plain_connect(self)
        connection.set_trace_callback(lambda statement: None if statement.startswith(LOOKS) else step())
        return connection

    edge_sdk.storage.database.State._connect = connect
    steps = (
        (os, "fsync"),
        (os, "link"),
        (os, "unlink"),
        (os, "rename"),
        (edge_sdk.storage.atomic_files, "flush_folder"),
    )
    for module, name in steps:
        plain = getattr(module, name)

        def counted(*arguments, _plain=plain, **options):
            step()
            result = _plain(*arguments, **options)
            step()
            return result

        setattr(module, name, counted)
    device = installed(Device, folder / "state", ROOT, clock=lambda: NOW)
    campaign = device.enrol(CAMPAIGN)
    with (folder / "emitted").open("ab") as seen:
        seen.write(device.report(campaign.id, RECORD, label="e"))
    drafts = sorted(folder.glob("*.hsr"))
    sealed = folder / f"batch{len(drafts)}.hsr"
    (folder / "before_drain").write_text(str(step.count))
    if device.drain(sealed):
        device.ack(sealed)
    device.install(MODEL)
    device.close()
    return step.count


def in_child(folder: Path, kill_at: int, *, links: bool = True) -> int | None:
    """Steps taken, or None if the child was killed."""
    return children.in_child(lambda: live(folder, kill_at, links=links))


def check(folder: Path) -> None:
    """Check the state after any number of crashes and one complete life."""
    with Device.open(folder / "state", clock=lambda: NOW) as device:
        status = device.status()
        report = device.report(device.campaigns()[0].id, {})
        assert device.model().predict(RECORD) == "e"
    assert status.spent_micro == 1_000_000
    assert status.spooled == 0
    emitted = (folder / "emitted").read_bytes()
    assert {emitted[start : start + 18] for start in range(0, len(emitted), 18)} == {report}
    sent = set()
    for path in folder.glob("*.hsr"):
        for found in batch.read_batches(path.read_bytes()):
            assert found.proven
            for position, count in found.spans:
                raw = path.read_bytes()[position : position + 18 * count]
                sent.update(raw[start : start + 18] for start in range(0, len(raw), 18))
    assert sent == {report}


@pytest.mark.slow
def test_killed_before_every_step_from_a_drain_on_without_hard_links(tmp_path):
    """Before the drain no link is made."""
    steps = in_child(tmp_path, kill_at=0, links=False)
    assert steps is not None
    before = int((tmp_path / "before_drain").read_text())
    assert steps - before >= 20
    check(tmp_path)
    for kill_at in range(before + 1, steps + 1):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        assert in_child(folder, kill_at, links=False) is None
        assert in_child(folder, kill_at=0, links=False) is not None
        check(folder)


@pytest.mark.parametrize("kills", [(5, 12, 20, 31), (33, 33, 33), (8, 45, 40)])
def test_killed_several_times_in_a_row(tmp_path, kills):
    for kill_at in kills:
        in_child(tmp_path, kill_at)
    assert in_child(tmp_path, kill_at=0) is not None
    check(tmp_path)
