"""``hearsay design``: what a campaign should ask, from a pilot's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aggregator.ask_table import listed
from aggregator.cli.options import PATH, force_option, json_option, missing_option, output_option
from aggregator.cli.output import note, print_facts, print_json, print_table, working
from aggregator.files import check_output, write_output

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("pilot", type=PATH, metavar="PILOT.csv")
@click.option("--schema", "schema_file", type=PATH, required=True, metavar="SCHEMA.toml", help="Schema to start from.")
@click.option("--epsilon", required=True, help="ε of the one answer of a device.")
@click.option("--devices", type=click.IntRange(1), required=True, help="Size of the fleet.")
@output_option
@missing_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the simulated counts.")
@force_option
@json_option
def design(
    pilot: Path,
    schema_file: Path,
    epsilon: str,
    devices: int,
    output: Path,
    missing: tuple[str, ...],
    seed: int,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Choose what a campaign asks, from the records of a few hundred people who agreed to be seen.

    Features, groups of their values and bins of numbers are chosen by the accuracy that the answers of so many
    devices at this ε will give, on records of the pilot that the model was not made of. Of a pilot of more than 2,000
    records a random part of 2,000 is used. The output is a schema file
    with a table [ask], for hearsay campaign. It also says how good a model of the pilot's records alone is.

    What is chosen becomes public with the campaign, and it depends on the pilot's records. Give one record per person:
    accuracies are measured on other records of the pilot, and a copy of a record is no other record.

    \b
    Example:
      hearsay design pilot.csv --schema schema.toml --epsilon 1 --devices 100000 -o asked.toml
    """  # noqa: D301
    from aggregator.choosing.calls import design as make_design
    from aggregator.choosing.from_pilot import as_json as design_json
    from aggregator.choosing.from_pilot import shown_path
    from aggregator.choosing.schema_text import schema_text
    from aggregator.schema_file import load_schema
    from aggregator.tables import MISSING_TOKENS

    check_output(output, force=force)
    file = load_schema(schema_file)
    with working("choosing what to ask"):
        found = make_design(pilot, file, epsilon=epsilon, devices=devices, missing=missing or MISSING_TOKENS, seed=seed)
    write_output(output, schema_text(found.file).encode(), force=force)
    if as_json:
        print_json({"schema": str(output), **design_json(found)})
        return
    print_table(["features", "accuracy", "asked"], shown_path(found, file.schema), numeric=["features"])
    click.echo()
    assert found.fleet is not None
    assert found.alone is not None
    print_facts(
        {
            "schema": output,
            "asked": listed(found.file.ask),
            "accuracy of the fleet's model": f"{found.fleet.shown}, on records that chose nothing",
            f"accuracy of {found.source}": f"{found.alone.shown}, on records that chose nothing",
        }
    )
    if found.unlabelled:
        note(f"{found.unlabelled} records were left out: they have no class that the schema lists")
    note(found.verdict)
