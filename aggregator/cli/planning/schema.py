"""``hearsay schema``: draft a schema from a pilot file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aggregator.cli import options
from aggregator.cli.curator.paying import Payment, private_options
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, counted, note, say, warn, working, write_file, wrong_usage
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.schemas.schema_file import load_schema, parse_schema_text
from protocol.epsilon import format_micro


@click.command()
@click.argument("data", type=PATH)
@click.option("--label", help="Column to predict; with --private the schema says it.")
@options.output
@click.option("--name", help="Name of campaigns made from it; default: the file's name.")
@click.option("--bins", type=int, default=4, show_default=True, help="Bins of a numeric feature.")
@options.equal_frequency
@click.option("--max-values", type=int, default=12, show_default=True, help="Integers with more values become numeric.")
@options.missing
@click.option("--drop", multiple=True, help="Column to leave out; repeatable.")
@click.option("--schema", "schema_file", type=PATH, help="With --private: the schema, with public values and bounds.")
@private_options
@options.force
@options.json
@click.pass_context
def schema(
    context: click.Context,
    data: Path,
    label: str | None,
    output: Path,
    name: str | None,
    bins: int,
    max_values: int,
    missing: tuple[str, ...],
    drop: tuple[str, ...],
    schema_file: Path | None,
    payment: Payment | None,
    *,
    equal_frequency: bool,
) -> None:
    """Draft a schema from a pilot file (CSV, plain or .gz) whose people agreed to be seen.

    Read and correct the draft: its values and bounds become public with the campaign.

    With --private nothing is drafted. The schema of --schema, with values and bounds that are known without these
    records, gets bins of about equal frequency. Their edges are differentially private, and paid from a budget file to
    which the records were assigned; all else stays as it is. All that is written, and printed on standard output, is
    public or has noise; a refusal may name a column and a line of the records, for you alone.

    \b
    Example:
      hearsay schema pilot.csv --label class --drop id -o schema.toml
      hearsay schema patients.csv --private --schema public.toml --bins 8 --epsilon 0.5 --budget ward.hsb -o s.toml
    """  # noqa: D301
    inputs = (data, schema_file, None if payment is None else payment.budget)
    check_files(output, inputs=[path for path in inputs if path is not None])
    if payment is not None:
        _check_private(context)
        if schema_file is None:
            raise wrong_usage("--private needs --schema")
        _private(data, schema_file, output, payment, bins, missing)
        return
    if label is None:
        raise wrong_usage("Missing option '--label'.")
    if schema_file is not None:
        raise wrong_usage("--schema goes with --private")
    from aggregator.common.tables import read_table, unlabelled
    from aggregator.publishing.schemas.schema_doubts import doubts
    from aggregator.publishing.schemas.schema_draft import draft_schema

    with working("reading the pilot"):
        pilot = read_table(data)
        text = draft_schema(
            pilot,
            label,
            name=(data.name.split(".")[0] or "campaign") if name is None else name,
            bins=bins,
            equal_frequency=equal_frequency,
            max_values=max_values,
            missing=missing,
            drop=drop,
        )
    write_file(output, text.encode())
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
    doubtful = doubts(pilot, label, missing, drop)
    say({**facts, "doubts": doubtful} if as_json() else facts)
    for line in doubtful:
        warn(line)
    without = unlabelled(pilot, label, missing)
    if without:
        note(f"{counted(without, 'record')} {'has' if without == 1 else 'have'} no label")
    if "numeric" in kinds:
        note("bounds of numeric features came from the pilot; replace them by bounds that are known without data")


def _check_private(context: click.Context) -> None:
    for name in ("label", "name", "equal_frequency", "max_values", "drop"):
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise wrong_usage(f"--private takes no --{name.replace('_', '-')}")


def _private(
    data: Path, schema_file: Path, output: Path, payment: Payment, bins: int, missing: tuple[str, ...]
) -> None:
    """Choose bins privately, and write the schema with them. All that is printed is public or has noise."""
    from aggregator.common.tables import read_table
    from aggregator.curator.binning import BinTerms, bin_records
    from aggregator.curator.budget import BudgetFile

    if payment.delta:
        raise wrong_usage("bins need no δ")
    file = load_schema(schema_file)
    with BudgetFile.open(payment.budget) as budget, working("drawing the bins"):
        terms = BinTerms(bins, payment.epsilon_micro, budget.adjacency)
        made = bin_records(read_table(data), file, terms, budget, missing=missing)
    write_file(output, schema_text(made).encode())
    paid = made.pilots[-1]
    facts = {"schema": str(output), "name": made.name, "made": paid.what, "epsilon": format_micro(paid.epsilon_micro)}
    say({**facts, "adjacency": paid.adjacency, "budget": paid.budget})
