"""Read unit files as systemd does: entries, environment variables, command lines split into words."""

import re
import shlex
from pathlib import Path

UNITS = Path(__file__).parents[2] / "docs" / "systemd"


def entries(path):
    """(section, key) → values in order. A key may occur several times, as `SystemCallFilter=` does."""
    found = {}
    section = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault((section, key), []).append(value)
    return found


def variables(lines):
    """`Environment=` values, or the lines of an `EnvironmentFile=`, as names and values."""
    found = {}
    for line in lines:
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith(("#", ";")):
            found[name] = value[1:-1] if value[:1] == value[-1:] == '"' else value
    return found


def command_line(path, environment, instance=""):
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
