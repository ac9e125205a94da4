"""Fill in the figures of the documentation's pages from the CSV files.

    python -m benchmarks.reproduce.page [--check]

A page names a figure or a table in a comment, and this program writes what follows, up to the end:
``<!--=theta car one 0.25-->52.6 ± 1.1<!--=-->``. ``--check`` only returns 1 if a page is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reproduce.figures import FIGURES

ROOT = Path(__file__).parents[2]
PAGES = ("docs/reproduction.md", "docs/explanation/which-mechanism.md")
PLACE = re.compile(r"<!--=(?P<name>[^>]+?)-->(?P<text>.*?)<!--=-->", re.DOTALL)
"""A place for a figure: its name, in a comment, the figure, and an empty name as the end."""


def filled(page: str) -> str:
    """Return the text of a page with all its figures filled in from the CSV files."""

    def put(place: re.Match[str]) -> str:
        kind, *words = place["name"].split()
        return f"<!--={place['name']}-->{FIGURES[kind](*words)}<!--=-->"

    return PLACE.sub(put, page)


def main(words: Sequence[str] | None = None) -> int:
    """Fill in, or check, all pages."""
    parser = argparse.ArgumentParser("python -m benchmarks.reproduce.page", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is not up to date")
    options = parser.parse_args(words)
    stale = []
    for name in PAGES:
        path = ROOT / name
        before = path.read_text("utf-8")
        after = filled(before)
        if after != before:
            stale.append(name)
            if not options.check:
                path.write_text(after, "utf-8")
    print("\n".join(f"{name}: {'not up to date' if options.check else 'written'}" for name in stale) or "up to date")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
