"""A device needs the standard library, msgpack and PyNaCl, and no package of the aggregator."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "numpy",
    "pandas",
    "click",
    "pyarrow",
    "rich",
    "sklearn",
    "gmpy2",
    "cryptography",
    "aggregator",
    "simulation",
    "research",
)


def test_importing_the_sdk_loads_nothing_heavy():
    code = f"import sys, edge_sdk, edge_sdk.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_importing_the_sdk_loads_nothing_of_nodes():
    code = """
import sys, edge_sdk, edge_sdk.cli.main
rooms = "edge_sdk.node", "protocol.nodes", "protocol.noise", "protocol.masked"
print([name for name in sys.modules if name.startswith(rooms)])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_whole_life_without_the_extras(tmp_path):
    """Enrol, report, drain, install and predict where the aggregator's packages can not be imported."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, "tests")
from pathlib import Path
from edge_sdk import Device
from support.publisher import NOW, Publisher
publisher = Publisher()
device = Device.provision(sys.argv[1] + "/state", trust=publisher.root(), clock=lambda: NOW)
campaign = device.enrol(publisher.campaign())
device.report(campaign.id, {{"odor": "n", "width": 2.0}}, label="e")
assert device.drain(sys.argv[1] + "/out.hsr") == 1
print(device.install(publisher.model()).predict({{"odor": "f"}}))
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("p\n", "")


def test_a_device_loads_nothing_of_nodes(tmp_path):
    """Only :class:`edge_sdk.Node`, and a campaign for nodes, load what nodes need."""
    code = """
import sys
sys.path.insert(0, "tests")
from edge_sdk import Device
from support.publisher import NOW, Publisher
publisher = Publisher()
device = Device.provision(sys.argv[1] + "/state", trust=publisher.root(), clock=lambda: NOW)
campaign = device.enrol(publisher.campaign())
device.report(campaign.id, {"odor": "n", "width": 2.0}, label="e")
device.drain(sys.argv[1] + "/out.hsr")
device.status()
rooms = "protocol.nodes", "protocol.noise.sums", "edge_sdk.node"
of_nodes = lambda: [name for name in sys.modules if name.startswith(rooms)]
print(of_nodes())
from edge_sdk import Node
print(len(of_nodes()) > 2)
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("[]\nTrue\n", "")
