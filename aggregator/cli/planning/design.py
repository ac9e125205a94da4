"""``hearsay design``: what a campaign should ask, from a pilot's records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.options import PATH
from aggregator.cli.output import (
    as_json,
    check_files,
    note,
    print_facts,
    print_json,
    print_table,
    warn,
    working,
    write_file,
    wrong_usage,
)
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import asked_names, listed
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from protocol.documents.payload import quoted
from protocol.epsilon import micro_epsilon

if TYPE_CHECKING:
    from aggregator.planning.feature_selection.from_pilot import Accuracy


@click.command()
@click.argument("pilot", type=PATH, metavar="PILOT.csv")
@click.option("--schema", "schema_file", type=PATH, required=True, metavar="SCHEMA.toml", help="Schema to start from.")
@click.option("--epsilon", required=True, help="ε of the one answer of a device.")
@click.option("--devices", type=click.IntRange(1), required=True, help="Size of the fleet.")
@options.shared_answers
@options.output
@options.missing
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the simulated counts.")
@click.option("--private-epsilon", help="ε of the pilot's people: choose with differential privacy; needs --budget.")
@click.option("--budget", type=PATH, help="With --private-epsilon: the budget file that pays; says the adjacency.")
@options.force
@options.json
def design(
    pilot: Path,
    schema_file: Path,
    epsilon: str,
    devices: int,
    output: Path,
    missing: tuple[str, ...],
    seed: int,
    private_epsilon: str | None,
    budget: Path | None,
    trust: str,
    delta: str,
) -> None:
    """Choose what a campaign asks, from the records of a few hundred people who agreed to be seen.

    Features, groups of their values and bins of numbers are chosen by the accuracy that the answers of so many
    devices at this ε will give (with --trust shared the totals of two collectors), on records of the pilot that the
    model was not made of. Of a pilot of more than 2,000 records a random part of 2,000 is used. The output is a schema
    file with a table [ask], for hearsay campaign. It also says how good a model of the pilot's records alone is.

    The output also has a table [decision]: what was compared and chosen, and why. The card of the campaign's models
    repeats it; delete the table to keep the pilot's accuracies to yourself.

    What is chosen becomes public with the campaign, and it depends on the pilot's records. Give one record per person:
    accuracies are measured on other records of the pilot, and a copy of a record is no other record.

    With --private-epsilon the choice is differentially private. Candidates are made from noisy tables of one part of
    the records and compared on a second; a third says how accurate the chosen one is. Numbers are asked about in the
    schema's bins, or in two or three joined from these. The cost is paid from a budget file to which the records were
    assigned. All that is written, and printed on standard output, is public or has noise; a refusal may name a cell of
    the records, for you alone.

    \b
    Example:
      hearsay design pilot.csv --schema schema.toml --epsilon 1 --devices 100000 -o asked.toml
      hearsay design patients.csv --schema public.toml --epsilon 1 --devices 100000 -o asked.toml \\
          --private-epsilon 0.5 --budget ward.hsb
    """  # noqa: D301
    from aggregator.operations.designs import design as make_design
    from aggregator.planning.feature_selection.from_pilot import as_json as design_json
    from aggregator.planning.feature_selection.from_pilot import percent, shown_path

    if (private_epsilon is None) != (budget is None):
        raise wrong_usage("--private-epsilon and --budget go together")
    if budget is not None and trust != "local":
        raise wrong_usage("--private-epsilon chooses for --trust local; for two collectors leave it out")
    check_files(output, inputs=[pilot, schema_file, *([] if budget is None else [budget])])
    file = load_schema(schema_file)
    if private_epsilon is not None and budget is not None:
        wanted = micro_epsilon(private_epsilon), devices, micro_epsilon(epsilon), seed
        _privately(pilot, file, budget, wanted, missing, output)
        return
    with working("choosing what to ask"):
        found = make_design(
            pilot, file, epsilon=epsilon, devices=devices, missing=missing, seed=seed, trust=trust, delta=delta
        )
    write_file(output, schema_text(found.file).encode())
    if as_json():
        print_json({"schema": str(output), **design_json(found)})
        return
    print_table(["features", "accuracy", "asked"], shown_path(found, file.schema), numeric=["features"])
    click.echo()
    assert found.fleet is not None
    assert found.alone is not None
    print_facts(
        {
            "schema": output,
            "asked": listed(asked_names(found.file.ask)),
            "largest class": percent(found.largest),
            "accuracy of the fleet's model": f"{found.fleet.shown}, on records that chose nothing",
            f"accuracy of {found.source}": f"{found.alone.shown}, on records that chose nothing",
        }
    )
    if found.unlabelled:
        note(f"{found.unlabelled} records were left out: they have no class that the schema lists")
    note(found.verdict)
    note(
        f"next: hearsay campaign {output} --workspace WORK …; the pilot can count in its model too: "
        f"hearsay count {pilot} --campaign CAMPAIGN.hsc --workspace WORK --consent TEXT"
    )
    _compare(found.fleet, found.largest)


def _privately(
    pilot: Path,
    file: SchemaFile,
    budget_file: Path,
    wanted: tuple[int, int, int, int],
    missing: Sequence[str],
    output: Path,
) -> None:
    """Choose privately what to ask; write the schema. ``wanted``: ε of records, devices, ε of an answer, seed."""
    from aggregator.common.tables import read_table
    from aggregator.curator.budget import BudgetFile
    from aggregator.planning.feature_selection.from_pilot import percent
    from aggregator.planning.feature_selection.from_private_pilot import DesignTerms, design_records

    epsilon_micro, *fleet = wanted
    with BudgetFile.open(budget_file) as budget, working("choosing what to ask"):
        terms = DesignTerms(epsilon_micro, budget.adjacency, *fleet)
        found = design_records(read_table(pilot), file, terms, budget, missing=missing)
    write_file(output, schema_text(found.file).encode())
    facts = found.to_json()
    if as_json():
        print_json({"schema": str(output), **facts})
        return
    rows = [(name, one["way"], one["codes"]) for name, one in facts["asked"].items()]
    print_table(["asked", "how", "codes"], rows, numeric=["codes"])
    click.echo()
    accurate = "not known" if found.accuracy is None else f"{found.accuracy.shown}, on records that chose nothing"
    print_facts(
        {
            "schema": output,
            "candidates": found.candidates,
            "accuracy, with noise": accurate,
            "largest class, with noise": percent(found.largest),
            "private epsilon": facts["private_epsilon"],
            "adjacency": facts["adjacency"],
            "budget": facts["budget"],
        }
    )
    note("every number here is public or has noise; what is chosen may be published")
    if found.accuracy is not None:
        _compare(found.accuracy, found.largest)


def _compare(accuracy: Accuracy, largest: tuple[str, float]) -> None:
    name, share = largest
    if accuracy.low <= share:
        said = "is not" if accuracy.accuracy <= share else "may not be"
        warn(
            f"the accuracy ({accuracy.shown}) {said} above the share of the largest class, {quoted(name)} "
            f"({share:.1%}): plan more devices, a larger ε, or other features"
        )
