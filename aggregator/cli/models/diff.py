"""``hearsay diff``: what changed between two models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.inputs import open_model
from aggregator.cli.options import PATH, Selection, read_span, says_missing
from aggregator.cli.output import as_json, note, print_facts, print_json, print_table, warn
from aggregator.common.periods import Span

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics
    from aggregator.models.comparison import Change
    from aggregator.models.scoring import Model


COLUMNS = ("parameter", "old", "new", "change", "95 % interval of raw change", "p")
SHOWN = 20


@click.command()
@click.argument("old_file", type=PATH, metavar="OLD")
@click.argument("new_file", type=PATH, metavar="NEW")
@options.signers("model")
@click.option("--store", type=PATH, help="Store of the reports that NEW was made from.")
@options.periods()
@click.option("--old-store", type=PATH, help="Store of the reports that OLD was made from; default: --store.")
@click.option("--old-periods", callback=read_span, metavar="A..B", help="The same for OLD; --periods is for NEW.")
@click.option("--data", type=PATH, help="CSV file: also say how many of its records both models class alike.")
@options.missing
@click.option("--all", "every", is_flag=True, help=f"Show every parameter, not only the {SHOWN} that changed most.")
@options.json
def diff(
    old_file: Path,
    new_file: Path,
    trust: Path | None,
    workspace: Path | None,
    store: Path | None,
    periods: Span | None,
    old_store: Path | None,
    old_periods: Span | None,
    data: Path | None,
    missing: tuple[str, ...],
    *,
    every: bool,
) -> None:
    """Show what changed between two models of one label, and which changes are more than noise.

    OLD and NEW are files or, with --workspace, names, NAME@VERSION or ids. Values are those that devices use. With
    --store the change of the raw estimates gets a 95 % interval and a p-value, adjusted by Holm's method for all
    parameters. Both samples are taken as independent: where the models share reports or devices, the interval is too
    wide. A parameter that the reports do not determine has neither, nor has a value that only one of the campaigns
    asked about in this group. Features that only one of the models has are named and not compared.

    Counts of records (hearsay count) are not read: of a model made with some, the interval is about the store alone.

    \b
    Example:
      hearsay diff mushrooms@1 mushrooms@2 --workspace work --data new.csv
      hearsay diff m1.hsm m2.hsm --store st --old-periods 2026-10-01..2026-10-31 --periods 2026-11-01..2026-11-30
    """  # noqa: D301
    from aggregator.models.comparison import compare, counts, largest, unshared

    if store is None and any(option is not None for option in (periods, old_store, old_periods)):
        raise click.UsageError("--periods, --old-periods and --old-store are for a store's reports: give --store too")
    if data is None and says_missing():
        raise click.UsageError("--missing and --not-missing are for the records of --data: give --data too")
    old, new = (open_model(path, trust, workspace) for path in (old_file, new_file))
    before = _counted(old_store or store, old_periods, old, "OLD")
    after = _counted(store, periods, new, "NEW")
    rows = compare(old, new, before, after)
    about: dict[str, object] = dict(counts(rows))
    for which, one, other in (("OLD", old, new), ("NEW", new, old)):
        if alone := unshared(one, other):
            about[f"features of {which} alone"] = ", ".join(alone)
    if data is not None:
        about["classed alike"] = _alike(old, new, data, missing)
    if as_json():
        print_json({**about, "changes": [row.to_json() for row in rows]})
        return
    print_facts(about)
    print_table(COLUMNS, map(_row, rows if every else largest(rows, SHOWN)), COLUMNS[1:])
    if not every and len(rows) > SHOWN:
        note(f"the {SHOWN} of {len(rows)} parameters that changed most; --all shows all")
    if before is None or after is None:
        note("no intervals: --store counts the reports that the models were made from")


def _counted(store: Path | None, periods: Span | None, model: Model, which: str) -> Statistics | None:
    """Return statistics of a model's ``store``; None without one. Print a warning if it was made from other reports."""
    from aggregator.cli.counting import count_each

    if store is None:
        return None
    ((statistics, _),) = count_each(Selection((store,), periods=periods))
    statistics.check_publishable()
    document = model.document
    if document is not None and document.statistics_id != statistics.statistics_id:
        warn(f"{which} was made from other reports than those that this store now has in these periods")
    return statistics


def _alike(old: Model, new: Model, data: Path, missing: tuple[str, ...]) -> str:
    from aggregator.common.tables import read_table, typed
    from aggregator.models.comparison import agreement

    table = read_table(data)
    records = [typed(table, model.schema, missing) for model in (old, new)]
    return f"{agreement(old, new, *records):.1%} of {len(table)} records"


def _row(row: Change) -> tuple[str, ...]:
    ends = "" if row.low is None or row.high is None else f"{row.low:+z.3f} to {row.high:+z.3f}"
    p = "" if row.p is None else f"{row.p:.2g}{' *' if row.significant else ''}"
    return row.parameter, f"{row.old:z.3f}", f"{row.new:z.3f}", f"{row.new - row.old:+z.3f}", ends, p
