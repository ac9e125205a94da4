"""Every example runs as it stands and comes to what its README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aggregator import Model, open_store

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart") / "pumps"
    command = [sys.executable, "-W", "error", EXAMPLES / "quickstart" / "run.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder, done.stdout


def test_the_quickstart_goes_round_the_whole_loop(quickstart):
    folder, text = quickstart
    assert text.startswith("800 reports read from 800 files\n")
    assert open_store(folder / "store").statistics().reports == 800
    assert Model.load(folder / "pumps.hsm", folder / "work" / "root.hst").classes == ("no", "yes")


def test_the_quickstart_learns_something(quickstart):
    """In 40 runs the accuracy was never below 88 %; saying "no" always gets 60 % right."""
    _, text = quickstart
    assert float(re.search(r"never seen: ([\d.]+)%", text)[1]) > 75


def test_its_readme_names_what_is_there(quickstart):
    folder, _ = quickstart
    readme = (EXAMPLES / "quickstart" / "README.md").read_text("utf-8")
    source = (EXAMPLES / "quickstart" / "run.py").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)
    assert named == ["ask", "answer", "learn", "use"]
    assert all(f"\ndef {name}(" in source for name in named)
    for made in ("work/root.hst", "pumps.hsc", "inbox/0000.hsr", "store", "pumps.hsm"):
        assert (folder / made).exists()


def test_every_example_is_tested_here():
    assert [path.name for path in sorted(EXAMPLES.iterdir())] == ["quickstart"]
