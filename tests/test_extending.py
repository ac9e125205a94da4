"""The examples of docs/how-to/extending.md work, one after the other, in a process and a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
PAGE = (TREE / "docs" / "how-to" / "extending.md").read_text("utf-8")
MARK = "<!-- run by tests/test_extending.py -->\n"
SECTIONS = ("A mechanism", "A transport", "Counts of another program", "A post-processing", "A command")


def blocks(text: str) -> list[str]:
    """The Python blocks of a page, in their order."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, with the tree's packages and a folder of its own."""
    script = folder / "example.py"
    script.write_text(code, "utf-8")
    command = [sys.executable, "-W", "error", script]
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_all_examples_run_and_a_mechanism_that_is_too_loose_does_not_pass(tmp_path):
    """The enumeration of the page finds a mechanism whose second probability is too small."""
    ran = run("\n".join(blocks(PAGE)), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "failed=yes" in ran.stdout
    first, second, *_ = blocks(PAGE)
    loose = first.replace("/ exp_below(epsilon_micro)", "/ exp_below(epsilon_micro + 1000)")
    assert loose != first
    assert "assert worst <= exp_below(1_000_000)" in run(loose + second, tmp_path).stderr


def test_every_section_has_an_example_that_is_marked():
    sections = {part.split("\n")[0]: part for part in PAGE.split("\n## ")}
    for name in SECTIONS:
        assert "### A working example" in sections[name]
        assert blocks(sections[name]), name
    assert PAGE.count(MARK + "```python") == len(blocks(PAGE))
