"""Discrete records: five mechanisms on four data sets, one answer or all answers, against the total ε of a person.

The figures and the table of discrete data of Yilmaz, Al-Rubaie, Chang (2019). Every point is one campaign in joint
coding: n + 1 questions for n features. ``one``: one random question at the total ε; ``all``: every question, each at
ε / (n + 1). Post-processings: ``paper`` and ``posterior``. ``none`` is Naive Bayes without privacy, ``majority`` the
largest class. ``all per class`` measures the source's released coding, which no package offers: for each of k classes
and n features a person answers with the value, or, if of another class, at random: k·n + 1 answers, on the source's one
split and on random ones. ``not below the source's``: the share of these on which Naive Bayes is at least as good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.plots import Line, line_chart
from aggregator.estimates.debias import debias
from aggregator.estimates.reports import estimate
from aggregator.models.baselines import plain_model
from aggregator.models.fitting import fit
from aggregator.models.population import Population
from aggregator.models.scoring import Model
from aggregator.publishing.campaigns import CampaignParameters, parse_answers
from aggregator.publishing.mechanisms.draws import counts_of
from benchmarks.reproduce.jobs import Job, Row, Size, agreement
from benchmarks.reproduce.released import (
    DATA,
    DROPPED,
    FIFTH,
    MECHANISMS,
    RANDOM,
    RELEASED,
    Sample,
    published,
    released_answers,
    sample,
)
from benchmarks.shared import reference
from benchmarks.shared.fleets import campaign_of, tally_of
from benchmarks.shared.study import csv_text, panels
from protocol.epsilon import micro_epsilon
from protocol.mechanisms import Mechanism, from_micro
from protocol.schema import Schema

POSTPROCESSES = ("posterior", "paper")
PRIVATE_NOT = ("none", "majority")
NOT_BELOW = "not below the source's"
ONE, ALL, PER_CLASS = "one", "all", "all per class"
"""Words in the columns ``postprocess``, ``mechanism`` and ``answers`` of the rows."""
TOTALS = ("0.25", "0.5", "1", "2", "3", "5", "10")
"""Total ε of ``one``, and of ``all`` in addition to those of :data:`PER_ANSWER`."""
PER_ANSWER = ("0.05", "0.25", "0.45", "0.65", "1", "1.45", "2", "3", "5")
"""ε of each answer of ``all``: some of the released curve's, and the 1 of the independent simulation."""
RELEASED_PER_ANSWER = ("0.05", "0.25", "0.45", "0.65", "1.05", "1.45", "2", "3", "5", "10")
"""ε of each answer of ``all per class``: those of the released curve that are compared."""
REPEATS, QUICK_REPEATS = {"car": 60, "chess": 20, "mushroom": 20, "connect-4": 5}, 3
MOST_PER_CLASS = {"car": 60, "chess": 20, "mushroom": 20, "connect-4": 2}
"""Most repetitions of the source's coding, which takes long on the largest data set."""
MORE, QUICK_MORE = 30, 5
"""Rows without privacy are quick: so many times as many repetitions."""
THETA = "0.000001"
"""The smallest θ that the mechanism ``the`` takes: most of the released rows have θ = 0."""


def jobs(size: Size) -> list[Job]:
    """Return the jobs: for each data set the rows without privacy, then the private rows of each mechanism."""
    found: list[Job] = []
    for name in DATA:
        repeats = QUICK_REPEATS if size.quick else REPEATS[name]
        plain_repeats = repeats * (QUICK_MORE if size.quick else MORE)
        for split in (FIFTH, RANDOM, RELEASED):
            kinds = (*PRIVATE_NOT, NOT_BELOW) if split == RANDOM else PRIVATE_NOT
            rows = tuple(_names(name, kind, split=split) for kind in kinds)
            found.append(Job(rows, 1 if split == RELEASED else plain_repeats, not_private, (name, split)))
        for mechanism in MECHANISMS:
            for answers, total, each in _budgets(name, quick=size.quick):
                rows = tuple(_names(name, mechanism, answers, total, each, post) for post in POSTPROCESSES)
                found.append(Job(rows, repeats, private, (name, mechanism, answers, total)))
            for split in (RELEASED,) if size.quick else (RELEASED, RANDOM):
                for each in RELEASED_PER_ANSWER[1::3] if size.quick else RELEASED_PER_ANSWER:
                    total = f"{released_answers(name) * micro_epsilon(each) / 1e6:g}"
                    row = _names(name, mechanism, PER_CLASS, total, each, "paper", split)
                    found.append(
                        Job((row,), min(repeats, MOST_PER_CLASS[name]), per_class, (name, mechanism, each, split))
                    )
    return found


def _names(
    data: str,
    mechanism: str,
    answers: str = "",
    total: str = "",
    each: str = "",
    post: str = "",
    split: str = FIFTH,
) -> dict[str, str]:
    return {
        "data": data, "mechanism": mechanism, "answers": answers, "epsilon_total": total, "epsilon_per_answer": each,
        "postprocess": post, "split": split,
    }  # fmt: skip


def _budgets(name: str, *, quick: bool) -> Iterator[tuple[str, str, str]]:
    """Yield answers, total ε and ε per answer of every point of one mechanism, in rising order of ε."""
    questions = len(sample(name).schema.features) + 1
    for total in TOTALS[::2] if quick else TOTALS:
        yield ONE, total, total
    totals = {micro_epsilon(each) * questions for each in (PER_ANSWER[1::3] if quick else PER_ANSWER)}
    totals |= {micro_epsilon(total) for total in TOTALS[2::2]}
    for micro in sorted(totals):
        yield ALL, f"{micro / 1e6:g}", f"{micro // questions / 1e6:g}"


def private(name: str, mechanism: str, answers: str, total: str, repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies of the models of all post-processings, which are made of the same answers."""
    data, rng = sample(name), np.random.default_rng(seed)
    micro = micro_epsilon(total)
    count = parse_answers(answers, len(data.schema.features) + 1, micro)
    campaign = campaign_of(data.schema, CampaignParameters("reproduce", micro, mechanism, answers=count))
    found: list[list[float]] = [[] for _ in POSTPROCESSES]
    for _ in range(repeats):
        people, test = data.split(name, FIFTH, rng)
        statistics = estimate(campaign, tally_of(campaign, people, rng), with_intervals=False)
        for place, postprocess in enumerate(POSTPROCESSES):
            model = fit(statistics, postprocess)
            found[place].append(accuracy(Model(data.schema, *model), test))
    return found


def per_class(name: str, mechanism: str, each: str, split: str, repeats: int, seed: int) -> list[list[float]]:
    """Return accuracies of the source's coding: an answer at ε ``each`` about every feature in every class.

    People of other classes answer with a uniform random value. With Ê_{a,j} the estimate of the people who answered a
    for class j, and Ê_j that of the people of class j among N, the number of people of class j with value a of A values
    is estimated as Ê_{a,j} − (N − Ê_j)/A. Estimates ≤ 0 become 1.
    """
    data, rng = sample(name), np.random.default_rng(seed)
    options = {"theta": THETA} if mechanism == "the" else {}
    classes, micro = len(data.schema.label.classes), micro_epsilon(each)
    noise = {size: from_micro(mechanism, micro, size, **options) for size in {classes, *_sizes(data.schema)}}
    kept = [place for place, feature in enumerate(data.schema.observed) if feature.name != DROPPED.get(name)]
    found = []
    for _ in range(repeats):
        people, test = data.split(name, split, rng)
        sizes = _estimated(noise[classes], people.labels, rng)
        prior = np.where(sizes > 0, sizes, 1)
        log_likelihood = [np.zeros((size, classes)) for size in _sizes(data.schema)]
        for place in kept:
            values = data.schema.observed[place].size
            for number in range(classes):
                others = rng.integers(0, values, len(people.labels))
                answers = np.where(people.labels == number, people.reported.codes[:, place], others)
                table = _estimated(noise[values], answers, rng) - (len(answers) - prior[number]) / values
                table = np.where(table > 0, table, 1)
                log_likelihood[place][:, number] = np.log(table / table.sum())
        model = Model(data.schema, np.log(prior / prior.sum()), log_likelihood)
        found.append(accuracy(model, test))
    return [found]


def _sizes(schema: Schema) -> list[int]:
    return [feature.size for feature in schema.observed]


def _estimated(mechanism: Mechanism, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Let people answer, and return the estimated number of people with each value: (values,) float64."""
    return debias(mechanism, len(inputs), counts_of(mechanism, inputs, rng).tolist()).estimate


def not_private(name: str, split: str, repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies of Naive Bayes without privacy, and shares of the largest class.

    For :data:`RANDOM` also 1 or 0 for every split: whether that accuracy is at least the one on the source's split.
    """
    data, rng = sample(name), np.random.default_rng(seed)
    plain, largest = [], []
    for _ in range(repeats):
        people, test = data.split(name, split, rng)
        plain.append(_plain(data, people, test))
        largest.append(float((test.truth == np.bincount(people.labels).argmax()).mean()))
    if split != RANDOM:
        return [plain, largest]
    theirs = _plain(data, *data.split(name, RELEASED, rng))
    return [plain, largest, [float(each >= theirs) for each in plain]]


def _plain(data: Sample, people: Population, test: Population) -> float:
    return accuracy(plain_model(people.reported, people.labels, data.schema), test)


def accuracy(model: Model, test: Population) -> float:
    """Return the share of the test records whose class the model predicts."""
    right: NDArray[np.bool_] = model.scores_of(test.scored).argmax(axis=1) == test.truth
    return float(right.mean())


def files(rows: Sequence[Row], size: Size) -> Mapping[str, str]:
    """Return a plot per data set, a table of the data sets, and comparisons with released and independent numbers."""
    del size
    table = Table.of(rows)
    made = {f"reproduce-discrete-{name}.svg": _plot(name, table) for name in DATA}
    return made | {
        "discrete-data.csv": csv_text(_data_rows(table)),
        "discrete-released.csv": csv_text(_released_rows(table)),
        "discrete-independent.csv": csv_text(_independent_rows(table)),
    }


class Table(NamedTuple):
    """Rows by (data, mechanism, answers, total ε, post-processing, split)."""

    rows: Mapping[tuple[str, ...], Row]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Table:
        """Return the table of all rows of the part."""
        names = ("data", "mechanism", "answers", "epsilon_total", "postprocess", "split")
        return cls({tuple(row[name] for name in names): row for row in rows})

    def without(self, name: str, kind: str, split: str = FIFTH) -> float:
        """Return the accuracy of a row without privacy."""
        return float(self.rows[name, kind, "", "", "", split]["accuracy"])

    def curve(self, name: str, mechanism: str, answers: str, postprocess: str, split: str = FIFTH) -> list[Row]:
        """Return rows in rising order of ε."""
        wanted = (name, mechanism, answers, postprocess, split)
        return [row for key, row in self.rows.items() if (*key[:3], *key[4:]) == wanted]

    def line(self, label: str, *names: str) -> Line:
        """Return a curve against the total ε."""
        rows = self.curve(*names)
        return Line(label, [float(row["epsilon_total"]) for row in rows], [float(row["accuracy"]) for row in rows])


def _plot(name: str, table: Table) -> str:
    """Return a chart of each mechanism, and one of all mechanisms with one answer."""
    charts = [_chart(name, mechanism, table) for mechanism in MECHANISMS]
    lines = [table.line(mechanism, name, mechanism, ONE, "posterior") for mechanism in MECHANISMS]
    plain = table.without(name, "none")
    lines.append(Line("without privacy", [min(lines[0].xs), max(lines[0].xs)], [plain, plain]))
    title = f"{name}: all mechanisms, one answer, posterior"
    charts.append(
        line_chart(title, lines, x_label="total ε of a person", y_label="accuracy", log_x=True, from_zero=False)
    )
    return panels(charts, 2)


def _chart(name: str, mechanism: str, table: Table) -> str:
    """Draw the accuracy against a person's total ε, beside the released curve at its ε per answer and at its total."""
    lines = [
        table.line(f"{answers}, {post}", name, mechanism, answers, post)
        for answers in (ONE, ALL)
        for post in POSTPROCESSES
    ]
    lines.append(table.line("all per class", name, mechanism, PER_CLASS, "paper", RELEASED))
    points = _released(name, mechanism)
    for label, factor in (("released, ε per answer", 1), ("released, total ε", released_answers(name))):
        lines.append(Line(label, [each * factor for each in points], list(points.values())))
    ends = [min(x for line in lines for x in line.xs), max(x for line in lines for x in line.xs)]
    plain, largest, theirs = (
        table.without(name, "none"), table.without(name, "majority"), table.without(name, "none", RELEASED)
    )  # fmt: skip
    lines.append(Line("without privacy", ends, [plain] * 2))
    title = f"{name}: {mechanism} (largest class {largest:.1%})"
    mark = (ends[0], theirs, "without privacy on the source's split")
    return line_chart(title, lines, x_label="ε", y_label="accuracy", log_x=True, from_zero=False, marks=[mark])


def _released(name: str, mechanism: str) -> dict[float, float]:
    """Return the released curve of a mechanism: ε per answer → accuracy. The curve of ``the`` is that for θ = 0."""
    wanted = "the theta 0" if mechanism == "the" else mechanism
    return {each: value for kind, each, value in published(name) if kind == wanted}


def _data_rows(table: Table) -> list[Row]:
    """Return the data sets, and what is possible on them without privacy."""
    found = []
    for name in DATA:
        schema = sample(name).schema
        row = {
            "data": name,
            "records": str(len(sample(name).people.labels)),
            "features": str(len(schema.features)),
            "classes": str(len(schema.label.classes)),
            "answers_one_per_class": str(released_answers(name)),
        }
        for kind in PRIVATE_NOT:
            row |= {f"{kind} {split}": f"{table.without(name, kind, split):.4f}" for split in (FIFTH, RANDOM, RELEASED)}
        random = table.rows[name, "none", "", "", "", RANDOM]
        beyond = table.without(name, "none", RELEASED) - float(random["accuracy"])
        row[NOT_BELOW] = table.rows[name, NOT_BELOW, "", "", "", RANDOM]["accuracy"]
        row["source_split_in_sds"] = f"{beyond / float(random['sd']):+.1f}"
        found.append(row)
    return found


def _released_rows(table: Table) -> list[Row]:
    """Return the released accuracies beside measured ones of the same coding, by ε per answer."""
    found = []
    for name in DATA:
        for mechanism in MECHANISMS:
            points = _released(name, mechanism)
            random = {row["epsilon_total"]: row for row in table.curve(name, mechanism, PER_CLASS, "paper", RANDOM)}
            for row in table.curve(name, mechanism, PER_CLASS, "paper", RELEASED):
                theirs = points[float(row["epsilon_per_answer"])]
                beside = random.get(row["epsilon_total"])
                found.append(
                    {
                        "data": name, "mechanism": mechanism, "epsilon_per_answer": row["epsilon_per_answer"],
                        "epsilon_total": row["epsilon_total"], "released": f"{theirs:.4f}", "here": row["accuracy"],
                        "error": row["error"], "difference": f"{float(row['accuracy']) - theirs:+.4f}",
                        "random_splits": beside["accuracy"] if beside else "",
                    }
                )  # fmt: skip
    return found


def _independent_rows(table: Table) -> list[Row]:
    """Return rows with ``paper`` beside an independent simulation of these protocols (``reference/accuracy.csv``)."""
    found = []
    for case in reference.discrete_cases():
        key = (case.data, case.mechanism, case.answers, f"{float(case.epsilon_total):g}", "paper", FIFTH)
        if key in table.rows:
            names = dict(zip(("data", "mechanism", "answers", "epsilon_total"), key, strict=False))
            found.append({**names, **agreement(case, table.rows[key])})
    return found
