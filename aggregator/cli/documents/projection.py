"""``hearsay projection``: replace numeric features by fewer components, fitted on a pilot file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.options import (
    PATH,
    equal_frequency_option,
    force_option,
    json_option,
    missing_option,
    output_option,
)
from aggregator.cli.output import note, print_facts, print_json, print_table, working
from aggregator.files import check_output, write_output

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.models.pilot import Outside

DEFAULT_BINS = 4


@click.command()
@click.argument("pilot", type=PATH, metavar="PILOT.csv")
@click.option("--schema", "schema_file", type=PATH, required=True, help="Schema of the pilot: a .toml file.")
@click.option("--method", required=True, help="pca, or dca: directions in which the classes differ.")
@click.option("--components", type=int, required=True, help="K: number of components, the outputs.")
@output_option
@click.option("--rho", type=float, help="Ridge of dca, in units of variance; default 0.001.")
@click.option(
    "--bounds", default="pilot", show_default=True, help="Bounds of the outputs: from the inputs or the pilot."
)
@click.option("--quantile", type=float, default=0.0, show_default=True, help="Share of the pilot to clip on each side.")
@click.option("--bins", type=int, default=DEFAULT_BINS, show_default=True, help="Bins of a component.")
@equal_frequency_option
@missing_option
@click.option("--plot", type=PATH, help="SVG file to draw the components' power into.")
@force_option
@json_option
def projection(
    pilot: Path,
    schema_file: Path,
    method: str,
    components: int,
    output: Path,
    rho: float | None,
    bounds: str,
    quantile: float,
    bins: int,
    equal_frequency: bool,  # noqa: FBT001 - click passes options by name
    missing: tuple[str, ...],
    plot: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Fit a projection of the numeric features on a pilot file whose people agreed to be seen.

    The output holds integers, for hearsay campaign --projection.

    \b
    Example:
      hearsay projection pilot.csv --schema s.toml --method dca --components 1 -o p.json
    """  # noqa: D301
    from aggregator.models.pilot import check_pilot, outside
    from aggregator.models.reduction import DEFAULT_RIDGE, fit_projection
    from aggregator.publishing.projection_file import projection_text, reduction_facts
    from aggregator.schema_file import load_schema
    from aggregator.tables import MISSING_TOKENS, read_table

    for path in (output, plot):
        if path is not None:
            check_output(path, force=force)
    schema = load_schema(schema_file).schema
    with working("fitting the projection"):
        frame = check_pilot(read_table(pilot), schema, missing or MISSING_TOKENS)
        fitted = fit_projection(
            frame,
            schema,
            method,
            components,
            bins=bins,
            ridge=DEFAULT_RIDGE if rho is None else rho,
            bounds=bounds,
            quantile=quantile,
            equal_frequency=equal_frequency,
        )
    facts = reduction_facts(fitted, method, len(frame))
    facts["bounds"] = bounds
    facts["quantile"] = quantile
    if method == "dca":
        facts["rho"] = DEFAULT_RIDGE if rho is None else rho
    write_output(output, projection_text(fitted.schema, facts).encode(), force=force)
    if plot is not None:
        write_output(plot, _drawing(facts).encode(), force=force)
    assert fitted.schema.projection is not None
    names = [component.name for component in fitted.schema.projection.components]
    _print_fit(output, facts, names, outside(frame, schema), as_json=as_json)


def _drawing(facts: dict[str, Any]) -> str:
    """A bar chart of the components' variance and power, as SVG."""
    from aggregator.plots import Bars, bar_chart

    names = [str(index + 1) for index in range(len(facts["explained"]))]
    series = [Bars("explained variance", facts["explained"]), Bars("discriminant power", facts["discriminant"])]
    return bar_chart(f"Components of {facts['method'].upper()}", names, series, x_label="component", y_label="share")


def _print_fit(output: Path, facts: dict[str, Any], names: list[str], beyond: list[Outside], *, as_json: bool) -> None:
    if as_json:
        print_json({"projection": str(output), **facts, "components": names, "inputs": [b._asdict() for b in beyond]})
        return
    shown = ("method", "rho", "pilot_rows", "bounds", "worst_error")
    print_facts({"projection": output, **{name.replace("_", " "): facts[name] for name in shown if name in facts}})
    rows = zip(names, facts["explained"], facts["discriminant"], facts["clipped"], strict=True)
    columns = ("component", "explained %", "discriminant power", "clipped %")
    table = [(name, f"{100 * a:.2f}", f"{b:.4f}", f"{100 * c:.2f}") for name, a, b, c in rows]
    print_table(columns, table, numeric=columns[1:])
    print_table(("input", "below", "above", "missing"), beyond, numeric=("below", "above", "missing"))
    if any(one.below or one.above for one in beyond):
        note("numbers outside the bounds of their feature count as the bound; reports do not tell how many there are")
