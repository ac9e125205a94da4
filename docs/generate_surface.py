"""Writes ``docs/reference/surface.md``: every name that stays, from the packages and the commands themselves.

    python docs/generate_surface.py        # or: make docs

The page is a list with links. ``docs/reference/cli.md`` has every option, the API pages have every argument.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.app import PLUGINS, Commands
from aggregator.cli.table import COMMANDS
from edge_sdk.cli import table as edge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PAGE = Path(__file__).parent / "reference" / "surface.md"
PACKAGES = ("edge_sdk", "aggregator", "protocol", "simulation")

BEGIN, END = "<!-- written by docs/generate_surface.py -->\n", "<!-- end of what is written -->\n"
"""The names stand between these lines; the rest of the page is written by hand."""


def page() -> str:
    """The whole text of ``docs/reference/surface.md``, with the names of today."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(part + "\n" for part in (*_names(), *_commands())) + "\n" + END + after


def _names() -> Iterator[str]:
    """The public names of each package, with the first sentence of each."""
    yield "## Python"
    for package in PACKAGES:
        module = import_module(package)
        yield f"### `{package}`\n\nDescribed in [{package}](api/{package}.md)."
        rows = [f"| `{name}` | {_sentence(getattr(module, name))} |" for name in sorted(_public(module))]
        yield "| name |  |\n| --- | --- |\n" + "\n".join(rows)


def _public(module: ModuleType) -> list[str]:
    """Names of a package: those it lists, or its constants."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [name for name in vars(module) if name.isupper()]


def _sentence(value: object) -> str:
    """The first sentence of a name's docstring; of a constant its value."""
    if isinstance(value, int | str | tuple | frozenset):
        return f"`{value!r}`".replace("|", "\\|") if len(repr(value)) < 60 else "a constant"
    text = inspect.cleandoc(inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return text.split(". ")[0].rstrip(".:").replace("|", "\\|").replace("<", "&lt;") + "."


def _commands() -> Iterator[str]:
    """Every command with its subcommands, linked to the page of commands."""
    own = sorted({point.name for point in entry_points(group=PLUGINS) if point.value.startswith("simulation.")})
    group = Commands("hearsay", table=COMMANDS)
    context = click.Context(group, info_name="hearsay")
    yield "## Commands"
    rows = []
    for name in [*COMMANDS, *own]:
        command = group.get_command(context, name)
        inner = getattr(command, "commands", {})
        rows.append(f"- [`hearsay {name}`](cli.md#hearsay-{name}){': ' if inner else ''}{', '.join(inner)}")
    yield "\n".join(rows)
    links = {command.name: f"cli.md#hearsay-edge-{command.name.replace(' ', '-')}" for command in edge.COMMANDS}
    yield "\n".join(f"- [`hearsay-edge {name}`]({link})" for name, link in links.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
