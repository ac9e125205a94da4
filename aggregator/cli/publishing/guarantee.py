"""``hearsay guarantee``: print what a campaign promises, and what lying devices can do to its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aggregator.cli import options
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, print_json, print_sheet, warn, wrong_usage
from aggregator.cli.publishing.show import MAX_FILE_BYTES
from aggregator.common.files import read_file
from aggregator.nodes.campaigns.sheet import warning_of
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope, role_of
from protocol.errors import InputError


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--devices",
    type=click.IntRange(1, 10**15),
    metavar="N",
    help="Number of devices, or nodes, that answer in a period.",
)
@click.option(
    "--records", type=click.FloatRange(0, 2**40, min_open=True), metavar="R",
    help="Of a campaign for nodes: mean number of records of a node.",
)  # fmt: skip
@click.option("--delta", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=1e-6, show_default=True,
              metavar="D", help="Probability with which the central ε of shuffled reports may fail.")  # fmt: skip
@click.option("--shuffled", is_flag=True, help="An anonymous shuffler mixes the reports before anybody reads them.")
@click.option(
    "--liars",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    default=(0.01, 0.05),
    show_default=True,
    metavar="B",
    help="Share of lying devices. Repeat it for several shares.",
)
@options.json
@click.pass_context
def guarantee(context: click.Context, /, file: Path, **asked: Any) -> None:
    """Print the guarantee sheet of a campaign: ε, privacy after shuffling, the reach of lies, and what stays unseen.

    ε is what one device spends per period, per day and in the campaign's life, under the default limits of owners. The
    central ε of shuffled reports is printed only where it applies; otherwise the sheet says why not. hearsay merge
    shuffles: it mixes the reports of many devices by their ids.

    The reach of lies is how far a share of lying devices moves an estimated share or mean at most. In a closed fleet
    ids are enrolled and decide the question. In an open fleet liars choose it.

    Of a campaign for nodes: ε of a summary for one record more or less and for a changed one, and how far lying nodes
    move the share of a class. Summaries are signed, so shuffling hides nothing there. Of a masked campaign: ε and δ of
    a message, the dealer and the share of honest parties that the guarantee rests on, and the smallest set. Of a shared
    campaign: ε and δ of a report against readers and one collector, the noise of a cell, what one liar moves.

    Signatures are not checked, and no report is read; see hearsay verify and hearsay status.

    \b
    Example:
      hearsay guarantee c.hsc --devices 100000 --shuffled
      hearsay guarantee clinics.hsc --devices 100 --records 5000 --liars 0.1
    """  # noqa: D301
    from aggregator.operations.campaigns import guarantee_sheet

    raw = read_file(file, MAX_FILE_BYTES)
    role = role_of(raw)
    if role != "campaign":
        raise InputError("not_a_campaign", f"'{file}' is no campaign")
    found = parse_campaign(read_envelope(raw, role).payload)
    if found.shared is not None:
        _check_for_shares(context)
    if found.nodes is not None:
        _check_for_nodes(context, shuffled=asked["shuffled"])
    elif asked["records"] is not None:
        raise wrong_usage("--records is about campaigns for nodes, and this one is for devices")
    sheet = guarantee_sheet(raw, **asked)
    if as_json():
        print_json(sheet.to_json())
        return
    print_sheet(sheet.facts)
    if found.masked is None and (warning := warning_of(found)):
        warn(warning)


def _check_for_shares(context: click.Context) -> None:
    for name in ("shuffled", "delta", "liars"):
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise wrong_usage(f"--{name} is not about shared campaigns: their sheet states δ and what one liar moves")


def _check_for_nodes(context: click.Context, *, shuffled: bool) -> None:
    if shuffled or context.get_parameter_source("delta") == ParameterSource.COMMANDLINE:
        raise wrong_usage(
            "--shuffled and --delta are about reports of devices; the summaries of nodes are signed by them"
        )
