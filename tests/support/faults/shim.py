"""The shim as a library for LD_PRELOAD, and programs that run under it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("shim.c")
_LEAST_BYTES = 64 << 20

WAYS, TURNS = ("kill", "tear", "short"), ("EIO", "ENOSPC", "restart")
DEEP = os.environ.get("HEARSAY_FAULT_SEEDS", "")
"""Random power cuts per kill point, for ``make faults``."""
SEEDS = ("--seeds", DEEP or "1")
OPTIONS = (*SEEDS, "--ways", *WAYS, *TURNS) if DEEP else (*SEEDS, "--ways", *WAYS, "--turns", *TURNS)


def build(folder: Path) -> Path:
    """Compile the shim. If that is impossible, tests are skipped; in CI they fail."""
    library = folder / "shim.so"
    problem = "" if sys.platform == "linux" else "the shim is for Linux"
    compiler = shutil.which("cc")
    if not compiler:
        problem = "there is no C compiler, cc"
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler, *flags, "-o", library, SOURCE], check=True)
    return library


def environment(library: Path, **more: str) -> dict[str, str]:
    """Environment variables for a program under the shim that imports this source tree."""
    path = os.pathsep.join((str(TREE), str(TREE / "tests")))
    return {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path, **more}


@contextmanager
def fast_folder() -> Iterator[Path]:
    """An empty folder, in memory if there is room: the model computes power cuts, so no real disk is needed."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _LEAST_BYTES
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as folder:
        yield Path(folder).resolve()


def break_scenario(library: Path, name: str, *options: str) -> dict[str, Any]:
    """What ``python -m support.faults`` under the shim finds in one scenario."""
    with fast_folder() as folder:
        command = [sys.executable, "-m", "support.faults", name, *options, "--root", str(folder)]
        found = subprocess.run(command, env=environment(library), cwd=TREE, capture_output=True, text=True, check=False)
    assert found.stdout, found.stderr
    return json.loads(found.stdout)


def found_out(library: Path, mistake: str, scenario: str, way: str) -> bool:
    """Whether software with a deliberate mistake breaks a promise in a scenario that is broken in one way."""
    return bool(break_scenario(library, scenario, "--ways", way, "--first", "--mutate", mistake)["violations"])
