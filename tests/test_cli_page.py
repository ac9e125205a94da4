"""docs/reference/cli.md is what the commands say, and what they show as examples is what they accept."""

from __future__ import annotations

import inspect
import re
import shlex

import click
import pytest

from aggregator.cli.app import hearsay
from aggregator.cli.table import COMMANDS
from docs import generate_cli
from edge_sdk.cli import table as edge

WRITTEN = generate_cli.PAGE.read_text("utf-8")


def test_the_page_is_current():
    assert generate_cli.page() == WRITTEN, "docs/reference/cli.md is not what the commands say; make docs writes it"


def commands(words=("hearsay",), command=hearsay):
    """Every command and group, with the words that lead to it."""
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from commands((*words, name), command.get_command(click.Context(command), name))


def shown(parameter):
    """What the page must say of a parameter."""
    if isinstance(parameter, click.Option):
        return f"`{', '.join(parameter.opts)}"
    return (parameter.metavar or parameter.name.upper()).rstrip(".…")


def test_the_page_has_every_command_and_option():
    """Read from the page itself, in case what writes it leaves something out."""
    sections = dict(re.findall(r"^#+ (hearsay[^\n]*)\n(.*?)(?=^#+ |\Z)", WRITTEN, re.MULTILINE | re.DOTALL))
    found = {words: command for words, command in commands() if not isinstance(command, click.Group)}
    assert {words[1] for words in found} == {*COMMANDS, "demo", "rehearse", "simulate"}
    for words, command in found.items():
        section = sections[" ".join(words)]
        assert f"\n{' '.join(words)}" in section.split("Example:")[1]
        assert [shown(each) for each in command.params if shown(each) not in section] == [], words
    for command in edge.COMMANDS:
        assert all(line in sections[f"hearsay-edge {command.name}"] for line in command.examples)


def test_an_option_says_its_bounds_its_default_and_whether_it_is_needed():
    @click.command()
    @click.argument("files", nargs=-1)
    @click.option("--days", type=click.IntRange(1, 9), default=3, show_default=True, help="Life.")
    @click.option("--kind", type=click.Choice(["a", "b"]), required=True)
    @click.option("--hidden-default", default="SECRET", help="Of *no* use.")
    def go(**_):
        """Do it, for *.hsr.

        \b
        Example:
          hearsay go
        """

    text = "\n".join(generate_cli.command_section(go, ["hearsay", "go"]))
    assert "hearsay go [FILES…] [OPTIONS]" in text
    assert "| `--days INTEGER` | Life; from 1 to 9; default: `3`. |" in text
    assert "| `--kind a\\|b` | **needed**. |" in text
    assert "SECRET" not in text
    assert "Do it, for \\*.hsr.\n\nExample:\n\n```\nhearsay go\n```" in text


def examples():
    """Every example line of ``hearsay``, without what the shell does around it."""
    for _, command in commands():
        for text in inspect.cleandoc(command.help).split("\n\n"):
            if text.startswith("\b"):
                lines = text.replace("\\\n", " ").split("\n")[2:]
                parts = [part.strip() for line in lines for part in re.split(r"\||&&|>", line)]
                yield from (part for part in parts if part.startswith("hearsay "))


@pytest.mark.parametrize("line", sorted(set(examples())))
def test_an_example_is_right_usage(line):
    """The arguments are parsed and checked; nothing is run, and no file is needed."""
    command, words = hearsay, shlex.split(line, comments=True)[1:]
    context = click.Context(hearsay, info_name="hearsay")
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    assert command.make_context(command.name, words, parent=context).params


@pytest.mark.parametrize("line", [line for command in edge.COMMANDS for line in command.examples])
def test_an_example_of_a_device_is_right_usage(line):
    words = shlex.split(line.rpartition("| ")[2])
    assert words[0] == edge.PROGRAM
    assert edge.build_parser().parse_args(words[1:]).run in {command.run for command in edge.COMMANDS}


def test_a_wrong_example_is_seen():
    with pytest.raises(click.UsageError):
        test_an_example_is_right_usage("hearsay ingest c.hsc a.hsr --store s --stroe t")
    with pytest.raises(SystemExit):
        test_an_example_of_a_device_is_right_usage("hearsay-edge --state s drain")
