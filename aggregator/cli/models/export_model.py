"""``hearsay export-model``: write a model in the form of another program."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.inputs import open_model
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, note, print_facts, print_json, write_file

if TYPE_CHECKING:
    from aggregator.models.scoring import Model


@click.command("export-model")
@click.argument("model_file", type=PATH, metavar="MODEL")
@click.option("--to", "form", type=click.Choice(("json", "sklearn")), required=True, help="The form to write.")
@options.signers("model")
@click.option("-o", "--output", type=PATH, required=True, help="File to write.")
@options.force
@options.json
def export_model(model_file: Path, form: str, trust: Path | None, workspace: Path | None, output: Path) -> None:
    """Write a model as JSON, or as a fitted scikit-learn pipeline that predicts the same.

    MODEL is a file or, with --workspace, a name, NAME@VERSION or id.

    json holds all parameters, features and the projection. sklearn is a joblib file: a pipeline that ends in a
    CategoricalNB or a GaussianNB. Its predict takes a DataFrame with a column per feature: texts, integers or booleans
    for categories, numbers for numbers. An empty cell is missing; GaussianNB takes none. The file needs scikit-learn
    and not this software. Neither form is signed, and joblib files run code when they are loaded: load only files
    that you made.

    \b
    Example:
      hearsay export-model m.hsm --to sklearn --trust work/root.hst -o m.joblib
      hearsay export-model mushrooms --workspace work --to json -o mushrooms.json
    """  # noqa: D301
    check_files(output)
    model = open_model(model_file, trust, workspace)
    content = _as_json(model) if form == "json" else _as_sklearn(model)
    write_file(output, content)
    about = {"form": form, "features": len(model.schema.observed), "written": str(output), "bytes": len(content)}
    if as_json():
        print_json(about)
    else:
        print_facts(about)
    if trust is None and workspace is None:
        note("the model's signature was not checked; --trust or --workspace does")


def _as_json(model: Model) -> bytes:

    from aggregator.models.interchange import to_json

    return json.dumps(to_json(model), ensure_ascii=False, indent=1).encode() + b"\n"


def _as_sklearn(model: Model) -> bytes:
    from aggregator.models.interchange import to_sklearn

    pipeline = to_sklearn(model)
    import joblib  # type: ignore[import-untyped]  # scikit-learn brings it

    buffer = BytesIO()
    joblib.dump(pipeline, buffer)
    return buffer.getvalue()
