"""``hearsay simulate``: the accuracy that a schema, a mechanism and an ε give on the analyst's own records."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from aggregator.cli import options
from aggregator.cli.options import CENTRAL_METHODS, MECHANISMS, PATH, POSTPROCESSINGS, glossary
from aggregator.cli.output import as_json, note, print_facts, print_json, print_table, progress, warn
from aggregator.common.files import check_output, write_output
from aggregator.common.plots import Bars, Line, bar_chart, line_chart
from aggregator.common.tables import read_table
from aggregator.curator.methods.table import DEFAULT as DEFAULT_METHOD
from aggregator.curator.methods.table import METHODS
from aggregator.curator.terms import DIVISIONS, FitTerms
from aggregator.estimates.cells import as_range, as_share
from aggregator.models.postprocess.methods import DEFAULT, POSTPROCESSES
from aggregator.publishing.ask_table import ask_of
from aggregator.publishing.schemas.schema_file import load_schema
from protocol.documents.masked_terms import RECORD
from protocol.errors import InputError
from protocol.questions import ADD_REMOVE, ADJACENCIES
from simulation.preparing import prepare
from simulation.settings import (
    ALIEN,
    CENTRAL,
    DEFAULT_TEST_SHARE,
    DISTRIBUTED,
    ENGINES,
    FEDERATED,
    LOCAL,
    OPTIONS,
    POSTPROCESS,
    SHARED,
    TRUSTS,
    VERTICAL,
    WHOLE,
    Settings,
    field_of,
)
from simulation.trust import Simulation, Trial

MOST_POINTS = 200
MOST_LINES = 6
"""Most lines of a plot besides the largest class and the non-private model: colours that can be told apart."""

SWEPT = (
    "epsilon",
    "mechanism",
    "answers",
    "family",
    "approach",
    "theta",
    "bins",
    "max-values",
    "reduce",
    "reduce-fit",
    "rho",
    "postprocess",
    "devices",
    "delta",
    "adjacency",
    "division",
    "noise",
    "trim",
    "nodes",
    "sensitivity",
    "robust",
    "honest-share",
    "colluding-share",
    "unit",
)
"""The options that may be swept."""


class Point(NamedTuple):
    """One simulation of a sweep: option → its value as text, and the summary (:meth:`Trust.summary`)."""

    setting: dict[str, str]
    result: dict[str, Any]


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a text such as ``epsilon=0.5,1,2`` into an option and its values, texts that may not fit the option.

    Raises InputError ``sweep_invalid``: the option can not be swept, a value is empty, or two are equal (``1``,
    ``1.0``).
    """
    name, _, listed = text.partition("=")
    values = tuple(value.strip() for value in listed.split(","))
    if name not in SWEPT or not all(values):
        raise InputError("sweep_invalid", f"a sweep is OPTION=VALUE,VALUE… of one of {', '.join(SWEPT)}")
    if len({value if (number := _number(value)) is None else number for value in values}) != len(values):
        raise InputError("sweep_invalid", f"the sweep of {name} names a value twice")
    return name, values


def points(settings: Settings, sweeps: Sequence[str]) -> list[tuple[dict[str, str], Settings]]:
    """Return for every combination of swept values the combination (option → text) and its settings.

    Raises InputError ``sweep_invalid``: a text that :func:`parse_sweep` refuses, an option twice, an impossible value,
    or more than 200 combinations.
    """
    parsed = [parse_sweep(text) for text in sweeps]
    names = [name for name, _ in parsed]
    if len(set(names)) != len(names):
        raise InputError("sweep_invalid", "an option is swept once; list all its values there")
    count = 1
    for _, values in parsed:
        count *= len(values)
    if count > MOST_POINTS:
        raise InputError("sweep_invalid", f"a sweep has {MOST_POINTS} combinations at most; these are {count}")
    combinations = [dict(zip(names, chosen, strict=True)) for chosen in product(*(values for _, values in parsed))]
    return [(setting, _with(settings, setting)) for setting in combinations]


def _with(settings: Settings, setting: Mapping[str, str]) -> Settings:
    changes: dict[str, Any] = {}
    for name, text in setting.items():
        field = field_of(name)
        kind = int if field in WHOLE else float if field in ("ridge", "trim") else str
        try:
            changes[field] = kind(text)
        except ValueError:
            raise InputError("sweep_invalid", f"{name} can not have one of the values that the sweep lists") from None
    return settings._replace(**changes)


def run_sweep(
    prepared: Sequence[tuple[dict[str, str], Simulation]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Point]:
    """Run all simulations of a sweep, and return one point for each, in their order.

    The function draws one seed for the choice of test people and gives it to all simulations. ``prepared``: for each
    simulation its swept settings (option → value as text), and the simulation.

    Raises:
        InputError, PolicyError: a simulation fails (:meth:`Simulation.run`).
    """
    split_seed = secrets.randbits(64)
    found = []
    for setting, simulation in prepared:
        result, _ = simulation.run(split_seed=split_seed)
        found.append(Point(setting, result))
        if progress is not None:
            progress(len(found), len(prepared))
    return found


def check_plot(settings: Sequence[Mapping[str, str]]) -> None:
    """Raise an error if a plot would have too many lines. ``settings``: the swept settings of each simulation.

    Raises InputError ``plot_invalid``: more than :data:`MOST_LINES` lines.
    """
    axis = _axis(settings)
    lines = {_name(setting, axis) for setting in settings}
    if axis is not None and len(lines) > MOST_LINES:
        raise InputError("plot_invalid", f"a plot holds {MOST_LINES} lines at most; this sweep would draw {len(lines)}")


def plot(found: Sequence[Point], label: str) -> str:
    """Plot the accuracies as SVG: lines over the first numeric option, or without one bars for each combination.

    ``found``: at least one point.
    """
    axis = _axis([point.setting for point in found])
    title = f"accuracy of '{label}' on unseen records"
    if axis is None:
        names = [_name(point.setting, None) for point in found]
        series = [Bars(name, [point.result[key] for point in found]) for name, key in _SHOWN]
        return bar_chart(title, names, series, y_label="accuracy")
    lines: dict[str, dict[float, float]] = {}
    rest: dict[str, dict[float, list[float]]] = {name: {} for name, _ in _SHOWN[1:]}
    for point in found:
        x = float(point.setting[axis])
        lines.setdefault(_name(point.setting, axis), {})[x] = point.result["accuracy"]
        for name, key in _SHOWN[1:]:
            rest[name].setdefault(x, []).append(point.result[key])
    drawn = [Line(name or "accuracy", sorted(ys), [ys[x] for x in sorted(ys)]) for name, ys in lines.items()]
    drawn += [Line(name, sorted(ys), [sum(ys[x]) / len(ys[x]) for x in sorted(ys)]) for name, ys in rest.items()]
    return line_chart(title, drawn, x_label="ε" if axis == "epsilon" else axis, y_label="accuracy")


_SHOWN = (("accuracy", "accuracy"), ("not private", "accuracy_nonprivate"), ("largest class", "accuracy_majority"))


def _axis(settings: Sequence[Mapping[str, str]]) -> str | None:
    """Return the first option whose values are numbers, at least two different ones; None if there is none."""
    for name in settings[0] if settings else ():
        numbers = [_number(setting[name]) for setting in settings]
        if None not in numbers and len(set(numbers)) > 1:
            return name
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _name(setting: Mapping[str, str], axis: str | None) -> str:
    return " ".join(
        text if name in ("mechanism", "family") else f"{name} {text}" for name, text in setting.items() if name != axis
    )


_NO_INTERVAL = "not known"


def facts_of(result: dict[str, Any]) -> dict[str, str]:
    """Return the facts that are printed about one simulation: name → text."""
    spread = "" if result["accuracy_sd"] is None else f" (sd of one trial {result['accuracy_sd']:.1%})"
    interval = {}
    if result["accuracy_low"] is not None:
        ends = f"{result['accuracy_low']:.1%} to {result['accuracy_high']:.1%}"
        interval["95 % interval"] = (
            f"{ends}, of the mean of endless repetitions on these records, if the accuracies of repetitions are near "
            "normal"
        )
    elif result["repeats"] > 1:
        interval["95 % interval"] = f"{_NO_INTERVAL}: all repetitions gave the same accuracy"
    private = {}
    if "accuracy_private" in result:
        low, high = result["accuracy_private_low"], result["accuracy_private_high"]
        private["as devices told it"] = (
            f"{as_share(result['accuracy_private'])} ({as_range(low, high)}, of the population), at ε = "
            f"{result['epsilon_evaluation']:g}"
        )
    return {
        "accuracy": f"{result['accuracy']:.1%}{spread}",
        **interval,
        **private,
        "not private": f"{result['accuracy_nonprivate']:.1%}",
        "largest class": f"{result['accuracy_majority']:.1%}",
        **_FACTS[result.get("trust", LOCAL)](result),
        "tested on": f"{result['test_records']} records",
        "trials": str(result["trials"]) + (f", {result['reports']} reports in all" if "reports" in result else ""),
    }


def _nodes(result: dict[str, Any], of: str = "records") -> str:
    """Return the number of nodes, and how many records, or features, the smallest and the largest have."""
    return f"{result['nodes']} of {' to '.join(map(str, dict.fromkeys(result[f'node_{of}'])))} {of}"


def _local_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_total']:g} per device, {result['epsilon_per_answer']:g} per answer",
        "devices": f"{result['devices']}, {result['answers_per_device']} answers each by '{result['mechanism']}'",
    }


def _shared_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_total']:g} per device, δ = {result['delta']:g}, for changing a record, against either "
        "collector",
        "devices": f"{result['devices']}, one report of {result['report_bytes']} bytes each",
        "noise": f"{result['noise']}, of both collectors {result['noise_sd']:.3g} records in each of "
        f"{result['cells']} cells of {result['features']} features",
    }


def _central_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_paid']:g} of {result['epsilon_total']:g} in all, δ = {result['delta']:g}",
        "hides": f"neighbours by '{result['adjacency']}'",
        "method": f"{result['mechanism']}, {result['noise']} noise, ε divided {result['division']}, {result['family']}",
        "records": f"{result['records']} of a curator",
    }


def _federated_facts(result: dict[str, Any]) -> dict[str, str]:
    rule = result["robust"] or "plain addition"
    total, changed = f"{result['epsilon_total']:g}", f"{result['epsilon_change']:g}"
    if result["adjacency"] == ADD_REMOVE:
        cost = f"{total} for adding or removing a record, {changed} for changing one"
    else:
        cost = f"{total} for changing the features of a record, not its label"
    return {
        "ε": cost,
        "nodes": f"{_nodes(result)}, {result['summaries']} summaries in all",
        "method": f"{rule} of {result['queries']} noisy vectors, {result['postprocess']}, {result['family']}",
    }


def _distributed_facts(result: dict[str, Any]) -> dict[str, str]:
    unit = "a record" if result["unit"] == RECORD else "all records of a node"
    cost, changed = (f"{result[f'epsilon_{of}']:g}, δ = {result[f'delta_{of}']:g}" for of in ("total", "change"))
    return {
        "ε": f"{cost} for adding or removing {unit}; {changed} for changing it",
        "nodes": f"{_nodes(result)}, {result['messages']} messages in all",
        "noise": f"{result['noise']}, {result['noise_copies']:.3g} whole copies in a total, "
        f"{result['honest_share']:g} honest, {result['colluding_share']:g} colluding",
        "method": f"total of {result['queries']} noisy vectors in {result['ciphertexts']} ciphertexts, "
        f"{result['postprocess']}, {result['family']}",
    }


def _vertical_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_total']:g} for adding or removing a record, {result['epsilon_change']:g} for changing "
        f"one; {result['epsilon_per_count']:g} per count",
        "nodes": f"{_nodes(result, 'features')}, with {result['records']} records in common",
        "products": f"{result['products']} opened in all",
    }


_FACTS = {
    LOCAL: _local_facts,
    SHARED: _shared_facts,
    CENTRAL: _central_facts,
    FEDERATED: _federated_facts,
    DISTRIBUTED: _distributed_facts,
    VERTICAL: _vertical_facts,
}
"""Kind of trust → the lines about its fleet, records or nodes."""


def accuracies_of(result: Mapping[str, Any]) -> list[str]:
    """Return the numbers of a simulation's row in the table of a sweep, as text.

    An end without an interval is empty.
    """
    ends = [_percent(result[key]) for key in ("accuracy_low", "accuracy_high")]
    if result["repeats"] > 1 and result["accuracy_low"] is None:
        ends = [_NO_INTERVAL] * 2
    shown = [_percent(result["accuracy"]), *ends]
    shown += [_percent(result[key]) for key in ("accuracy_nonprivate", "accuracy_majority")]
    if "accuracy_private" in result:
        shown += [as_share(result["accuracy_private"]), f"{result['epsilon_evaluation']:g}"]
    return shown


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


_NOT_KEPT = {
    CENTRAL: "no budget counts the ε of a simulated fit; make a model to keep by hearsay budget and hearsay fit",
    FEDERATED: "no ledger counts the ε of a simulated node; make one to keep with hearsay-edge node summarise",
    DISTRIBUTED: "no ledger counts the ε of a simulated party; make one to keep with hearsay-edge node encrypt",
    VERTICAL: "there is no model: every prediction needs all parties",
}
"""Kind of trust → why a simulated model is not kept."""


@click.command(
    epilog=glossary(mechanisms=MECHANISMS, post_processings=POSTPROCESSINGS, central_methods=CENTRAL_METHODS)
)
@click.argument("data", type=PATH)
@click.option("--label", help="Column to predict; with --schema the schema says it.")
@click.option("--epsilon", help="Total that each device spends, summed over its answers; or of a curator's fit.")
@click.option(
    "--trust",
    type=click.Choice(TRUSTS),
    default=LOCAL,
    show_default=True,
    help="local: devices answer with noise; shared: they split their records for two collectors, one of them honest; "
    "central: a curator who sees the records fits them, as hearsay fit does; "
    "federated: nodes with many records each send noisy sums; distributed: nodes encrypt them, and only their total "
    "opens; vertical: nodes hold different features of the same records.",
)
@click.option(
    "--mechanism",
    help="A mechanism for values or numbers, or auto; default: direct, or auto if family is. "
    f"Central: {', '.join(METHODS)}; default: {DEFAULT_METHOD}.",
)
@click.option("--delta", help="Central, shared: δ, default 0. Distributed: δ of diluted noise, default 1e-5.")
@click.option("--adjacency", type=click.Choice(ADJACENCIES), help="Central: default change, or what the method covers.")
@click.option("--division", type=click.Choice(DIVISIONS), help=f"Central: default {FitTerms('', 1).division}.")
@click.option(
    "--noise",
    help="Central: noise of a method with smooth sensitivity; default: its first. "
    "Shared: laplace (δ = 0) or gaussian; default: the one with the smaller variance. "
    "Distributed: divided (δ = 0), the default, or diluted.",
)
@click.option("--trim", type=click.FloatRange(0, 0.5, max_open=True), help="Central: trimmed share; default 0.05.")
@click.option(
    "--nodes",
    type=click.IntRange(1),
    help="Federated, distributed: number of nodes, to which the records are dealt; vertical: the features.",
)
@click.option(
    "--honest-share", default="1", show_default=True, help="Distributed: γ, the share of nodes whose noise suffices."
)
@click.option(
    "--colluding-share", default="0", show_default=True, help="Distributed: κ, the share that may betray its noise."
)
@click.option(
    "--unit", default="record", show_default=True, help="Distributed: what is hidden: one record, or a node's (party)."
)
@click.option(
    "--sensitivity", default="global", show_default=True, help="Federated: noise for global or smooth sensitivity."
)
@click.option("--robust", help="Federated: trimmed-mean:SHARE, median or krum:LIARS; default: plain addition.")
@click.option("--answers", default="one", show_default=True, help="Answers per device: one, all, auto, a number.")
@click.option("--schema", "schema_file", type=PATH, help="Schema; default: drafted from the data.")
@click.option("--ask", help="Features to ask about, like odor,gill-size; default: as the schema says, or all.")
@click.option("--bins", type=int, default=4, show_default=True, help="Bins of a numeric feature in a drafted schema.")
@click.option("--max-values", type=int, default=12, show_default=True, help="Whole numbers with more become numeric.")
@click.option("--drop", multiple=True, help="Column to leave out of a drafted schema; repeatable.")
@click.option(
    "--family",
    help="discrete, the default, gaussian, or auto: see hearsay plan. Central: see hearsay fit.",
)
@click.option("--approach", type=int, help="How laplace asks for moments: 1 all at once, 3 one.")
@click.option("--reduce", default="none", show_default=True, help="none, pca:K or dca:K.")
@click.option(
    "--reduce-fit",
    type=click.Choice(["pilot", "train"]),
    default="pilot",
    show_default=True,
    help="Whose records fit the bounds of a drafted schema and the projection: pilot, those of a tenth of the people, "
    "whose devices then do not answer; or train, of all who answer, as in papers, which is outside the guarantee.",
)
@click.option("--rho", "ridge", type=click.FloatRange(0), default=1e-3, show_default=True, help="Ridge of DCA.")
@click.option(
    "--postprocess",
    default="",
    help=f"One of {', '.join(POSTPROCESSES)}; default {DEFAULT}, of sums {POSTPROCESS[FEDERATED]}.",
)
@click.option(
    "--class-question/--no-class-question", default=True, show_default=True, help="Also ask for the class alone."
)
@click.option("--theta", help="Threshold of 'the'; default 0.25.")
@click.option("--test", "test_file", type=PATH, help="File of test records; default: a part of the data.")
@click.option("--test-share", type=float, help=f"Share of the records to test on; default {DEFAULT_TEST_SHARE}.")
@click.option("--folds", type=click.IntRange(2), help="Cross-validation with so many parts.")
@click.option(
    "--devices",
    "--records",
    "devices",
    type=click.IntRange(1),
    help="People to learn from, drawn with replacement: devices, or records of the curator or of all nodes; default: "
    "everybody once.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="device",
    show_default=True,
    help="device: devices' own code; vector: arrays in their place; files, for shared trust: arrays make the bytes of "
    "the devices' reports, for both collectors' real folders.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With new splits and new noise each; from 2 on there is a 95 % interval of the mean, right if the accuracies "
    "are near normal.",
)
@click.option(
    "--evaluate", is_flag=True, help="Let the test people's devices evaluate the model privately, at ε, 16 at most."
)
@click.option(
    "--design",
    "asking",
    metavar="all|all:K|pilot:K|pilot:K:count|refine|refine:same",
    help="Choose what to ask: everything; from the records of K people, who then do not answer (hearsay design); or "
    "from private answers alone (hearsay refine). all:K and pilot:K:count make the model from these K people's records "
    "too (hearsay count). Prints what each step decided; local trust, and refine, with "
    "--engine vector. Shared, refine:same: each step asks all devices, with a part of ε.",
)
@click.option("--seed", type=click.IntRange(0), help="Fixes splits and, in the simulation only, all noise.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="OPTION=V1,V2…",
    help=f"Try several values of an option, in all combinations; repeatable. One of {', '.join(SWEPT)}.",
)
@click.option("--plot", "plot_file", type=PATH, help="SVG file to draw a sweep into.")
@click.option(
    "--out", type=PATH, metavar="MODEL", help="Local, shared: keep the first repetition's model, and its root beside."
)
@options.missing
@click.option("--force", is_flag=True, help="Replace the files of --plot and --out if they exist.")
@options.json
@click.pass_context
def simulate(
    context: click.Context,
    /,
    data: Path,
    label: str | None,
    schema_file: Path | None,
    ask: str | None,
    test_file: Path | None,
    sweeps: tuple[str, ...],
    plot_file: Path | None,
    out: Path | None,
    missing: tuple[str, ...],
    *,
    force: bool,
    **others: Any,
) -> None:
    """Try a campaign on records you have: people, devices, reports, counts, a signed model, its accuracy.

    By default every person of the learning part becomes a device that answers one question; another
    device verifies the signed model and classifies the test part with it.

    With --trust shared devices split their exact records for two collectors, and only a total with both collectors'
    noise leaves them.
    With --trust central a curator fits the learning part instead, at ε in all, and a device classifies the test part.
    With --trust federated the learning part is dealt to --nodes at random, and each node sends noisy sums at ε for
    adding or removing one record. With --trust distributed the nodes share the noise, and only their total opens.
    With --trust vertical the nodes hold different features, and only products of their noisy counts open.

    \b
    Example:
      hearsay simulate mushroom.csv --label class --epsilon 1 --mechanism oue --repeats 5
      hearsay simulate mushroom.csv --label class --epsilon 1 --trust shared --engine vector --devices 300 \\
          --design pilot:300
      hearsay simulate adult.csv --label income --epsilon 0.5 --trust central --mechanism sums --folds 10
      hearsay simulate adult.csv --label income --epsilon 1 --trust federated --nodes 100 --engine vector
      hearsay simulate adult.csv --label income --epsilon 0.1 --trust distributed --nodes 1000 --engine vector \\
          --sweep noise=divided,diluted
      hearsay simulate car.csv --label class --epsilon 1.4 --trust vertical --nodes 6 --engine vector --folds 10
      hearsay simulate mushroom.csv --label class --repeats 5 \\
          --sweep epsilon=0.5,1,2 --sweep mechanism=direct,oue --plot sweep.svg
    """  # noqa: D301
    _check_usage(context, sweeps, plot_file, out, {**others, "test": test_file})
    for place in _outputs(plot_file, out):
        check_output(place, force=force)
    settings = Settings(**{**others, "epsilon": others["epsilon"] or ""})
    chosen = points(settings, sweeps)
    if plot_file is not None:
        check_plot([setting for setting, _ in chosen])
    table = read_table(data)
    file = None if schema_file is None else load_schema(schema_file)
    schema, asked = (None, ask_of(ask, {})) if file is None else (file.schema, ask_of(ask, file.ask))
    if label is None:
        if schema is None:
            raise click.UsageError("Missing option '--label'; or give --schema.", context)
        label = schema.label.name
    test = None if test_file is None else read_table(test_file)
    prepared = [
        (setting, prepare(each, table, label, schema=schema, ask=asked, test=test, missing=missing))
        for setting, each in chosen
    ]
    _print_notes([simulation for _, simulation in prepared])
    if sweeps:
        with progress("simulations", len(prepared)) as callback:
            found = run_sweep(prepared, progress=callback)
        if plot_file is not None:
            write_output(plot_file, plot(found, label).encode(), force=force)
        _print_sweep(found, as_json=as_json())
        return
    with progress("repetitions", settings.repeats) as callback:
        result, trials = prepared[0][1].run(progress=callback)
    if out is not None:
        _keep(out, trials, force=force)
    _print(result, as_json=as_json())


def _check_usage(
    context: click.Context, sweeps: Sequence[str], plot_file: Path | None, out: Path | None, others: Mapping[str, Any]
) -> None:
    swept = {text.partition("=")[0] for text in sweeps}
    for name in sorted(swept & set(SWEPT)):
        if context.get_parameter_source(field_of(name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is given and swept; give one of them", context)
    asks = others["trust"] in (LOCAL, SHARED)
    for name in ALIEN[others["trust"]] if asks else (*ALIEN[others["trust"]], "ask"):
        option = OPTIONS.get(name, name.replace("_", "-"))
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE or option in swept:
            raise click.UsageError(f"--{option} does not go with --trust {others['trust']}", context)
    if others["epsilon"] is None and "epsilon" not in swept:
        raise click.UsageError("give --epsilon, or --sweep epsilon=V1,V2…", context)
    if sum(others[name] is not None for name in ("folds", "test", "test_share")) > 1:
        raise click.UsageError("give one of --folds, --test and --test-share", context)
    if plot_file is not None and not sweeps:
        raise click.UsageError("--plot draws a --sweep", context)
    if out is not None and sweeps:
        raise click.UsageError("--out keeps the model of one simulation, not of a --sweep", context)
    if out is not None and not asks:
        trust = others["trust"]
        raise click.UsageError(f"--out does not go with --trust {trust}, since {_NOT_KEPT[trust]}", context)


def _root_of(out: Path) -> Path:
    return out.with_suffix(".hst")


def _outputs(plot_file: Path | None, out: Path | None) -> list[Path]:
    places = [] if plot_file is None else [plot_file]
    if out is not None:
        if out.suffix == ".hst":
            raise click.UsageError("--out names a model, for example m.hsm; the root goes beside it as .hst")
        places += [out, _root_of(out)]
    return places


def _print_notes(prepared: Sequence[Simulation]) -> None:
    for text in dict.fromkeys(text for simulation in prepared for text in simulation.notes):
        note(text)
    for text in dict.fromkeys(text for simulation in prepared for text in simulation.warnings):
        warn(text)


def _keep(out: Path, trials: Sequence[Trial], *, force: bool) -> None:
    """Write the first trial's model, and the root that verifies it. No device should pin this root."""
    signed = trials[0].signed
    if signed is not None:
        write_output(_root_of(out), signed.root, force=force)
        write_output(out, signed.model, force=force)
        note(
            f"the model of the first trial is in '{out}'; '{_root_of(out)}' verifies it and is of keys that this "
            "simulation made up: give it to no device"
        )


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        print_facts(facts_of(result))
        _print_steps(result.get("steps", []))
    if result["below_majority"]:
        warn(
            f"the model is right less often ({result['accuracy']:.1%}) than a guess of the largest class "
            f"({result['accuracy_majority']:.1%}): try more devices, a larger ε, fewer features or bins"
        )


def _print_steps(trials: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    rows = [
        (number, step["step"], f"{step['part']:.1%}", step.get("why", ""), ", ".join(step["features"]))
        for number, steps in enumerate(trials, 1)
        for step in steps
    ]
    if rows:
        click.echo()
        print_table(["trial", "step", "devices", "why", "features"], rows, numeric=["trial", "devices"])


def _print_sweep(found: Sequence[Point], *, as_json: bool) -> None:
    if as_json:
        print_json({"points": [{"setting": point.setting, **point.result} for point in found]})
    else:
        numeric = ["accuracy", "low", "high", "not private", "largest class"]
        if "accuracy_private" in found[0].result:
            numeric += ["as devices told it", "ε of that"]
        rows = [
            [*point.setting.values(), *accuracies_of(point.result), "below the largest class" * worse]
            for point in found
            for worse in [point.result["below_majority"]]
        ]
        print_table([*found[0].setting, *numeric, ""], rows, numeric=numeric)
    worse = sum(point.result["below_majority"] for point in found)
    if worse:
        warn(f"{worse} of {len(found)} models are right less often than a guess of the largest class")
