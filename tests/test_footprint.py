"""A device that has opened, enrolled, reported, installed, predicted and drained fits into 20 MB, without OpenSSL.

With shared answers of 240 cells it takes at most 2 MB more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.publisher import NOW, Publisher
from support.shared import ALLOWED, of_cells, shared_file

ROOT = Path(__file__).parents[1]
LIMIT = 20_000_000
MORE_OF_SHARES = 2_000_000

LIFE = """
import sys
sys.path += sys.argv[2:]
from edge_sdk import Device, Policy
folder = sys.argv[1]
read = lambda name: open(f"{folder}/{name}", "rb").read()
now, owner = [NOW], Policy.of(collectors=ALLOWED)
with Device.provision(f"{folder}/state", trust=read("root"), clock=lambda: now[0], policy=owner) as device:
    campaign = device.enrol(read("campaign"))
    for _ in range(5):
        device.report(campaign.id, {"odor": "n", "width": 3}, label="e")
        now[0] += 86400
    device.install(read("model"))
    device.model().predict({"odor": "n"})
    device.drain(f"{folder}/out")
    device.ack(f"{folder}/out")
    device.status()
resident = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")]
loaded = [name for name in ("_hashlib", "_ssl", "re", "tomllib", "numpy") if name in sys.modules]
print('{"resident": ' + resident[0] + ', "loaded": "' + " ".join(loaded) + '"}')
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="resident memory is read from /proc")  # noqa: PTH110
def test_a_whole_life_fits_into_20_megabytes(tmp_path):
    publisher = Publisher()
    plain = _resident(tmp_path / "plain", publisher, publisher.campaign())
    assert plain < LIMIT
    wide = of_cells(20, 5)
    assert _resident(tmp_path / "shared", wide, shared_file(wide)) - plain <= MORE_OF_SHARES


def _resident(folder: Path, publisher: Publisher, campaign: bytes) -> int:
    """Bytes in memory at the end of a life with this campaign."""
    folder.mkdir()
    for name, content in (("root", publisher.root()), ("campaign", campaign), ("model", Publisher().model())):
        (folder / name).write_bytes(content)
    # -S: how this tree is installed for development costs memory of its own
    code = LIFE.replace("NOW", str(NOW)).replace("ALLOWED", repr(ALLOWED))
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    command = [sys.executable, "-I", "-S", "-c", code, str(folder), *paths]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "_hashlib" not in found["loaded"].split()
    return found["resident"] * 1024
