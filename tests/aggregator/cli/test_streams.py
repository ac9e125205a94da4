"""The program ``hearsay`` with closed standard streams, and with streams that can not be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import told
from support.fleets import honest, sealed
from support.publisher import NOW, Publisher
from support.reports import opened

DAY = 86_400
RAW = Publisher(now=NOW - 40 * 365 * DAY).campaign(lifetime=60 * 365 * DAY)
CAMPAIGN = opened(RAW)
PERIOD = (NOW - 39 * 365 * DAY) // DAY
REPORTS = 20
FULL = Path("/dev/full")
NO_SPACE = (
    "output_failed: the output can not be written: No space left on device; what the command did before is not undone\n"
)


@pytest.fixture
def folder(tmp_path):
    """A folder with a campaign and a file of reports."""
    (tmp_path / "c.hsc").write_bytes(RAW)
    (tmp_path / "a.hsr").write_bytes(sealed(CAMPAIGN, honest(CAMPAIGN, REPORTS, PERIOD, 0)))
    return tmp_path


def hearsay(folder, line):
    """Run the program ``hearsay`` with the arguments and redirections of a shell's line."""
    command = f'"{sys.executable}" -m aggregator.entry {line}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def reports(folder):
    """Number of reports in the store."""
    return told("status", "--store", folder / "s")["reports"]


@pytest.mark.parametrize(
    ("line", "status", "said", "stored"),
    [
        ("show c.hsc >&-", 0, "", None),
        ("show c.hsc 2>&-", 0, "", None),
        ("show c.hsc <&-", 0, "", None),
        ("ingest c.hsc a.hsr --store s <&- >&- 2>&-", 0, "", REPORTS),
        ("ingest c.hsc - --store s <&-", 1, "unreadable: there is no report file; no store was made\n", None),
        ("ingest c.hsc a.hsr --store s > /dev/full", 5, NO_SPACE, REPORTS),
        ("ingest c.hsc a.hsr --store s --json 2> /dev/full", 0, "", REPORTS),
    ],
)  # fmt: skip
def test_a_closed_or_full_stream_is_no_error_of_a_command(folder, line, status, said, stored):
    if "full" in line and not FULL.exists():
        pytest.skip("this system has no full device")
    done = hearsay(folder, line)
    assert (done.returncode, done.stderr) == (status, said)
    assert (reports(folder) if stored else None) == stored
    if "--json" in line:
        assert json.loads(done.stdout)["accepted"] == REPORTS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("show c.hsc", (1, "")),
        ("show c.hsc > /dev/full", (5, "output_failed")),
        ("show c.hsc >&-", (0, "")),
        ("ingest c.hsc - --store s <&- > said", (1, "unreadable")),
    ],
)
def test_output_that_nobody_takes_needs_no_null_device(folder, line, expected):
    """A container may have none that can be opened. Without a redirection the output goes into a closed pipe."""
    if "full" in line and not FULL.exists():
        pytest.skip("this system has no full device")
    (folder / "program.py").write_text(
        "import os\nos.devnull = '/absent/null'\nfrom aggregator.entry import main\nmain()\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" program.py {line}'],
        cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr.split(":")[0]) == expected
    assert done.stderr.count("\n") == bool(expected[1])


def test_no_file_gets_the_number_of_a_closed_stream(folder):
    """What is printed would be written into that file. The closed stream is an open descriptor before any import."""
    line = (
        "import os, sys; from aggregator.cli.streams import prepare_streams; prepare_streams(); "
        "print('printed'); os._exit(os.open('f', os.O_RDWR | os.O_CREAT))"
    )
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{line}" <&- >&- 2>&-'], cwd=folder, check=False)
    assert done.returncode > 2
    assert (folder / "f").read_bytes() == b""
