"""A device needs the standard library, msgpack and PyNaCl, no package of the aggregator, and no module for nodes."""

from __future__ import annotations

import subprocess
import sys

from support.shared import COLLECTORS, shared_file

HEAVY = (
    *("numpy", "pandas", "click", "pyarrow", "rich", "sklearn", "gmpy2", "cryptography"),
    *("aggregator", "simulation", "research"),
)
LIFE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, "tests")
loaded = lambda *rooms: [name for name in sys.modules if name.startswith(rooms)]
import edge_sdk, edge_sdk.cli.main
of_others = "edge_sdk.node", "protocol.nodes", "protocol.noise", "protocol.masked", "protocol.shared"
print(loaded(*HEAVY, *of_others, "logging"))
from edge_sdk import Device, Policy
from support.publisher import NOW, Publisher
publisher = Publisher()
device = Device.provision(sys.argv[1] + "/state", trust=publisher.root(), clock=lambda: NOW)
campaign = device.enrol(publisher.campaign())
device.report(campaign.id, {"odor": "n", "width": 2.0}, label="e")
assert device.drain(sys.argv[1] + "/out.hsr") == 1
print(device.install(publisher.model()).predict({"odor": "f"}))
device.status()
of_nodes = "protocol.nodes", "protocol.noise.sums", "edge_sdk.node"
print(loaded(*of_nodes, "protocol.shared"))
shared = open(sys.argv[1] + "/shared.hsc", "rb").read()
allowed = [one.hex() for one in open(sys.argv[1] + "/keys", "rb").read().split(b"---")]
owner = Policy.of(collectors=allowed)
with Device.open(None, trust=publisher.root(), clock=lambda: NOW, policy=owner) as other:
    sent = other.report(other.enrol(shared).id, {"odor": "n"}, label="e")
print(loaded(*HEAVY, *of_nodes), len(sent))
from edge_sdk import Node
print(len(loaded(*of_nodes)) > 2)
import logging
from edge_sdk.log import WARNING, note
device.enrol(publisher.campaign(version=2))
note(WARNING, "sync: %s", "refused")  # nothing is printed without a handler
"""


def test_a_whole_life_loads_nothing_heavy_and_nothing_of_nodes(tmp_path):
    """Only :class:`edge_sdk.Node`, and a campaign for nodes, load what nodes need; so with shared campaigns."""
    (tmp_path / "shared.hsc").write_bytes(shared_file())
    (tmp_path / "keys").write_bytes(b"---".join(one.key for one in COLLECTORS))
    code = LIFE.replace("HEAVY", repr(HEAVY))
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("[]\np\n[]\n[] 844\nTrue\n", "")
