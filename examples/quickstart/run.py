"""The whole loop in one process: analyst, devices, operator, and a device that uses the model.

    python examples/quickstart/run.py [FOLDER]

All data are made up: 800 pumps, each with one record that only its own device sees. In a real fleet the parts run on
different machines, which exchange the files that this script writes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import aggregator
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import parse_schema_text
from aggregator.publishing.workspace import create_workspace, open_workspace
from edge_sdk import Device

DEVICES = 800
SCHEMA = """
name = "pumps"

[label]
name = "failed"
classes = ["no", "yes"]

[[features]]
name = "sound"
kind = "categorical"
values = ["even", "rattling", "silent"]
missing = "code"

[[features]]
name = "temperature"
kind = "numeric"
low = 0
high = 120
edges = [40, 60, 80]
"""


def made_up_pump(draw: random.Random) -> dict[str, object]:
    """Make a record with its label. Pumps that failed rattle more often and run hotter. Some sounds are missing."""
    failed = draw.random() < 0.4
    sound = draw.choices(["even", "rattling", "silent", None], [1, 7, 1, 1] if failed else [7, 1, 1, 1])[0]
    temperature = draw.gauss(85 if failed else 45, 12)
    return {"sound": sound, "temperature": temperature, "failed": "yes" if failed else "no"}


def ask(folder: Path, now: int) -> None:
    """The analyst makes keys, a schema, and a signed campaign at ε = 2 per device."""
    workspace = create_workspace(folder / "workspace", name="pumps", now=now)
    parameters = CampaignParameters(
        "pumps", epsilon_micro=2_000_000, mechanism="direct", purpose="see failures of pumps coming"
    )
    (folder / "pumps.hsc").write_bytes(publish_campaign(workspace, parse_schema_text(SCHEMA).schema, parameters, now))


def answer(folder: Path, draw: random.Random) -> None:
    """Each device verifies the campaign, answers one question with noise, and writes a file for the operator."""
    trust, campaign_bytes = (folder / "workspace" / "root.hst").read_bytes(), (folder / "pumps.hsc").read_bytes()
    (folder / "inbox").mkdir()
    for number in range(DEVICES):
        record = made_up_pump(draw)
        with Device.open(None, trust=trust) as device:  # None: state in memory. A real device names a folder
            campaign = device.enrol(campaign_bytes)
            device.report(campaign.id, record)  # the label is the record's own
            sealed = folder / "inbox" / f"{number:04d}.hsr"
            device.drain(sealed)
            device.ack(sealed)  # the file has arrived; until then the device keeps its reports


def learn(folder: Path, now: int) -> None:
    """The operator counts the reports, prints the estimates, and signs a model that is fitted to them."""
    campaign_bytes = (folder / "pumps.hsc").read_bytes()
    store = create_store(folder / "store", campaign_bytes)
    summary = store.ingest(sorted((folder / "inbox").iterdir()), now=now)
    print(f"{summary.accepted} reports read from {summary.files} files")
    print(aggregator.open_store(folder / "store").estimates().round(1).to_string(index=False))
    signed = publish_model(open_workspace(folder / "workspace"), store.statistics(), campaign_bytes, now)
    (folder / "pumps.hsm").write_bytes(signed)


def use(folder: Path, draw: random.Random) -> float:
    """A device verifies the model and classifies new pumps; returns the share of correct predictions."""
    with Device.open(None, trust=(folder / "workspace" / "root.hst").read_bytes()) as device:
        model = device.install((folder / "pumps.hsm").read_bytes())
        print(model.predict_proba({"sound": "rattling", "temperature": 91}))
        unseen = [made_up_pump(draw) for _ in range(500)]
        return sum(model.predict(record) == record["failed"] for record in unseen) / len(unseen)


def main(folder: Path) -> None:
    """Run all four parts in an empty or new folder."""
    folder.mkdir(exist_ok=True)
    draw, now = random.Random(7), int(time.time())  # noqa: S311 - it makes up pumps; the noise is the device's own
    ask(folder, now)
    answer(folder, draw)
    learn(folder, now)
    print(f"accuracy on pumps never seen: {use(folder, draw):.1%}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
