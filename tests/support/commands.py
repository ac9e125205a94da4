"""The command line ``hearsay`` in this process, and the schema file that its tests begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from aggregator.cli.app import hearsay

if TYPE_CHECKING:
    from click.testing import Result


def invoke(*arguments: object) -> Result:
    """Run a command, whatever its status."""
    return CliRunner().invoke(hearsay, [str(argument) for argument in arguments])


def run(*arguments: object, status: int = 0) -> Result:
    """Run a command that ends with this status."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output
    return result


def mushrooms(*, name: str = "mushrooms", label: str = "class", missing: str = "", bins: int = 0) -> str:
    """A schema file.

    Args:
        name: of the schema.
        label: name of the label, whose classes are e and p.
        missing: what a missing odor is counted as; empty: nothing is said of it.
        bins: of the number ``width``; 0: no such feature.
    """
    lines = [
        f'name = "{name}"',
        "[label]",
        f'name = "{label}"',
        'classes = ["e", "p"]',
        "[[features]]",
        'name = "odor"',
        'kind = "categorical"',
        'values = ["a", "n", "f"]',
    ]
    if missing:
        lines.append(f'missing = "{missing}"')
    if bins:
        lines += ["[[features]]", 'name = "width"', 'kind = "numeric"', "low = 0", "high = 10", f"bins = {bins}"]
    return "\n".join(lines) + "\n"
