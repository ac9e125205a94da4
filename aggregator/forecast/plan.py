"""``hearsay plan`` as a Python function: what to expect of a campaign, and what a target needs.

found = aggregator.plan("s.toml", epsilon=1, devices=5000, pilot="pilot.csv")
found.ranked[0].forecast.accuracy; found.to_json()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.ask_table import resolve
from aggregator.forecast.precision import CLASSES, precisions, widest
from aggregator.forecast.rehearsal import Fleet
from aggregator.forecast.search import Scope, search
from aggregator.forecast.study import MOST_RECORDS, Study
from aggregator.forecast.targets import (
    DEVICES,
    GRIDS,
    MOST_DAYS,
    MOST_DEVICES,
    QUANTITIES,
    curve,
    for_accuracy,
    for_width,
    span_around,
)
from aggregator.models.pilot import check_pilot
from aggregator.models.postprocess import DEFAULT, check_postprocess
from aggregator.notebooks import facts, table
from aggregator.planning.choice import AUTO
from aggregator.plots import Line, line_chart
from aggregator.publishing.projection_file import load_projection
from aggregator.schema_file import SchemaFile, load_schema
from aggregator.tables import MISSING_TOKENS, read_table
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.shown import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pandas as pd

    from aggregator.forecast.precision import Precision
    from aggregator.forecast.search import Pruned, Ranked
    from aggregator.forecast.targets import Curve, Solution
    from protocol.schema import Schema

DEFAULT_EFFECT = 0.5
MOST_EFFECT = 5.0
DEFAULT_DEVICES = 10_000
"""Devices at which designs are ranked if the number of devices is the question."""
DRAWN = 3
"""Designs in a plot, and designs that a target of accuracy looks at."""
COLUMNS = ("design", "questions", "accuracy", "95 % interval", "behind", "without privacy", "standard error")


class Plan(NamedTuple):
    """The result of a plan.

    Attributes:
        label: name of the predicted column.
        epsilon: total ε of a device in one period.
        fleet: devices and periods.
        basis: which records the plan is made from, or what it assumes, in words.
        largest_class: share of the largest class, the accuracy of always predicting it.
        ranked: designs by expected accuracy, the best first. Designs that left the search early come last.
        pruned: designs that closed forms left out.
        precision: expected standard errors of the first design, one entry per question, and one for the classes.
        solutions: what the targets need.
        curves: accuracies against devices, for a plot; empty unless they were asked for.
        notes: sentences about the limits of the plan.
    """

    label: str
    epsilon: float
    fleet: Fleet
    basis: str
    largest_class: float
    ranked: tuple[Ranked, ...]
    pruned: tuple[Pruned, ...]
    precision: tuple[Precision, ...]
    solutions: tuple[Solution, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, str]:
        """The main results as names and texts, for people."""
        first, widths = self.ranked[0], widest(list(self.precision))
        expected = first.forecast
        found = {
            "basis": self.basis,
            "fleet": f"{self.fleet.devices} devices, ε = {self.epsilon:g} per period, {self.fleet.periods} period"
            + ("s" if self.fleet.periods > 1 else ""),
            "first design": first.design.name,
            "expected accuracy": f"{expected.accuracy:.1%} ({expected.low:.1%} to {expected.high:.1%})",
            "largest class": f"{self.largest_class:.1%}",
            "widest 95 % interval": f"{widths.width:.3g}, of {widths.question}",
        }
        classes = [one for one in self.precision if one.question == CLASSES]
        if classes:
            found["95 % interval of a class"] = f"{classes[0].width:.3g} wide"
        for solution in self.solutions:
            found[solution.target] = said(solution)
        return found

    def rows(self) -> list[tuple[str, ...]]:
        """The ranking as text: one row per rehearsed design, with the columns :data:`COLUMNS`."""
        return [
            (
                one.design.name,
                str(one.questions),
                f"{one.forecast.accuracy:.1%}",
                f"{one.forecast.low:.1%} to {one.forecast.high:.1%}",
                "" if one is self.ranked[0] else f"{one.behind:.1%} ± {1.96 * one.behind_error:.1%}",
                f"{one.plain:.1%}",
                f"{one.error:.3g}",
            )
            for one in self.ranked
        ]

    def _repr_html_(self) -> str:
        return facts("Plan", dict(self.facts())) + table(COLUMNS, self.rows())

    def chart(self) -> str:
        """Expected accuracy against the number of devices, as the text of an SVG file.

        Raises:
            InputError: ``plot_invalid``: the plan was made without curves.
        """
        if not self.curves:
            raise InputError("plot_invalid", "the plan has no curves; ask for them")
        lines = [Line(one.design.name, one.grid.tolist(), one.accuracy.tolist()) for one in self.curves]
        ends = [float(self.curves[0].grid[0]), float(self.curves[0].grid[-1])]
        lines.append(Line("largest class", ends, [self.largest_class] * 2))
        return line_chart(
            f"expected accuracy of '{self.label}', ε = {self.epsilon:g}",
            lines,
            x_label="devices",
            y_label="accuracy",
            log_x=True,
        )

    def to_json(self) -> dict[str, Any]:
        """All results, for programs: the output of ``hearsay plan --json``."""
        return {
            "label": self.label,
            "epsilon": self.epsilon,
            "devices": self.fleet.devices,
            "periods": self.fleet.periods,
            "basis": self.basis,
            "largest_class": self.largest_class,
            "designs": [_ranked_json(one) for one in self.ranked],
            "pruned": [
                {**one.design._asdict(), "standard_error": one.error, "ratio": one.ratio} for one in self.pruned
            ],
            "precision": [
                {
                    "question": one.question,
                    "answers": one.answers,
                    "standard_errors": one.errors.tolist(),
                    "median": one.median,
                    "worst": one.worst,
                    "width": one.width,
                }
                for one in self.precision
            ],
            "targets": [
                {**one._asdict(), "design": None if one.design is None else one.design._asdict()}
                for one in self.solutions
            ],
            "curves": [
                {
                    "design": one.design._asdict(),
                    "devices": one.grid.tolist(),
                    "accuracy": one.accuracy.tolist(),
                    "standard_errors": one.errors.tolist(),
                }
                for one in self.curves
            ],
            "notes": list(self.notes),
        }


def said(solution: Solution) -> str:
    """A target's answer as a sentence for people."""
    if solution.value is None:
        return f"cannot be reached: {solution.why}"
    shown = f"{solution.value:.3g}" if solution.quantity == "epsilon" else f"{solution.value:,.0f}"
    ends = ""
    if solution.low is not None:
        high = "not known" if solution.high is None else f"{solution.high:,.3g}"
        ends = f" ({solution.low:,.3g} to {high})"
    named = "" if solution.design is None else f", with {solution.design.name}"
    return f"{solution.quantity} = {shown}{ends}{named}"


def _ranked_json(one: Ranked) -> dict[str, Any]:
    return {
        **one.design._asdict(),
        "name": one.design.name,
        "questions": one.questions,
        "accuracy": one.forecast.accuracy,
        "low": one.forecast.low,
        "high": one.forecast.high,
        "behind": one.behind,
        "behind_error": one.behind_error,
        "accuracy_nonprivate": one.plain,
        "standard_error": one.error,
        "campaigns": one.campaigns,
    }


def plan(
    schema: SchemaFile | Schema | str | Path,
    *,
    epsilon: str | float,
    devices: int | None = None,
    periods: int = 1,
    pilot: str | Path | pd.DataFrame | None = None,
    effect: float | None = None,
    family: str = AUTO,
    mechanism: str = AUTO,
    answers: str | int = AUTO,
    coding: str = AUTO,
    projection: str | Path | None = None,
    postprocess: str = DEFAULT,
    target_accuracy: float | None = None,
    target_width: float | None = None,
    solve: str = DEVICES,
    missing: Collection[str] = MISSING_TOKENS,
    seed: int = 0,
    curves: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Rank the ways to ask a fleet by the accuracy to expect, and say what a target needs. Run by the analyst.

    Args:
        schema: a schema file, its path, or a schema.
        epsilon: total ε of a device in one period.
        devices: number of devices; None with a target for the number of devices ranks designs at
            :data:`DEFAULT_DEVICES`.
        periods: number of periods in which every device answers.
        pilot: a CSV file of records with their label, or a table of text from :func:`aggregator.tables.read_table`;
            None assumes an effect.
        effect: d of :func:`aggregator.forecast.population.assumed`; None is :data:`DEFAULT_EFFECT`.
        family: ``discrete``, ``gaussian`` or ``auto``.
        mechanism: name of a mechanism, or ``auto``.
        answers: answers of a device in one period: ``one``, ``all``, a number, or ``auto``.
        coding: ``auto`` also looks at other bins, PCA and DCA; ``schema`` takes the schema as it is.
        projection: a file of ``hearsay projection``, to take as it is.
        postprocess: name of the post-processing.
        target_accuracy: accuracy that the model is to reach, between 0 and 1; or None.
        target_width: largest width of a 95 % interval of a share or mean, above 0 and below 2; or None.
        solve: the quantity that the targets need: ``devices``, ``epsilon`` or ``days`` (periods).
        missing: cells of the pilot that stand for a missing value.
        seed: seed of all simulated counts; the same seed gives the same plan.
        curves: whether accuracies against devices are simulated too, for :meth:`Plan.chart`.
        progress: called with (finished steps, steps).

    Raises:
        InputError: ``plan_invalid``: a number outside its range, or arguments that exclude each other;
            ``pilot_too_small``; the reasons of the schema file, of the pilot (:func:`check_pilot`), of the projection
            file and of a campaign's parameters.
    """
    fleet = _checked(devices, periods, pilot, effect, target_accuracy, target_width, solve, coding)
    if not 0 <= seed < 1 << 64:
        raise InputError("plan_invalid", "a seed is from 0 to 2^64 − 1")
    micro = micro_epsilon(epsilon)
    check_postprocess(postprocess)
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    file = schema if isinstance(schema, SchemaFile) else SchemaFile("", schema)
    records, basis = _records(pilot, file.schema, missing, effect)
    described = file.schema if projection is None else load_projection(Path(projection), file.schema)
    asked = resolve(described, file.ask).schema
    study = Study(asked, micro, postprocess, pilot=records, effect=effect or DEFAULT_EFFECT, seed=seed)
    found = search(study, Scope(family, mechanism, str(answers), coding), fleet, progress)
    best = [one.design for one in found.ranked[:DRAWN]]
    campaign, population = study.campaign(best[0])
    solutions = _solutions(study, best, fleet, target_accuracy, target_width, solve)
    drawn = tuple(curve(study, one, fleet, DEVICES, span_around(fleet.devices)) for one in best) if curves else ()
    return Plan(
        asked.label.name,
        micro / MICRO,
        fleet,
        basis,
        study.largest_class,
        found.ranked,
        found.pruned,
        tuple(precisions(campaign, fleet, population)),
        tuple(solutions),
        drawn,
        _notes(records, found.ranked, projected=projection is not None),
    )


def _checked(
    devices: int | None,
    periods: int,
    pilot: object,
    effect: float | None,
    target_accuracy: float | None,
    target_width: float | None,
    solve: str,
    coding: str,
) -> Fleet:
    """Refuse numbers outside their ranges, and arguments that exclude each other. Returns the fleet to rank at.

    Raises:
        InputError: ``plan_invalid``.
    """
    targets = [one for one in (target_accuracy, target_width) if one is not None]
    problems = [
        (solve not in QUANTITIES, f"a plan solves for {', '.join(QUANTITIES)}"),
        (coding not in (AUTO, "schema"), "the coding is auto or schema"),
        (devices is None and (not targets or solve != DEVICES), "say how many devices there are"),
        (not targets and solve != DEVICES, "a plan solves for something only with a target"),
        (periods != 1 and solve == "days", "a target for days takes no periods"),
        (devices is not None and not 1 <= devices <= MOST_DEVICES, f"a fleet has 1 to {MOST_DEVICES:.0e} devices"),
        (not 1 <= periods <= MOST_DAYS, f"a device answers in 1 to {MOST_DAYS} periods"),
        (pilot is not None and effect is not None, "an effect is assumed only where there is no pilot"),
        (effect is not None and not 0 < effect <= MOST_EFFECT, f"an effect is above 0 and at most {MOST_EFFECT:g}"),
        (target_accuracy is not None and not 0 < target_accuracy < 1, "an accuracy lies between 0 and 1"),
        (target_width is not None and not 0 < target_width < 2, "a width is above 0 and below 2"),
    ]
    for is_wrong, sentence in problems:
        if is_wrong:
            raise InputError("plan_invalid", sentence)
    return Fleet(DEFAULT_DEVICES if devices is None else devices, periods)


def _records(
    pilot: str | Path | pd.DataFrame | None, schema: Schema, missing: Collection[str], effect: float | None
) -> tuple[pd.DataFrame | None, str]:
    """The pilot's typed records or None, and the basis of the plan in words."""
    if pilot is None:
        assumption = (
            f"no pilot; assumed: classes of the same share, features independent given the class, each telling one "
            f"class from the others by d = {effect or DEFAULT_EFFECT:g} standard deviations"
        )
        return None, assumption
    read = read_table(pilot) if isinstance(pilot, str | Path) else pilot
    records = check_pilot(read, schema, missing)
    named = f" of {quoted(Path(pilot).name)}" if isinstance(pilot, str | Path) else ""
    some = f", {MOST_RECORDS} of them at random" if len(records) > MOST_RECORDS else ""
    return records, f"{len(records)} records{named}{some}"


def _solutions(
    study: Study,
    best: list[Any],
    fleet: Fleet,
    target_accuracy: float | None,
    target_width: float | None,
    solve: str,
) -> list[Solution]:
    found = []
    if target_accuracy is not None:
        curves = [curve(study, one, fleet, solve, GRIDS[solve]) for one in best]
        found.append(for_accuracy(curves, [study.plain(one) for one in best], target_accuracy, solve))
    if target_width is not None:
        found.append(for_width(study, best[0], fleet, target_width, solve))
    return found


def _notes(records: object, ranked: tuple[Ranked, ...], *, projected: bool) -> tuple[str, ...]:
    """Sentences about what the plan does not know."""
    near = [one for one in ranked[1:] if one.behind <= 2 * one.behind_error]
    found = []
    if near:
        found.append(f"designs that these records do not tell from the first one (within two errors): {len(near)}")
    if records is None:
        found.append("without a pilot the accuracies hold for the assumed effect only; intervals hold for any records")
    else:
        found.append("the pilot is taken for a random sample of the devices' records")
    if projected and records is not None:
        found.append("if the projection was fitted on these records, the accuracies are too high: fit it on others")
    return tuple(found)
