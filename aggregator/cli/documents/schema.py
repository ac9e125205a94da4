"""``hearsay schema``: draft a schema from a pilot file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.options import (
    PATH,
    equal_frequency_option,
    force_option,
    json_option,
    missing_option,
    output_option,
)
from aggregator.cli.output import counted, note, say, warn, working
from aggregator.files import check_output, write_output

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("data", type=PATH)
@click.option("--label", required=True, help="Column to predict.")
@output_option
@click.option("--name", help="Name of campaigns made from it; default: the file's name.")
@click.option("--bins", type=int, default=4, show_default=True, help="Bins of a numeric feature.")
@equal_frequency_option
@click.option("--max-values", type=int, default=12, show_default=True, help="Integers with more values become numeric.")
@missing_option
@click.option("--drop", multiple=True, help="Column to leave out; repeatable.")
@force_option
@json_option
def schema(
    data: Path,
    label: str,
    output: Path,
    name: str | None,
    bins: int,
    equal_frequency: bool,  # noqa: FBT001 - click passes options by name
    max_values: int,
    missing: tuple[str, ...],
    drop: tuple[str, ...],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Draft a schema from a pilot file (CSV, plain or .gz) whose people agreed to be seen.

    Read and correct the draft: its values and bounds become public with the campaign.

    \b
    Example:
      hearsay schema pilot.csv --label class --drop id -o schema.toml
    """  # noqa: D301
    from aggregator.schema_doubts import doubts
    from aggregator.schema_draft import draft_schema
    from aggregator.schema_file import parse_schema_text
    from aggregator.tables import MISSING_TOKENS, read_table, unlabelled

    check_output(output, force=force)
    with working("reading the pilot"):
        pilot = read_table(data)
        text = draft_schema(
            pilot,
            label,
            name=name or data.name.split(".")[0] or "campaign",
            bins=bins,
            equal_frequency=equal_frequency,
            max_values=max_values,
            missing=missing or MISSING_TOKENS,
            drop=drop,
        )
    write_output(output, text.encode(), force=force)
    drafted = parse_schema_text(text)
    kinds = [feature.kind for feature in drafted.schema.features]
    facts: dict[str, Any] = {
        "schema": str(output),
        "name": drafted.name,
        "label": label,
        "classes": len(drafted.schema.label.classes),
        "categorical": kinds.count("categorical"),
        "numeric": kinds.count("numeric"),
    }
    doubtful = doubts(pilot, label, missing or MISSING_TOKENS, drop)
    say({**facts, "doubts": doubtful} if as_json else facts, as_json=as_json)
    for line in doubtful:
        warn(line)
    without = unlabelled(pilot, label, missing or MISSING_TOKENS)
    if without:
        note(f"{counted(without, 'record')} {'has' if without == 1 else 'have'} no label")
    if "numeric" in kinds:
        note("bounds of numeric features came from the pilot; replace them by bounds that are known without data")
