"""A sync that is killed at any step and run again loses no report and stores no partial document.

A child process runs one life: provision, sync, report, sync. It is killed with SIGKILL before step N, for every N. Then
another child runs the whole life in the same folder. A step is an SQL statement that changes the state, a system call
that changes the disk, a request to the source, or a sending to it.
"""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from support import children
from support.children import LOOKS, Steps
from support.publisher import NOW, Publisher, installed

import edge_sdk.storage.atomic_files
import edge_sdk.storage.database
from edge_sdk import Device
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from protocol.batches import batch

RECORD = {"odor": "n", "width": 3.2}
PUBLISHER = Publisher()
ROOT = PUBLISHER.root()
TREE = {
    "roots/2.hst": PUBLISHER.root(2),
    "roots/3.hst": PUBLISHER.root(3),
    "campaigns/mushrooms.hsc": PUBLISHER.campaign(),
    "models/mushrooms.hsm": PUBLISHER.model(),
}


def live(folder, kill_at):
    """One life of a device; returns the number of steps. Runs in a child."""
    step = Steps(kill_at)
    plain_connect = edge_sdk.storage.database.State._connect

    def connect(self):
        connection = plain_connect(self)
        connection.set_trace_callback(lambda statement: None if statement.startswith(LOOKS) else step())
        return connection

    edge_sdk.storage.database.State._connect = connect
    for name in ("fsync", "link", "unlink", "rename", "replace", "mkdir"):
        step.around(os, name)
    step.around(edge_sdk.storage.atomic_files, "flush_folder")
    source = Folder(folder / "tree")
    step.around(source, "fetch")
    step.around(source, "send")
    with installed(Device, folder / "state", trust=ROOT, clock=lambda: NOW) as device:
        assert sync(device, source, campaigns=["mushrooms"]).refusals == ()
        with (folder / "emitted").open("ab") as seen:
            seen.write(device.report(device.campaigns()[0].id, RECORD, label="e"))
        assert sync(device, source).refusals == ()
    return step.count


def in_child(folder, kill_at):
    """Steps taken, or None if the child was killed."""
    return children.in_child(lambda: live(folder, kill_at))


def make_tree(folder):
    for place, content in TREE.items():
        path = folder / "tree" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def arrived(folder):
    """The distinct reports at the source. Every batch is complete, and its digest is verified."""
    found = set()
    for path in (folder / "tree" / "reports").glob("*.hsr"):
        raw = path.read_bytes()
        for part in batch.read_batches(raw):
            assert part.proven
            for position, count in part.spans:
                found |= {raw[start : start + 18] for start in range(position, position + 18 * count, 18)}
    return found


def check(folder):
    """Check the state after any number of crashes and one complete life."""
    with Device.open(folder / "state", clock=lambda: NOW) as device:
        status = device.status()
        report = device.report(device.campaigns()[0].id, {})
        assert device.model().predict(RECORD) == "e"
    assert status.spent_micro == 1_000_000
    assert (status.spooled, status.root_version) == (0, 3)
    emitted = (folder / "emitted").read_bytes()
    assert {emitted[start : start + 18] for start in range(0, len(emitted), 18)} == {report}
    assert arrived(folder) == {report}
    assert list((folder / "state" / "outbox").glob("*.hsr")) == []


def check_killed(folder):
    """Check after a crash that every report is on the device or has arrived."""
    if not (folder / "emitted").exists():
        return
    with Device.open(folder / "state", clock=lambda: NOW) as device:
        report = device.report(device.campaigns()[0].id, {})
        if device.status().spooled == 0:
            assert arrived(folder) == {report}


def check_same_name(folder):
    """Check after the first crash that an arrived file without acknowledgement still waits under its name."""
    if not (folder / "emitted").exists():
        return
    with Device.open(folder / "state", clock=lambda: NOW) as device:
        if device.status().spooled:
            waiting = {path.name for path in (folder / "state" / "outbox").glob("*.hsr")}
            assert {path.name for path in (folder / "tree" / "reports").glob("*.hsr")} <= waiting


@pytest.mark.slow
def test_killed_before_every_step(tmp_path):
    whole = make_tree(tmp_path / "whole")
    steps = in_child(whole, kill_at=0)
    assert steps is not None
    assert steps > 60
    check(whole)
    for kill_at in range(1, steps + 1):
        folder = make_tree(tmp_path / str(kill_at))
        assert in_child(folder, kill_at) is None
        check_killed(folder)
        check_same_name(folder)
        assert in_child(folder, kill_at=0) is not None
        check(folder)


@pytest.mark.parametrize("kills", [(15, 30, 50, 70), (60,) * 4, (75, 70, 65, 60)])
def test_killed_several_times_in_a_row(tmp_path, kills):
    folder = make_tree(tmp_path)
    for kill_at in kills:
        in_child(folder, kill_at)
        with suppress(FileNotFoundError):
            check_killed(folder)
    assert in_child(folder, kill_at=0) is not None
    check(folder)
