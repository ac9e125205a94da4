"""``hearsay projection``: replace numeric features by fewer components, fitted on a pilot file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aggregator.cli import options
from aggregator.cli.curator.paying import Payment, open_budget, private_options
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, note, print_facts, print_json, print_table, working, write_file
from aggregator.common.plots import Bars, bar_chart
from aggregator.publishing.schemas.projection_file import projection_text, reduction_facts
from aggregator.publishing.schemas.schema_file import load_schema
from protocol.documents.campaign import PilotCost
from protocol.schema import Schema

if TYPE_CHECKING:
    from aggregator.models.population import Outside


DEFAULT_BINS = 4
_SHOWN = (
    "method", "rho", "pilot_rows", "records", "bounds", "worst_error",
    "epsilon", "delta", "adjacency", "noise", "budget",
)  # fmt: skip
"""Facts that are printed before the components."""
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "explained": ("explained %", lambda share: f"{100 * share:.2f}"),
    "discriminant": ("discriminant power", lambda power: f"{power:.4f}"),
    "clipped": ("clipped %", lambda share: f"{100 * share:.2f}"),
}
"""Fact about the components → title of its column, and how a value is shown."""


@click.command()
@click.argument("pilot", type=PATH, metavar="PILOT.csv")
@click.option("--schema", "schema_file", type=PATH, required=True, help="Schema of the pilot: a .toml file.")
@click.option("--method", required=True, help="pca, or dca: directions in which the classes differ.")
@click.option("--components", type=int, required=True, help="K: number of components, the outputs.")
@options.output
@click.option("--rho", type=float, help="Ridge of dca, in units of variance; default 0.001.")
@click.option(
    "--bounds",
    help="Bounds of the outputs: from the inputs, or from the pilot; with --private from inputs or moments. Default: "
    "pilot, with --private moments.",
)
@click.option("--quantile", type=float, help="Share of the pilot to clip on each side; default 0. Not with --private.")
@click.option("--bins", type=int, default=DEFAULT_BINS, show_default=True, help="Bins of a component.")
@options.equal_frequency
@options.missing
@private_options
@click.option("--plot", type=PATH, help="SVG file to draw the components' power into.")
@options.force
@options.json
def projection(
    pilot: Path,
    schema_file: Path,
    output: Path,
    missing: tuple[str, ...],
    plot: Path | None,
    payment: Payment | None,
    **options: Any,
) -> None:
    """Fit a projection of the numeric features on a pilot file whose people agreed to be seen.

    The output holds integers, for hearsay campaign --projection.

    With --private the projection is differentially private: it tells nobody whether or how one person is in the pilot.
    The cost is paid from a budget file to which the records were assigned. All that is written, and printed on standard
    output, is public or has noise; a refusal may name a column and a line of the records, for you alone.
    --equal-frequency then takes half of ε.

    \b
    Example:
      hearsay projection pilot.csv --schema s.toml --method dca --components 1 -o p.json
      hearsay projection patients.csv --schema s.toml --method dca --components 1 -o p.json \\
          --private --epsilon 1 --budget ward.hsb
    """  # noqa: D301
    wanted = _Wanted(**options)
    if payment is not None and wanted.quantile is not None:
        raise click.UsageError("--quantile is about exact outputs; it does not go with --private")
    inputs = [pilot, schema_file] if payment is None else [pilot, schema_file, payment.budget]
    check_files(output, *([] if plot is None else [plot]), inputs=inputs)
    schema = load_schema(schema_file).schema
    with working("fitting the projection"):
        fitted = (_exactly if payment is None else partial(_privately, payment))(pilot, schema, wanted, missing)
    write_file(output, projection_text(fitted.schema, fitted.facts, fitted.pilots).encode())
    if plot is not None:
        write_file(plot, _drawing(fitted.facts).encode())
    assert fitted.schema.projection is not None
    names = [component.name for component in fitted.schema.projection.components]
    _print_fit(output, fitted, names)


class _Wanted(NamedTuple):
    """Options of ``hearsay projection``, by their names. None stands for an option that is not given."""

    method: str
    components: int
    rho: float | None
    bounds: str | None
    quantile: float | None
    bins: int
    equal_frequency: bool

    @property
    def ridge(self) -> float:
        """The ridge of dca, in units of variance."""
        from aggregator.models.reduction import DEFAULT_RIDGE

        return DEFAULT_RIDGE if self.rho is None else self.rho


class _Fitted(NamedTuple):
    """A schema with a projection, facts about the fit, and numbers of values outside the bounds (None if private)."""

    schema: Schema
    facts: dict[str, Any]
    beyond: list[Outside] | None
    pilots: tuple[PilotCost, ...] = ()


def _exactly(pilot: Path, schema: Schema, wanted: _Wanted, missing: Sequence[str]) -> _Fitted:
    from aggregator.common.tables import read_table
    from aggregator.models.population import check_pilot, outside
    from aggregator.models.reduction import fit_projection

    bounds = wanted.bounds or "pilot"
    frame = check_pilot(read_table(pilot), schema, missing)
    clipped: dict[str, Any] = {"bounds": bounds, "quantile": wanted.quantile or 0.0}
    shape: dict[str, Any] = {"bins": wanted.bins, "equal_frequency": wanted.equal_frequency}
    fitted = fit_projection(frame, schema, wanted.method, wanted.components, ridge=wanted.ridge, **shape, **clipped)
    facts = reduction_facts(fitted, wanted.method, len(frame)) | clipped
    if wanted.method == "dca":
        facts["rho"] = wanted.ridge
    return _Fitted(fitted.schema, facts, outside(frame, schema))


def _privately(payment: Payment, pilot: Path, schema: Schema, wanted: _Wanted, missing: Sequence[str]) -> _Fitted:
    from aggregator.common.tables import read_table
    from aggregator.curator.projecting import MOMENTS, ProjectionTerms, project_records

    with open_budget(payment.budget) as budget:
        terms = ProjectionTerms(
            wanted.method,
            wanted.components,
            payment.epsilon_micro,
            payment.delta,
            budget.adjacency,
            wanted.ridge,
            wanted.bins,
            wanted.equal_frequency,
            wanted.bounds or MOMENTS,
        )
        made = project_records(read_table(pilot), schema, terms, budget, missing=missing)
    assert made.paid is not None
    return _Fitted(made.schema, made.facts, None, (made.paid,))


def _drawing(facts: dict[str, Any]) -> str:
    names = [str(index + 1) for index in range(len(facts["explained"]))]
    shown = {"explained variance": "explained", "discriminant power": "discriminant"}
    series = [Bars(text, facts[key]) for text, key in shown.items() if key in facts]
    return bar_chart(f"Components of {facts['method'].upper()}", names, series, x_label="component", y_label="share")


def _print_fit(output: Path, fitted: _Fitted, names: list[str]) -> None:
    facts, beyond = fitted.facts, fitted.beyond
    if as_json():
        inputs = {} if beyond is None else {"inputs": [one._asdict() for one in beyond]}
        print_json({"projection": str(output), **facts, "components": names, **inputs})
        return
    print_facts({"projection": output, **{name.replace("_", " "): facts[name] for name in _SHOWN if name in facts}})
    columns = [key for key in ("explained", "discriminant", "clipped") if key in facts]
    rows = zip(names, *([_COLUMNS[key][1](value) for value in facts[key]] for key in columns), strict=True)
    titles = ["component", *(_COLUMNS[key][0] for key in columns)]
    print_table(titles, list(rows), numeric=titles[1:])
    if beyond is None:
        note("every number here is public or has noise; the projection may be published")
        return
    print_table(("input", "below", "above", "missing"), beyond, numeric=("below", "above", "missing"))
    if any(one.below or one.above for one in beyond):
        note("numbers outside the bounds of their feature count as the bound; reports do not tell how many there are")
