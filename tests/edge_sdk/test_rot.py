"""One changed bit anywhere in the state: every call returns the earlier result, or is refused.

The places of the bits are drawn by SHA-256 of ``rot N`` for N = 0, 1, …: 600 places in ``make test-all``, a quarter of
them in ``make test``, HEARSAY_FAULT_SEEDS thousands in ``make faults``. No result depends on chance.
"""

from __future__ import annotations

import os
import shutil
from hashlib import sha256

import pytest
from support.examples import examples
from support.failures import failing
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, HearsayError, Policy
from edge_sdk.storage.spool import Limits

RECORD = {"odor": "n", "width": 3.2}
OTHER = {"odor": "f", "width": 1.0}
FLIPS = 1000 * int(os.environ.get("HEARSAY_FAULT_SEEDS") or 0) or examples(600).max_examples
POLICY = Policy(day_micro=4_000_000, window_micro=30_000_000, spool=Limits(5, 1_000_000, 365 * DAY))
LAST = NOW + 6 * DAY


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A state with rows in every table: answers of three campaigns, sealed files, drops, an ended document."""
    folder = tmp_path_factory.mktemp("lived") / "state"
    publisher = Publisher()
    clock = [NOW]
    with Device.provision(folder, trust=publisher.root(), policy=POLICY, clock=lambda: clock[0]) as device:
        for name in ("mushrooms", "ferns"):
            device.enrol(publisher.campaign(name=name))
        for day in range(7):
            clock[0] = NOW + day * DAY
            if day == 3:
                device.enrol(publisher.campaign(name="mushrooms", version=2))
            for campaign in device.campaigns():
                device.report(campaign.id, RECORD, label="e")
            if day in (1, 5):
                device.drain(folder.parent / f"sealed-{day}.hsr")
        device.ack(folder.parent / "sealed-1.hsr")
        device.install(publisher.model())
    (folder / "state.db-journal").unlink(missing_ok=True)
    return folder


def told(folder, out):
    """The results of all calls within the period of the last answers, with other records and other noise."""
    found = {}
    device = failing(Device.open, folder, policy=POLICY, clock=lambda: LAST, entropy=lambda count: b"\x55" * count)
    if not isinstance(device, Device):
        return {}
    with device:
        campaigns = failing(device.campaigns)
        if not isinstance(campaigns, HearsayError):
            for campaign in campaigns:
                name = campaign.header.name
                found[f"campaign {name}"] = campaign.id
                found[f"report {name}"] = failing(device.report, campaign.id, OTHER, label="p")
        found["history"] = failing(device.history)
        status = failing(device.status)
        found["status"] = status if isinstance(status, HearsayError) else status.to_json()
        found["evidence"] = failing(device.evidence)
        model = failing(device.model)
        found["model"] = model if isinstance(model, HearsayError) else (model.name, model.version)
        found["rollback"] = failing(device.enrol, Publisher().campaign(name="mushrooms"))
        found["drain"] = failing(device.drain, out)
        failing(device.explain, Publisher().campaign(name="other"))
        failing(device.install, Publisher().model(version=2))
        found["batch"] = out.read_bytes() if out.exists() else None
        found["ack"] = failing(device.ack, folder.parent / "sealed-5.hsr")
        if isinstance(found["ack"], int):  # else nothing was released, and the rest tells nothing
            found["left"] = failing(lambda: device.status().spooled)
    return {key: value for key, value in found.items() if not isinstance(value, HearsayError) and value is not None}


def test_no_rotten_bit_makes_a_second_noise_or_alters_what_is_told(lived, tmp_path):
    whole = (lived / "state.db").read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]  # most of a page is empty
    room = tmp_path / "room"
    shutil.copytree(lived.parent, room)
    folder, out = room / "state", room / "out.hsr"
    before = told(folder, out)
    assert len(before) == 12, sorted(before)
    refused = 0
    wrong = []
    for number in range(FLIPS):
        draw = int.from_bytes(sha256(b"rot %d" % number).digest()[:8], "big")
        bit = 8 * used[draw // 8 % len(used)] + draw % 8
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / "state.db").write_bytes(damaged)
        (folder / "highest").unlink(missing_ok=True)
        out.unlink(missing_ok=True)
        after = told(folder, out)
        refused += len(after) < len(before)
        wrong += [(bit, key) for key, value in after.items() if before.get(key) != value]
    assert wrong == []
    assert refused > FLIPS // 4
