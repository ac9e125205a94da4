"""``hearsay nodes campaign``: sign a campaign that asks nodes for sums over their records."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.nodes.describe import cost_facts, masked_facts
from aggregator.cli.options import PATH, POSTPROCESSINGS, glossary
from aggregator.cli.output import check_files, forced, say, signed_facts, warn_of_signed, wrong_usage
from aggregator.common.facts import Fact
from aggregator.estimates.sums import OF_SUMS
from aggregator.nodes.campaigns.campaigns import Masking
from aggregator.nodes.campaigns.sheet import node_sheet, noise_text
from aggregator.publishing.privacy import periods
from protocol.documents.campaign import Campaign

_MASKED = ("noise", "delta", "honest_share", "colluding_share", "most_parties", "unit")
"""Parameters that only a masked campaign has."""
_OPTIONS = options.together(
    click.option(
        "--masked",
        "dealer",
        type=PATH,
        metavar="DEALER.pub",
        help="Nodes encrypt their sums, with keys of the dealer of this public file (hearsay masked new).",
    ),
    click.option("--noise", type=click.Choice(["divided", "diluted"]), help="Masked: kind of noise; default: divided."),
    click.option("--delta", help="Masked, diluted noise: δ of a message, for example 1e-5."),
    click.option("--honest-share", metavar="G", help="Masked: share γ of parties that surely add noise, above 0 to 1."),
    click.option("--colluding-share", metavar="K", help="Masked: share κ of parties that may collude; default: 0."),
    click.option("--most-parties", type=click.IntRange(2, 1 << 16), metavar="N", help="Masked: most parties ever."),
    click.option(
        "--unit",
        type=click.Choice(["record", "party"]),
        help="Masked: what is hidden, a record or all records of a party; default: record.",
    ),
)


def _masked_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a masked campaign. The command gets ``masking``, which is None if no dealer is given."""

    @wraps(function)
    def checked(*, dealer: Path | None, **given: Any) -> None:
        stated = {name: value for name in _MASKED if (value := given.pop(name)) is not None}
        if dealer is None and stated:
            raise wrong_usage(f"--{next(iter(stated)).replace('_', '-')} is for --masked")
        if dealer is not None and not {"honest_share", "most_parties"} <= stated.keys():
            raise wrong_usage("--masked needs --honest-share and --most-parties")
        function(masking=None if dealer is None else Masking(dealer, **stated), **given)

    return _OPTIONS(checked)


@click.command(epilog=glossary(post_processings=POSTPROCESSINGS))
@click.argument("schema_file", type=PATH, metavar="SCHEMA.toml")
@options.workspace
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
    help="How noise is calibrated: smooth covers changed features of a record alone (docs/explanation/federated.md).",
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
@options.output
@options.term("node")
@options.min_batch("nodes")
@click.option("--postprocess", default=OF_SUMS, show_default=True, help="How sums become probabilities.")
@_masked_options
@options.passphrase
@options.force
@options.json
def campaign(schema_file: Path, workspace: Path, output: Path, **terms: Any) -> None:
    """Sign a campaign for nodes: what they sum over their records, at what ε, for how long.

    ε is what one summary spends on each person with one record in it: readers can hardly tell whether the record is
    there. A changed record is one removed and one added, and costs 2ε. A node's owner chooses in the node's policy
    which of the two its ledger books; by default it is 2ε.

    Every summary has the same sums: counts of the classes, counts of class × value, and for the family gaussian sums of
    numbers and of their squares by class. ε is divided equally among these vectors. A node sends a summary once per
    period; records that are in the summaries of two periods count, and cost, twice.

    With --masked nodes encrypt their sums, and the aggregator decrypts only the total of all parties that reported,
    with one noise for all in place of one each. A period is decrypted only if the honest share and the colluding share
    of the parties reported: --honest-share 0.8 leaves room for parties that fail.

    hearsay campaign --end NAME ends a campaign for nodes, too.

    \b
    Example:
      hearsay nodes campaign schema.toml --workspace work --list clinics --epsilon 1 --max-records 100000 -o c.hsc
    """  # noqa: D301
    from aggregator.nodes.campaigns.campaigns import make_node_campaign

    check_files(output)
    made = make_node_campaign(signer_of(workspace), schema_file, now=int(time.time()), **terms)
    made.save(output, force=forced())
    say(_facts(made.campaign, output))
    warn_of_signed(made, output)


def _facts(made: Campaign, output: Path) -> list[Fact]:
    assert made.nodes is not None
    sheet = node_sheet(made)
    return [
        *(Fact(*pair) for pair in signed_facts(made, output).items()),
        Fact("node_list", made.nodes.list_name),
        Fact("max_records", made.nodes.max_records),
        Fact("queries", len(sheet.vectors)),
        Fact("numbers", sheet.numbers),
        *cost_facts(made, sheet),
        Fact("periods", periods(made)),
        Fact("noise", [vector.deviation for vector in sheet.vectors], noise_text(sheet, made.masked)),
        *masked_facts(made),
    ]
