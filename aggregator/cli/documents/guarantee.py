"""``hearsay guarantee``: print what a campaign promises, and what lying devices can do to its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from aggregator.cli.documents.describe import MAX_FILE_BYTES
from aggregator.cli.masked.guarantee import print_masked_guarantee
from aggregator.cli.nodes.guarantee import print_guarantee
from aggregator.cli.options import PATH, json_option
from aggregator.cli.output import print_facts, print_json, print_table, warn
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope, role_of
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.shown import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.guarantee.manipulation import Bound
    from aggregator.guarantee.sheet import Central, GuaranteeSheet


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
@json_option
@click.pass_context
def guarantee(
    context: click.Context,
    file: Path,
    devices: int | None,
    records: float | None,
    delta: float,
    liars: tuple[float, ...],
    *,
    shuffled: bool,
    as_json: bool,
) -> None:
    """Print the guarantee sheet of a campaign: ε, privacy after shuffling, the reach of lies, and what stays unseen.

    ε is what one device spends per period, per day and in the campaign's life, under the default limits of owners. The
    central ε of shuffled reports is printed only where it applies; otherwise the sheet says why not. hearsay merge
    shuffles: it mixes the reports of many devices by their ids.

    The reach of lies is how far a share of lying devices moves an estimated share or mean at most. In a closed fleet
    ids are enrolled and decide the question. In an open fleet liars choose it.

    Of a campaign for nodes: ε of a summary for one record more or less and for a changed one, and how far lying nodes
    move the share of a class. Summaries are signed, so shuffling hides nothing there. Of a masked campaign: ε and δ of
    a message, the dealer and the share of honest parties that the guarantee rests on, and the smallest set.

    Signatures are not checked, and no report is read; see hearsay verify and hearsay status.

    \b
    Example:
      hearsay guarantee c.hsc --devices 100000 --shuffled
      hearsay guarantee clinics.hsc --devices 100 --records 5000 --liars 0.1
    """  # noqa: D301
    from aggregator.files import read_file
    from aggregator.guarantee.sheet import guarantee_sheet

    raw = read_file(file, MAX_FILE_BYTES)
    role = role_of(raw)
    if role != "campaign":
        raise InputError("not_a_campaign", f"'{file}' is no campaign")
    payload = read_envelope(raw, role).payload
    if (found := parse_campaign(payload)).nodes is not None:
        _check_for_nodes(context, shuffled=shuffled)
        if found.masked is not None:
            print_masked_guarantee(found, devices, as_json=as_json)
            return
        print_guarantee(found, devices, records, liars, as_json=as_json)
        return
    if records is not None:
        raise click.UsageError("--records is about campaigns for nodes, and this one is for devices", context)
    sheet = guarantee_sheet(payload, devices=devices, delta=delta, shuffled=shuffled, liars=liars)
    if as_json:
        print_json(sheet.to_json())
        return
    _print_sheet(sheet)


def _check_for_nodes(context: click.Context, *, shuffled: bool) -> None:
    """Refuse options that a campaign for nodes has no use for.

    Raises:
        click.UsageError: ``--shuffled`` or ``--delta`` is on the command line.
    """
    if shuffled or context.get_parameter_source("delta") == ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "--shuffled and --delta are about reports of devices; the summaries of nodes are signed by them", context
        )


def _print_sheet(sheet: GuaranteeSheet) -> None:
    from aggregator.cli.documents.verify import rounded_up
    from aggregator.publishing.privacy import campaign_warning

    header, spent, central = sheet.campaign.header, sheet.spending, sheet.central
    series = sheet.campaign.series
    print_facts(
        {
            "campaign": f"{header.name}, version {header.version}",
            "ε per period": f"{format_micro(spent.period)} declared, {rounded_up(sheet.privacy.total)} exact",
            "ε per day": f"at most {format_micro(spent.day)}, under the default limits of a device's owner",
            "ε in its life": f"at most {format_micro(spent.life)}: {spent.answered} of {spent.periods} periods",
        }
        | ({} if series is None else {"series": f"{quoted(series.name)}: a device answers once in all of it"})
        | {f"private pilot {number}": cost.shown for number, cost in enumerate(sheet.campaign.pilots, 1)}
        | _shuffled(central)
    )
    for obstacle in central.obstacles:
        click.echo(f"  - {obstacle}")
    if not central.obstacles:
        click.echo("  - against readers of the shuffled reports: not the shuffler, not holders of the fleet's secrets")
        click.echo("  - the devices counted are honest, and their reports are mixed together in every period")
        click.echo("  - k periods of one device cost at most k times ε and k times δ")
        if central.devices is not None and central.delta * central.devices >= 1:
            click.echo("  - δ is not below 1/N: so large a δ allows to publish one of the N reports as it is")
    if sheet.lies:
        click.echo()
        _print_lies(sheet.lies, central.devices)
    if sheet.unseen:
        click.echo()
        click.echo("no test of the reports can see:")
    for sentence in sheet.unseen:
        click.echo(f"  - {sentence}")
    warning = campaign_warning(sheet.campaign)
    if warning:
        warn(warning)


def _shuffled(central: Central) -> dict[str, str]:
    """The lines about shuffled reports."""
    if central.bounds is None:
        return {"central ε after shuffling": "not stated:"}
    bounds, name = central.bounds, f"central ε after shuffling, δ = {central.delta:g}"
    way = "numeric bound"
    if central.by_stratum:
        way = f"sum of the strata, each at δ/r; all answers of a device together: {bounds.numeric:.4g}"
    elif central.epsilon != bounds.numeric:
        way = "closed form"
    found = {name: f"{central.epsilon:.4g} ({way}), {central.devices} devices, local ε {central.local:.4g}"}
    if bounds.closed_form is not None and bounds.printed is not None:
        label = "closed form, all answers" if central.by_stratum else "closed form"
        found[label] = f"{bounds.closed_form:.4g} (Theorem 3.1 as printed: {bounds.printed:.4g})"
    return found


def _print_lies(lies: tuple[Bound, ...], devices: int | None) -> None:
    """Print how far lies move shares and means."""
    shares = list(lies[0].closed)
    heads = [f"{fleet} {share:.12g}" for fleet in ("closed", "open") for share in shares]
    rows = [
        (
            bound.estimate,
            bound.mechanism,
            f"{bound.one_answer:.2f}",
            *(f"{moved:.4f}" for each in (bound.closed, bound.open) for moved in each.values()),
        )
        for bound in lies
    ]
    print_table(["estimate", "mechanism", "one answer", *heads], rows, ["one answer", *heads])
    fleet = "many devices" if devices is None else f"{devices} devices"
    click.echo(
        f"how far a share of lying devices, of {fleet}, moves an estimated share or mean at most, before estimates are "
        "cut to their range; one answer moves a count of devices"
    )
