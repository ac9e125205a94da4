"""``hearsay estimate``: unbiased counts of the devices' true answers, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.counting import count_stores, losses, print_populations
from aggregator.cli.options import Selection
from aggregator.cli.output import as_json, note, print_facts, print_json, print_table, wrong_usage
from aggregator.common.spreadsheets import csv_text
from protocol.documents.payload import quoted

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics


@click.command()
@options.selected(required=True)
@options.counted
@options.robust
@options.roster
@options.counted_records
@options.signers("counts of records")
@options.json
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def estimate(selection: Selection, trust: Path | None, workspace: Path | None, *, as_csv: bool) -> None:
    """Show unbiased counts of reports with standard deviations and 95 % intervals.

    Estimates are not post-processed and may be negative. Each has two intervals: one for these devices, weighted by
    their answers, and one for the population that they are drawn from. The table cuts intervals to what is possible;
    where an estimate is impossible, it compares with the best possible value, and the other end moves too. --json and
    --csv do neither. Numbers of what was set aside are for the whole store, not for --periods. In CSV a text that a
    spreadsheet would run (=1+1) gets an apostrophe in front.

    A second table has the parameters of a model: the probability of each class, and of each value (or the mean of
    each number) given the class. Beside the raw ratio of estimates is the value that hearsay publish would publish
    with the campaign's post-processing, and the two intervals. "Not determined": the reports exclude neither 0 nor 1,
    or the errors have no known law.

    Of a store of nodes' summaries the number of reports is the noisy number of records. It may be below 0, and cuts no
    interval of a count: a true count may be larger than it. --robust replaces addition by
    a rule that bounds what lying nodes can do. No interval is then stated: what lying nodes did is not known.

    Several stores add up if their campaigns state one schema, also where they ask about different features of it. A
    test compares what two of them were asked about; it refuses nothing. So do counts of records (--counts), which a key
    of --workspace or --trust must have signed.

    \b
    Example:
      hearsay estimate --store store --csv > estimates.csv
      hearsay estimate --store may --store june --one-population
      hearsay estimate --store store --periods 2026-11-01..2026-11-30 --proven-only
    """  # noqa: D301
    from aggregator.estimates.cells import COLUMNS, PARAMETER_COLUMNS, parameter_rows, rows
    from aggregator.estimates.conditional import conditionals
    from aggregator.models.published import published

    if as_json() and as_csv:
        raise wrong_usage("give --json or --csv, not both")
    if bool(selection.counts) != (trust is not None or workspace is not None):
        raise wrong_usage("--counts go with --workspace or --trust, whose key must have signed them")
    (statistics, homogeneity), _ = count_stores(selection, workspace=workspace, trust=trust)
    if statistics.reports:
        # Without reports this check is skipped: its error would hide the numbers of rejected reports, which tell why no
        # report is counted.
        statistics.check_publishable()
    values = published(statistics)
    if as_json():
        tested = {} if homogeneity is None else {"homogeneity": homogeneity.to_json()}
        print_json({**statistics.to_json(values), **tested})
        return
    if as_csv:
        click.echo(csv_text(statistics.frame(values)), nl=False)
        return
    print_facts({"reports": statistics.stated_reports} | _facts(statistics))
    for loss in losses(statistics):
        note(loss)
    print_table(COLUMNS, rows(statistics.questions, statistics.schema), COLUMNS[2:])
    parameters = parameter_rows(conditionals(statistics.questions, statistics.schema), values, statistics.schema)
    if parameters:
        click.echo()
        print_table(PARAMETER_COLUMNS, parameters, PARAMETER_COLUMNS[1:])
    print_populations(statistics.populations)
    if homogeneity is not None:
        click.echo(homogeneity)


def _facts(statistics: Statistics) -> dict[str, object]:
    """Return facts about the reports, to print. Of several campaigns: each one's reports, and sums of the rest."""
    if len(statistics.sources) == 1:
        return dict(statistics.source.facts())
    found: dict[str, int] = {}
    for source in statistics.sources:
        for name, number in source.facts().items():
            found[name] = found.get(name, 0) + number
    named = {
        f"of them {'records of' if source.counts_bytes else 'for'} {quoted(source.origin.name)}, "
        f"version {source.origin.version}": source.stated_reports
        for source in statistics.sources
    }
    return {**named, **found}
