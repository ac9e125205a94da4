"""Learning curves: accuracy against the number of devices, up to ten million, at ε = 1 and one answer per device.

Devices draw their records from 80 % of the data; the other 20 % are the test. Reports of the vector engine go through
files into a real store, which is counted at each size of one growing fleet. ``none``: Naive Bayes without privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aggregator.models.fitting import fit
from benchmarks.models.estimators import divided, load, right, without_privacy
from benchmarks.models.fleet import growing_fleet
from benchmarks.reproduce.jobs import Job, Row, Size
from benchmarks.shared.study import accuracies, level, line, panels

DATA = ("car", "chess", "mushroom", "connect-4")
EPSILON = "1"
POSTPROCESSES = ("posterior", "paper")
NONE = "none"
SMALL = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
LARGE = (1_000_000, 10_000_000)
REPEATS, LARGE_REPEATS = 10, 3


def jobs(size: Size) -> list[Job]:
    """Return the jobs: small fleets with many repetitions, and large fleets with few."""
    found = []
    for name in DATA[::2] if size.quick else DATA:
        small, large = (SMALL[2::2], LARGE[:1]) if size.quick else (SMALL, LARGE)
        for sizes, repeats in ((small, 3 if size.quick else REPEATS), (large, 1 if size.quick else LARGE_REPEATS)):
            rows = [(str(devices), post) for devices in sizes for post in POSTPROCESSES]
            if sizes == small:
                rows.append(("", NONE))
            named = tuple(
                {"data": name, "epsilon_total": EPSILON if devices else "", "devices": devices, "postprocess": post}
                for devices, post in rows
            )
            found.append(Job(named, repeats, measure, (name, sizes, sizes == small)))
    return found


def measure(name: str, sizes: Sequence[int], plain: bool, repeats: int, seed: int) -> list[list[float]]:  # noqa: FBT001
    """Return the accuracies of every size and post-processing; with ``plain`` also those without privacy, as last."""
    data, rng = load(name), np.random.default_rng(seed)
    found: list[list[float]] = [[] for _ in range(len(sizes) * len(POSTPROCESSES) + plain)]
    for _ in range(repeats):
        people, test = divided(data, rng)
        codes, labels = data.codes[test], data.labels[test]
        shares = [
            right(*fit(grown.statistics, named), codes, labels)
            for grown in growing_fleet(data, people, EPSILON, sizes, rng)
            for named in POSTPROCESSES
        ]
        if plain:
            shares.append(without_privacy(data, people, test))
        for place, accuracy in enumerate(shares):
            found[place].append(accuracy / 100)
    return found


def files(rows: Sequence[Row], size: Size) -> Mapping[str, str]:
    """Return one plot, a chart for each data set."""
    del size
    names = dict.fromkeys(row["data"] for row in rows)
    return {"reproduce-learning.svg": panels([_chart(name, rows) for name in names], 2)}


def _chart(name: str, rows: Sequence[Row]) -> str:
    lines = []
    for post in POSTPROCESSES:
        own = [row for row in rows if (row["data"], row["postprocess"]) == (name, post)]
        lines.append(line(post, own, "devices"))
    plain = next(float(row["accuracy"]) for row in rows if (row["data"], row["postprocess"]) == (name, NONE))
    lines.append(level("without privacy", 100 * plain, lines))
    return accuracies(f"{name}: one answer at ε = {EPSILON}", lines, "devices")
