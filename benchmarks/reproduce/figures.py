"""Figures and tables of the documentation, from the CSV files. A page names a function and its arguments.

Accuracies are in per cent, with one standard error of the mean over repetitions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import sqrt
from pathlib import Path
from statistics import fmean

from benchmarks.reproduce.__main__ import PARTS
from benchmarks.reproduce.continuous import APPROACHES, DISCRETISED, GAUSSIAN, LABEL_NOT_PRIVATE, NONE
from benchmarks.reproduce.jobs import Row

RESULTS = Path(__file__).parents[1] / "results"
SOURCE_DATA = ("car", "chess", "mushroom", "connect-4")
MECHANISMS = ("direct", "sue", "oue", "she", "the")
LARGE = 100_000
"""Size of the larger fleets of the part ``questions``."""
NEAR = 2
"""Points below the accuracy without privacy that count as near, in the table of learning curves."""


@lru_cache(maxsize=32)
def rows_of(name: str) -> tuple[Row, ...]:
    """Return the rows of a CSV file of the results."""
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def one(name: str, **named: str) -> Row:
    """Return the one row of a file that has the values ``named``."""
    found = [row for row in rows_of(name) if all(row[column] == value for column, value in named.items())]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows of {name} have {named}")
    return found[0]


def shown(row: Row) -> str:
    """Return an accuracy and its standard error, in per cent."""
    return f"{100 * float(row['accuracy']):.1f} ± {100 * float(row['error']):.1f}"


def percent(text: str) -> str:
    """Return a share in per cent."""
    return f"{100 * float(text):.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, with empty lines around it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def full_time() -> str:
    """Return the time of the full run: the seconds of all jobs of all parts, each on one core, in minutes."""
    texts = [(RESULTS / "reproduce" / f"{part}.txt").read_text("utf-8") for part in PARTS]
    return f"{sum(int(re.search(r'([0-9]+) s of one core', text)[1]) for text in texts) / 60:.0f}"


def quick_time() -> str:
    """Return the time of ``--quick`` on two cores, in minutes, as the command printed it."""
    text = (RESULTS / "reproduce" / "quick.txt").read_text("utf-8")
    return f"{int(re.search(r'^all: ([0-9]+) s', text, re.MULTILINE)[1]) / 60:.1f}"


# The released curves of the first source.


def price() -> str:
    """Return what the released accuracies cost, and what the same ε buys with one answer."""
    rows = []
    for data in SOURCE_DATA:
        for each in ("0.25", "2", "5"):
            there = one("reproduce/discrete-released.csv", data=data, mechanism="direct", epsilon_per_answer=each)
            names = {"data": data, "mechanism": "direct", "answers": "one", "epsilon_total": each}
            made = [one("reproduce/discrete.csv", postprocess=post, **names) for post in ("paper", "posterior")]
            rows.append(
                [data, each, percent(there["released"]), f"{float(there['epsilon_total']):g}", *map(shown, made)]
            )
    head = ("data", "ε on the axis", "released", "ε that it costs", "one answer at that ε: `paper`", "`posterior`")
    return table(head, rows)


def same_coding() -> str:
    """Return released accuracies against those measured here of the same coding, by mechanism."""
    rows = []
    for mechanism in MECHANISMS:
        cells = [mechanism]
        for data in SOURCE_DATA:
            found = [
                100 * float(row["difference"])
                for row in rows_of("reproduce/discrete-released.csv")
                if (row["data"], row["mechanism"]) == (data, mechanism)
            ]
            cells.append(f"{fmean(found):+.1f} ({min(found):+.1f} … {max(found):+.1f})")
        rows.append(cells)
    return table(("mechanism", *SOURCE_DATA), rows)


def splits() -> str:
    """Return the accuracy without privacy on the source's one split and on random ones."""
    rows = []
    for data in SOURCE_DATA:
        row = one("reproduce/discrete-data.csv", data=data)
        rows.append(
            [
                data, row["records"], row["features"], row["classes"], row["answers_one_per_class"],
                percent(row["majority random 20 %"]), percent(row["none random 20 %"]),
                percent(row["none random 6 %"]), percent(row["none the source's"]),
                percent(row["not below the source's"]),
            ]
        )  # fmt: skip
    head = (
        "data", "records", "features n", "classes k", "answers per person there", "largest class",
        "without privacy, random fifth", "random 6 %", "the source's 6 %", "random splits that reach it",
    )  # fmt: skip
    return table(head, rows)


def data(name: str, column: str) -> str:
    """Return one number of the table of data sets: in per cent, or ``sds``, standard deviations above random splits."""
    row = one("reproduce/discrete-data.csv", data=name)
    if column == "sds":
        return row["source_split_in_sds"]
    named = {
        "reached": "not below the source's",
        "random": "none random 6 %",
        "source": "none the source's",
        "largest": "majority random 20 %",
    }
    return percent(row[named[column]])


def discrete(name: str, mechanism: str, answers: str, total: str, post: str) -> str:
    """Return one accuracy of the discrete part."""
    split = {"split": "random 20 %"}
    return shown(
        one(
            "reproduce/discrete.csv", data=name, mechanism=mechanism, answers=answers, epsilon_total=total,
            postprocess=post, **split,
        )
    )  # fmt: skip


def released(name: str, mechanism: str, each: str, column: str) -> str:
    """Return a released accuracy in per cent, or ``total``, the ε that a person spends for it."""
    row = one("reproduce/discrete-released.csv", data=name, mechanism=mechanism, epsilon_per_answer=each)
    return f"{float(row['epsilon_total']):g}" if column == "total" else percent(row[column])


def independent(part: str) -> str:
    """Return how many rows agree with the independent simulation: within two points and three standard errors."""
    agreeing, rows = 0, rows_of(f"reproduce/{part}-independent.csv")
    for row in rows:
        difference, errors = float(row["difference"]), float(row["standard_errors"])
        error = abs(difference / errors) if errors else 0.0
        better = row["mechanism"] == "she" and difference > 0
        agreeing += better or abs(difference) <= 0.02 + 3 * error
    return f"{agreeing} of {len(rows)}"


# The right questions.


def questions() -> str:
    """Return one answer with each design, beside the released curve, at ε near 1."""
    rows = []
    for name in SOURCE_DATA:
        there = one("reproduce/discrete-released.csv", data=name, mechanism="direct", epsilon_per_answer="1.05")
        small = str(_people(name))
        chosen = [
            one("reproduce/questions.csv", data=name, devices=devices, design=design, epsilon_total=epsilon)
            for devices, design, epsilon in (
                (small, "all", "1"), (small, "refine", "1"), (small, "pilot", "1"), (str(LARGE), "refine", "1"),
                ("", "alone", ""), ("", "none", ""),
            )
        ]  # fmt: skip
        first = f"{percent(there['released'])} (ε = {float(there['epsilon_total']):g})"
        rows.append([name, first, f"{int(small):,}", *map(shown, chosen)])
    head = (
        "data", "released at 1.05 per answer", "people", "one answer, `all`", "`refine`", "pilot of 300",
        "`refine`, 100,000 devices", "the pilot alone", "without privacy",
    )  # fmt: skip
    return table(head, rows)


def question(name: str, devices: str, design: str, epsilon: str) -> str:
    """Return one accuracy of the part ``questions``; ``any``: the row does not have it; ``source``: all people."""
    large, small = str(LARGE), str(_people(name))
    size = {"any": "", "source": small}.get(devices, large)
    spent = "" if epsilon == "any" else epsilon
    return shown(one("reproduce/questions.csv", data=name, devices=size, design=design, epsilon_total=spent))


def _people(name: str) -> int:
    return min(
        int(row["devices"]) for row in rows_of("reproduce/questions.csv") if row["data"] == name and row["devices"]
    )


# θ.


def theta(name: str, answers: str, threshold: str) -> str:
    """Return the accuracy at one threshold."""
    return shown(one("reproduce/theta.csv", data=name, answers=answers, theta=threshold))


def theta_repeats() -> str:
    """Return the number of repetitions."""
    return rows_of("reproduce/theta.csv")[0]["n"]


def theta_variances() -> str:
    """Return the threshold of the least variance for each ε, and what 0.25 costs."""
    variances: dict[str, dict[str, float]] = {}
    for row in rows_of("reproduce/theta-variance.csv"):
        variances.setdefault(row["epsilon"], {})[row["theta"]] = float(row["variance"])
    best = [min(found, key=found.__getitem__) for found in variances.values()]
    times = [f"{found['0.25'] / min(found.values()):.2f}" for found in variances.values()]
    rows = [["θ of the least variance", *best], ["variance at θ = 0.25, as a multiple of the least", *times]]
    return table(("ε", *variances), rows)


# Numbers.


def _continuous(name: str, reduction: str, fit: str, point: Sequence[str], post: str = "posterior") -> Row:
    form, mechanism, answers, total = point
    return one(
        "reproduce/continuous.csv", data=name, reduction=reduction, fit=fit, form=form, mechanism=mechanism,
        answers=answers, epsilon_total=total, postprocess="" if form == NONE else post,
    )  # fmt: skip


def continuous(fit: str) -> str:
    """Return accuracies: one answer at ε = 1 and 5, all answers at a total of 10, of every view fitted on ``fit``."""
    head = (
        "data", "reduction", "bins, no privacy", "`direct`, one, ε = 1", "one, ε = 5", "all, ε = 10",
        "Gaussian, no privacy", *(f"{name}, one, ε = 5" for name in APPROACHES),
    )  # fmt: skip
    rows = []
    for name in ("australian", "pima"):
        for reduction in ("none", "pca1", "pca6", "dca"):
            points = [
                (NONE, DISCRETISED, "", ""), (DISCRETISED, "direct", "one", "1"), (DISCRETISED, "direct", "one", "5"),
                (DISCRETISED, "direct", "all", "10"), (NONE, GAUSSIAN, "", ""),
                *((GAUSSIAN, approach, "one", "5") for approach in APPROACHES),
            ]  # fmt: skip
            rows.append([name, reduction, *(shown(_continuous(name, reduction, fit, point)) for point in points)])
    return table(head, rows)


def shown_label() -> str:
    """Return what showing the class is worth: accuracies with and without it at each ε, the mean over all views."""
    rows = []
    for approach in APPROACHES:
        for form in (LABEL_NOT_PRIVATE, GAUSSIAN):
            cells = []
            for epsilon in ("0.25", "1", "5", "10"):
                found = [
                    float(row["accuracy"])
                    for row in rows_of("reproduce/continuous.csv")
                    if (row["form"], row["mechanism"], row["epsilon_per_answer"]) == (form, approach, epsilon)
                    and row["answers"] in ("", "one") and row["postprocess"] in ("", "paper")
                ]  # fmt: skip
                cells.append(percent(str(fmean(found))))
            rows.append([approach, f"`{form}`" if form == LABEL_NOT_PRIVATE else "class hidden, `paper`", *cells])
    return table(("approach", "form", "ε = 0.25", "1", "5", "10"), rows)


def one_against_all() -> str:
    """Return in how many comparisons at equal total ε all answers are more than two standard errors better than one."""
    names = ("data", "reduction", "fit", "form", "mechanism", "epsilon_total", "postprocess")
    rows = rows_of("reproduce/continuous.csv")
    single = {tuple(row[name] for name in names): row for row in rows if row["answers"] == "one"}
    better = []
    for row in rows:
        other = single.get(tuple(row[name] for name in names)) if row["answers"] == "all" else None
        if other is not None:
            error = sqrt(float(row["error"]) ** 2 + float(other["error"]) ** 2)
            better.append(float(row["accuracy"]) - float(other["accuracy"]) > 2 * error)
    return f"{sum(better)} of {len(better)}"


def worst_reduction(name: str) -> str:
    """Return the points lost on a data set, in bins, by one component of PCA without privacy, fitted on all records."""
    plain, reduced = (
        float(_continuous(name, reduction, "train", (NONE, DISCRETISED, "", ""))["accuracy"])
        for reduction in ("none", "pca1")
    )
    return f"{100 * (plain - reduced):.1f}"


# Learning curves.


def learning() -> str:
    """Return the accuracies by the number of devices, and the least number in the rows that comes near the limit."""
    sizes = ("1000", "10000", "100000", "1000000", "10000000")
    rows = []
    for name in SOURCE_DATA:
        limit = one("reproduce/learning.csv", data=name, postprocess="none")
        own = [
            row for row in rows_of("reproduce/learning.csv") if (row["data"], row["postprocess"]) == (name, "posterior")
        ]
        near = [row for row in own if float(row["accuracy"]) >= float(limit["accuracy"]) - NEAR / 100]
        cells = [shown(next(row for row in own if row["devices"] == size)) for size in sizes]
        rows.append([name, *cells, shown(limit), f"{int(near[0]['devices']):,}" if near else "more"])
    head = ("data", *(f"{int(size):,} devices" for size in sizes), "without privacy", f"within {NEAR} points at")
    return table(head, rows)


# The other three sources: files that other benchmarks make.


def met(name: str) -> str:
    """Return how many rows of an independent simulation a text file of comparisons marks as met, as ``n of m``."""
    marks = re.findall(r"\(allowed +[\d.]+\) +(=|\(=\)|above|BELOW|\S+)", (RESULTS / f"{name}.txt").read_text("utf-8"))
    return f"{sum(mark in ('=', 'above') for mark in marks)} of {len(marks)}"


def federated() -> str:
    """Return accuracies by number of nodes, at ε = 1, beside the noise of the paper's code, which is not private."""
    rows = []
    for name in ("adult", "skin", "accelerometer", "mushroom", "votes"):
        for model in ("floored", "printed", "not_private_local_sensitivity"):
            own = {
                row["nodes"]: row
                for row in rows_of("federated-accuracy.csv")
                if (row["data"], row["epsilon"], row["model"]) == (name, "1", model)
            }
            if own:
                cells = [shown(own[nodes]) if nodes in own else "" for nodes in ("1", "10", "100", "1000")]
                curator = one("federated-accuracy.csv", data=name, nodes="central", epsilon="1")
                rows.append([name, model.replace("_", " "), shown(curator) if model == "floored" else "", *cells])
    return table(("data", "noise and model", "one curator", "1 node", "10", "100", "1000"), rows)


def masked() -> str:
    """Return accuracies on car for each reading of ε in Huai et al."""
    rows = []
    for form in ("divided", "diluted", "vertical"):
        for reading in ("per count", "in total"):
            cells = [
                shown(one("masked-car.csv", form=form, reading=reading, epsilon=epsilon))
                for epsilon in ("0.1", "0.2", "0.4")
            ]
            rows.append([form, reading, *cells])
    return table(("form", "reading of ε", "ε = 0.1", "0.2", "0.4"), rows)


def central() -> str:
    """Return the accuracies of a curator's methods at ε = 2, with the adjacency that all methods cover."""
    methods = ("sums", "global-var", "global-std", "smooth", "smooth-trimmed", "bun-steinke")
    rows = []
    for name in ("adult", "mushroom", "skin", "seeds", "glass"):
        chosen = [
            one("central-methods.csv", data=name, method=method, adjacency="change-features", epsilon="2")
            for method in methods
        ]
        rows.append([name, *map(shown, chosen)])
    return table(("data", *(f"`{method}`" for method in methods)), rows)


FIGURES: dict[str, Callable[..., str]] = {
    "full-time": full_time,
    "quick-time": quick_time,
    "price": price,
    "same-coding": same_coding,
    "splits": splits,
    "data": data,
    "discrete": discrete,
    "released": released,
    "independent": independent,
    "questions": questions,
    "question": question,
    "theta": theta,
    "theta-repeats": theta_repeats,
    "theta-variances": theta_variances,
    "continuous": continuous,
    "shown-label": shown_label,
    "one-against-all": one_against_all,
    "worst-reduction": worst_reduction,
    "learning": learning,
    "met": met,
    "federated": federated,
    "masked": masked,
    "central": central,
}
"""First word of a name in a page → the function that gives the text, called with the other words."""
