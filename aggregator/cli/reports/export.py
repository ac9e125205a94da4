"""``hearsay export``: write a store's reports to one file."""

from __future__ import annotations

from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.counting import chosen_periods
from aggregator.cli.output import as_json, forced, note, say, working, wrong_usage
from aggregator.common.facts import Fact, stated
from aggregator.common.periods import Span, shown
from aggregator.reports.tally.scope import scope_of


@click.command()
@options.store
@click.option("--format", "kind", type=click.Choice(["parquet", "csv", "hsn", "hse"]), required=True,
              help="What to write; hsn for summaries of nodes, hse for masked messages.")  # fmt: skip
@options.periods()
@click.option("--all", "everything", is_flag=True, help="All records as stored: repeats and conflicts too.")
@click.option("--proven-only", is_flag=True, help="Leave out reports of damaged files.")
@options.memory("1GiB")
@options.output
@options.force
@options.json
def export(
    store: Path, kind: str, periods: Span | None, memory: int, output: Path, *, everything: bool, proven_only: bool
) -> None:
    """Write a store's reports to one file, for an archive or another engine.

    By default exactly the reports that are counted: one per id, none in conflict. Columns: id (in CSV 16
    hexadecimal digits), period, start, question, asked, answer, proven. Answers are the perturbed answers of
    devices; nothing is estimated.

    Summaries of nodes are written as they were signed (hsn), sorted: equal sets of summaries give equal files, for
    another aggregator or for hearsay-edge node exchange.

    \b
    Example:
      hearsay export --store store --format csv --periods 2026-11-01..2026-11-30 -o november.csv
    """  # noqa: D301
    from aggregator.cli.nodes.stores import export_summaries
    from aggregator.nodes.store.opening import is_node_store
    from aggregator.operations.export import export as export_reports
    from aggregator.operations.report_store import open_store

    of_nodes = kind in ("hsn", "hse")
    if is_node_store(store) != of_nodes:
        raise wrong_usage(
            "summaries of nodes are exported as hsn, masked messages as hse, reports of devices as parquet or csv"
        )
    if of_nodes:
        export_summaries(store, kind, periods, output, everything=everything)
        return
    opened = open_store(store)
    opened.memory_bytes = memory
    scope = scope_of(chosen_periods(periods, opened.campaign), proven_only=proven_only)
    with working("writing reports"):
        written = export_reports(opened, output, kind, scope=scope, everything=everything, force=forced())
    facts = [Fact(*pair) if pair[0] == "reports" else stated(*pair) for pair in written._asdict().items()]
    say([*facts, Fact("output", str(output), label="written")])
    if written.forgotten_before and not as_json():
        first = shown(written.forgotten_before, opened.campaign.time_precision)
        note(f"reports of periods before {first} were forgotten and are not in the file")
