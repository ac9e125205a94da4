"""Several processes summarise from one state folder: one noise per period, paid once, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.publisher import DAY, NOW, Publisher

from edge_sdk import Node
from protocol.nodes.summary import SummarySet

PROGRAM = """
import json, sys
from edge_sdk import Node
state, periods = sys.argv[1], int(sys.argv[2])
raws = []
now = [NOW]
with Node.open(state, clock=lambda: now[0]) as node:
    for _ in range(periods):
        # A process that reads records is overtaken by the others.
        raws.append(node.summarise("clinics", ({"odor": "n", "label": "e"} for _ in range(200))).raw.hex())
        now[0] += DAY
print(json.dumps(raws))
"""


def test_racing_processes_release_one_noise_per_period(tmp_path):
    publisher = Publisher()
    with Node.provision(tmp_path / "state", publisher.root(), clock=lambda: NOW) as node:
        node.enrol(publisher.node_campaign())
    code = PROGRAM.replace("NOW", str(NOW)).replace("DAY", str(DAY))
    command = [sys.executable, "-c", code, str(tmp_path / "state"), "4"]
    root = Path(__file__).parents[3]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(3)]
    found = [json.loads(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    # A process whose clock is behind gets the newest period's summary, as after a clock was set back.
    returned = {bytes.fromhex(each) for raws in found for each in raws}
    assert len(returned) <= 4
    with Node.open(tmp_path / "state", clock=lambda: NOW + 4 * DAY) as node:
        assert [line.epsilon_micro for line in node.history()] == [2_000_000] * 4
        assert node.drain(tmp_path / "out.hsn") == 4
    sent = SummarySet.from_bytes((tmp_path / "out.hsn").read_bytes())
    assert returned <= set(sent.counting())
    assert (len(sent), sent.conflicts()) == (4, [])


def test_a_summary_that_was_overtaken_returns_the_first(tmp_path):
    """Another program answers while the records are read."""
    publisher = Publisher()
    with (
        Node.provision(tmp_path / "state", publisher.root(), clock=lambda: NOW) as node,
        Node.open(tmp_path / "state", clock=lambda: NOW) as other,
    ):
        node.enrol(publisher.node_campaign())
        seen = []

        def records():
            yield {"odor": "n"}
            seen.append(other.summarise("clinics", []))

        found = node.summarise("clinics", records())
        assert found.repeated
        assert found.raw == seen[0].raw
        assert node.status().spent_micro == 2_000_000
