"""Run commands of ``hearsay`` in this process, and make the schema file that many tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from aggregator.cli.app import hearsay

if TYPE_CHECKING:
    from click.testing import Result


def invoke(*arguments: object) -> Result:
    """Run a command and return its result with any exit status."""
    return CliRunner().invoke(hearsay, [str(argument) for argument in arguments])


def run(*arguments: object, status: int = 0) -> Result:
    """Run a command, check its exit status, and return its result."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output
    return result


def mushrooms(*, name: str = "mushrooms", label: str = "class", missing: str = "", bins: int = 0) -> str:
    """A schema file.

    Args:
        name: of the schema.
        label: name of the label, whose classes are e and p.
        missing: substitute of a missing odor; empty for none.
        bins: number of bins of the numeric feature ``width``; 0 for no such feature.
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
