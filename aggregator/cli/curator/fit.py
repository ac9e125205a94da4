"""``hearsay fit``: a differentially private model from records that a curator holds, paid from her budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.curator.paying import open_budget
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import CENTRAL_METHODS, PATH, POSTPROCESSINGS, glossary
from aggregator.cli.output import as_json, check_files, forced, note, say, warn, warn_of_draft, when, working
from aggregator.curator.accounting import parse_delta
from aggregator.curator.methods.table import DEFAULT, METHODS, default_noise
from aggregator.curator.terms import (
    AUTO,
    DEFAULT_FLOOR_MICRO,
    DEFAULT_TRIM_MICRO,
    DIVISIONS,
    FAMILIES,
    TWO_TO_ONE,
    FitTerms,
)
from aggregator.estimates.sums import OF_SUMS
from aggregator.models.postprocess.methods import POSTPROCESSES
from aggregator.publishing.schemas.schema_file import load_schema
from protocol.epsilon import MICRO, format_micro, micro_epsilon
from protocol.errors import InputError
from protocol.schema import Schema

if TYPE_CHECKING:
    from aggregator.curator.fitting import FittedModel


@click.command(epilog=glossary(methods=CENTRAL_METHODS, post_processings=POSTPROCESSINGS))
@click.argument("data", type=PATH, metavar="DATA.csv")
@click.option("--label", required=True, help="Column to predict; the schema's label.")
@click.option(
    "--schema",
    "schema_file",
    type=PATH,
    required=True,
    help="Classes, values and bounds: a .toml file. They are published, so these records may not decide them.",
)
@click.option("--method", type=click.Choice(list(METHODS)), default=DEFAULT, show_default=True,
              help="What is released, and with which noise: see docs/how-to/curator.md.")  # fmt: skip
@click.option("--epsilon", required=True, help="ε of this fit, in all.")
@click.option("--delta", default="0", show_default=True, help="δ of this fit, for methods and noise that need it.")
@click.option("--budget", "budget_file", type=PATH, required=True, help="Budget file that pays; says the adjacency.")
@click.option("--division", type=click.Choice(DIVISIONS), default=TWO_TO_ONE, show_default=True,
              help="How ε is divided among the released numbers.")  # fmt: skip
@click.option(
    "--noise",
    help="Noise of smooth, smooth-trimmed and bun-steinke: "
    "cauchy, gamma4, student-t, laplace, gaussian or laplace-log-normal; default: the method's first.",
)
@click.option("--family", type=click.Choice((AUTO, *FAMILIES)), default=AUTO, show_default=True,
              help="auto: by invented records and the noise of this fit, without a look at yours.")  # fmt: skip
@click.option("--about", type=click.IntRange(1), help="About how many records there are, if that is public: for "
              "--family auto with a budget for add-remove, which hides their number.")  # fmt: skip
@click.option("--postprocess", default=AUTO, show_default=True,
              help=f"auto ({OF_SUMS}), or one of {', '.join(POSTPROCESSES)}.")  # fmt: skip
@click.option("--trim", type=click.FloatRange(0, 0.5, max_open=True), default=DEFAULT_TRIM_MICRO / MICRO,
              show_default=True, help="Share of the values that trimmed means leave out at either end.")  # fmt: skip
@click.option("--variance-floor", type=click.FloatRange(0, 1, min_open=True), default=DEFAULT_FLOOR_MICRO / MICRO,
              show_default=True, help="Smallest variance of a number, with its bounds scaled to -1 and 1.")  # fmt: skip
@options.missing
@click.option("--strict", is_flag=True, help="Refuse numbers outside the bounds; default: count them as the bound.")
@click.option("--name", help="Default: the schema's name. Versions rise per name.")
@options.workspace
@options.output
@options.life(365, "model")
@options.passphrase
@options.force
@options.json
def fit(
    data: Path,
    label: str,
    schema_file: Path,
    method: str,
    epsilon: str,
    delta: str,
    budget_file: Path,
    division: str,
    noise: str | None,
    family: str,
    postprocess: str,
    trim: float,
    variance_floor: float,
    name: str | None,
    workspace: Path,
    output: Path,
    **how: Any,
) -> None:
    """Fit a model to records that you hold, so that it tells nobody whether or how one person is in them.

    For pilots whose people agreed and for archives, where one curator sees all records. The records stay here: no
    store, and no report, holds them. The model is differentially private for the neighbours that the budget file names;
    all of it may be published, and devices verify it and classify with it as with any other.

    The cost is written to the budget file (hearsay budget) first. Records that were not assigned to it are refused, and
    so is what exceeds its total. What standard error says of the records (numbers outside the bounds, bounds that look
    taken from them, the reason of a refusal) is exact: it is for you, and not in the model.

    \b
    Example:
      hearsay fit patients.csv --label outcome --schema ward.toml --epsilon 0.5 --budget ward.hsb \\
          --workspace work -o ward.hsm
    """  # noqa: D301
    from aggregator.common.tables import read_table
    from aggregator.curator.fitting import fit_records

    check_files(output, inputs=[data, schema_file, budget_file])
    described = load_schema(schema_file)
    _check_label(described.schema, label)
    if described.ask:
        note("the table [ask] of the schema is for campaigns of devices and nodes: the fit is of all features")
    epsilon_micro, exact_delta = micro_epsilon(epsilon), parse_delta(delta)
    signer = signer_of(workspace)
    with open_budget(budget_file) as budget:
        terms = FitTerms(
            method,
            epsilon_micro,
            exact_delta,
            budget.adjacency,
            division,
            noise or default_noise(method),
            family,
            postprocess,
            round(variance_floor * MICRO),
            round(trim * MICRO),
        )
        with working("fitting"):
            made = fit_records(
                signer,
                read_table(data),
                described.schema,
                terms,
                budget,
                name=described.name if name is None else name,
                pilots=described.pilots,
                **how,
            )
    made.signed.save(output, force=forced())
    _print(output, made)
    warn_of_draft(made.signed.standing, output)


def _check_label(schema: Schema, label: str) -> None:
    if label != schema.label.name:
        raise InputError("label_missing", f"the schema's label is '{schema.label.name}' and not '{label}'")


def _print(output: Path, made: FittedModel) -> None:
    """Print public facts about a fit on standard output, and doubts about the exact records on standard error."""
    document, expected = made.signed.document, made.signed.expected
    card: dict[str, Any] = document.card
    facts = {
        "model": str(output),
        "name": document.header.name,
        "version": document.header.version,
        "method": card["method"],
        "noise": card["noise"],
        "epsilon": card["epsilon_total"],
        "delta": float(made.cost.delta),
        "adjacency": card["adjacency"],
        "division": card["division"],
        "family": card["family"],
        "postprocess": card["postprocess"],
        "budget": card["budget"],
        "epsilon_paid": format_micro(made.cost.epsilon_micro),
        "epsilon_left": format_micro(made.left.epsilon_micro),
        "records": card["reports"],
        "expected_accuracy": expected.accuracy if as_json() else expected.shown,
        "largest_class": expected.largest_class if as_json() else expected.largest_shown,
        "expected_recall": (
            {one.name: [one.expected, one.least, one.most] for one in expected.recall}
            if as_json()
            else expected.recall_shown
        ),
        "expires": document.header.expires if as_json() else when(document.header.expires),
    }
    say(facts)
    if made.chosen:
        note(made.chosen)
    if not expected.beats:
        other = "or fewer features" if card["method"] == DEFAULT else f"fewer features, or the method {DEFAULT}"
        warn(f"{expected.doubt}; take a larger ε{' ' if card['method'] == DEFAULT else ', '}{other}")
    if expected.recall_warning is not None:
        warn(expected.recall_warning)
    for doubt in made.doubts:
        warn(doubt)
    if made.doubts:
        note("what these warnings say of the records is exact: it is for you, and not in the model")
