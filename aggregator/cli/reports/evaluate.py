"""``hearsay evaluate``: estimate from private answers how often published models are right."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.counting import count_each, print_populations
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import PATH, Selection
from aggregator.cli.output import (
    as_json,
    check_files,
    counted,
    forced,
    print_facts,
    print_json,
    print_table,
    say,
    signed_facts,
    warn_of_signed,
)
from aggregator.publishing.series import series_facts
from protocol.documents.campaign import Campaign
from protocol.documents.payload import quoted
from protocol.documents.shared_terms import NOISES
from protocol.epsilon import format_micro
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.models.measured_accuracy import Ranking


_MOST_DIGITS = 9


@click.group()
def evaluate() -> None:
    """Find out how often a published model is right, or which of several, without seeing a label.

    \b
    Example:
      hearsay evaluate ask m.hsm --workspace work --epsilon 1 -o outcome.hsc
      hearsay ingest outcome.hsc inbox/*.hsr --store outcomes --workspace work
      hearsay evaluate show --store outcomes
    """  # noqa: D301


@evaluate.command()
@click.argument("model_files", type=PATH, metavar="MODEL...", nargs=-1, required=True)
@options.workspace
@click.option("--epsilon", required=True, help="Privacy cost of a device's one answer, for example 1.0.")
@options.output
@click.option("--name", help="Default: the model's name with -outcome; of several, the first one's with -comparison.")
@click.option("--weights", help="Shares of the answers of several models, for example 2,1,1. Default: equal.")
@click.option("--pair", type=PATH, metavar="P.pair", help="Two collectors, with whom devices share their answers.")
@click.option("--delta", default="0", show_default=True, help="With --pair: δ of one report.")
@click.option("--noise", type=click.Choice(NOISES), help="With --pair; default: that of the smaller variance.")
@options.time("device")
@options.series
@options.min_batch("reports")
@options.passphrase
@options.force
@options.json
def ask(model_files: tuple[Path, ...], workspace: Path, output: Path, weights: str | None, **terms: Any) -> None:
    """Make a campaign that asks devices whether models are right.

    Of one MODEL each device tells the perturbed pair (true class, predicted class). Of 2 to 16 it tells one perturbed
    bit: whether one of them, assigned by chance, is right about its record. Several models have one label, distinct
    names, and perhaps different features.

    With --pair (hearsay collector pair) each device tells two collectors, exactly and in two shares, about every MODEL.

    Enrol devices that have a labelled record and exactly these models installed, all of them. A record without a
    label counts as the label's substitute class. A newer version under a model's name ends the evaluation on each
    device that installs it; publish it later, or under another name. MODEL is a file, or a name or id in the workspace.

    \b
    Example:
      hearsay evaluate ask m.hsm --workspace work --epsilon 1 -o outcome.hsc
      hearsay evaluate ask all.hsm top-4.hsm --workspace work --epsilon 1 -o comparison.hsc
    """  # noqa: D301
    from aggregator.operations.campaigns import make_evaluation

    check_files(output)
    shares = None if weights is None else _weights(weights)
    made = make_evaluation(signer_of(workspace), model_files, weights=shares, now=int(time.time()), **terms)
    made.save(output, force=forced())
    found = made.campaign
    facts = signed_facts(found, output)
    say(
        {
            **{name: facts[name] for name in ("campaign", "name", "version", "id")},
            "words": facts["id_in_words"],
            **_named(found),
            "epsilon": format_micro(found.epsilon_micro),
            **series_facts(found.series),
        }
    )
    warn_of_signed(made, output)


def _named(campaign: Campaign) -> dict[str, object]:
    """Return the evaluated models: ``model``, the digest of one; or ``models``, names of several (JSON: digests)."""
    if campaign.model is not None:
        return {"model": campaign.model.hex()}
    if not as_json():
        return {"models": ", ".join(map(quoted, campaign.model_names))}
    return {"models": {name: digest.hex() for name, digest in zip(campaign.model_names, campaign.models, strict=True)}}


def _weights(text: str) -> list[int]:
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry.isascii() and entry.isdigit() and len(entry) <= _MOST_DIGITS for entry in entries):
        raise InputError("weights_invalid", "weights are positive integers with commas between them, for example 2,1,1")
    return [int(entry) for entry in entries]


@evaluate.command()
@options.selected(required=True)
@options.counted
@options.roster
@options.json
def show(selection: Selection) -> None:
    """Show accuracy, recall of every class and confusion matrix, or the ranking of several models, with 95 % intervals.

    Each number has two intervals: one for these devices, weighted by their answers, and one for the population that
    they are drawn from. In a ranking the intervals of all models hold together with 95 %, and each model's accuracy
    minus that of the best other model has an interval: where it ends at 0 the model is not the best.

    Answers of several stores about one model add up.

    \b
    Example:
      hearsay evaluate show --store outcomes
      hearsay evaluate show --store first --store second --one-population
    """  # noqa: D301
    from aggregator.collectors.statistics import of_models
    from aggregator.estimates.cells import as_range, as_share
    from aggregator.models.measured_accuracy import COLUMNS, RECALL_COLUMNS, rank
    from aggregator.models.measured_accuracy import evaluate as evaluate_statistics
    from aggregator.operations.models import together

    parts = [of_models(statistics) for statistics, _ in count_each(selection)]
    if any(part.campaign.models for part in parts):
        _show_ranking(rank(*parts, one_population=selection.one_population, disjoint=selection.disjoint))
        return
    statistics, _ = together(parts, one_population=selection.one_population, disjoint=selection.disjoint)
    found = evaluate_statistics(statistics)
    if as_json():
        confusion = [cell._asdict() for cell in found.confusion]
        facts = {"reports": found.reports, "accuracy": found.accuracy._asdict(), "confusion": confusion}
        facts["recall"] = [one._asdict() for one in found.recall]
        print_json({**facts, "populations": dict(found.populations)})
        return
    accuracy = found.accuracy
    print_facts({"answers": counted(found.reports, "report"), "accuracy": as_share(accuracy.estimate)})
    click.echo()
    print_facts(
        {
            "95 % interval, these devices": as_range(accuracy.devices_low, accuracy.devices_high),
            "95 % interval, population": as_range(accuracy.low, accuracy.high),
        }
    )
    click.echo()
    print_table(RECALL_COLUMNS, found.recall_rows(), numeric=RECALL_COLUMNS[1:])
    click.echo()
    print_table(COLUMNS, found.rows(), numeric=COLUMNS[2:])
    print_populations(found.populations)


def _show_ranking(ranking: Ranking) -> None:
    from aggregator.models.measured_accuracy import RANKING_COLUMNS

    if as_json():
        print_json(ranking.to_json())
        return
    print_facts({"answers": counted(ranking.reports, "report")})
    click.echo()
    print_table(RANKING_COLUMNS, ranking.rows(), numeric=RANKING_COLUMNS[1:])
    click.echo()
    for sentence in ranking.sentences():
        click.echo(sentence)
    print_populations(ranking.populations)
