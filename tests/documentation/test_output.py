"""docs/reference/output.md names the keys of every command's ``--json``, as the commands print them."""

from __future__ import annotations

import contextlib

import click
import pytest
from documentation.outputs import BEGIN, NOT_RUN, PAGE, everything, shown

from aggregator.cli.app import hearsay
from edge_sdk.cli.table import COMMANDS


def _named(command, words):
    """Every command of ``hearsay`` that takes ``--json``, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _named(command.get_command(context, name), f"{words} {name}")
    elif any("--json" in parameter.opts for parameter in command.params):
        yield words


@pytest.mark.slow
def test_the_page_has_the_keys_that_the_commands_print(tmp_path):
    """To write the page anew: python tests/documentation/outputs.py."""
    with contextlib.chdir(tmp_path):
        found = everything(tmp_path)
    assert {*found, *NOT_RUN} == {*_named(hearsay, "hearsay"), *(f"hearsay-edge {each.name}" for each in COMMANDS)}
    written = PAGE.read_text("utf-8").split(BEGIN)[1]
    assert written.strip() == shown(found).strip()
