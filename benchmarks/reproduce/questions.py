"""Accuracy of one answer per person about chosen questions, in the plot of the source's released curve.

A person gives one answer, at the total ε, about ``all`` features, or those chosen by ``refine`` (from private answers
alone) or ``pilot`` (from 300 records in the clear, whose owners give no answer). ``alone`` is Naive Bayes of such a
pilot and nothing else. Designs are those of ``benchmarks.asking.designs``, with the same test parts for every seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aggregator.common.plots import Line
from aggregator.models.baselines import fit_plain
from benchmarks.asking.designs import drawn, through_files
from benchmarks.models.estimators import TEST_SHARE, divided, frame_of, load, without_privacy
from benchmarks.reproduce.jobs import Job, Row, Size
from benchmarks.reproduce.released import published, released_answers
from benchmarks.shared.study import accuracies, level, line, panels
from simulation.settings import ALL, PILOT, REFINE

DATA = ("car", "chess", "mushroom", "connect-4")
EPSILONS = ("0.25", "0.5", "1", "2", "5")
LARGE = 100_000
PILOT_RECORDS = 300
ALONE, NONE = "alone", "none"
REPEATS, PILOT_REPEATS = 10, 4
RELEASED = "direct"
"""The mechanism of the released curve. It has the best accuracy of the source's mechanisms at most ε."""


def people(name: str) -> int:
    """Return the number of people of the source's size: those who are not in the test part."""
    records = len(load(name).labels)
    return records - round(TEST_SHARE * records)


def jobs(size: Size) -> list[Job]:
    """Return the jobs: accuracies without privacy, then each fleet and ε with the three designs."""
    found = []
    for name in DATA[::2] if size.quick else DATA:
        rows = tuple(_names(name, "", design, "") for design in (NONE, ALONE))
        found.append(Job(rows, 2 if size.quick else 2 * REPEATS, yardsticks, (name,)))
        for devices in (people(name), LARGE):
            for epsilon in EPSILONS[2:3] if size.quick else EPSILONS:
                arguments = (name, devices, epsilon)
                rows = tuple(_names(name, str(devices), design, epsilon) for design in (ALL, REFINE))
                found.append(Job(rows, 2 if size.quick else REPEATS, from_answers, arguments))
                if devices != LARGE:
                    row = _names(name, str(devices), PILOT, epsilon)
                    found.append(Job((row,), 1 if size.quick else PILOT_REPEATS, from_pilot, arguments))
    return found


def _names(data: str, devices: str, design: str, epsilon: str) -> dict[str, str]:
    return {"data": data, "devices": devices, "design": design, "epsilon_total": epsilon}


def _key(name: str, number: int) -> list[int]:
    """Return the seed of a repetition's test part: the same for every job, so that all designs have equal parts."""
    return [1, number, *name.encode()]


def yardsticks(name: str, repeats: int, seed: int) -> list[list[float]]:
    """Return accuracies without privacy: of all people's records, and of a pilot's records."""
    del seed
    data = load(name)
    frame = frame_of(data)
    found: list[list[float]] = [[], []]
    for number in range(repeats):
        learned, test = divided(data, np.random.default_rng(_key(name, number)))
        found[0].append(without_privacy(data, learned, test) / 100)
        found[1].append(fit_plain(frame.iloc[learned[:PILOT_RECORDS]], data.schema).accuracy(frame.iloc[test]))
    return found


def from_answers(name: str, devices: int, epsilon: str, repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies of the designs ``all`` and ``refine``."""
    del seed
    data = load(name)
    return [
        [drawn(data, devices, design, epsilon, _key(name, n)).accuracy / 100 for n in range(repeats)]
        for design in (ALL, REFINE)
    ]


def from_pilot(name: str, devices: int, epsilon: str, repeats: int, seed: int) -> list[list[float]]:
    """Return the accuracies of the design ``pilot``. There are as many devices as people without those of the pilot."""
    del seed
    data = load(name)
    frame, size, design = frame_of(data), devices - PILOT_RECORDS, f"{PILOT}:{PILOT_RECORDS}"
    keys = [_key(name, number) for number in range(repeats)]
    found = [through_files(data, frame, size, design, epsilon, key, n) for n, key in enumerate(keys)]
    return [[one.accuracy / 100 for one in found]]


def files(rows: Sequence[Row], size: Size) -> Mapping[str, str]:
    """Return one plot, a chart for each data set."""
    del size
    return {
        "reproduce-questions.svg": panels([_chart(name, rows) for name in dict.fromkeys(r["data"] for r in rows)], 2)
    }


def _chart(name: str, rows: Sequence[Row]) -> str:
    """Draw the accuracy against ε: the released curve at its ε per answer and at its total, and one answer at its ε."""
    own = [row for row in rows if row["data"] == name]
    points = [(each, 100 * accuracy) for mechanism, each, accuracy in published(name) if mechanism == RELEASED]
    lines = [
        Line("released, ε per answer", [each for each, _ in points], [value for _, value in points]),
        Line(
            "released, total ε", [each * released_answers(name) for each, _ in points], [value for _, value in points]
        ),
    ]
    source = str(people(name))
    for design, devices, label in (
        (ALL, source, "one answer, all"),
        (REFINE, source, "one answer, refine"),
        (PILOT, source, "one answer, pilot"),
        (REFINE, str(LARGE), "refine, 100,000"),
    ):
        chosen = [row for row in own if (row["design"], row["devices"]) == (design, devices)]
        lines.append(line(label, chosen, "epsilon_total"))
    for design, label in ((NONE, "without privacy"), (ALONE, "the pilot alone")):
        value = next(100 * float(row["accuracy"]) for row in own if row["design"] == design)
        lines.append(level(label, value, lines))
    return accuracies(f"{name}: {source} people, one answer each", lines, "ε")
