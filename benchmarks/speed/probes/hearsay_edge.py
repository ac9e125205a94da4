"""Probe of the device: open, enrol, report, install, predict; then a thousand durable reports, one per hour.

python hearsay_edge.py FOLDER        with root.hst, campaign.hsc and model.hsm in it

Before the import of the device only modules of a bare interpreter are loaded. The figures are printed as JSON without
the module json, whose import would change them.
"""

from __future__ import annotations

import sys
import time

COUNT = 1000
"""Number of reports."""


def resident() -> int:
    """Return resident memory of this process in bytes."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def written() -> tuple[int, int]:
    """Return bytes passed to ``write`` so far, and bytes that the page cache must write to the disk for them."""
    with open("/proc/self/io") as file:  # noqa: PTH123
        fields = dict(line.split(": ") for line in file)
    return int(fields["wchar"]), int(fields["write_bytes"])


bare = resident()
from edge_sdk import Device, Policy

imported = resident()
folder = sys.argv[1]
HOUR = 3600
RECORD = {"odor": "n", "width": 3}


def read(name: str) -> bytes:
    """Read one of the document files in FOLDER."""
    with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
        return file.read()


now = [int(sys.argv[2])]
policy = Policy.of(epsilon_lifetime="100000", epsilon_per_day="100")
with Device.provision(f"{folder}/state", trust=read("root.hst"), clock=lambda: now[0], policy=policy) as device:
    campaign = device.enrol(read("campaign.hsc"))
    device.report(campaign.id, RECORD, label="e")
    device.install(read("model.hsm"))
    device.model().predict(RECORD)
    used = resident()
    before, began = written(), time.perf_counter()
    for _ in range(COUNT):
        now[0] += HOUR
        device.report(campaign.id, RECORD, label="e")
    seconds, after = time.perf_counter() - began, written()
    waiting = device.drain(f"{folder}/out.hsr") - 1
figures = {
    "bare": bare,
    "imported": imported,
    "used": used,
    "seconds": seconds,
    "written": after[0] - before[0],
    "disk": after[1] - before[1],
    "waiting": waiting,
}
print("{" + ", ".join(f'"{name}": {value}' for name, value in figures.items()) + "}")
