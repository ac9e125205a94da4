"""``hearsay rehearse``: made-up devices answer a signed campaign, with the records of a CSV file."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import TYPE_CHECKING

import click
import numpy as np

from aggregator.cli.enrolment import campaign_of
from aggregator.cli.options import (
    PATH,
    force_option,
    json_option,
    missing_option,
    naming_workspace_option,
    output_option,
)
from aggregator.cli.output import note, print_facts, print_json, warn, working
from aggregator.files import check_output, read_file, write_output
from aggregator.models.encoding import EncodedFrame, label_codes, observe
from aggregator.models.scoring import Model
from aggregator.tables import read_table, typed, without_meaning
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError
from simulation.experiment import predictor, vector_batch
from simulation.splits import resample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from protocol.documents.campaign import Campaign

MOST_DEVICES = 1_000_000
MADE_UP = "these reports are made up: count them in a store of their own, since no command can tell them from real ones"


@click.command()
@click.argument("campaign_file", type=PATH, metavar="CAMPAIGN")
@click.argument("data", type=PATH, metavar="DATA.csv")
@naming_workspace_option
@click.option(
    "--devices",
    type=click.IntRange(1, MOST_DEVICES),
    help="Number of devices, whose records are drawn from DATA.csv with replacement; default: one for every record.",
)
@click.option(
    "--model",
    "models",
    type=PATH,
    multiple=True,
    help="A model that the campaign evaluates, as devices have it; repeatable.",
)
@missing_option
@click.option("--seed", type=click.IntRange(0), help="Fixes records and noise; default: other ones each time.")
@output_option
@force_option
@json_option
def rehearse(
    campaign_file: Path,
    data: Path,
    workspace: Path | None,
    devices: int | None,
    models: tuple[Path, ...],
    missing: tuple[str, ...],
    seed: int | None,
    output: Path,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Let made-up devices answer a signed campaign, and write their reports, to try every step before real devices do.

    Every record of DATA.csv becomes a device, or --devices of them are drawn. Each answers the campaign once, now, with
    the noise that it asks for. The report file is like those of real devices: ingest, status, estimate, publish and
    report take it. No command can tell these reports from real ones: give them a store of their own.

    The answers are drawn as arrays. What a device's own limits and its share of a series decide is left out. The labels
    of records without one have the campaign's substitute, as on devices. For accuracies: hearsay simulate.

    \b
    Example:
      hearsay rehearse c.hsc pilot.csv --devices 20000 -o rehearsal.hsr
      hearsay ingest c.hsc rehearsal.hsr --store rehearsal --workspace work
    """  # noqa: D301
    check_output(output, force=force)
    campaign = campaign_of(campaign_file, workspace)
    if campaign.ended:
        raise InputError("campaign_ended", f"'{campaign_file}' asks nothing any more")
    rng = np.random.default_rng(seed)
    evaluated = _evaluated(campaign, models)
    table = read_table(data)
    doubts = without_meaning(typed(table, campaign.schema, missing), campaign.schema)
    with working("answering"):
        people = resample(table, devices, rng)
        held = typed(people, campaign.schema, missing)
        # A device that evaluates models reads what the models read, and nothing that the campaign lists itself.
        encoded = (
            EncodedFrame(*np.empty((2, len(people), 0), np.int64)) if evaluated else observe(held, campaign.schema)
        )
        predicted = [predictor(typed(people, model.schema, missing), model) for model in evaluated]
        labels = label_codes(held, campaign.schema.label, substitute=True)
        parts = vector_batch(campaign, encoded, labels, int(time.time()), rng, predicted)
    write_output(output, b"".join(parts), force=force)
    found = {"devices": len(labels), "reports": len(labels) * campaign.answers, "written": str(output)}
    if as_json:
        print_json(found)
    else:
        print_facts(found)
    for line in doubts:
        warn(line)
    note(MADE_UP)


def _evaluated(campaign: Campaign, files: Sequence[Path]) -> list[Model]:
    """The models that a campaign evaluates, in its order; empty for a campaign that evaluates none.

    Raises:
        InputError: ``model_unknown``: the files do not hold each evaluated model.
    """
    found = {}
    for file in files:
        payload = read_envelope(read_file(file, SIZE_LIMITS["model"]), "model").payload
        found[sha256(payload).digest()] = Model.of(parse_model(payload))
    if set(found) != set(campaign.evaluated):
        raise InputError("model_unknown", "give with --model each model that the campaign evaluates, and no other")
    return [found[digest] for digest in campaign.evaluated]
