"""Three clinics and an aggregator that sees no record: keys, list, campaign, summaries, sums, model.

    python examples/nodes/run.py [FOLDER]

All data are made up: each clinic has a CSV file of its own patients. In a real federation the parts run on different
machines, which exchange only the files in ``www``.
"""

from __future__ import annotations

import csv
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aggregator
from aggregator.publishing.schemas.schema_file import parse_schema_text
from edge_sdk import Node
from edge_sdk.carriers import open_transport
from edge_sdk.node.records import csv_records
from edge_sdk.sync import sync

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace

CLINICS = {"north": 4000, "south": 2500, "east": 6000}
SCHEMA = """
name = "wards"

[label]
name = "outcome"
classes = ["home", "intensive"]

[[features]]
name = "breathing"
kind = "categorical"
values = ["calm", "fast", "laboured"]
missing = "code"

[[features]]
name = "age"
kind = "numeric"
low = 0
high = 110
bins = 11

[[features]]
name = "lactate"
kind = "numeric"
low = 0
high = 20
bins = 10
"""


def made_up_patient(draw: random.Random) -> dict[str, object]:
    """Make a record with its label. Patients who need intensive care breathe worse and have more lactate."""
    ill = draw.random() < 0.25
    breathing = draw.choices(["calm", "fast", "laboured", ""], [20, 40, 40, 3] if ill else [70, 20, 10, 3])[0]
    age = min(110, max(0, round(draw.gauss(68 if ill else 52, 15))))
    lactate = min(20, max(0, round(draw.gauss(4.5 if ill else 1.6, 1.5), 1)))
    return {"breathing": breathing, "age": age, "lactate": lactate, "outcome": "intensive" if ill else "home"}


def admit(folder: Path, draw: random.Random) -> None:
    """Each clinic has a file of its own patients. Nobody else ever reads it."""
    for clinic, patients in CLINICS.items():
        with (folder / f"{clinic}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["breathing", "age", "lactate", "outcome"])
            writer.writeheader()
            writer.writerows(made_up_patient(draw) for _ in range(patients))


def install(folder: Path, trust: bytes) -> None:
    """Each clinic sets up its node, which trusts the publisher's root, and hands over the node's public key."""
    for clinic in CLINICS:
        with Node.provision(folder / f"{clinic}.state", trust=trust) as node:
            (folder / f"{clinic}.key.pub").write_bytes(node.public_key_line)


def ask(folder: Path, work: Workspace) -> None:
    """The publisher lists the nodes, asks them for sums at ε = 1, and publishes list and campaign."""
    aggregator.make_node_list(work, "clinics", sorted(folder.glob("*.key.pub"))).save(folder / "clinics.hsl")
    schema = parse_schema_text(SCHEMA)
    made = aggregator.make_node_campaign(
        work, schema, epsilon=1, nodes="clinics", max_records=10_000, min_batch_size=3, purpose="see who needs care"
    )
    made.save(folder / "wards.hsc")
    aggregator.publish_tree(work, folder / "www")


def summarise(folder: Path) -> None:
    """Each node fetches the campaign, sums its records with noise, and sends the signed summary: 400 bytes."""
    for clinic in CLINICS:
        with Node.open(folder / f"{clinic}.state") as node:
            carrier = open_transport(str(folder / "www"))
            sync(node, carrier, campaigns=["wards"])
            made = node.summarise("wards", csv_records(folder / f"{clinic}.csv"))
            sync(node, carrier)
        print(f"{clinic}: {len(made.raw)} bytes, which cost each patient ε = {made.cost_micro / 1e6:g}")


def learn(folder: Path, work: Workspace) -> None:
    """The aggregator checks the summaries, adds them, and signs a model that is fitted to the sums."""
    aggregator.ingest(
        folder / "wards.hsc", folder / "www" / "reports", folder / "sums", nodes=folder / "clinics.hsl", workspace=work
    )
    signed = aggregator.make_model(work, folder / "sums")
    signed.save(folder / "wards.hsm")
    print(f"records, as the noisy counts say: {signed.document.card['reports']}; in truth {sum(CLINICS.values())}")


def use(folder: Path, trust: bytes, draw: random.Random) -> float:
    """A node, or any device, verifies the model and classifies new patients; returns the share that is right."""
    with Node.open(None, trust=trust) as node:
        model = node.install((folder / "wards.hsm").read_bytes())
        unseen = [made_up_patient(draw) for _ in range(1000)]
        return sum(model.predict(record) == record["outcome"] for record in unseen) / len(unseen)


def main(folder: Path) -> None:
    """Run all parts in an empty or new folder."""
    folder.mkdir(exist_ok=True)
    draw = random.Random(7)  # noqa: S311 - it makes up patients; the noise is the nodes' own
    work = aggregator.create_workspace(folder / "workspace", name="wards", now=int(time.time()))
    admit(folder, draw)
    install(folder, work.root_bytes)
    ask(folder, work)
    summarise(folder)
    learn(folder, work)
    print(f"accuracy on patients of no clinic: {use(folder, work.root_bytes, draw):.1%}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
