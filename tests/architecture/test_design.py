"""docs/design.md names what is there: its tables the rooms and modules, its surface the commands and options."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import click
import pytest
from support.publisher import Publisher

from aggregator.cli.app import hearsay
from aggregator.cli.table import COMMANDS
from edge_sdk.cli import table as edge

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])")


def section(title):
    return re.search(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", DESIGN, re.MULTILINE | re.DOTALL)[1]


def named(package):
    """Rooms (with a slash) and modules that a package's table names, in order."""
    rows = re.search(rf"^\| `{package}/` \|.*?(?=\n\n)", section("Parts"), re.MULTILINE | re.DOTALL)[0].split("\n")[2:]
    return [name for row in rows for name in row.split("|")[1].strip().split(", ")]


def there(package):
    folder = ROOT / package
    rooms = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    return rooms | {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}


@pytest.mark.parametrize("package", ["protocol", "edge_sdk", "aggregator", "simulation", "research"])
def test_the_tables_name_every_room_and_module_once_and_no_other(package):
    assert sorted(named(package)) == sorted(there(package))


def commands_of(text):
    """Every command of ``hearsay`` in a text, with the options that stand after it, up to the next command."""
    joined = re.sub(r"\n +", " ", text)
    for part in re.split(r"\n| ; |(?=`hearsay )", joined):
        found = re.match(r"`?hearsay ([a-z-]+)( [a-z|-]+)?", part)
        if found:
            yield found[1], (found[2] or "").strip(), set(OPTION.findall(part))


def surface():
    return re.search(r"```text\n(hearsay init .*?)```", section("The surface"), re.DOTALL)[1]


def options_of(command):
    inner = command.commands.values() if isinstance(command, click.Group) else [command]
    return {name for each in inner for parameter in each.params for name in parameter.opts}


def test_the_surface_names_every_command_with_options_that_it_has():
    found = list(commands_of(surface()))
    assert {name for name, _, _ in found} == {*COMMANDS, "demo", "rehearse", "simulate"}
    for name, inner, options in found:
        command = hearsay.get_command(click.Context(hearsay), name)
        assert options <= options_of(command), name
        if isinstance(command, click.Group):
            assert set(inner.split("|")) <= set(command.commands), name


def test_the_surface_names_every_command_of_a_device_with_options_that_it_has():
    line = re.search(r"hearsay-edge --state DIR (.*)", re.sub(r"\n +", " ", surface()))[1]
    names = {command.name for command in edge.COMMANDS}
    found = {}
    for part in line.split(" | "):
        words = part.split()
        name = " ".join(words[:2]) if " ".join(words[:2]) in names else words[0]
        found[name] = set(OPTION.findall(part))
    assert set(found) == names
    for command in edge.COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        command.add_arguments(parser)
        assert found[command.name] <= {*parser._option_string_actions, "--json"}, command.name


def test_the_python_lines_of_the_surface_work(tmp_path, monkeypatch):
    device, mechanism = re.findall(r"```python\n(.*?)```", section("The surface"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    publisher = Publisher(now=1)
    scope = {
        "state_dir": tmp_path / "state",
        "root_bytes": publisher.root(lifetime=1 << 33),
        "campaign_bytes": publisher.campaign(lifetime=1 << 33),
        "model_bytes": publisher.model(lifetime=1 << 33),
        "record": {"odor": "n", "label": "e"},
        "path": tmp_path / "1.hsr",
    }
    exec(device.replace("https://example.org/hearsay", str(tmp_path / "source")), scope)
    assert scope["n"] == 1
    scope["device"].close()
    exec(mechanism, {"value": 3, "seed": bytes(32)})


def test_nothing_is_planned_any_more():
    assert "## Planned" not in DESIGN


def test_the_extras_are_those_of_the_distribution():
    told = re.search(r"extras: (.*?)\.\s", section("The surface"), re.DOTALL)[1]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"`(\w+)`", told)) == set(declared)
