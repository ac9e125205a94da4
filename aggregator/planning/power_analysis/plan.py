"""``hearsay plan`` as a Python function: what to expect of a campaign, and what a target needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from math import ceil
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import pandas as pd

from aggregator.collectors.campaigns import checked_delta
from aggregator.collectors.draws import LOCAL, SHARED, SharedNoise
from aggregator.common.notebooks import facts, table
from aggregator.common.plots import Line, line_chart
from aggregator.common.tables import MISSING_TOKENS, read_table, without_meaning
from aggregator.models.population import check_pilot
from aggregator.models.postprocess.methods import DEFAULT, check_postprocess
from aggregator.planning.power_analysis.precision import CLASSES, Precision, precisions
from aggregator.planning.power_analysis.rehearsal import Fleet, Forecast
from aggregator.planning.power_analysis.search import STEPS, TIED, PrunedDesign, RankedDesign, Ranking, Scope, search
from aggregator.planning.power_analysis.study import MOST_RECORDS, NO_SHARES, Design, Study
from aggregator.planning.power_analysis.targets import (
    DAYS,
    DEVICES,
    EPSILON,
    GRIDS,
    MOST_DAYS,
    MOST_DEVICES,
    QUANTITIES,
    Curve,
    Solution,
    curve,
    for_accuracy,
    for_width,
    shown,
    span_of,
)
from aggregator.publishing.ask_table import resolve
from aggregator.publishing.mechanisms.choice import AUTO
from aggregator.publishing.schemas.projection_file import load_projection
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from protocol import epsilon as allowance
from protocol.documents.campaign import DISCRETE
from protocol.documents.payload import quoted
from protocol.epsilon import MICRO, format_micro, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.schema import Schema

COLUMNS = ("design", "questions", "accuracy", "95 % interval", "behind", "without privacy", "standard error")
DEFAULT_EFFECT = 0.5
MOST_EFFECT = 5.0
DEFAULT_DEVICES = 10_000
"""Devices at which designs are first ranked if the number of devices is asked for; then comes the number found."""
SETTLING = 3
"""How often designs are ranked again, at most, at the number of devices that the targets need, until it is the same."""
CODING = re.compile(r"auto|schema|(pca|dca):[1-9][0-9]{0,4}", re.ASCII)
DRAWN = 3
"""Number of designs in a plot, and of designs for which a target of accuracy is solved."""


class Plan(NamedTuple):
    """What to expect of a campaign: ranked designs, their accuracies and intervals, and what targets need.

    ``basis``: which records the plan is made from, or what it assumes; ``largest_class``: its share; ``ranked``:
    designs by expected accuracy (the first is the one that the targets are about); ``pruned``: designs that were not
    simulated; ``expected``: the first design's accuracy, on records that took no part in ranking it first;
    ``precision``: its expected standard errors; ``solutions``: what the targets need; ``commands``: what to run, in
    this order; ``curves``: for a plot, on request; ``notes``: sentences about the limits of the plan.
    """

    label: str
    epsilon: float
    fleet: Fleet
    basis: str
    largest_class: float
    ranked: tuple[RankedDesign, ...]
    pruned: tuple[PrunedDesign, ...]
    expected: Forecast
    precision: tuple[Precision, ...]
    solutions: tuple[Solution, ...]
    commands: tuple[str, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, str]:
        """Return the main results for people: name → text."""
        first, widths = self.ranked[0], max(self.precision, key=lambda one: (one.clipped_width, one.worst))
        expected = self.expected
        found = {
            "basis": self.basis,
            "fleet": f"{self.fleet.devices:,} device{_plural(self.fleet.devices)}, ε = {self.epsilon:g} per period, "
            f"{self.fleet.periods} period{_plural(self.fleet.periods)}",
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
            found[solution.target] = _solution_text(solution) + beside
        for choice, options in self.choices().items():
            found[f"by {choice}"] = ", ".join(
                f"{option} {one.forecast.accuracy:.1%}" for option, one in options.items()
            )
        return found

    def choices(self) -> dict[str, dict[str, RankedDesign]]:
        """Return choice → option → its best design, the best option first. Choices without alternative are left out."""
        found: dict[str, dict[str, RankedDesign]] = {}
        for one in self.ranked:
            design = one.design
            is_chosen = design.chosen_for is not None
            options = {
                "features": "chosen" if is_chosen else "as in the schema",
                "pilot": "counted" if design.counted else "not counted",
                "family": design.family,
                "projection": "none" if is_chosen else design.reduction,
                "mechanism": design.mechanism,
                "answers": str(design.answers),
            }
            if (design.family, design.reduction) == (DISCRETE, "none"):
                options["bins"] = "as in the schema" if design.bins is None else str(design.bins)
            for choice, option in options.items():
                found.setdefault(choice, {}).setdefault(option, one)
        return {choice: options for choice, options in found.items() if len(options) > 1}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the ranking as rows of text, one per simulated design, with the columns :data:`COLUMNS`."""
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
        """Return a plot of the expected accuracy as an SVG file's text. Raises InputError without curves."""
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
        """Return all results for programs: the output of ``hearsay plan --json``."""
        return {
            "label": self.label,
            "epsilon": self.epsilon,
            "devices": self.fleet.devices,
            "periods": self.fleet.periods,
            "basis": self.basis,
            "largest_class": self.largest_class,
            "expected": self.expected._asdict() | {"low": self.expected.low, "high": self.expected.high},
            "commands": list(self.commands),
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


def _solution_text(solution: Solution) -> str:
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


def _plural(number: int) -> str:
    return "" if number == 1 else "s"


def _ranked_json(one: RankedDesign) -> dict[str, Any]:
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
    class_question: bool = True,
    missing: Collection[str] = MISSING_TOKENS,
    trust: str = "local",
    delta: str | float = "0",
    seed: int = 0,
    curves: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Rank the ways to ask a fleet by the accuracy to expect, and say what a target needs. Run by the analyst.

    Raises InputError: ``plan_invalid``: a number outside its range, or arguments that exclude each other;
    ``pilot_too_small``; the errors of reading the files, and those of a campaign's parameters.

    Args:
        schema: a schema file, its path, or a schema. The table ``[ask]`` of a file says which features are asked
            about, and which share of the devices each has.
        epsilon: total ε of a device in one period.
        devices: number of devices; None if a target is to find it.
        periods: number of periods in which every device answers.
        pilot: a CSV file of records with their label, or a table of text; None assumes an effect.
        effect: d of :func:`aggregator.models.population.assumed`; None is :data:`DEFAULT_EFFECT`.
        family, mechanism: names, or ``auto``.
        answers: answers of a device in one period: ``one``, ``all``, a number, or ``auto``.
        coding: ``auto`` also tries other bins, PCA and DCA, and with a pilot the features that
            :func:`aggregator.design` chooses, and counting the pilot's records with the answers; ``schema`` uses the
            schema as it is; ``pca:K`` and ``dca:K`` use that projection with K components.
        projection: a file of ``hearsay projection``, to use as it is.
        target_accuracy: accuracy that the model is to reach, between 0 and 1; or None.
        target_width: largest width of a 95 % interval of a share or mean, above 0 and below 2; or None.
        solve: the quantity that the targets need: ``devices``, ``epsilon`` or ``days`` (periods).
        class_question: whether devices are also asked for the class alone; False leaves out Gaussian designs.
        trust, delta: ``shared`` if two collectors make totals of the answers, and their δ; else ``local``.
        missing: cells of the pilot that stand for a missing value.
        seed: the same seed gives the same plan.
        curves: whether accuracies for :meth:`Plan.chart` are simulated too.
        progress: called with (finished steps, steps).
    """
    fleet = _checked(devices, periods, pilot, effect, target_accuracy, target_width, solve, coding)
    if not 0 <= seed < 1 << 64:
        raise InputError("plan_invalid", "a seed is from 0 to 2^64 − 1")
    micro = micro_epsilon(epsilon)
    check_postprocess(postprocess)
    read = load_schema(schema) if isinstance(schema, str | Path) else schema
    file = read if isinstance(read, SchemaFile) else SchemaFile("", read)
    records, basis = _records(pilot, file.schema, missing, effect)
    described = file.schema if projection is None else load_projection(Path(projection), file.schema)
    asked = resolve(described, file.ask).schema
    study = Study(
        asked,
        micro,
        postprocess,
        pilot=records,
        effect=effect or DEFAULT_EFFECT,
        seed=seed,
        class_question=class_question,
        noise=_noise(trust, delta, micro),
        shares=file.ask if any(one.share != 1 for one in file.ask.values()) else NO_SHARES,
    )
    simulated = DRAWN * len(GRIDS[solve]) if target_accuracy is not None or curves else 0
    step = _counted(progress, (1 if devices is not None else 1 + SETTLING) * STEPS + simulated)
    scope = Scope(family, mechanism, str(answers), coding, not file.ask)
    inquiry = _Inquiry(study, scope, solve, target_accuracy, target_width, step)
    found, solutions = inquiry.at(fleet)
    for _ in range(SETTLING if devices is None else 0):
        needed = ceil(max((one.value for one in solutions if one.value is not None), default=fleet.devices))
        if needed == fleet.devices:
            break
        fleet = fleet._replace(devices=needed)
        found, solutions = inquiry.settled(fleet)
    campaign, population = study.campaign(found.ranked[0].design)
    drawn = inquiry.drawn(found, fleet) if curves else ()
    return Plan(
        asked.label.name,
        micro / MICRO,
        fleet,
        basis,
        study.largest_class,
        found.ranked,
        found.pruned,
        found.expected,
        tuple(precisions(campaign, fleet, population)),
        solutions,
        _commands(found.ranked[0].design, study, schema, pilot, seed),
        drawn,
        _notes(records, found.ranked, projected=projection is not None)
        + (() if records is None else tuple(without_meaning(records, study.schema)))
        + _limits(micro, fleet.periods, solutions),
    )


def _commands(design: Design, study: Study, schema: object, pilot: object, seed: int) -> tuple[str, ...]:
    """Return the commands of a design, from the choice of features to the model; none for two collectors.

    ``schema``, ``pilot``: as given to :func:`plan`.
    """
    if study.noise is not None:
        return ()
    asked, records = (
        quote(str(given)) if isinstance(given, str | Path) else name
        for given, name in ((schema, "SCHEMA.toml"), (pilot, "PILOT.csv"))
    )
    found, epsilon_micro = [], study.epsilon_micro
    more = "" if study.class_question and design.chosen_for is None else " --no-class-question"
    if design.chosen_for is not None:
        one = format_micro(epsilon_micro // design.answers)
        found.append(
            f"hearsay design {records} --schema {asked} --epsilon {one} --devices {design.chosen_for}"
            f"{f' --seed {seed}' if seed else ''} -o asked.toml"
        )
        asked = "asked.toml"
    elif design.reduction != "none":
        method, _, components = design.reduction.partition(":")
        fitted = f"--method {method} --components {components}"
        found.append(f"hearsay projection {records} --schema {asked} {fitted} -o projection.json")
        more += " --projection projection.json"
    if design.bins is not None:
        found.append(f"# in {asked}: bins = {design.bins} for every number")
    more += "" if design.approach is None else f" --approach {design.approach}"
    more += "" if design.answers == 1 else f" --answers {design.answers}"
    found.append(
        f"hearsay campaign {asked} --workspace WORK --epsilon {format_micro(epsilon_micro)} --family {design.family} "
        f"--mechanism {design.mechanism}{more} -o c.hsc"
    )
    found.append("hearsay ingest c.hsc REPORTS --store store --workspace WORK")
    counts = ""
    if design.counted:
        found.append(f"hearsay count {records} --campaign c.hsc --workspace WORK --consent WHO-AGREED -o pilot.hsu")
        counts = " --counts pilot.hsu --one-population"
    found.append(f"hearsay publish --store store{counts} --workspace WORK -o m.hsm")
    return tuple(found)


def _noise(trust: str, delta: str | float, epsilon_micro: int) -> SharedNoise | None:
    """Return the noise of two collectors for ``shared`` trust, or None for ``local``."""
    delta_pico = checked_delta(pico_delta(delta))
    if trust not in (LOCAL, SHARED) or (delta_pico and trust == LOCAL):
        raise InputError("plan_invalid", "trust is local, or shared, which alone has a δ")
    return SharedNoise(epsilon_micro, delta_pico) if trust == SHARED else None


class _Inquiry:
    """Ranks designs and solves targets for fleets of several sizes; the curve of a design is simulated once."""

    def __init__(
        self,
        study: Study,
        scope: Scope,
        solve: str,
        accuracy: float | None,
        width: float | None,
        step: Callable[[], None],
    ) -> None:
        self._study, self._scope, self._solve = study, scope, solve
        self._accuracy, self._width = accuracy, width
        self._step = step
        self._curves: dict[Design, Curve] = {}

    def at(self, fleet: Fleet) -> tuple[Ranking, tuple[Solution, ...]]:
        """Return the ranking of designs for a fleet, and what the targets need."""
        found = search(self._study, self._scope, fleet, self._step)
        best = [one.design for one in found.ranked[:DRAWN]]
        solutions = []
        if self._accuracy is not None:
            solutions.append(self._for_accuracy(best, fleet, self._accuracy))
        if self._width is not None:
            solutions.append(for_width(self._study, best[0], fleet, self._width, self._solve))
        return found, tuple(solutions)

    def settled(self, fleet: Fleet) -> tuple[Ranking, tuple[Solution, ...]]:
        """Return the ranking for a fleet of the size that the targets need, and what the targets need.

        First is the design that needs the fewest devices; or, if it is clearly worse with that number, the most
        accurate one.
        """
        found, solutions = self.at(fleet)
        if self._accuracy is None:
            return found, solutions
        wanted = solutions[0].design
        headed = found if wanted is None else found.headed_by(wanted)
        first = headed.ranked[0].design
        settled = [
            solutions[0] if first == wanted else self._for_accuracy([first], fleet, self._accuracy, only=[first])
        ]
        if self._width is not None:
            settled.append(for_width(self._study, first, fleet, self._width, self._solve))
        return headed, tuple(settled)

    def _for_accuracy(
        self, best: Sequence[Design], fleet: Fleet, accuracy: float, only: Sequence[Design] | None = None
    ) -> Solution:
        for design in best:
            self._simulate(design, fleet, GRIDS[self._solve])
        tried = [one for design, one in self._curves.items() if only is None or design in only]
        return for_accuracy(tried, [self._study.plain(one.design) for one in tried], accuracy)

    def drawn(self, found: Ranking, fleet: Fleet) -> tuple[Curve, ...]:
        """Return the curves of the best designs: over the target's quantity, or over devices if there is no target."""
        best = [one.design for one in found.ranked[:DRAWN]]
        for design in best:
            self._simulate(design, fleet, span_of(self._solve, fleet))
        return tuple(self._curves[design] for design in best)

    def _simulate(self, design: Design, fleet: Fleet, values: Sequence[float]) -> None:
        if design not in self._curves:
            self._curves[design] = curve(
                self._study, design, fleet, self._solve, values, target=self._accuracy, done=self._step
            )


def _counted(progress: Callable[[int, int], None] | None, steps: int) -> Callable[[], None]:
    done = 0

    def step() -> None:
        nonlocal done
        done = min(done + 1, steps)
        if progress is not None:
            progress(done, steps)

    return step


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
    targets = [one for one in (target_accuracy, target_width) if one is not None]
    problems = [
        (solve not in QUANTITIES, f"a plan solves for {', '.join(QUANTITIES)}"),
        (not CODING.fullmatch(coding), "the coding is auto, schema, pca:K or dca:K with K components"),
        (":" in coding and pilot is None, "a projection is fitted on a pilot"),
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
    """Return the pilot's typed records (None without a pilot), and the basis of the plan in words."""
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


def _limits(epsilon_micro: int, periods: int, solutions: Sequence[Solution]) -> tuple[str, ...]:
    """Return a sentence if, under default limits, devices answer less than the plan or a target needs; else nothing."""
    needed = {one.quantity: one.value for one in solutions if one.value is not None}
    micro = max(epsilon_micro, round(needed.get(EPSILON, 0) * MICRO))
    paid = allowance.LIFETIME_MICRO // micro
    usual = "a device whose owner set no limits"
    if micro > allowance.PERIOD_MICRO:
        most = format_micro(allowance.PERIOD_MICRO)
        return (f"{usual} refuses ε = {format_micro(micro)} in a period; it allows {most}",)
    if max(periods, needed.get(DAYS, 0)) > paid:
        return (f"{usual} stops after {paid} periods (ε = {format_micro(allowance.LIFETIME_MICRO)} in its life)",)
    return ()


def _notes(records: object, ranked: tuple[RankedDesign, ...], *, projected: bool) -> tuple[str, ...]:
    near = [one for one in ranked[1:] if one.behind <= TIED * one.behind_error]
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
