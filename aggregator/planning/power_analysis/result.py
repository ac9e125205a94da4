"""The result of a plan, for people, notebooks and programs."""

from __future__ import annotations

from typing import Any, NamedTuple

from aggregator.common.notebooks import facts, table
from aggregator.common.plots import Line, line_chart
from aggregator.planning.power_analysis.precision import CLASSES, Precision
from aggregator.planning.power_analysis.rehearsal import Fleet
from aggregator.planning.power_analysis.search import Pruned, Ranked
from aggregator.planning.power_analysis.targets import EPSILON, Curve, Solution, shown
from aggregator.publishing.mechanisms.choice import AUTO
from protocol.documents.campaign import DISCRETE
from protocol.errors import InputError

COLUMNS = ("design", "questions", "accuracy", "95 % interval", "behind", "without privacy", "standard error")


class Plan(NamedTuple):
    """The result of a plan.

    Attributes:
        label: name of the predicted column.
        epsilon: total ε of a device in one period.
        fleet: devices and periods.
        basis: which records the plan is made from, or what it assumes, in words.
        largest_class: share of the largest class, the accuracy of always predicting it.
        ranked: designs by expected accuracy, the best first. Designs that left the search early come last. If the
            number of devices was the question, the first design is the one that the targets are about
            (:meth:`aggregator.planning.power_analysis.search.Found.headed_by`).
        pruned: designs that closed forms left out.
        precision: expected standard errors of the first design, one entry per question, and one for the classes.
        solutions: what the targets need.
        curves: accuracies against the quantity that a target asks for, or against devices; for a plot, empty unless
            they were asked for.
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
        first, widths = self.ranked[0], max(self.precision, key=lambda one: (one.clipped_width, one.worst))
        expected = first.forecast
        found = {
            "basis": self.basis,
            "fleet": f"{self.fleet.devices:,} device{_s(self.fleet.devices)}, ε = {self.epsilon:g} per period, "
            f"{self.fleet.periods} period{_s(self.fleet.periods)}",
            "first design": first.design.name,
            "expected accuracy": f"{expected.accuracy:.1%} ({expected.low:.1%} to {expected.high:.1%})",
            "largest class": f"{self.largest_class:.1%}",
            "widest 95 % interval": f"{widths.clipped_width:.3g}, of {widths.question}",
        }
        classes = [one for one in self.precision if one.question == CLASSES]
        if classes:
            found["95 % interval of a class"] = f"{classes[0].clipped_width:.3g} wide"
        for solution in self.solutions:
            is_other = solution.design not in (None, first.design)
            beside = f"; for {self.fleet.devices:,} devices the first design is better" if is_other else ""
            found[solution.target] = said(solution) + beside
        for choice, options in self.choices().items():
            found[f"by {choice}"] = ", ".join(
                f"{option} {one.forecast.accuracy:.1%}" for option, one in options.items()
            )
        return found

    def choices(self) -> dict[str, dict[str, Ranked]]:
        """For every choice, its options by expected accuracy, each with the best design that has the option.

        A choice without an alternative is left out. Bins are those of discrete designs without a projection.
        """
        found: dict[str, dict[str, Ranked]] = {}
        for one in self.ranked:
            design = one.design
            mechanism = "direct or oue" if design.mechanism == AUTO else design.mechanism
            options = {"family": design.family, "projection": design.reduction, "mechanism": mechanism}
            options["answers"] = str(design.answers)
            if (design.family, design.reduction) == (DISCRETE, "none"):
                options["bins"] = "as in the schema" if design.bins is None else str(design.bins)
            for choice, option in options.items():
                found.setdefault(choice, {}).setdefault(option, one)
        return {choice: options for choice, options in found.items() if len(options) > 1}

    def rows(self) -> list[tuple[str, ...]]:
        """The ranking as text: one row per rehearsed design, with the columns :data:`COLUMNS`."""
        return [
            (
                one.design.name,
                str(one.questions),
                f"{one.forecast.accuracy:.1%}",
                f"{one.forecast.low:.1%} to {one.forecast.high:.1%}",
                "" if one is self.ranked[0] else f"{one.behind:z.1%} ± {1.96 * one.behind_error:.1%}",
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
        quantity = self.curves[0].quantity
        lines = [Line(one.design.name, one.grid.tolist(), one.accuracy.tolist()) for one in self.curves]
        ends = [min(float(one.grid[0]) for one in self.curves), max(float(one.grid[-1]) for one in self.curves)]
        lines.append(Line("largest class", ends, [self.largest_class] * 2))
        return line_chart(
            f"expected accuracy of '{self.label}'" + ("" if quantity == EPSILON else f", ε = {self.epsilon:g}"),
            lines,
            x_label="ε" if quantity == EPSILON else quantity,
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
            "choices": {
                choice: [
                    {"option": option, "design": one.design.name, "accuracy": one.forecast.accuracy}
                    for option, one in options.items()
                ]
                for choice, options in self.choices().items()
            },
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
                    "width": one.clipped_width,
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
                    one.quantity: one.grid.tolist(),
                    "accuracy": one.accuracy.tolist(),
                    "standard_errors": one.errors.tolist(),
                }
                for one in self.curves
            ],
            "notes": list(self.notes),
        }


def said(solution: Solution) -> str:
    """A target's answer as a sentence for people."""
    quantity = solution.quantity
    if solution.value is None:
        return f"cannot be reached: {solution.why}"
    amount, ends = shown(quantity, solution.value), ""
    if solution.least is not None and solution.value <= solution.least:
        amount = f"at most {amount}"
    if solution.most is not None and solution.high != solution.value:
        low = "less" if solution.low is None else shown(quantity, solution.low)
        high = (
            f"more than {shown(quantity, solution.most)}" if solution.high is None else shown(quantity, solution.high)
        )
        ends = f" ({low} to {high})"
    named = "" if solution.design is None else f", with {solution.design.name}"
    return f"{quantity} = {amount}{ends}{named}"


def _s(number: int) -> str:
    return "" if number == 1 else "s"


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
