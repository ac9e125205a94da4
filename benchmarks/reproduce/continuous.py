"""Numeric records: discretised or Gaussian, with and without dimension reduction, against the total ε of a person.

The figures of continuous data of Yilmaz, Al-Rubaie, Chang (2019). A *view* is how the numbers are read: bounds and a
projection (``none``, PCA, DCA), fitted on ``train`` (all owners' records, outside of the guarantee) or on ``pilot`` (a
tenth of the owners, who give no answers). All rows of a view have the same divisions of the records. Forms:

- ``discretised``: bins of equal width in joint coding, with five mechanisms;
- ``gaussian``: moments with the class hidden, in approach 1 (``laplace``, all moments in one answer), 2 (``bits``, one
  feature) and 3 (``laplace``, one feature);
- ``label_not_private``: the source's released code, in which every person SHOWS THE CLASS, so the total ε is ``inf``.
  No package can do this (``tests/reproduction/test_label_not_private.py``);
- ``none``: no privacy, ``discretised`` or ``gaussian``.

``one``: one random question at the total ε; ``all``: every question, each at ε / (number of questions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats
from aggregator.common.plots import Line
from aggregator.estimates.reports import estimate
from aggregator.models.baselines import plain_gaussian_model, plain_model
from aggregator.models.fitting import fit
from aggregator.models.population import Population
from aggregator.models.scoring import Model
from aggregator.publishing.campaigns import CampaignParameters, campaign_subjects
from benchmarks.reproduce.jobs import Job, Row, Size, agreement
from benchmarks.shared.fleets import campaign_of, tally_of
from benchmarks.shared.reference import BINS, REDUCTIONS, Case, numeric_cases, numeric_data
from benchmarks.shared.study import accuracies, csv_text, level, line, panels
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign
from protocol.epsilon import MICRO, micro_epsilon
from protocol.schema import Schema
from simulation.design import Design, Division

DATA = ("australian", "pima")
FITS = ("train", "pilot")
DISCRETISED, LABEL_NOT_PRIVATE, NONE = "discretised", "label_not_private", "none"
POSTPROCESSES = ("posterior", "paper")
MECHANISMS = ("direct", "sue", "oue", "she", "the")
APPROACHES = {"approach 1": ("laplace", 1), "approach 2": ("bits", None), "approach 3": ("laplace", 3)}
"""Approach of the source → mechanism, and the campaign's approach."""
TOTALS = ("0.25", "0.5", "1", "2", "3", "5", "10")
"""Total ε of ``one``, and ε of the numbers of ``label_not_private``."""
PER_ANSWER = ("0.25", "1", "3")
"""ε of each answer of ``all``; those of the independent simulation."""
EQUAL_TOTALS = ("1", "3", "10")
"""Total ε of ``all`` beside those of :data:`PER_ANSWER`, for comparisons with ``one``."""
KEY = ("data", "reduction", "fit", "form", "mechanism", "answers", "epsilon_per_answer", "postprocess")
"""The columns that name a row, but for the total ε, which follows from them."""
VARIANCE_FLOOR = 0.01
FLOOR_NOT_PRIVATE = 0.1
"""What the source's code puts in place of a variance that is not positive, in ``label_not_private``."""


class Point(NamedTuple):
    """What names one or two rows: a form and its mechanism, the answers of a person, and the ε.

    Attributes:
        answers: ``one``, ``all``, or empty.
        total: total ε; ``inf`` where the class is shown; empty without privacy.
        each: ε of each answer; empty without privacy.
    """

    form: str
    mechanism: str
    answers: str = ""
    total: str = ""
    each: str = ""

    @property
    def postprocesses(self) -> tuple[str, ...]:
        """The post-processings of the point's answers, one row each; one empty name if there are none."""
        return POSTPROCESSES if self.form in (DISCRETISED, GAUSSIAN) else ("",)


class View(NamedTuple):
    """How the numbers of a data set are read: projection, and the records on which bounds and projection are fitted."""

    data: str
    reduction: str
    fit: str

    def design(self) -> tuple[Design, pd.DataFrame]:
        """Return how the schema is made, and the records."""
        frame, schema = numeric_data(self.data)
        method, components = REDUCTIONS[self.reduction]
        return Design(schema, BINS[self.data], True, method, components, fit_on=self.fit), frame

    def questions(self, form: str, mechanism: str) -> int:
        """Return the number of questions of a form."""
        return len(_subjects(self.design()[0].template_schema(), form, mechanism))


def jobs(size: Size) -> list[Job]:
    """Return the jobs of every view: without privacy, class shown, discretised, Gaussian.

    The rows of a form are a job.
    """
    found: list[Job] = []
    for view in views(quick=size.quick):
        points = list(_points(view, quick=size.quick))
        for forms in ((NONE, LABEL_NOT_PRIVATE), (DISCRETISED,), (GAUSSIAN,)):
            chosen = tuple(point for point in points if point.form in forms)
            rows = tuple(_names(view, point, post) for point in chosen for post in point.postprocesses)
            found.append(Job(rows, 3 if size.quick else 30, measure, (view, chosen)))
    return found


def views(*, quick: bool) -> list[View]:
    """Return the views of all data sets."""
    reductions = ("none", "dca") if quick else tuple(REDUCTIONS)
    return [View(data, reduction, fit) for data in DATA for reduction in reductions for fit in FITS]


def _names(view: View, point: Point, postprocess: str) -> dict[str, str]:
    names = {"form": point.form, "mechanism": point.mechanism, "answers": point.answers}
    spent = {"epsilon_total": point.total, "epsilon_per_answer": point.each, "postprocess": postprocess}
    return {**view._asdict(), **names, **spent}


def _points(view: View, *, quick: bool) -> Iterator[Point]:
    totals = TOTALS[::3] if quick else TOTALS
    yield from (Point(NONE, form) for form in (DISCRETISED, GAUSSIAN))
    yield from (Point(LABEL_NOT_PRIVATE, name, "", "inf", each) for name in APPROACHES for each in totals)
    for form, names in ((DISCRETISED, MECHANISMS[:2] if quick else MECHANISMS), (GAUSSIAN, tuple(APPROACHES))):
        for name in names:
            yield from (Point(form, name, "one", total, total) for total in totals)
            questions = view.questions(form, name)
            micros = {micro_epsilon(each) * questions for each in (PER_ANSWER[1:2] if quick else PER_ANSWER)}
            micros |= {micro_epsilon(total) for total in (() if quick else EQUAL_TOTALS)}
            for micro in sorted(micros):
                yield Point(form, name, "all", f"{micro / MICRO:g}", f"{micro // questions / MICRO:g}")


def measure(view: View, points: Sequence[Point], repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies of every point and post-processing, with the same divisions of the records for all."""
    design, frame = _design(view)
    dividing, rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    campaigns: dict[Point, Campaign] = {}
    found: list[list[float]] = [[] for point in points for _ in point.postprocesses]
    for _ in range(repeats):
        for split in Division().splits(frame, dividing):
            schema, owners = design.for_people(split.people, dividing)
            people = Population.of_frame(owners, schema)
            test = Population.of_frame(split.test, schema)
            place = 0
            for point in points:
                for model in _models(point, schema, people, campaigns, rng):
                    right = model.scores_of(test.scored).argmax(axis=1) == test.truth
                    found[place].append(float(right.mean()))
                    place += 1
    return found


@lru_cache(maxsize=2)
def _design(view: View) -> tuple[Design, pd.DataFrame]:
    return view.design()


def _models(
    point: Point, schema: Schema, people: Population, campaigns: dict[Point, Campaign], rng: np.random.Generator
) -> Iterator[Model]:
    """Yield one model for each post-processing of a point.

    ``campaigns`` keeps the campaign of each point. One campaign is enough for all divisions: the schemas of a view have
    equal questions, and their bounds and projections are already in the records' codes and numbers.
    """
    if point.form == NONE:
        if point.mechanism == DISCRETISED:
            yield plain_model(people.reported, people.labels, schema)
        else:
            yield plain_gaussian_model(people.reported, people.labels, schema, VARIANCE_FLOOR)
        return
    if point.form == LABEL_NOT_PRIVATE:
        yield label_not_private(point.mechanism, float(point.each), schema, people, rng)
        return
    if point not in campaigns:
        campaigns[point] = campaign_of(schema, _parameters(point, schema))
    campaign = campaigns[point]
    statistics = estimate(campaign, tally_of(campaign, people, rng), with_intervals=False)
    for postprocess in point.postprocesses:
        yield Model(schema, *fit(statistics, postprocess))


def _mechanism(form: str, name: str) -> dict[str, Any]:
    """Return the parameters of a campaign that follow from form and mechanism."""
    if form == DISCRETISED:
        return {"mechanism": name, "family": DISCRETE}
    mechanism, approach = APPROACHES[name]
    return {"mechanism": mechanism, "family": GAUSSIAN, "approach": approach}


def _subjects(schema: Schema, form: str, name: str) -> list[Any]:
    named = _mechanism(form, name)
    return campaign_subjects(schema, named["family"], named["mechanism"], named.get("approach"))


def _parameters(point: Point, schema: Schema) -> CampaignParameters:
    answers = 1 if point.answers == "one" else len(_subjects(schema, point.form, point.mechanism))
    named = _mechanism(point.form, point.mechanism)
    return CampaignParameters("reproduce", micro_epsilon(point.total), answers=answers, **named)


def label_not_private(
    approach: str, epsilon: float, schema: Schema, people: Population, rng: np.random.Generator
) -> Model:
    """Make the Gaussian model of the source's released code. NOT PRIVATE: the aggregator sees everybody's class.

    In each class one half of the people report x, the others x². With d numbers, x in [−1, 1]:

    - approach 1: every number, with Laplace noise of scale 2d/ε;
    - approach 2: one random number, as one bit: ±d(e^ε + 1)/(e^ε − 1), and + with probability
      (x(e^ε − 1) + e^ε + 1)/(2e^ε + 2);
    - approach 3: one random number, with Laplace noise of scale 2/ε, times d.

    Class shares are exact. A variance that is not positive becomes 0.1. ``epsilon``: ε of the numbers. It does not
    cover the class.
    """
    numbers = people.reported.numbers[:, list(schema.numeric)] / SCALE
    classes = len(schema.label.classes)
    means, variances = np.empty((2, classes, numbers.shape[1]))
    for of_class in range(classes):
        own = rng.permutation(np.flatnonzero(people.labels == of_class))
        halves = own[: len(own) // 2], own[len(own) // 2 :]
        means[of_class], squares = (
            _sent(approach, epsilon, numbers[rows] ** power, rng).mean(axis=0)
            for power, rows in zip((1, 2), halves, strict=True)
        )
        variances[of_class] = squares - means[of_class] ** 2
    variances[variances <= 0] = FLOOR_NOT_PRIVATE
    prior = np.bincount(people.labels, minlength=classes) / len(people.labels)
    terms: list[Any] = [(means[:, place], variances[:, place]) for place in range(numbers.shape[1])]
    return Model(schema, np.log(prior), terms)


def _sent(approach: str, epsilon: float, numbers: Floats, rng: np.random.Generator) -> Floats:
    """Return what N people send about d numbers, unbiased, 0 for what is not sent: (N, d) float64, as ``numbers``."""
    people, size = numbers.shape
    if approach == "approach 1":
        return np.asarray(numbers + rng.laplace(scale=2 * size / epsilon, size=numbers.shape))
    rows, chosen, sent = np.arange(people), rng.integers(0, size, people), np.zeros_like(numbers)
    one = numbers[rows, chosen]
    if approach == "approach 2":
        odds = np.exp(epsilon)
        positive = rng.random(people) < (one * (odds - 1) + odds + 1) / (2 * odds + 2)
        sent[rows, chosen] = np.where(positive, 1, -1) * (odds + 1) / (odds - 1)
    else:
        sent[rows, chosen] = one + rng.laplace(scale=2 / epsilon, size=people)
    return size * sent


def files(rows: Sequence[Row], size: Size) -> Mapping[str, str]:
    """Return one plot per data set and form, a chart of each view; and the agreement with an independent simulation."""
    plots = {
        f"reproduce-{data}-{form}.svg": panels(
            [_chart(view, form, rows) for view in views(quick=size.quick) if view.data == data], 2
        )
        for data in DATA
        for form in (DISCRETISED, GAUSSIAN)
    }
    return plots | {"continuous-independent.csv": csv_text(_independent(rows))}


def _independent(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with ``paper`` and without privacy, beside an independent simulation of the same methods."""
    here = {tuple(row[name] for name in KEY): row for row in rows}
    return [
        {**dict(zip(KEY, key, strict=True)), **agreement(case, here[key])}
        for case in numeric_cases()
        for key in [_key(case)]
        if key in here
    ]


def _key(case: Case) -> tuple[str, ...]:
    """Return the values of the columns :data:`KEY` for a row of the independent simulation."""
    family, *approach, reduction, fit = case.form.split()
    form = DISCRETISED if family == DISCRETE else GAUSSIAN
    mechanism = f"approach {approach[0][-1]}" if approach else case.mechanism
    post = "paper" if case.is_private else ""
    if not case.is_private:
        form, mechanism = NONE, form
    return (case.data, reduction, fit.partition("=")[2], form, mechanism, case.answers, case.epsilon_per_answer, post)


def _chart(view: View, form: str, rows: Sequence[Row]) -> str:
    """Draw the accuracy of a view against a person's total ε; ``label_not_private`` against the ε of its numbers."""
    own = [row for row in rows if (row["data"], row["reduction"], row["fit"]) == tuple(view)]
    lines = []
    drawn = ("direct", "oue") if form == DISCRETISED else tuple(APPROACHES)
    for mechanism in drawn:
        for answers in ("one", "all"):
            found = [
                row for row in own
                if (row["form"], row["mechanism"], row["answers"]) == (form, mechanism, answers)
                and row["postprocess"] == ("paper" if form == DISCRETISED else "posterior")
            ]  # fmt: skip
            lines.append(_line(f"{mechanism}, {answers}", found, "epsilon_total"))
    if form == DISCRETISED:
        best = [row for row in own if (row["form"], row["mechanism"], row["answers"]) == (form, "direct", "one")]
        posterior = [row for row in best if row["postprocess"] == "posterior"]
        lines.insert(2, _line("direct, one, posterior", posterior, "epsilon_total"))
    else:
        shown = [row for row in own if (row["form"], row["mechanism"]) == (LABEL_NOT_PRIVATE, "approach 2")]
        lines.append(_line("label_not_private, 2", shown, "epsilon_per_answer"))
    plain = next(float(row["accuracy"]) for row in own if (row["form"], row["mechanism"]) == (NONE, form))
    lines.append(level("without privacy", 100 * plain, lines))
    return accuracies(f"{view.data}, {form}, {view.reduction}, fitted on {view.fit}", lines, "total ε of a person")


def _line(name: str, rows: Sequence[Row], x: str) -> Line:
    return line(name, sorted(rows, key=lambda row: float(row[x])), x)
