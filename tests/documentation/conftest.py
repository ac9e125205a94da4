"""The server that the pages' programs ask: one for all pages that a worker runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from documentation import programs


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder with ``hearsay`` and ``hearsay-edge``."""
    folder = tmp_path_factory.mktemp("programs")
    address = folder / "socket"
    programs.install(folder, address)
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-m", "documentation.programs", address], cwd=root, env=environment
    ) as server:
        until = time.monotonic() + 60
        while not address.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield folder
        server.kill()
