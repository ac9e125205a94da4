"""``hearsay report``: a store or a model as a page to read in a browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.options import PATH
from aggregator.cli.output import check_files, forced, say, warn, working


@click.command()
@click.argument("given", type=PATH, metavar="STORE|MODEL...", nargs=-1, required=True)
@click.option("--evaluation", type=PATH, multiple=True, metavar="STORE",
              help="Store of an evaluation of the model; repeatable. Its accuracy is shown.")  # fmt: skip
@options.signers("campaign or model")
@click.option("--schema", type=PATH, metavar="SCHEMA.toml",
              help="Of a store: shows the decision in this file; default: the one in the workspace.")  # fmt: skip
@click.option("--periods", metavar="A..B", help="Of a store: only these periods or days, both ends included, UTC.")
@click.option("--one-population", is_flag=True, help="Declare that all stores are of samples of one population.")
@click.option("--disjoint", is_flag=True, help="Declare that no device answered in two of the stores.")
@options.counted_records
@options.output
@options.force
@options.json
def report(given: tuple[Path, ...], output: Path, **how: Any) -> None:
    """Write a page about one or several stores, or about a model: one HTML file without scripts.

    The page says UNVERIFIED at its top unless --trust or --workspace is given.

    \b
    Example:
      hearsay report store --workspace work -o page.html
      hearsay report m.hsm --trust root.hst -o model.html
    """  # noqa: D301
    from aggregator.page.report import report as make

    check_files(output)
    with working("counting reports"):
        made = make(list(given), now=int(time.time()), **how)
    made.save(output, force=forced())
    facts = {"page": str(output), "about": made.kind, "verified": made.verified, "bytes": len(made.html.encode())}
    say(facts)
    if not made.verified:
        warn("signatures were not checked; give --trust or --workspace")
