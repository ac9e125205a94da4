"""``hearsay forget``: remove reports of earlier periods and keep their counts."""

from __future__ import annotations

import time
from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.options import read_start
from aggregator.cli.output import say, working
from aggregator.common.facts import all_said, stated
from aggregator.common.periods import Moment, shown
from protocol.errors import StorageError


@click.command()
@options.store
@click.option("--before", callback=read_start, metavar="PERIOD", required=True,
              help="First period to keep, by number or by a day in it (UTC): 2026-11-22.")  # fmt: skip
@options.memory("1GiB")
@options.json
def forget(store: Path, before: Moment, memory: int) -> None:
    """Remove the reports of earlier periods and keep their counts. This can not be undone.

    Estimates and models stay the same, for all periods and for some. Reports of these periods that arrive later are
    refused as period_forgotten. The quarantine and the input files stay. Summaries of nodes are not forgotten: they
    are noisy sums, and must be at hand when a newer list of nodes, or a contradiction, takes one out of the sums.

    \b
    Example:
      hearsay forget --store store --before 2026-11-22
    """  # noqa: D301
    from aggregator.nodes.store.opening import is_node_store
    from aggregator.operations.report_store import open_store

    if is_node_store(store):
        raise StorageError(
            "store_of_nodes",
            "summaries of nodes are kept: a later contradiction, or a newer list of nodes, takes one out of the sums; "
            "to forget all of them, delete the store's folder",
        )
    opened = open_store(store)
    opened.memory_bytes = memory
    with working("removing reports"):
        removal = opened.forget(before.period(opened.campaign.time_precision), now=int(time.time()))
    before_date = shown(removal.before, opened.campaign.time_precision)
    said = {"periods forgotten before": before_date, "reports removed": removal.removed, "reports kept": removal.kept}
    say([*map(stated, removal._fields, removal), *all_said(said)])
