"""Plots and tables of the discrete data sets, from the complete rows of the part ``discrete``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aggregator.common.plots import Line, line_chart
from benchmarks.reproduce.jobs import Row, Size, agreement, csv_text
from benchmarks.reproduce.released import DATA, FIFTH, MECHANISMS, RANDOM, RELEASED, published, released_answers, sample
from benchmarks.shared import reference
from benchmarks.shared.study import panels

POSTPROCESSES = ("posterior", "paper")
PRIVATE_NOT = ("none", "majority")
NOT_BELOW = "not below the source's"
ONE, ALL, PER_CLASS = "one", "all", "all per class"
"""Words in the columns ``postprocess``, ``mechanism`` and ``answers`` of the rows."""


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
