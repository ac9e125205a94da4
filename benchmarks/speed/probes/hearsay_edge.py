"""Probe of the device: open, enrol, report, install, predict; then a thousand durable reports, one per hour.

python hearsay_edge.py FOLDER        with root.hst, campaign.hsc and model.hsm in it
"""

from __future__ import annotations

import sys

import measure

bare = measure.resident()
from edge_sdk import Device, Policy

imported = measure.resident()
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
    used = measure.resident()
    with measure.Thousand() as block:
        for _ in range(measure.COUNT):
            now[0] += HOUR
            device.report(campaign.id, RECORD, label="e")
    waiting = device.drain(f"{folder}/out.hsr") - 1
measure.tell(bare, imported, used, block, waiting)
