"""Run commands of ``hearsay`` in this process, and make the schema file that many tests use."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from aggregator.cli.app import hearsay
from edge_sdk.cli.main import main

EDGE = (sys.executable, "-m", "edge_sdk.cli.main")
HEARSAY = (sys.executable, "-m", "aggregator.entry")

REFUSED = (1, 3, 4, 5)
"""Exit statuses of a refusal, one for each class of errors (docs/reference/output.md)."""

if TYPE_CHECKING:
    from click.testing import Result

    from support.publisher import Publisher


def invoke(*arguments: object) -> Result:
    """Run a command and return its result with any exit status."""
    return CliRunner().invoke(hearsay, [str(argument) for argument in arguments])


def run(*arguments: object, status: int = 0) -> Result:
    """Run a command, check its exit status, and return its result. ``status`` 1 stands for a refusal of any class."""
    result = invoke(*arguments)
    assert result.exit_code in (REFUSED if status == 1 else (status,)), result.output
    return result


def told(*arguments: object) -> Any:
    """What a command prints with ``--json``. Its exit status must be 0."""
    return json.loads(run(*arguments, "--json").stdout)


def edge(*arguments: object, text: str | bytes = "") -> tuple[int, str, str]:
    """Run a command of ``hearsay-edge`` with this input: its status and what it wrote to both outputs."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode() if isinstance(text, str) else text)))
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


def enrolled(folder: Path, publisher: Publisher, policy: str = "") -> Path:
    """The state folder of a device that two commands provisioned and enrolled in a campaign valid for centuries.

    Args:
        folder: here the documents and the state's folder are made.
        publisher: of the root and the campaign ``mushrooms``.
        policy: the text of the owner's policy file; empty for none.
    """
    state = folder / "state"
    for name, raw in (("r.hst", publisher.root(lifetime=1 << 33)), ("c.hsc", publisher.campaign(lifetime=1 << 33))):
        (folder / name).write_bytes(raw)
    assert edge("--state", state, "provision", folder / "r.hst")[0] == 0
    if policy:
        (state / "policy.toml").write_text(policy)
    assert edge("--state", state, "enrol", folder / "c.hsc")[0] == 0
    return state


def mushrooms(*, name: str = "mushrooms", label: str = "class", missing: str = "", bins: int = 0) -> str:
    """A schema file.

    Args:
        name: of the schema.
        label: name of the label, whose classes are e and p.
        missing: substitute of a missing odor; empty for none.
        bins: number of bins of the numeric feature ``width``; 0 for no such feature.
    """
    lines = [
        f'name = "{name}"',
        "[label]",
        f'name = "{label}"',
        'classes = ["e", "p"]',
        "[[features]]",
        'name = "odor"',
        'kind = "categorical"',
        'values = ["a", "n", "f"]',
    ]
    if missing:
        lines.append(f'missing = "{missing}"')
    if bins:
        lines += ["[[features]]", 'name = "width"', 'kind = "numeric"', "low = 0", "high = 10", f"bins = {bins}"]
    return "\n".join(lines) + "\n"


def unknown_options(page: str, folder: Path) -> list[str]:
    """Options in the blocks ``bash`` of a page that their programs do not have, by what ``--help`` of each prints.

    Args:
        page: the text, with commands of ``hearsay``, ``hearsay-edge`` and ``python FILE``; others are not looked at.
        folder: of the files, whatever their paths on the page.
    """
    found, known = [], 0
    for line in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0].splitlines():
        for part in re.split(r"&&|\|", line):
            words = shlex.split(part, comments=True)
            if not words or words[0] not in ("hearsay", "hearsay-edge", "python"):
                continue
            program = [sys.executable, folder / Path(words[1]).name] if words[0] == "python" else words[:1]
            if words[0] == "hearsay-edge":
                program, words = [*EDGE, *words[1:4]], words[3:]
            elif words[0] == "hearsay":
                program = [*HEARSAY, words[1]]
            done = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            found += [
                word for word in words if word.startswith("--") and word not in re.findall(r"--[\w-]+", done.stdout)
            ]
            known += 1
    assert known
    return found
