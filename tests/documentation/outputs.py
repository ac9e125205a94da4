"""Runs every command with ``--json`` once, in a small world of its own, and notes the keys that each prints."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from pathlib import Path

import pytest
from support.commands import edge, mushrooms, run
from support.masked import MODULUS
from support.publisher import key

from protocol.documents.envelope import keyid

NAMED_BY_DATA = frozenset((
    "ask", "asked", "card", "closed", "closed_average", "confusion", "counted", "dropped", "epsilon_nodes", "key_books",
    "left", "nodes", "open", "open_average", "payload", "probabilities", "refused", "rejected", "roles", "summaries",
    "totals[]",
))  # fmt: skip
"""Objects whose keys are reasons, names or ids, or those of a document (docs/formats.md): they are not noted."""
NOT_RUN = {
    "hearsay demo", "hearsay serve", "hearsay fleet ids", "hearsay key protect", "hearsay budget adopt",
    "hearsay trust discard", "hearsay masked adopt", "hearsay masked rekey", "hearsay masked request",
    "hearsay masked release", "hearsay masked decrypt", "hearsay collector adopt",
    "hearsay collector export", "hearsay collector check", "hearsay collector answer", "hearsay collector finish",
}  # fmt: skip
"""Commands that this module does not run: they take long, never end, or need what takes long to make."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "output.md"
BEGIN = "<!-- written by tests/documentation/outputs.py -->\n"


def paths(value, under=""):
    """The keys of a JSON value, with dots between the levels, and ``[]`` after a list."""
    if isinstance(value, list):
        return set().union(*(paths(each, under + "[]") for each in value)) if value else set()
    if not isinstance(value, dict):
        return set()
    if under.split(".")[-1] in NAMED_BY_DATA:
        return set()
    found = set()
    for name, each in value.items():
        path = f"{under}.{name}" if under else name
        found |= {path} | paths(each, path)
    return found


class World:
    """A folder in which commands run, and the keys that they have printed."""

    def __init__(self, folder):
        self.folder = folder
        self.found = {}

    def note(self, command, text):
        """Add the keys of one output to those of a command."""
        self.found.setdefault(command, set()).update(paths(json.loads(text)))

    def hearsay(self, command, *more, status=0):
        """Run a command of ``hearsay``: its words, then its arguments."""
        done = run(*command.split(), *more, "--json", status=status)
        self.note(f"hearsay {command}", done.stdout)
        return json.loads(done.stdout)

    def edge(self, command, *more, state="state", text="", status=0):
        """Run a command of ``hearsay-edge`` on a state."""
        done, printed, _ = edge("--state", state, *command.split(), *more, "--json", text=text)
        assert done == status, command
        self.note(f"hearsay-edge {command}", printed)
        return json.loads(printed)


def everything(folder):
    """Run every command, and return command → the keys of its JSON."""
    world = World(folder)
    _records(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aggregator.nodes.dealer.dealer.new_modulus", lambda: MODULUS)
        for name in ("power_analysis.search.FIRST", "feature_selection.forward_selection.MOST_FEATURES"):
            patch.setattr(f"aggregator.planning.{name}", 2)
        patch.setattr("aggregator.planning.power_analysis.search.ROUNDS", 1)
        for part in (_publisher, _devices, _counting, _fleet, _nodes, _masked, _curator, _trust):
            part(world)
    return world.found


def _records(folder):
    draw = random.Random(1)
    rows = ["odor,width,height,class"]
    for _ in range(300):
        bad = draw.random() < 0.5
        rows.append(
            f"{draw.choice('fffn' if bad else 'aann')},{draw.uniform(0, 10):.1f},{draw.uniform(0, 10):.1f},{'ep'[bad]}"
        )
    Path(folder / "pilot.csv").write_text("\n".join(rows) + "\n")
    Path(folder / "s.toml").write_text(mushrooms(bins=2))
    second = '[[features]]\nname = "height"\nkind = "numeric"\nlow = 0\nhigh = 10\nbins = 2\n'
    Path(folder / "wide.toml").write_text(mushrooms(bins=2) + second)


WORK = ("--workspace", "work")


def _publisher(world):
    hearsay = world.hearsay
    hearsay("init", "work", "--no-passphrase")
    hearsay("table", "pilot.csv", "-o", "plain.csv")
    hearsay("schema", "pilot.csv", "--label", "class", "-o", "draft.toml")
    hearsay("campaign", "s.toml", *WORK, "--epsilon", "1", "--mechanism", "direct", "-o", "c.hsc")
    hearsay("show", "c.hsc")
    hearsay("verify", "c.hsc", "--trust", "work/root.hst")
    hearsay("guarantee", "c.hsc", "--devices", "1000")
    hearsay("publish", "--to", "www", *WORK)
    hearsay("rehearse", "c.hsc", "pilot.csv", "--devices", "2000", "--seed", "1", "-o", "r.hsr")
    hearsay("simulate", "pilot.csv", "--label", "class", "--epsilon", "4", "--devices", "500", "--engine", "vector",
            "--repeats", "1", "--seed", "1")  # fmt: skip
    hearsay("plan", "s.toml", "--pilot", "pilot.csv", "--epsilon", "1", "--devices", "5000")
    hearsay("design", "pilot.csv", "--schema", "s.toml", "--epsilon", "1", "--devices", "5000", "-o", "asked.toml")
    hearsay("projection", "pilot.csv", "--schema", "wide.toml", "--method", "pca", "--components", "1", "-o", "p.json")
    hearsay("refine", "s.toml", "--series", "steps", "--devices", "5000", "--epsilon", "1", "-o", "next.toml")
    hearsay("key new", "k.key", "--role", "campaign", "--no-passphrase")
    hearsay("sign", "c.hsc", "--key", "work/keys/campaign.key", "-o", "signed.hsc")


def _devices(world):
    edge = world.edge
    record = '{"odor": "n", "width": 2, "class": "e"}'
    edge("provision", "work/root.hst")
    edge("explain", "c.hsc")
    edge("enrol", "c.hsc")
    edge("report", "--campaign", "mushrooms", text=record)
    edge("report", "--campaign", "mushrooms", "--check", text='{"odor": "x"}', status=1)
    edge("report", "--campaign", "absent", text=record, status=1)
    edge("drain", "d.hsr")
    edge("ack", "d.hsr")
    edge("sync", "www", "--campaign", "mushrooms")
    edge("sync", "www", "--campaign", "absent", status=1)
    edge("status")
    edge("history")
    edge("evidence", "proof")


def _counting(world):
    hearsay, store = world.hearsay, ("--store", "store")
    hearsay("ingest", "c.hsc", "r.hsr", "d.hsr", *store, *WORK)
    hearsay("status", *store)
    hearsay("estimate", *store)
    hearsay("export", *store, "--format", "csv", "-o", "e.csv")
    hearsay("count", "pilot.csv", "--campaign", "c.hsc", *WORK, "--consent", "they agreed", "-o", "pilot.hsu")
    hearsay("publish", *store, *WORK, "-o", "m.hsm")
    hearsay("publish", *store, *WORK, "-o", "m2.hsm")
    hearsay("show", "m.hsm")
    hearsay("predict", "m.hsm", "pilot.csv", "--trust", "work/root.hst")
    hearsay("diff", "m.hsm", "m2.hsm")
    hearsay("export-model", "m.hsm", "--to", "json", "-o", "m.json")
    hearsay("report", "store", "-o", "p.html")
    hearsay("merge", "r.hsr", "d.hsr", "-o", "all.hsr")
    hearsay("evaluate ask", "m.hsm", *WORK, "--epsilon", "1", "-o", "o.hsc")
    hearsay("rehearse", "o.hsc", "pilot.csv", "--model", "m.hsm", "--devices", "500", "-o", "o.hsr")
    hearsay("ingest", "o.hsc", "o.hsr", "--store", "outcome", *WORK)
    hearsay("evaluate show", "--store", "outcome")
    Path("broken.hsr").write_bytes(Path("r.hsr").read_bytes()[:-7])
    hearsay("ingest", "c.hsc", "broken.hsr", *store, *WORK)
    pieces = hearsay("quarantine ls", *store)
    piece = pieces["kept"][0]["piece"]
    hearsay("quarantine show", piece, *store)
    hearsay("quarantine retry", *store)
    hearsay("quarantine rm", piece, *store)
    hearsay("renew", *WORK, "--ahead", "40", "--dry-run")
    edge = world.edge
    edge("install", "m.hsm")
    edge("predict", text='{"odor": "f"}')
    edge("disable")
    edge("enable")


def _fleet(world):
    hearsay, listed = world.hearsay, ("--fleet", "orchard/fleet.hsf")
    Path("names.txt").write_text("gate 7\nbarn\n")
    hearsay("fleet new", "names.txt", "-o", "orchard", "--no-passphrase")
    hearsay("fleet conflicts", "--store", "store", *listed)
    hearsay("fleet revoke", "orchard/fleet.hsf", "barn", "-o", "second.hsf")
    hearsay("fleet replace", "orchard/fleet.hsf", "barn", "-o", "third")
    hearsay("forget", "--store", "outcome", "--before", "2001-01-01")


def _nodes(world):
    hearsay, edge = world.hearsay, world.edge
    edge("provision", "work/root.hst", state="node")
    edge("node key", "n.key.pub", state="node")
    more = [key(number) for number in (51, 52, 53)]
    for number, each in enumerate(more):
        Path(f"{number}.key.pub").write_text(f"hearsay-key-1 node {each.public.hex()}\n")
    hearsay("nodes new", "wards", "n.key.pub", "0.key.pub", *WORK, "-o", "l.hsl")
    hearsay("nodes add", "wards", "1.key.pub", *WORK, "-o", "l2.hsl")
    hearsay("nodes remove", "wards", keyid(more[1].public).hex(), *WORK, "-o", "l3.hsl")
    hearsay("nodes renew", "wards", *WORK, "-o", "l4.hsl")
    hearsay("nodes show", "wards", *WORK)
    terms = ("--list", "wards", "--epsilon", "1", "--max-records", "1000", "--name", "sums")
    hearsay("nodes campaign", "s.toml", *terms, *WORK, "-o", "n.hsc")
    edge("enrol", "n.hsc", state="node")
    edge("node summarise", "--campaign", "sums", "--check", "pilot.csv", state="node")
    edge("node summarise", "--campaign", "sums", "pilot.csv", state="node")
    edge("node exchange", "--campaign", "sums", "--nodes", "l4.hsl", "--set", "mine.hsn", "--totals", state="node")
    edge("drain", "n.hsn", state="node")
    hearsay("ingest", "n.hsc", "n.hsn", "--nodes", "l4.hsl", "--store", "sums", *WORK)
    hearsay("status", "--store", "sums")


def _masked(world):
    hearsay, edge = world.hearsay, world.edge
    hearsay("masked new", "dealer", "--no-passphrase")
    hearsay("masked show", "dealer")
    for name in ("leader", "helper"):
        hearsay("collector new", name, "--name", name, "--contact", "-", "--no-passphrase")
    hearsay("collector pair", "leader", "helper/collector.pub", "-o", "p.pair")
    hearsay(
        "collector campaign", "s.toml", "--name", "split", "--epsilon", "1", "--pair", "p.pair", *WORK, "-o", "z.hsc"
    )
    hearsay("collector show", "leader")
    terms = ("--list", "wards", "--epsilon", "1", "--max-records", "1000", "--name", "masked")
    masked = ("--masked", "dealer/dealer.pub", "--honest-share", "1", "--most-parties", "3", "--unit", "party")
    hearsay("nodes campaign", "s.toml", *terms, *masked, *WORK, "-o", "x.hsc")
    book = ("dealer", "x.hsc", "--nodes", "l4.hsl", "--trust", "work/root.hst")
    hearsay("masked setup", *book, "-o", "b.hsk")
    Path("node/policy.toml").write_text("allow_masked = true\n")
    edge("enrol", "x.hsc", state="node")
    edge("node encrypt", "--campaign", "masked", "--keys", "b.hsk", "--check", "pilot.csv", state="node")
    edge("node encrypt", "--campaign", "masked", "--keys", "b.hsk", "pilot.csv", state="node")


def _curator(world):
    hearsay = world.hearsay
    hearsay("budget new", "w.hsb", "--name", "ward", "--epsilon", "4")
    hearsay("budget assign", "w.hsb", "pilot.csv")
    hearsay("fit", "pilot.csv", "--label", "class", "--schema", "s.toml", "--epsilon", "1", "--budget", "w.hsb", *WORK,
            "--name", "ward", "-o", "fit.hsm")  # fmt: skip
    hearsay("budget show", "w.hsb")


def _trust(world):
    hearsay, edge = world.hearsay, world.edge
    hearsay("trust show", *WORK)
    hearsay("trust renew", *WORK)
    hearsay("trust rotate", "model", *WORK)
    hearsay("trust resign", *WORK)
    hearsay("trust add-key", "campaign", *WORK)
    hearsay("trust threshold", "campaign", "2", *WORK)
    (spare, *_) = hearsay("trust show", *WORK)["roles"]["campaign"]["keys"]
    hearsay("trust threshold", "campaign", "1", *WORK)
    hearsay("trust revoke", "campaign", spare if isinstance(spare, str) else spare["id"], *WORK)
    hearsay("trust gather", "work/root.hst", *WORK)
    edge("rotate", "work/roots/2.hst")
    edge("reset", "work/root.hst", "--count-budget-as-spent")


def shown(found):
    """The list of commands with their keys, as Markdown: keys of one object on one line, the outermost first."""
    lines = []
    for command in sorted(found):
        lines.append(f"**`{command}`**")
        objects = {}
        for path in sorted(found[command]):
            under, _, name = path.rpartition(".")
            objects.setdefault(under, []).append(name)
        for under in sorted(objects):
            names = ", ".join(f"`{name}`" for name in objects[under])
            lines.append(f"- `{under}`: {names}" if under else f"- {names}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        listed = shown(everything(Path(folder)))
    PAGE.write_text(PAGE.read_text("utf-8").split(BEGIN)[0] + BEGIN + "\n" + listed, "utf-8")
