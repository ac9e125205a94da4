"""Running all blocks of a page in one empty folder, from top to bottom, as a reader who follows it would.

All blocks of a page are one shell session, so that variables last. A block's output goes into a file. In a block
``console`` lines that begin with ``$ `` are commands, and what follows is their output: ``…`` on a line stands for any
text, a line that is ``…`` for any number of lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from documentation.blocks import RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from documentation.blocks import Block

ROOT = Path(__file__).parents[2]
SECONDS = 600
"""A page that takes longer is stuck."""


class Step(NamedTuple):
    """One piece of a session: what is run, where on the page it is, and the output that the page shows, if any."""

    line: int
    script: str
    shown: str | None = None


def steps(found: Sequence[Block], folder: Path) -> list[Step]:
    """The session of a page's blocks. Python blocks are written as files into a folder."""
    session = []
    for block in found:
        if block.test or block.language not in RUN:
            continue
        if block.language == "python":
            is_dialogue = block.text.startswith(">>> ")
            file = folder / f"block-{block.line}{'.txt' if is_dialogue else '.py'}"
            file.write_text(block.text, "utf-8")
            session.append(Step(block.line, f"python {'-m doctest ' if is_dialogue else ''}{file}\n"))
        elif block.language == "bash":
            session.append(Step(block.line, block.text))
        else:
            session += _console(block)
    return session


def _console(block: Block) -> list[Step]:
    """The commands of a console block, each with the output below it."""
    found = []
    for piece in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = piece.splitlines()
        end = next(at for at, line in enumerate(lines) if not line.endswith("\\")) + 1
        shown = "\n".join(lines[end:]).strip("\n")
        if block.varies:
            shown = re.sub(r"\S*\d\S*", "…", shown)
        found.append(Step(block.line, "\n".join(lines[:end]) + "\n", shown))
    return found


def run(session: Sequence[Step], folder: Path, programs: Path) -> None:
    """Run a session in an empty folder. Every command must succeed, and print what its page shows.

    ``programs`` is the folder of the two programs (:mod:`documentation.programs`).
    """
    outputs = folder.with_name("outputs")
    outputs.mkdir()
    script = ["set -e -o pipefail\n", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"]
    for number, step in enumerate(session):
        # The output file is open for this step alone; a server that goes on in the background keeps writing into it.
        script.append(f"exec >{outputs}/{number} 2>&1\n{step.script}")
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "HOME": str(folder)}
    for name in ("HEARSAY_PASSPHRASE_FILE", "CI"):
        environment.pop(name, None)
    done = subprocess.run(
        ["bash"], input="".join(script), cwd=folder, env=environment, check=False, text=True, timeout=SECONDS
    )
    last = len(list(outputs.iterdir())) - 1
    if done.returncode:
        said = (outputs / str(last)).read_text("utf-8")[-3000:]
        raise AssertionError(f"line {session[last].line}: exit {done.returncode}\n{session[last].script}\n{said}")
    for number, step in enumerate(session):
        if step.shown:
            printed = (outputs / str(number)).read_text("utf-8").strip("\n")
            assert matches(step.shown, printed), (
                f"line {step.line}: {step.script}shows\n{step.shown}\nbut it printed\n{printed}"
            )


def matches(shown: str, printed: str) -> bool:
    """Whether an output is the one that a page shows."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(r"[^\n]*?".join(map(re.escape, line.rstrip().split("…"))) + r" *\n")
    return re.fullmatch("".join(lines), printed + "\n") is not None


def read(block: Block) -> object:
    """The value of a block of TOML or JSON."""
    return tomllib.loads(block.text) if block.language == "toml" else json.loads(block.text)
