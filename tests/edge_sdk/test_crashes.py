"""A device that is killed several times in a row spends once, loses no report and installs no document in part.

test_killed.py kills every act once, at every call to the kernel. Here a step is a statement of the database, a flush or
a change of the file system, and the next process begins the whole life anew.
"""

from __future__ import annotations

import os

import pytest
from support.killed import left_before_death
from support.publisher import NOW, Publisher, installed
from support.reports import records_in

import edge_sdk.storage.database
from edge_sdk import Device
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder

RECORD = {"odor": "n", "width": 3.2}
PUBLISHER = Publisher()
ROOT = PUBLISHER.root()
TREE = {
    "roots/2.hst": PUBLISHER.root(2),
    "roots/3.hst": PUBLISHER.root(3),
    "campaigns/mushrooms.hsc": PUBLISHER.campaign(),
    "models/mushrooms.hsm": PUBLISHER.model(),
}
STEPS = ((edge_sdk.storage.database, "execute"), (os, "fsync"))


def live(folder, tell):
    """Provision, synchronise, report, seal a file for a person, and send by synchronising."""
    source = Folder(folder / "tree")
    with installed(Device, folder / "state", trust=ROOT, clock=lambda: NOW) as device:
        assert sync(device, source, campaigns=["mushrooms"]).refusals == ()
        tell(device.report("mushrooms", RECORD, label="e"))
        device.drain(folder / f"{len(list(folder.glob('*.hsr')))}.hsr")
        assert sync(device, source).refusals == ()


def reports_in(folder):
    """The reports in sealed files, which must be whole."""
    return {raw for path in folder.glob("*.hsr") for _, raw in records_in(path.read_bytes())}


@pytest.mark.parametrize("kills", [(150, 400, 570, 800), (640, 560, 520, 500)])
def test_killed_several_times_in_a_row(tmp_path, kills):
    for place, content in TREE.items():
        (tmp_path / "tree" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / place).write_bytes(content)
    emitted = set()
    for number in (*kills, 0):
        told, died = left_before_death(lambda tell: live(tmp_path, tell), number, STEPS)
        assert died == (number > 0)
        emitted |= set(told)
        if emitted:
            with Device.open(tmp_path / "state", clock=lambda: NOW) as device:
                assert device.report("mushrooms", {}) in emitted
                assert device.status().spooled or reports_in(tmp_path / "tree" / "reports") == emitted
    with Device.open(tmp_path / "state", clock=lambda: NOW) as device:
        status = device.status()
        assert device.model().predict(RECORD) == "e"
    assert (status.spent_micro, status.spooled, status.root_version) == (1_000_000, 0, 3)
    assert len(emitted) == 1
    assert reports_in(tmp_path) == reports_in(tmp_path / "tree" / "reports") == emitted
    assert list((tmp_path / "state" / "outbox").glob("*.hsr")) == []
