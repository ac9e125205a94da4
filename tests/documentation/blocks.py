"""The code blocks of a page of Markdown: language, text, line, and the test that runs a block outside of its page."""

from __future__ import annotations

import re
from typing import NamedTuple

MARKER = re.compile(r"<!-- run by (\S+) -->")
"""A comment before a block: the test that runs the block."""
VARIES = "<!-- numbers vary -->"
"""A comment before a block ``console``: words with a digit in its output are others each time."""
PREPARED = "<!-- prepare"
"""Begins a comment, up to ``-->``, of commands that make what a reader has already: records, a workspace."""
RUN = ("bash", "console", "python")
"""Languages of blocks that the page's own run executes."""
READ = ("toml", "json")
"""Languages of blocks that are parsed."""
TEXT = "text"
"""Formulas, bytes, drawings and output: nothing to run."""
_PROGRAMS = "hearsay(?:-edge)?|python3?|pip|make|git|curl|systemctl|apt(?:-get)?|export|import|from"
COMMAND = re.compile(rf"^\s*(?:\$ |>>> |(?:sudo |[A-Z_]+=\S+ )?(?:{_PROGRAMS}) (?![|…]))", re.MULTILINE)
"""A line that looks like a command or a statement of Python."""


class Block(NamedTuple):
    """One code block.

    Attributes:
        line: number of its first line on the page.
        language: as the fence says; empty for an indented block or a fence without a language.
        text: the lines, without fence or indentation.
        test: path of the test that runs it; empty if the page's run does.
        varies: whether numbers of its output are others each time; the rest of the output is compared.
    """

    line: int
    language: str
    text: str
    test: str = ""
    varies: bool = False


def blocks(page: str) -> list[Block]:
    """All code blocks of a page, in order, and the comments that prepare what blocks need."""
    lines = page.splitlines()
    found: list[Block] = []
    test, varies, number, before_is_text = "", False, 0, False
    while number < len(lines):
        line = lines[number]
        if line == PREPARED:
            stop = lines.index("-->", number)
            found.append(Block(number + 1, "bash", "\n".join(lines[number + 1 : stop]) + "\n"))
            number, before_is_text = stop + 1, False
        elif fence := re.match(r"( *)```(\w*)$", line):
            stop = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
            inside = [each.removeprefix(fence[1]) for each in lines[number + 1 : stop]]
            found.append(Block(number + 1, fence[2], "\n".join(inside) + "\n", test, varies))
            test, varies, number, before_is_text = "", False, stop + 1, False
        elif line.startswith("    ") and not before_is_text:
            stop = number
            while stop < len(lines) and (lines[stop].startswith("    ") or not lines[stop].strip()):
                stop += 1
            inside = [each[4:] for each in lines[number:stop]]
            found.append(Block(number + 1, "", "\n".join(inside).rstrip() + "\n", test))
            test, number = "", stop
        else:
            if marker := MARKER.match(line.strip()):
                test = marker[1]
            elif line.strip() == VARIES:
                varies = True
            elif line.strip():
                # Indented lines that follow a line of text, or a list's item, go on with it.
                before_is_text = True
            if not line.strip():
                before_is_text = _in_list(lines, number)
            number += 1
    return found


def _in_list(lines: list[str], number: int) -> bool:
    """Whether the paragraph above an empty line is an item of a list, which indented lines would go on with."""
    for line in reversed(lines[:number]):
        if re.match(r"\s*(?:[-*]|\d+\.) ", line):
            return True
        if line.strip() and not line.startswith("  "):
            return False
    return False
