"""``hearsay rehearse``: made-up devices answer a signed campaign, with the records of a CSV file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import click
import numpy as np
import pandas as pd

from aggregator.cli import options
from aggregator.cli.inputs import campaign_of
from aggregator.cli.options import PATH, read_start
from aggregator.cli.output import as_json, forced, note, print_facts, print_json, progress, warn
from aggregator.common.files import check_output, open_output, read_file
from aggregator.common.periods import Moment, of_campaign, shown, shown_range
from aggregator.common.tables import MISSING_TOKENS, read_table, typed, unlike_schema
from aggregator.models.encoding import EncodedFrame, label_codes, observe
from aggregator.models.scoring import Model
from protocol.batches.batch import Header, write_batch
from protocol.documents.campaign import EVALUATION, Campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.model import parse_model
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError
from simulation.design import resample
from simulation.drawn import cells_of
from simulation.fleet import KeptAnswers, shared_reports
from simulation.local import predictor, vector_batch

MOST_DEVICES = 1_000_000
MOST_DAYS = 3_660
MADE_UP = "these reports are made up: count them in a store of their own, since no command can tell them from real ones"


def rehearsed(
    campaign: Campaign,
    people: pd.DataFrame,
    periods: range,
    *,
    rng: np.random.Generator,
    later: pd.DataFrame | None = None,
    models: Sequence[Model] = (),
    missing: Sequence[str] = MISSING_TOKENS,
) -> Iterator[bytes]:
    """Yield the reports of made-up devices: one batch for each period. Run by an analyst, before real devices answer.

    Every device answers once in each period. In a campaign of a series it answers once in all, in one of the periods.

    Args:
        people: one record for each of N devices, as texts of a table.
        periods: numbers of the periods in which the devices answer.
        later: the devices' later records, N rows. From the first period to the last, more and more devices have their
            later record: none in the first period, all in the last. None if no record changes.
        models: the models that the campaign evaluates, in its order.

    Yields:
        The bytes of a report file for each period, in order.

    Raises:
        InputError: ``columns_missing``, ``duplicate_column``, ``digits_lost``: the records do not fit the campaign.
    """
    held = [typed(table, campaign.schema, missing) for table in (people, later) if table is not None]
    labels = np.concatenate([label_codes(each, campaign.schema.label, substitute=True) for each in held])
    # A device that only evaluates models reads what the models read, and nothing that the campaign lists itself.
    if campaign.fit.family == EVALUATION:
        encoded = EncodedFrame(*np.empty((2, len(labels), 0), np.int64))
    else:
        encoded = EncodedFrame(
            *map(np.concatenate, zip(*(observe(each, campaign.schema) for each in held), strict=True))
        )
    read = [
        np.concatenate(
            [
                predictor(typed(table, model.schema, missing), model)(np.arange(len(table)))
                for table in (people, later)
                if table is not None
            ]
        )
        for model in models
    ]
    devices = np.arange(len(people))
    kept = None if campaign.memory is None else KeptAnswers(len(people), rng)
    for number, period in enumerate(periods):
        moved = 0 if later is None or len(periods) == 1 else len(people) * number // (len(periods) - 1)
        rows = np.where(devices < moved, devices + len(people), devices)
        if campaign.series is not None:
            rows = rows[number :: len(periods)]
        now = EncodedFrame(encoded.codes[rows], encoded.numbers[rows])
        if campaign.shared is not None:
            cells = cells_of(campaign, now, labels[rows], [found[rows] for found in read])
            header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
            yield write_batch(header, list(shared_reports(campaign, cells, period, rng.bytes)))
            continue
        predicted = [lambda asked, found=found[rows]: found[asked] for found in read]
        yield b"".join(vector_batch(campaign, now, labels[rows], period, rng, predicted, kept))


@click.command()
@click.argument("campaign_file", type=PATH, metavar="CAMPAIGN")
@click.argument("data", type=PATH, metavar="DATA.csv")
@options.naming_workspace
@click.option(
    "--devices",
    type=click.IntRange(1, MOST_DEVICES),
    help="Number of devices, whose records are drawn from DATA.csv with replacement; default: one for every record.",
)
@click.option(
    "--period",
    metavar="DAY",
    callback=read_start,
    help="First period in which the devices answer: its number, or a day (UTC); default: the present one.",
)
@click.option(
    "--days",
    type=click.IntRange(1, MOST_DAYS),
    default=1,
    show_default=True,
    help="The devices answer in every period that begins within so many days.",
)
@click.option(
    "--drift",
    type=PATH,
    metavar="LATER.csv",
    help="Later records: from the first period to the last, more and more devices have one of these, in the end all.",
)
@click.option(
    "--model",
    "models",
    type=PATH,
    multiple=True,
    help="A model that the campaign evaluates, as devices have it; repeatable.",
)
@options.missing
@click.option("--seed", type=click.IntRange(0), help="Fixes records and noise; default: other ones each time.")
@options.output
@options.force
@options.json
def rehearse(
    campaign_file: Path,
    data: Path,
    workspace: Path | None,
    devices: int | None,
    period: Moment | None,
    days: int,
    drift: Path | None,
    models: tuple[Path, ...],
    missing: tuple[str, ...],
    seed: int | None,
    output: Path,
) -> None:
    """Let made-up devices answer a signed campaign, and write their reports, to try every step before real devices do.

    Every record of DATA.csv becomes a device, or --devices of them are drawn. Each answers the campaign once in the
    present period, or in those of --period and --days, with the noise that it asks for. The report file is like those
    of real devices: ingest, status, estimate, publish and report take it; of a shared campaign hearsay collector check
    takes it, and the collectors' total goes on. No command can tell these reports from real
    ones: give them a store of their own.

    The answers are drawn as arrays. What a device's own limits and its share of a series decide is left out. The labels
    of records without one have the campaign's substitute, as on devices. For accuracies: hearsay simulate.

    \b
    Example:
      hearsay rehearse c.hsc pilot.csv --devices 20000 -o rehearsal.hsr
      hearsay ingest c.hsc rehearsal.hsr --store rehearsal --workspace work
      hearsay rehearse c.hsc pilot.csv --days 30 --drift winter.csv -o month.hsr
      hearsay ingest c.hsc month.hsr --store month --workspace work --now 2026-12-31
    """  # noqa: D301
    check_output(output, force=forced())
    campaign = campaign_of(campaign_file, workspace)
    if campaign.ended:
        raise InputError("campaign_ended", f"'{campaign_file}' asks nothing any more")
    if drift is not None and days * DAY_SECONDS <= campaign.time_precision:
        raise click.UsageError("--drift needs --days: a single period has no earlier and later records")
    present = campaign.period_at(int(time.time()))
    first = present if period is None else period.period(campaign.time_precision)
    last = max(first, (first * campaign.time_precision + days * DAY_SECONDS - 1) // campaign.time_precision)
    asked = range(first, last + 1)
    periods = of_campaign(campaign, asked)
    rng = np.random.default_rng(seed)
    evaluated = _evaluated(campaign, models)
    table = read_table(data)
    doubts = _doubts(table, campaign, evaluated, missing)
    people = resample(table, devices, rng)
    later = None
    if drift is not None:
        found = read_table(drift)
        doubts += [f"later records: {text}" for text in _doubts(found, campaign, evaluated, missing)]
        later = resample(found, len(people), rng)
    with progress("answering", len(periods)) as step, open_output(output, force=forced()) as sink:
        made = rehearsed(campaign, people, periods, rng=rng, later=later, models=evaluated, missing=missing)
        for done, batch in enumerate(made, 1):
            sink.write(batch)
            if step is not None:
                step(done, len(periods))
    answered = len(people) * campaign.answers * (1 if campaign.series is not None else len(periods))
    facts = {"devices": len(people), "reports": answered}
    if as_json():
        print_json({**facts, "first_period": periods[0], "last_period": periods[-1], "written": str(output)})
    else:
        print_facts({**facts, "periods": shown_range(periods, campaign.time_precision), "written": str(output)})
    for line in doubts:
        warn(line)
    if len(periods) < len(asked):
        kept = shown_range(periods, campaign.time_precision)
        warn(
            f"{len(asked) - len(periods)} of {len(asked)} periods are left out: the campaign does not have them; {kept}"
        )
    if periods[-1] > present:
        begun, end = (shown(number, campaign.time_precision) for number in (present, periods[-1]))
        warn(
            f"periods after {begun} have not begun, and ingest sets their reports aside; in a store of their own it "
            f"counts them with --now {periods[-1]}, as if {end} had begun"
        )
    note(MADE_UP)


def _doubts(table: pd.DataFrame, campaign: Campaign, models: Sequence[Model], missing: Sequence[str]) -> list[str]:
    """Return a sentence for each kind of cell in a table that devices would read as missing, or as a bound."""
    schemas = [model.schema for model in models]
    schemas += [campaign.schema] if campaign.fit.family != EVALUATION else []
    found = [line for one in schemas for line in unlike_schema(typed(table, one, missing), one, table.columns)]
    return list(dict.fromkeys(found))


def _evaluated(campaign: Campaign, files: Sequence[Path]) -> list[Model]:
    """Return the models that a campaign evaluates, in its order; empty for a campaign that evaluates none."""
    found = {}
    for file in files:
        payload = read_envelope(read_file(file, SIZE_LIMITS["model"]), "model").payload
        found[sha256(payload).digest()] = Model.of(parse_model(payload))
    if set(found) != set(campaign.evaluated):
        raise InputError("model_unknown", "give with --model each model that the campaign evaluates, and no other")
    return [found[digest] for digest in campaign.evaluated]
