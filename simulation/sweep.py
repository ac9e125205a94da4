"""Sweeps: several simulations with different values of some settings, for one table or plot.

All simulations of a sweep have the same seed of splits, so they learn from the same people and are tested on the same
people, repetition by repetition. If the same people may report, the fleets begin with the same people.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from aggregator.common.plots import Bars, Line, bar_chart, line_chart
from protocol.errors import InputError
from simulation.settings import Settings
from simulation.trust import Simulation

MOST_POINTS = 200
MOST_LINES = 6
"""Most lines of a plot besides the largest class and the non-private model: colours that can be told apart."""

SWEPT: Mapping[str, Callable[[str], Any]] = {
    "epsilon": str,
    "mechanism": str,
    "answers": str,
    "family": str,
    "approach": int,
    "theta": str,
    "bins": int,
    "max-values": int,
    "reduce": str,
    "reduce-fit": str,
    "rho": float,
    "postprocess": str,
    "devices": int,
    "delta": str,
    "adjacency": str,
    "division": str,
    "noise": str,
    "trim": float,
    "nodes": int,
    "sensitivity": str,
    "robust": str,
    "honest-share": str,
    "colluding-share": str,
    "unit": str,
}
"""Option → type of its value, for the options that may be swept."""

_FIELDS = {"rho": "ridge"}


class Point(NamedTuple):
    """One simulation of a sweep: option → its value as text, and the summary (:meth:`Trust.summary`)."""

    setting: dict[str, str]
    result: dict[str, Any]


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a text such as ``epsilon=0.5,1,2`` into an option and its values, texts that may not fit the option.

    Raises:
        InputError: ``sweep_invalid``: the option can not be swept, a value is empty, or two are equal (``1``, ``1.0``).
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

    Raises:
        InputError: ``sweep_invalid``: a text that :func:`parse_sweep` refuses, an option twice, an impossible value, or
            more than 200 combinations.
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
    changes = {}
    for name, text in setting.items():
        value: Any = None
        try:
            value = SWEPT[name](text)
        except ValueError:
            value = None
        if value is None:
            raise InputError("sweep_invalid", f"{name} can not have one of the values that the sweep lists")
        changes[_FIELDS.get(name, name.replace("-", "_"))] = value
    return settings._replace(**changes)


def run_sweep(
    prepared: Sequence[tuple[dict[str, str], Simulation]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Point]:
    """Run all simulations of a sweep, and return one point for each, in their order.

    The function draws one seed for the choice of test people and gives it to all simulations.

    Args:
        prepared: for each simulation its swept settings (option → value as text), and the simulation.

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

    Raises:
        InputError: ``plot_invalid``: more than :data:`MOST_LINES` lines.
    """
    axis = _axis(settings)
    lines = {_name(setting, axis) for setting in settings}
    if axis is not None and len(lines) > MOST_LINES:
        raise InputError("plot_invalid", f"a plot holds {MOST_LINES} lines at most; this sweep would draw {len(lines)}")


def plot(found: Sequence[Point], label: str) -> str:
    """Plot the accuracies as SVG: lines over the first numeric option, or without one bars for each combination.

    Args:
        found: at least one point.
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
