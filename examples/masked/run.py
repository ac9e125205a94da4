"""Five clinics whose sums nobody can read but as one total: dealer, key book, messages, request, release, model.

    python examples/masked/run.py [FOLDER]

All data are made up. The three folders ``aggregator``, ``dealer`` and ``clinics`` are three machines; only the files
that the functions below copy go from one to another. One clinic is missing when the total is decrypted.
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
from aggregator import Dealer, Masking
from aggregator.nodes.store.opening import open_masked_store
from aggregator.publishing.schemas.schema_file import parse_schema_text
from edge_sdk import Node
from edge_sdk.node.records import csv_records

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace

CLINICS = ("north", "south", "east", "west", "centre")
MISSING = "centre"
PATIENTS = 300
SCHEMA = """
name = "wards"

[label]
name = "outcome"
classes = ["home", "intensive"]

[[features]]
name = "breathing"
kind = "categorical"
values = ["calm", "fast", "laboured"]

[[features]]
name = "kidneys"
kind = "categorical"
values = ["good", "weak"]
"""


def made_up_patient(draw: random.Random) -> dict[str, object]:
    """Make a record with its label. Patients who need intensive care breathe worse and have weaker kidneys."""
    ill = draw.random() < 0.4
    breathing = draw.choices(["calm", "fast", "laboured"], [10, 30, 60] if ill else [70, 20, 10])[0]
    kidneys = draw.choices(["good", "weak"], [30, 70] if ill else [85, 15])[0]
    return {"breathing": breathing, "kidneys": kidneys, "outcome": "intensive" if ill else "home"}


def admit(folder: Path, draw: random.Random) -> None:
    """Each clinic has a file of its own patients. Nobody else ever reads it."""
    for clinic in CLINICS:
        with (folder / f"{clinic}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["breathing", "kidneys", "outcome"])
            writer.writeheader()
            writer.writerows(made_up_patient(draw) for _ in range(PATIENTS))


def install(folder: Path, trust: bytes) -> None:
    """Each clinic sets up its node, allows masked campaigns, and hands over the node's public key."""
    for clinic in CLINICS:
        with Node.provision(folder / f"{clinic}.state", trust=trust) as node:
            (folder / f"{clinic}.key.pub").write_bytes(node.public_key_line)
        with (folder / f"{clinic}.state" / "policy.toml").open("a") as file:
            file.write("allow_masked = true\n")


def ask(folder: Path, work: Workspace, clinics: Path, dealer: Dealer) -> None:
    """The publisher lists the nodes, and asks for masked sums at ε = 1 with this dealer's keys.

    The noise suffices if three of five clinics add theirs; with one more, which may collude, a sum needs four.
    """
    aggregator.make_node_list(work, "clinics", sorted(clinics.glob("*.key.pub"))).save(folder / "clinics.hsl")
    made = aggregator.make_node_campaign(
        work,
        parse_schema_text(SCHEMA),
        epsilon=1,
        nodes="clinics",
        max_records=1000,
        purpose="see who needs care",
        masking=Masking(dealer.path / "dealer.pub", honest_share="0.6", colluding_share="0.2", most_parties=20),
    )
    made.save(folder / "wards.hsc")


def deal(dealer: Dealer, folder: Path, trust: bytes) -> bytes:
    """The dealer makes one key for each clinic. The book can be handed to anybody: the keys in it are sealed."""
    return dealer.setup(folder / "wards.hsc", folder / "clinics.hsl", trust).raw


def encrypt(clinics: Path, campaign: bytes, book: bytes) -> list[bytes]:
    """Each clinic but one encrypts its noisy sums, and seals the signed message in a file to send."""
    messages = []
    for clinic in CLINICS:
        if clinic == MISSING:
            continue
        with Node.open(clinics / f"{clinic}.state") as node:
            found = node.enrol(campaign)
            node.accept_keys(book)
            made = node.encrypt(found.id, csv_records(clinics / f"{clinic}.csv"))
            node.drain(clinics / f"{clinic}.hse")
        messages.append((clinics / f"{clinic}.hse").read_bytes())
        print(f"{clinic}: {len(made.raw)} bytes, which cost each patient ε = {made.cost_micro / 1e6:g}")
    return messages


def collect(folder: Path, work: Workspace, messages: list[bytes], book: bytes) -> bytes:
    """The aggregator checks the messages, which it can not read, and asks the dealer for the total of those there."""
    inbox = folder / "inbox"
    inbox.mkdir()
    for number, message in enumerate(messages):
        (inbox / f"{number}.hse").write_bytes(message)
    aggregator.ingest(
        folder / "wards.hsc", inbox, folder / "sums", nodes=folder / "clinics.hsl", keys=book, workspace=work
    )
    store = open_masked_store(folder / "sums")
    (period,) = store.waiting()
    return store.request(period)


def release(dealer: Dealer, request: bytes) -> bytes:
    """The dealer releases this total and, for ever, no other one of the period. It never sees a message."""
    released = dealer.release(request, at_least=4)
    print(f"dealer: a total of {len(released.request.parties)} clinics; {len(released.missing)} is missing")
    return released.raw


def learn(folder: Path, work: Workspace, released: bytes) -> None:
    """The aggregator decrypts the total, and signs a model that is fitted to it."""
    total = open_masked_store(folder / "sums").decrypt(released)
    signed = aggregator.make_model(work, folder / "sums")
    signed.save(folder / "wards.hsm")
    counted = signed.document.card["reports"]
    print(f"records, as the decrypted total says: {counted}; in truth {PATIENTS * len(total.parties)}")


def use(model: Path, trust: bytes, draw: random.Random) -> float:
    """A clinic, or any device, verifies the model and classifies new patients; returns the share that is right."""
    with Node.open(None, trust=trust) as node:
        installed = node.install(model.read_bytes())
        unseen = [made_up_patient(draw) for _ in range(1000)]
        return sum(installed.predict(record) == record["outcome"] for record in unseen) / len(unseen)


def main(folder: Path) -> None:
    """Run all parts in an empty or new folder."""
    ours, clinics = folder / "aggregator", folder / "clinics"
    for machine in (folder, ours, clinics):
        machine.mkdir(exist_ok=True)
    draw = random.Random(7)  # noqa: S311 - it makes up patients; the noise is the nodes' own
    work = aggregator.create_workspace(ours / "workspace", name="wards", now=int(time.time()))
    trust = work.root_bytes
    admit(clinics, draw)
    install(clinics, trust)
    with Dealer.create(folder / "dealer") as dealer:
        ask(ours, work, clinics, dealer)
        book = deal(dealer, ours, trust)
        messages = encrypt(clinics, (ours / "wards.hsc").read_bytes(), book)
        request = collect(ours, work, messages, book)
        learn(ours, work, release(dealer, request))
    print(f"accuracy on patients of no clinic: {use(ours / 'wards.hsm', trust, draw):.1%}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
