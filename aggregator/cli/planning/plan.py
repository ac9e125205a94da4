"""``hearsay plan``: what to expect of a campaign, and what a target needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.options import MECHANISMS, PATH, POSTPROCESSINGS, glossary
from aggregator.cli.output import (
    as_json,
    check_files,
    note,
    print_facts,
    print_json,
    print_table,
    progress,
    warn,
    write_file,
)

if TYPE_CHECKING:
    from aggregator.planning.power_analysis.plan import Plan


@click.command(epilog=glossary(mechanisms=MECHANISMS, post_processings=POSTPROCESSINGS))
@click.argument("schema_file", type=PATH, metavar="SCHEMA.toml")
@click.option("--epsilon", required=True, help="Total privacy cost of a device in one period, for example 1.0.")
@click.option("--devices", type=int, help="Size of the fleet; may be left out if a target asks for it.")
@click.option("--periods", type=int, default=1, show_default=True, help="Periods (days) in which a device answers.")
@click.option("--pilot", type=PATH, metavar="PILOT.csv", help="Records with their label; default: assume an effect.")
@options.shared_answers
@click.option("--effect", type=float, help="Without a pilot: distance of two classes in standard deviations; 0.5.")
@click.option("--family", default="auto", show_default=True, help="discrete, gaussian or auto: both.")
@click.option("--mechanism", default="auto", show_default=True, help="A mechanism, or auto: all of the family.")
@click.option("--answers", default="auto", show_default=True, help="Per device and period: one, all, a number, auto.")
@click.option(
    "--coding",
    default="auto",
    show_default=True,
    help="auto: try other bins, PCA, DCA, chosen features, a counted pilot; schema: as it is; pca:K, dca:K.",
)
@click.option("--projection", type=PATH, help="File made by hearsay projection, to take as it is.")
@click.option("--postprocess", help="How estimates become probabilities; default: that of hearsay campaign.")
@click.option("--target-accuracy", type=float, help="Accuracy that the model is to reach, between 0 and 1.")
@click.option("--target-width", type=float, help="Largest width of the 95 % interval of a share or mean.")
@click.option(
    "--solve", default="devices", show_default=True, help="What a target needs: devices, epsilon or days (periods)."
)
@click.option(
    "--class-question/--no-class-question", default=True, show_default=True, help="Also ask for the class alone."
)
@options.missing
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the simulated counts.")
@click.option("--statistics", is_flag=True, help="Print the expected standard errors of every question, too.")
@click.option("--plot", "plot_file", type=PATH, help="SVG file: accuracy against devices, or what --solve names.")
@options.force
@options.json
def plan(schema_file: Path, postprocess: str | None, plot_file: Path | None, *, statistics: bool, **asked: Any) -> None:
    """Say what to expect of a campaign, and what a target needs, before any device answers.

    Ways to ask (family, bins, PCA or DCA, mechanism, answers) are ranked by the accuracy to expect on the pilot's
    records, from simulated counts. So are features chosen from the pilot (hearsay design), and models that count the
    pilot's records with the answers (hearsay count). The commands of the first one are printed. Standard errors and
    widths of intervals have a closed form.

    \b
    Example:
      hearsay plan schema.toml --epsilon 1 --devices 5000 --pilot pilot.csv --plot plan.svg
      hearsay plan schema.toml --epsilon 1 --pilot pilot.csv --target-accuracy 0.85
      hearsay plan schema.toml --epsilon 1 --trust shared --pilot pilot.csv --target-accuracy 0.85
      hearsay plan schema.toml --epsilon 1 --devices 2000 --target-width 0.1 --solve days
    """  # noqa: D301
    from aggregator.models.postprocess.methods import DEFAULT
    from aggregator.planning.power_analysis.plan import plan as make_plan

    if plot_file is not None:
        check_files(plot_file)
    with progress("rounds", 1) as callback:
        found = make_plan(
            schema_file,
            postprocess=DEFAULT if postprocess is None else postprocess,
            curves=plot_file is not None,
            progress=callback,
            **asked,
        )
    if plot_file is not None:
        write_file(plot_file, found.chart().encode())
    if as_json():
        print_json(found.to_json())
    else:
        _print(found, statistics=statistics)
    for text in found.notes:
        note(text)
    expected = found.expected.accuracy
    if expected <= found.largest_class:
        warn(
            f"the expected accuracy ({expected:.1%}) is not above the largest class ({found.largest_class:.1%}): "
            "plan more devices, a larger ε, fewer features or bins"
        )


def _print(found: Plan, *, statistics: bool) -> None:
    from aggregator.planning.power_analysis.plan import COLUMNS

    print_facts(found.facts())
    click.echo()
    print_table(COLUMNS, found.rows(), numeric=COLUMNS[1:])
    click.echo("\n" + "\n".join(("next, for the first design:", *found.commands)) if found.commands else "")
    if statistics:
        click.echo()
        columns = ["question", "answers", "median standard error", "largest standard error", "widest 95 % interval"]
        rows = [
            (one.question, f"{one.answers:.0f}", f"{one.median:.4g}", f"{one.worst:.4g}", f"{one.clipped_width:.4g}")
            for one in found.precision
        ]
        print_table(columns, rows, numeric=columns[1:])
