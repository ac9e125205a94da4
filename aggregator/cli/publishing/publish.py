"""``hearsay publish``: make a model from a store's reports; update the folder that devices fetch from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.counting import count_stores, losses
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import PATH, POSTPROCESSINGS, Selection, glossary
from aggregator.cli.output import check_files, forced, note, say, warn, warn_of_draft, when, wrong_usage
from aggregator.common.facts import Fact, stated
from aggregator.common.files import read_file
from aggregator.common.periods import shown
from aggregator.publishing.ask_table import ask_of
from aggregator.publishing.campaigns import evaluations_ended
from protocol.documents.envelope import SIZE_LIMITS
from protocol.documents.payload import quoted

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics
    from aggregator.models.foresight import Foresight
    from aggregator.publishing.workspace import Workspace


@click.command(epilog=glossary(post_processings=POSTPROCESSINGS))
@options.selected()
@options.workspace
@click.option("-o", "--output", type=PATH, help="Model to write; must not exist.")
@click.option("--to", "tree", type=PATH, help="Folder that devices fetch from, to update.")
@click.option(
    "--keys", "books", type=PATH, multiple=True, help="With --to: key book of a masked campaign; may be repeated."
)
@click.option("--postprocess", help="How estimates become probabilities; default: the campaign's choice.")
@click.option("--features", help="Features of the model, like odor,gill-size; default: all that were asked about.")
@click.option("--name", help="Default: the campaign's name. Versions rise per name.")
@options.life(365, "model")
@options.counted
@options.robust
@options.counted_records
@options.passphrase
@options.force
@options.json
def publish(
    selection: Selection,
    workspace: Path,
    output: Path | None,
    tree: Path | None,
    books: tuple[Path, ...],
    features: str | None,
    postprocess: str | None,
    **named: Any,
) -> None:
    """Fit a model to a store's reports and sign it. The workspace must have signed the campaign.

    Several stores add up if their campaigns state one schema, also where they ask about different features: a feature
    has the answers of all campaigns that asked about it, the classes have all answers. --one-population declares that
    all are samples of one population, which is not needed for campaigns of one series. The model names the campaign
    that was issued last; its card lists all. --features leaves out features that were asked about.

    The expected accuracy is simulated from the statistics: the model classifies records of fleets that the
    statistics could be of. It is an interval, and with too few reports it is "not known yet". It holds if features
    are independent in each class and no record lacks its label or a value that has a substitute; where features
    repeat each other the model may be far worse. An evaluation campaign measures the accuracy. A warning is printed
    unless the model is expected to be better than always saying the largest class. The expected recall is said of
    every class: the share of its records that the model gives it. A class that it never predicts has a warning.

    Of a store of nodes' summaries the sums are added. --robust takes a trimmed mean or the median of every number, or
    the sums of one node (krum), and prints what that costs where no node lies. No interval and no expected accuracy is
    stated then: what lying nodes did is not known.

    --counts joins a pilot's records (hearsay count), under the same declaration; --weight is the share of trust in
    them. The card says whose records are in the model, and what the test of one population found.

    A device keeps the newest version of a model only, so a new version ends the evaluation of an earlier one there.
    A warning names such evaluation campaigns that still run.

    With --to: update a folder with all roots and the newest campaigns, models and node lists of the workspace. Any web
    server can serve the folder to devices (hearsay-edge sync). A store is then not needed. --keys puts the key book of
    a masked campaign, which its dealer made, where the nodes look for it.

    \b
    Example:
      hearsay publish --store store --workspace work -o m.hsm
      hearsay publish --store first --store second --workspace work -o m2.hsm
      hearsay publish --to /srv/www/hearsay --workspace work
      hearsay publish --to /srv/www/hearsay --keys clinics.hsk --workspace work
    """  # noqa: D301
    from aggregator.publishing.endings import endings
    from aggregator.publishing.tree import endings_in

    of_reports = features is not None or selection[3:] != Selection(())[3:]
    _check_options(selection.stores, output, tree, books, of_reports=of_reports)
    if output is not None:
        check_files(output)
    signer = signer_of(workspace)
    facts: list[Fact] = []
    if selection.stores and output is not None:
        counted, raw_campaigns = count_stores(selection, postprocess, workspace=signer)
        for loss in losses(counted.statistics):
            note(loss)
        statistics = _of_named(counted.statistics, features)
        facts += _publish_model(signer, statistics, raw_campaigns, output, postprocess=postprocess, **named)
        if counted.homogeneity is not None:
            facts.append(Fact("homogeneity", counted.homogeneity.to_json(), counted.homogeneity))
    if tree is not None:
        facts += _publish_tree(signer, tree, books)
    say(facts)
    now = int(time.time())
    for each in endings(signer_of(workspace), now) if tree is None else endings_in(tree, now):
        warn(each.warning(now))
    if output is not None:
        warn_of_draft(signer.standing("model", output.read_bytes()), output)


def _check_options(
    stores: tuple[Path, ...], output: Path | None, tree: Path | None, books: tuple[Path, ...], *, of_reports: bool
) -> None:
    """Raise ``UsageError`` for options that do not go together. ``of_reports``: an option says which reports count."""
    if not stores and tree is None:
        raise wrong_usage("Missing option '--store' or '--to'.")
    if books and tree is None:
        raise wrong_usage("--keys is for the folder that nodes fetch from: give --to too")
    if bool(stores) == (output is None):
        raise wrong_usage("--store and -o belong together: the reports, and the model made of them")
    if not stores and of_reports:
        raise wrong_usage(
            "--periods, --proven-only, --memory, --cluster, --robust and --features are for a store's reports: give "
            "--store too"
        )


def _of_named(statistics: Statistics, features: str | None) -> Statistics:
    """Return the statistics of the features that a text names, separated by commas, or of all features for None."""
    from aggregator.estimates.joining import of_features

    return statistics if features is None else of_features(statistics, ask_of(features, {}))


def _publish_model(
    signer: Workspace, statistics: Statistics, campaign_bytes: Sequence[bytes], output: Path, **terms: Any
) -> list[Fact]:
    """Fit, sign and write a model. Return the facts to print. ``terms``: other arguments of ``sign_model``."""
    from aggregator.models.foresight import Foresight
    from aggregator.operations.models import sign_model

    signed = sign_model(signer, statistics, campaign_bytes, now=int(time.time()), **terms)
    signed.save(output, force=forced())
    made = signed.document
    expected = Foresight.of_card(made.card)
    for warning in (expected.warning, expected.recall_warning):
        if warning is not None:
            warn(warning)
    for ended in evaluations_ended(signer, made.header.name, int(time.time())):
        warn(
            f"campaign {quoted(ended)} evaluates an earlier version of this model and still runs: a device that "
            "installs this version answers it no more. Publish this model to devices when the evaluation is over, or "
            "sign it with another --name"
        )
    card = made.card
    return [
        Fact("model", str(output)),
        Fact("name", made.header.name),
        Fact("version", made.header.version),
        Fact("reports", card["reports"]),
        *([Fact("records", card["records"], "; ".join(card["records"]))] if "records" in card else []),
        Fact("periods", card["periods"], _dated(card["periods"], statistics)),
        Fact("epsilon_total", card["epsilon_total"]),
        *([Fact("adjacency", card["adjacency"])] if "adjacency" in card else []),
        Fact("postprocess", card["postprocess"]),
        Fact("expected_accuracy", expected.accuracy, expected.shown),
        Fact("largest_class", expected.largest_class, expected.largest_shown),
        Fact("expected_recall", _recall_json(expected), expected.recall_shown),
        stated("expected_accuracy_interval", None if expected.least is None else [expected.least, expected.most]),
        stated("expected_accuracy_assumes", expected.assumes),
        stated("largest_class_interval", [expected.low, expected.high]),
        stated("beats_largest_class", expected.beats),
        Fact("statistics_id", made.statistics_id.hex()),
        Fact("expires", made.header.expires, when(made.header.expires)),
    ]


def _recall_json(expected: Foresight) -> dict[str, dict[str, Any]]:
    return {
        one.name: {"expected": one.expected, "interval": [one.least, one.most], "never_predicted": one.is_never}
        for one in expected.recall
    }


def _dated(periods: str, statistics: Statistics) -> str:
    """Return the periods of a model's card with their dates; periods of several campaigns, of any length, unchanged."""
    if periods == "all" or len(statistics.sources) > 1:
        return periods
    campaign = statistics.campaign
    return "..".join(shown(int(end), campaign.time_precision) if end else "" for end in periods.split(".."))


def _publish_tree(signer: Workspace, folder: Path, books: Sequence[Path]) -> list[Fact]:
    from aggregator.publishing.tree import write_tree

    made = write_tree(signer, folder, [read_file(book, SIZE_LIMITS["keys"]) for book in books])
    for item in made.lacking:
        warn(f"{item.role} '{item.name}', version {item.version}, lacks signatures and is left out")
    for name in made.unnamable:
        warn(f"'{name[:40]}…' is too long a name for a file and is left out")
    added = {"node_lists": made.lists, "key_books": made.key_books}
    return [
        Fact("tree", str(folder)),
        Fact("roots", made.roots),
        Fact("campaigns", made.campaigns),
        Fact("models", made.models),
        *(Fact(name, number) if number else stated(name, number) for name, number in added.items()),
        Fact("files_changed", list(made.written), len(made.written)),
    ]
