"""The command of the operator who keeps reports no longer than needed: ``forget``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from aggregator.cli.making import json_option
from aggregator.cli.output import print_facts, print_json, working
from aggregator.cli.sizes import memory_option


@click.command()
@click.option("--store", type=click.Path(path_type=Path), required=True, help="Folder made by hearsay ingest.")
@click.option("--before", type=click.IntRange(min=0), metavar="PERIOD", required=True, help="First period to keep.")
@memory_option("1GiB")
@json_option
def forget(store: Path, before: int, memory: int, *, as_json: bool) -> None:
    """Remove the reports of earlier periods and keep their counts. There is no way back.

    Estimates and models stay the same, of all periods or of some. Reports of these periods that arrive
    later are refused as period_forgotten. The quarantine and the input files are not touched.

    \b
    Example:
      hearsay forget --store store --before 20770
    """  # noqa: D301
    from aggregator.intake.store import open_store

    opened = open_store(store)
    opened.memory_bytes = memory
    with working("removing reports"):
        removal = opened.forget(before, now=int(time.time()))
    if as_json:
        print_json(removal._asdict())
        return
    print_facts(
        {"periods forgotten before": removal.before, "reports removed": removal.removed, "reports kept": removal.kept}
    )
