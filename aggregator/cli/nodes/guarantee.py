"""The guarantee sheet of a campaign for nodes, as ``hearsay guarantee`` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aggregator.cli.nodes.describe import cost_text, noise_text
from aggregator.cli.output import counted, print_facts, print_json, print_table, warn
from aggregator.publishing.nodes.sheet import is_refused
from protocol.epsilon import format_micro

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.guarantee.nodes import NodeGuarantee
    from protocol.documents.campaign import Campaign


def print_guarantee(
    found: Campaign, nodes: int | None, records: float | None, liars: Sequence[float], *, as_json: bool
) -> None:
    """Compute and print the guarantee sheet of a campaign for nodes.

    Args:
        found: the campaign.
        nodes: number of nodes; None if it is not known.
        records: mean number of records of an honest node; None for several examples.
        liars: shares of lying nodes.
        as_json: whether to print one JSON object.
    """
    from aggregator.guarantee.nodes import node_guarantee
    from aggregator.publishing.nodes.sheet import warning_of

    sheet = node_guarantee(found, nodes=nodes, records=records, liars=liars)
    if as_json:
        print_json(sheet.to_json())
    else:
        _print_facts(sheet)
        click.echo()
        _print_reach(sheet, liars, nodes)
        click.echo()
        click.echo("no test of the summaries can see:")
        for sentence in sheet.unseen:
            click.echo(f"  - {sentence}")
    if warning := warning_of(found):
        warn(warning)


def _print_facts(sheet: NodeGuarantee) -> None:
    """Print what one summary costs, per period and in the campaign's life."""
    found, spent = sheet.campaign, sheet.spending
    assert found.nodes is not None
    header = found.header
    limits = (
        "if the owner's policy allows it; under the default policy a node refuses the campaign"
        if is_refused(found)
        else "under the default limits of a node's owner"
    )
    print_facts(
        {
            "campaign": f"{header.name}, version {header.version}, for nodes of the list '{found.nodes.list_name}'",
            "ε per period": cost_text(sheet.privacy),
            "ε per day": f"at most {format_micro(spent.day)} booked, {limits}",
            "ε in its life": f"at most {format_micro(spent.life)} booked: {spent.answered} of "
            f"{counted(spent.periods, 'period')}",
            "covers": "each record of a node, against all who see summaries and models, the aggregator included",
            "noise": noise_text(sheet.privacy),
            "most claimed": f"{sheet.most_claimed} records for each count by one node, whatever it has; the share of a "
            f"class is pooled from {counted(sheet.tables, 'table')} of counts",
        }
        | {f"private pilot {number}": cost.shown for number, cost in enumerate(found.pilots, 1)}
    )


def _print_reach(sheet: NodeGuarantee, liars: Sequence[float], nodes: int | None) -> None:
    """Print how far lying nodes move the share of a class."""
    heads = [f"{share:.12g} of the nodes lie" for share in liars]
    rows = [(f"{row.records:g}", *(f"{moved:.4f}" for moved in row.moved.values())) for row in sheet.reach]
    print_table(["records of a node", *heads], rows, ["records of a node", *heads])
    of = "many nodes" if nodes is None else counted(nodes, "node")
    click.echo(
        f"how far a share of lying nodes, of {of}, moves the share of a class at most, when sums are added as they "
        "come. The smaller max_records, the less"
    )
