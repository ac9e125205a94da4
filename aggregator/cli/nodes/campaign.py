"""``hearsay nodes campaign``: sign a campaign that asks nodes for sums over their records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.nodes.describe import cost_facts, noise_text
from aggregator.cli.options import (
    PATH,
    contact_option,
    force_option,
    json_option,
    life_option,
    output_option,
    passphrase_option,
    workspace_option,
)
from aggregator.cli.output import say, signed_facts, warn, warn_of_draft
from aggregator.cli.passphrase import existing_passphrase
from aggregator.files import check_output

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.documents.campaign import Campaign


@click.command()
@click.argument("schema_file", type=PATH, metavar="SCHEMA.toml")
@workspace_option
@click.option("--list", "nodes", required=True, metavar="NAME", help="Node list: only its nodes count.")
@click.option("--epsilon", required=True, help="ε of one summary, for one record more or less, for example 1.0.")
@click.option(
    "--max-records",
    type=click.IntRange(1, 1 << 40),
    required=True,
    help="Most records of one node; public. It bounds what one node can claim.",
)
@click.option(
    "--least-epsilon", help="Smallest ε of a summary, for owners who want more noise; default: the campaign's ε."
)
@click.option(
    "--sensitivity",
    type=click.Choice(["global", "smooth"]),
    default="global",
    show_default=True,
    help="How noise is calibrated: smooth covers changed features of a record alone (docs/federated.md).",
)
@click.option(
    "--family",
    type=click.Choice(["discrete", "gaussian"]),
    help="Model; default: gaussian, or discrete if the schema has no number.",
)
@click.option("--variance-floor", help="Gaussian: smallest variance of a number in [-1, 1]; default 0.0001.")
@click.option("--projection", type=PATH, help="File made by hearsay projection, to embed.")
@click.option(
    "--ask", help="Features or components to sum, like odor,gill-size; default: the table [ask] of SCHEMA.toml, or all."
)
@output_option
@click.option("--name", help="Default: the schema's name. Versions rise per name.")
@click.option("--purpose", default="", help="Purpose, as a sentence for the owner of a node.")
@contact_option
@click.option(
    "--period", default="30d", show_default=True, help="A node sends one summary per period: seconds, 12h, 7d."
)
@life_option(30, "campaign")
@click.option(
    "--min-batch-size",
    type=click.IntRange(1, (1 << 32) - 1),
    default=1,
    show_default=True,
    help="Publish nothing from fewer nodes.",
)
@click.option("--postprocess", default="floored", show_default=True, help="How sums become probabilities.")
@passphrase_option
@force_option
@json_option
def campaign(
    schema_file: Path,
    workspace: Path,
    nodes: str,
    epsilon: str,
    max_records: int,
    least_epsilon: str | None,
    sensitivity: str,
    family: str | None,
    variance_floor: str | None,
    projection: Path | None,
    ask: str | None,
    output: Path,
    name: str | None,
    purpose: str,
    contact: str,
    period: str,
    days: int,
    min_batch_size: int,
    postprocess: str,
    passphrase_file: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Sign a campaign for nodes: what they sum over their records, at what ε, for how long.

    ε is what one summary spends on each person with one record in it: readers can hardly tell whether the record is
    there. A changed record is one removed and one added, and costs 2ε. A node's owner chooses in the node's policy
    which of the two its ledger books; by default it is 2ε.

    Every summary has the same sums: counts of the classes, counts of class × value, and for the family gaussian sums of
    numbers and of their squares by class. ε is divided equally among these vectors. A node sends a summary once per
    period; records that are in the summaries of two periods count, and cost, twice.

    hearsay campaign --end NAME ends a campaign for nodes, too.

    \b
    Example:
      hearsay nodes campaign schema.toml --workspace work --list clinics --epsilon 1 --max-records 100000 -o c.hsc
    """  # noqa: D301
    from aggregator.publishing.nodes.campaigns import make_node_campaign
    from aggregator.publishing.workspace import open_workspace

    check_output(output, force=force)
    made = make_node_campaign(
        open_workspace(workspace, existing_passphrase(passphrase_file)),
        schema_file,
        epsilon=epsilon,
        nodes=nodes,
        max_records=max_records,
        least_epsilon=least_epsilon,
        sensitivity=sensitivity,
        family=family,
        projection=projection,
        ask=ask,
        variance_floor=variance_floor,
        name=name,
        purpose=purpose,
        contact=contact,
        period=period,
        days=days,
        min_batch_size=min_batch_size,
        now=int(time.time()),
        postprocess=postprocess,
    )
    made.save(output, force=force)
    say(_facts(made.campaign, output, as_json=as_json), as_json=as_json)
    for warning in made.warnings:
        warn(warning)
    warn_of_draft(made.standing, output)


def _facts(made: Campaign, output: Path, *, as_json: bool) -> dict[str, Any]:
    """The facts about a signed campaign for nodes that the command prints."""
    from aggregator.publishing.nodes.sheet import node_sheet
    from aggregator.publishing.privacy import periods

    assert made.nodes is not None
    sheet = node_sheet(made)
    return {
        **signed_facts(made, output),
        "node_list": made.nodes.list_name,
        "max_records": made.nodes.max_records,
        "queries": len(sheet.vectors),
        "numbers": sheet.numbers,
        **cost_facts(made, sheet, as_json=as_json),
        "periods": periods(made),
        "noise": [vector.deviation for vector in sheet.vectors] if as_json else noise_text(sheet),
    }
