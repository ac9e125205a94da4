"""``hearsay count``: signed counts of a pilot's records, which a model takes with the devices' answers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.curator.paying import open_budget
from aggregator.cli.inputs import campaign_document, signer_of
from aggregator.cli.options import PATH
from aggregator.cli.output import check_files, note, say, warn_of_draft, when, working, write_file
from aggregator.common.facts import Fact
from protocol.epsilon import format_micro, micro_epsilon


@click.command()
@click.argument("records", type=PATH, metavar="PILOT.csv")
@click.option("--campaign", "campaign_file", type=PATH, required=True,
              help="Campaign whose features, groups and bins are counted; its file, name or id.")  # fmt: skip
@click.option("--consent", default="", help="Who agreed that exact counts of their records are in a published model.")
@click.option("--private-epsilon", help="In place of --consent: ε of noise in the counts; needs --budget.")
@click.option("--budget", "budget_file", type=PATH, help="With --private-epsilon: the budget file that pays.")
@click.option("--name", help="Default: the campaign's name. Counts of different records need different names.")
@options.missing
@options.workspace
@options.output
@options.life(365, "counts")
@options.passphrase
@options.force
@options.json
def count(
    records: Path,
    campaign_file: Path,
    consent: str,
    private_epsilon: str | None,
    budget_file: Path | None,
    name: str | None,
    missing: tuple[str, ...],
    workspace: Path,
    output: Path,
    days: int,
) -> None:
    """Count a pilot's records for a campaign, so that a model is made from these and the devices' answers together.

    A record counts as that of a device: one per person, with the campaign's features, groups, projection and bins. The
    output holds counts and no record. A key for models signs it. hearsay publish, estimate and report take it with
    --counts, if you declare that the records and the devices are of one population (--one-population).

    Exact counts need a consent, which the model's card repeats: the people of the pilot agree that these numbers become
    part of a published model. Or the counts get noise, paid from a budget file to which the records were assigned; then
    nobody has to agree, and a record is hidden as by hearsay fit. A model takes one file of each budget, since a budget
    is about one set of people.

    \b
    Example:
      hearsay count pilot.csv --campaign c.hsc --workspace work -o pilot.hsu \\
          --consent "the 300 people of the spring pilot, on paper, for models of this kind"
      hearsay publish --store store --counts pilot.hsu --one-population --workspace work -o m.hsm
    """  # noqa: D301
    from aggregator.common.tables import read_table
    from aggregator.curator.counting import count_records

    check_files(output, inputs=[records, *([] if budget_file is None else [budget_file])])
    signer = signer_of(workspace)
    campaign = campaign_document(campaign_file, signer)
    epsilon_micro = None if private_epsilon is None else micro_epsilon(private_epsilon)
    with nullcontext() if budget_file is None else open_budget(budget_file) as budget, working("counting records"):
        made = count_records(
            signer,
            read_table(records),
            campaign,
            name=name,
            consent=consent,
            epsilon_micro=epsilon_micro,
            budget=budget,
            missing=missing,
            days=days,
        )
    write_file(output, made.raw)
    header, noise = made.counts.header, made.counts.noise
    say(
        [
            Fact("counts", str(output)),
            Fact("name", header.name),
            Fact("version", header.version),
            Fact("campaign", campaign.header.name),
            Fact("records", made.counts.records),
            Fact(
                "noise",
                None if noise is None else format_micro(noise.epsilon_micro),
                _noise_shown(noise is None, private_epsilon),
            ),
            Fact("consent", made.counts.consent or None, made.counts.consent or "not needed"),
            Fact("expires", header.expires, when(header.expires)),
        ]
    )
    if made.left_out:
        note(f"left out {made.left_out} records with a label or value that the schema refuses, as devices are")
    if made.substituted:
        note(f"{made.substituted} cells without a listed value counted as the schema says, as on devices")
    if made.repeats:
        note(f"{made.repeats} records are equal to an earlier one: give one record per person")
    note("whoever is in these records and answers as a device is counted twice; publish with --disjoint if nobody is")
    warn_of_draft(made.standing, output)


def _noise_shown(is_exact: bool, epsilon: str | None) -> str:  # noqa: FBT001 - private
    return "none" if is_exact else f"ε = {epsilon}"
