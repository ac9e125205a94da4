"""``hearsay merge``: join report files into one. Run by a gateway."""

from __future__ import annotations

from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.inputs import campaign_of, recursive_option, report_files
from aggregator.cli.options import PATH
from aggregator.cli.output import forced, progress, say
from aggregator.common.facts import all_said, stated
from protocol.errors import InputError


@click.command()
@click.argument("files", nargs=-1, required=True)
@recursive_option
@click.option(
    "--campaign",
    "campaign_file",
    type=PATH,
    metavar="CAMPAIGN",
    help="Keep only reports of this campaign. Its batches are then read even with a changed bit in the header.",
)
@options.naming_workspace
@options.output
@options.memory("256MiB")
@options.force
@options.json
def merge(
    files: tuple[str, ...],
    campaign_file: Path | None,
    workspace: Path | None,
    output: Path,
    memory: int,
    *,
    recursive: bool,
) -> None:
    """Join report files into one, sorted by report id. The order then does not tell where a report came from.

    A gateway runs it before it passes reports on: the output does not tell in which file, where or when a report came.
    Counts do not change: identical reports become one, different reports with the same id stay, and reports of damaged
    files stay unproven. If a file can not be read, nothing is written.

    FILES are as for ingest: files, folders, patterns in quotes, URLs, - for names on standard input; plain or
    compressed by gzip or zstd.

    \b
    Example:
      hearsay merge inbox/*.hsr -o today.hsr && rm inbox/*.hsr
    """  # noqa: D301
    from aggregator.reports.gateway import merge_files
    from aggregator.reports.intake.sources import expand

    campaign = None if campaign_file is None else campaign_of(campaign_file, workspace)
    given = expand(report_files(files, recursive=recursive))
    for name in (str(each) for each in given if str(each).endswith(".hsn")):
        raise InputError("wrong_role", f"'{name}' holds summaries of nodes; to join such files, concatenate them (cat)")
    with progress("reading reports", len(given)) as step:
        summary = merge_files(given, output, campaign=campaign, memory_bytes=memory, force=forced(), progress=step)
    facts = {
        "files": summary.files,
        "campaigns": summary.campaigns,
        "reports written": summary.proven + summary.unproven,
        "of them from damaged files": summary.unproven,
        "identical ones left out": summary.repeated,
        **({"damaged copies left out": summary.superseded} if summary.superseded else {}),
        **{f"left out: {reason}": count for reason, count in summary.rejected.items()},
    }
    say([*map(stated, summary._fields, summary), stated("output", str(output)), *all_said(facts)])
