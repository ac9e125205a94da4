"""Read unit files as systemd does: entries, environment variables, command lines split into words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

UNITS = Path(__file__).parents[2] / "docs" / "systemd"


def entries(path: Path) -> dict[tuple[str, str], list[str]]:
    """(section, key) → values in order. A key may occur several times, as `SystemCallFilter=` does."""
    found: dict[tuple[str, str], list[str]] = {}
    section = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault((section, key), []).append(value)
    return found


def variables(lines: list[str]) -> dict[str, str]:
    """`Environment=` values, or the lines of an `EnvironmentFile=`, as names and values."""
    found = {}
    for line in lines:
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith(("#", ";")):
            found[name] = value[1:-1] if value[:1] == value[-1:] == '"' else value
    return found


def command_line(path: Path, environment: dict[str, str], instance: str = "") -> list[str]:
    """The words of `ExecStart=`: `%i` becomes the instance, `${NAME}` one word, `$NAME` one word per word of its value.

    Source: systemd.service(5), "Command lines".
    """
    (line,) = entries(path)["Service", "ExecStart"]
    words = []
    for word in shlex.split(line.replace("%i", instance)):
        alone = re.fullmatch(r"\$(\w+)", word)
        if alone is not None:
            words += shlex.split(environment[alone[1]])
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    return words
