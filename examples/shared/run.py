"""Two collectors learn a total that neither could see alone: keys, campaign, devices, request, answer, total, model.

    python examples/shared/run.py [FOLDER]

All data are made up. The folders ``publisher``, ``leader``, ``helper`` and ``devices`` are machines of different
owners; only the files that the functions below copy go from one to another. The period was yesterday.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aggregator
from aggregator.collectors.campaigns import make_shared_campaign
from aggregator.collectors.collector import CollectorFolder
from aggregator.publishing.schemas.schema_file import parse_schema_text
from edge_sdk import Device, Policy

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace

DEVICES = 300
DAY = 86_400
SCHEMA = """
name = "ward"

[label]
name = "ill"
classes = ["no", "yes"]

[[features]]
name = "cough"
kind = "categorical"
values = ["none", "some", "strong"]

[[features]]
name = "temperature"
kind = "numeric"
low = 34
high = 43
edges = [37.5, 38.5]
"""


def made_up_person(draw: random.Random) -> dict[str, object]:
    """Make a record with its label. Who is ill coughs more and is warmer."""
    ill = draw.random() < 0.4
    cough = draw.choices(["none", "some", "strong"], [1, 3, 6] if ill else [7, 2, 1])[0]
    return {"cough": cough, "temperature": draw.gauss(38.4 if ill else 36.8, 0.5), "ill": "yes" if ill else "no"}


def found(folder: Path) -> tuple[CollectorFolder, CollectorFolder]:
    """Each collector makes its key on its own machine."""
    leader = CollectorFolder.create(folder / "leader", "City hospital", "office@hospital.example")
    helper = CollectorFolder.create(folder / "helper", "University", "office@university.example")
    return leader, helper


def ask(folder: Path, work: Workspace, leader: CollectorFolder, helper: CollectorFolder, now: int) -> None:
    """The leader makes the file of the pair from the helper's public file. The publisher signs a campaign at ε = 1."""
    (folder / "ward.pair").write_bytes(leader.pair_with((helper.path / "collector.pub").read_bytes()))
    made = make_shared_campaign(
        work,
        parse_schema_text(SCHEMA),
        pair=folder / "ward.pair",
        epsilon=1,
        min_batch_size=200,
        purpose="see who is ill",
        now=now,
    )
    made.save(folder / "ward.hsc")


def answer(folder: Path, trust: bytes, campaign: bytes, keys: list[str], draw: random.Random, then: int) -> None:
    """Each device, whose owner accepts both collectors, splits its record and seals a share to each of them."""
    policy = Policy.of(collectors=keys)
    for number in range(DEVICES):
        with Device.open(None, trust=trust, policy=policy, clock=lambda: then) as device:  # None: state in memory
            device.report(device.enrol(campaign).id, made_up_person(draw))
            device.drain(folder / f"{number:04d}.hsr")


def collect(folder: Path, leader: CollectorFolder, helper: CollectorFolder, trust: bytes, period: int) -> None:
    """The leader checks its shares and asks the helper; the helper checks its own, and adds noise; the leader, too."""
    campaign = (folder / "publisher" / "ward.hsc").read_bytes()
    reports = sorted((folder / "devices").glob("*.hsr"))
    sent = leader.check(campaign, trust, period, reports, folder / "ask.hsx")
    said = helper.answer(campaign, trust, folder / "ask.hsx", folder / "said.hsx")
    leader.finish(campaign, trust, folder / "said.hsx", folder / "ward.hsz")
    print(f"the leader sent {sent.reports} reports, the helper accepted {said.reports}")


def learn(folder: Path, work: Workspace, total: Path) -> None:
    """The publisher takes the signed total, and signs a model that is fitted to it."""
    aggregator.ingest(folder / "ward.hsc", total, folder / "totals", workspace=work)
    aggregator.make_model(work, folder / "totals").save(folder / "ward.hsm")


def use(model: Path, trust: bytes, draw: random.Random) -> float:
    """A device verifies the model and classifies new people; returns the share that is right."""
    with Device.open(None, trust=trust) as device:
        installed = device.install(model.read_bytes())
        unseen = [made_up_person(draw) for _ in range(1000)]
        return sum(installed.predict(record) == record["ill"] for record in unseen) / len(unseen)


def main(folder: Path) -> None:
    """Run all parts in an empty or new folder."""
    ours, devices = folder / "publisher", folder / "devices"
    for machine in (folder, ours, devices):
        machine.mkdir(exist_ok=True)
    draw = random.Random(7)  # noqa: S311 - it makes up people; the noise is the collectors' own
    yesterday = (int(time.time()) // DAY - 1) * DAY
    work = aggregator.create_workspace(ours / "workspace", name="ward", now=yesterday)
    trust = work.root_bytes
    leader, helper = found(folder)
    with leader, helper:
        ask(ours, work, leader, helper, yesterday)
        keys = [one.public.key.hex() for one in (leader, helper)]
        answer(devices, trust, (ours / "ward.hsc").read_bytes(), keys, draw, yesterday + DAY // 2)
        collect(folder, leader, helper, trust, yesterday // DAY)
    learn(ours, work, folder / "ward.hsz")
    print(f"accuracy on people of no device: {use(ours / 'ward.hsm', trust, draw):.1%}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
