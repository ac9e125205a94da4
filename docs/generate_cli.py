"""Writes ``docs/reference/cli.md``: every command of ``hearsay`` and ``hearsay-edge``, from the parsers themselves.

    python docs/generate_cli.py        # or: make docs

The page is made of names, types, defaults and help texts, not of printed help: how that is folded differs between
versions of Python and click. A test compares the page with the commands.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.app import PLUGINS, Commands, hearsay
from aggregator.cli.table import COMMANDS
from edge_sdk.cli import table as edge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).parent / "reference" / "cli.md"
sys.path.insert(0, str(PAGE.parents[2]))  # the tree, also where an older installation does not know a package of it
PROGRAM = "hearsay"
PACKAGE = "simulation."
"""Of the commands in other packages, those of this one are of this tree."""
VERBATIM = "\b"
"""Click's mark of a paragraph whose lines stay as they are."""

INTRODUCTION = f"""\
# Commands

All commands, with every argument and option. Generated from the programs by `make docs`; a test compares it with them.

Exit status 0: done, or nothing to do. 1, 3, 4, 5: refused; the one line on standard error begins with a stable reason
([reasons.md](reasons.md)). 2: wrong usage, with the reason `usage`. 130: interrupted. The statuses and the keys of
`--json`: [output.md](output.md). `--help` of a command prints what is said here.

A document, schema, key or list may come through a pipe, for example `hearsay verify m.hsm --trust <(cat root.hst)`, or
`hearsay show /dev/stdin`. As for other programs, the command then waits for the pipe's writer. It reads no more than a
file of that kind may hold. Report files and tables must be regular files: a pipe among many files would stop an ingest.

A shell completes commands and options of `hearsay` after `eval "$(_HEARSAY_COMPLETE=bash_source hearsay)"` in
`~/.bashrc`, or `eval "$(_HEARSAY_COMPLETE=zsh_source hearsay)"` in `~/.zshrc`; for fish, write what
`_HEARSAY_COMPLETE=fish_source hearsay` prints into `~/.config/fish/completions/hearsay.fish`. `hearsay-edge` has no
completion.

A day is a day of UTC, wherever the device or the reader is. Periods are counted from the first second of 1970, UTC, so
a period of a day begins at midnight UTC.

- [`{PROGRAM}`](#hearsay): campaigns, reports, models; where reports are gathered
- [`{edge.PROGRAM}`](#hearsay-edge): one device
"""


def page() -> str:
    """The whole text of ``docs/reference/cli.md``."""
    parts = [INTRODUCTION, *_aggregator(), *_device()]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _aggregator() -> Iterator[str]:
    """``hearsay``: the commands of the table, then the commands of ``simulation``."""
    own = sorted(point.name for point in entry_points(group=PLUGINS) if point.value.startswith(PACKAGE))
    group = Commands(PROGRAM, table=COMMANDS)
    context = click.Context(group, info_name=PROGRAM)
    found = {name: group.get_command(context, name) for name in [*COMMANDS, *own]}
    yield f"# {PROGRAM}"
    yield described(hearsay)
    yield _table(("command", ""), [(_link(PROGRAM, name), _summary(command)) for name, command in found.items()])
    for name, command in found.items():
        yield from command_section(command, [PROGRAM, name])


def command_section(command: click.Command, words: list[str]) -> Iterator[str]:
    """The section of one click command, and of the commands in it if it is a group."""
    typed = " ".join(words)
    yield f"{'#' * len(words)} {typed}"
    if isinstance(command, click.Group):
        yield described(command)
        for name, inner in command.commands.items():
            yield from command_section(inner, [*words, name])
        return
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    yield _code([" ".join([typed, *map(_typed_argument, arguments), "[OPTIONS]"])])
    yield described(command)
    yield _table(("option", ""), [(_typed_option(option), _option_text(option)) for option in options])


def described(command: click.Command) -> str:
    """A command's help as Markdown: paragraphs as text, examples as code."""
    texts = [inspect.cleandoc(text) for text in (command.help, command.epilog) if text]
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n")]
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    if not text.startswith(VERBATIM):
        return text.replace("*", "\\*").replace("<", "&lt;")
    title, *lines = text.removeprefix(VERBATIM).strip("\n").split("\n")
    return f"{title}\n\n{_code([line.removeprefix('  ') for line in lines])}"


def _summary(command: click.Command) -> str:
    return _cell(inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " "))


def _typed_argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    repeated = "…" if argument.nargs == -1 and not name.endswith(("…", "...")) else ""
    return f"{name}{repeated}" if argument.required else f"[{name}{repeated}]"


def _typed_option(option: click.Option) -> str:
    names = ", ".join(option.opts)
    return f"`{names}`" if option.is_flag else f"`{names} {option.metavar or _type(option.type)}`".replace("|", "\\|")


def _type(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    return {"integer range": "INTEGER", "float range": "FLOAT"}.get(kind.name, kind.name.upper())


def _option_text(option: click.Option) -> str:
    """What the option says of itself, its bounds and its default."""
    parts = [option.help or ""]
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if low is not None:
        least = f"above {low}" if getattr(option.type, "min_open", False) else f"from {low}"
        parts.append(f"{least} to {high}" if high is not None else least)
    if option.required:
        parts.append("**needed**")
    if option.show_default and isinstance(option.default, str | int | float | Path) and not option.is_flag:
        parts.append(f"default: `{option.default}`")
    if option.multiple and "repeatable" not in parts[0]:
        parts.append("repeatable")
    return _cell("; ".join(part.rstrip(".") for part in parts if part) + ".")


def _device() -> Iterator[str]:
    """``hearsay-edge``: the commands of its table."""
    yield f"# {edge.PROGRAM}"
    yield "One device, whose state is the folder DIR. Every command takes `--json`: one JSON object instead of text."
    yield _code([f"{edge.PROGRAM} --state DIR COMMAND …"])
    rows = [(_link(edge.PROGRAM, command.name), _cell(command.summary)) for command in edge.COMMANDS]
    yield _table(("command", ""), rows)
    for command in edge.COMMANDS:
        yield from device_section(command)


def device_section(command: edge.Command) -> Iterator[str]:
    """The section of one command of a device."""
    parser = argparse.ArgumentParser(add_help=False)
    command.add_arguments(parser)
    actions = parser._actions  # noqa: SLF001 - argparse has no public list of them
    typed = [_typed_action(action) for action in actions if not action.option_strings]
    yield f"## {edge.PROGRAM} {command.name}"
    yield _code([" ".join([f"{edge.PROGRAM} --state DIR {command.name}", *typed, "[OPTIONS]"])])
    yield f"{command.summary[0].upper()}{command.summary[1:]}."
    yield _table(("argument", ""), [(f"`{_named(action)}`", _action_text(action)) for action in actions])
    yield f"Example:\n\n{_code(command.examples)}"


def _typed_action(action: argparse.Action) -> str:
    name = f"{action.metavar}{'…' if action.nargs == '+' else ''}"
    return f"[{name}]" if action.nargs == "?" else name


def _named(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value.replace("|", "\\|")


def _action_text(action: argparse.Action) -> str:
    needed = "; **needed**" if action.required and action.option_strings else ""
    return _cell(f"{action.help}{needed}.")


def _link(program: str, name: str) -> str:
    return f"[`{name}`](#{program}-{name.replace(' ', '-')})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```"])


def _table(columns: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    """A table of two columns; nothing if it has no rows."""
    lines = [columns, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines) if rows else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
