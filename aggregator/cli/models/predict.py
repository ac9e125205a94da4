"""``hearsay predict``: classify the records of a file with a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.inputs import open_model
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, note, print_facts, print_json, warn, working, write_file
from aggregator.common.spreadsheets import csv_text

if TYPE_CHECKING:
    from aggregator.models.scoring import Model, Predictions


@click.command()
@click.argument("model_file", type=PATH, metavar="MODEL")
@click.argument("data", type=PATH, metavar="DATA.csv")
@options.signers("model")
@click.option("--proba", is_flag=True, help="Give the probability of every class too.")
@options.missing
@click.option("-o", "--output", type=PATH, help="CSV file to write; default: print it.")
@options.force
@options.json
def predict(
    model_file: Path,
    data: Path,
    trust: Path | None,
    workspace: Path | None,
    missing: tuple[str, ...],
    output: Path | None,
    *,
    proba: bool,
) -> None:
    """Classify the records of a CSV file (plain or .gz) with a model, and say how often it is right.

    MODEL is a file or, with --workspace, a name, NAME@VERSION or id. DATA.csv needs a header line. Columns are found
    by their names; other columns are ignored. The accuracy is that of the records whose label is one of the
    classes. In CSV output a class that a spreadsheet would run as a formula gets an apostrophe in front.

    \b
    Example:
      hearsay predict m.hsm new.csv --trust work/root.hst -o classes.csv
      hearsay predict mushrooms new.csv --workspace work --proba
    """  # noqa: D301
    from aggregator.models.scoring import predict_file

    if output is not None:
        check_files(output)
    model = open_model(model_file, trust, workspace)
    with working("classifying"):
        found = predict_file(model, data, proba=proba, missing=missing)
    if output is not None:
        write_file(output, csv_text(found.frame).encode())
    if as_json():
        print_json(_as_object(found, model, output, proba=proba))
    elif output is not None:
        print_facts({"records": len(found.frame), "written": str(output), **_accuracy(found)})
    else:
        click.echo(csv_text(found.frame), nl=False)
        for name, value in _accuracy(found).items():
            note(f"{name} {value}")
    for line in found.unread:
        warn(line)
    if trust is None and workspace is None:
        note("the model's signature was not checked; --trust or --workspace does")


def _accuracy(found: Predictions) -> dict[str, object]:
    if found.accuracy is None:
        return {"accuracy": "not known: no record has one of the classes as its label"}
    return {"accuracy": f"{found.accuracy:.1%} of {found.labelled} records with a label"}


def _as_object(found: Predictions, model: Model, output: Path | None, *, proba: bool) -> dict[str, object]:
    about: dict[str, object] = {"records": len(found.frame), "labelled": found.labelled, "accuracy": found.accuracy}
    if output is not None:
        return {**about, "output": str(output)}
    about |= {"classes": list(model.classes_), "predicted": found.frame["predicted"].tolist()}
    if proba:
        about["probabilities"] = found.frame.iloc[:, 2:].to_numpy().tolist()
    return {**about, "lines": found.frame["line"].tolist()}
