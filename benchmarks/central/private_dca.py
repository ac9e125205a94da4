"""Discriminant power of private DCA against ε, beside that of the exact one: docs/plots/private_dca.svg.

    python -m benchmarks.central.private_dca [--repeats 40] [--out FILE] [--json]

One component is fitted with noise (:func:`aggregator.curator.projecting.project`), and its power
wᵀS_B w / wᵀS̄ w is computed from the exact moments of the same records. Bounds are documented ones: for adult the
census coding, for accelerometer the ranges of ±8 g and ±2 g that the sensor MMA8452Q has (numbers beyond ±2 g are
clipped, as devices would clip them).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregator.common.plots import Line, line_chart
from aggregator.common.tables import read_table, typed
from aggregator.curator.projecting import ProjectionTerms, project
from aggregator.curator.records import Records, read_records
from aggregator.models.reduction import DEFAULT_RIDGE, Moments, directions_of, moments_of
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.reference import FOLDER, LABEL, NOT_HERE, available
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.features import Numeric
from protocol.schema import Label, build_schema
from protocol.sums.adjacency import ADD_REMOVE, CHANGE

PLOT = Path(__file__).parents[2] / "docs" / "plots" / "private_dca.svg"
EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ENOUGH = 0.9


class Point(NamedTuple):
    """Share of the exact power that private components have, over the repetitions of one setting."""

    data: str
    adjacency: str
    epsilon: float
    exact: float
    median: float
    tenth: float
    within: float


def records_of(file: str, bounds: dict[str, tuple[str, str]]) -> Records:
    """The records of a data set with some numeric features and their bounds."""
    table = read_table(FOLDER / "datasets" / file)
    features = [Numeric(name, low, high, [0], substitute=0) for name, (low, high) in bounds.items()]
    schema = build_schema(Label(LABEL, sorted(set(table[LABEL]))), features)
    return read_records(typed(table, schema), schema)


def settings() -> dict[str, Records]:
    """The data sets by name, with documented bounds."""
    entry = json.loads((FOLDER / "datasets" / "schema.json").read_text("utf-8"))["datasets"]["adult"]
    adult = {
        column["name"]: (str(column["min"]), str(column["max"]))
        for column in entry["columns"]
        if column["kind"] == "numeric"
    }
    found = {"adult": records_of("adult.train.csv.gz", adult)}
    for reach in ("2", "8"):
        accelerometer = {"pctid": ("20", "100")} | dict.fromkeys("xyz", (f"-{reach}", reach))
        found[f"accelerometer ±{reach} g"] = records_of("accelerometer.csv.gz", accelerometer)
    return found


def power(weights: np.ndarray, moments: Moments) -> float:
    """wᵀS_B w / wᵀS̄ w of one direction: shape (n, 1) float64."""
    w = weights[:, 0]
    return float(w @ moments.between @ w / (w @ moments.total @ w))


def points(name: str, records: Records, repeats: int) -> list[Point]:
    """All points of a data set."""
    exact = moments_of(records.numbers / SCALE, records.labels)
    best = power(directions_of(exact, "dca", 1, DEFAULT_RIDGE).weights, exact)
    found = []
    for adjacency in (ADD_REMOVE, CHANGE):
        for epsilon in EPSILONS:
            terms = ProjectionTerms("dca", 1, round(epsilon * MICRO), adjacency=adjacency)
            shares = [
                power(project(records, terms, repeat.to_bytes(32, "big")).directions.weights, exact) / best
                for repeat in range(repeats)
            ]
            within = float(np.mean(np.array(shares) >= ENOUGH))
            median, tenth = np.median(shares), np.quantile(shares, 0.1)
            found.append(Point(name, adjacency, epsilon, best, float(median), float(tenth), within))
    return found


def main() -> int:
    """Measure, draw, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--out", type=Path, default=PLOT)
    options = parser.parse_args()
    if not available():
        print(NOT_HERE, file=sys.stderr)
        return 2
    found = [point for name, records in settings().items() for point in points(name, records, options.repeats)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(_chart(found), encoding="utf-8")
    if options.json:
        rows = [point._asdict() for point in found]
        json.dump({"title": "Private DCA", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return 0
    print(f"{'data':<20} {'adjacency':<11} {'ε':>5}  exact power   median   tenth   runs of {ENOUGH:.0%} and more")
    for each in found:
        print(
            f"{each.data:<20} {each.adjacency:<11} {each.epsilon:>5g}  {each.exact:>11.6f}  {each.median:>7.1%}"
            f" {each.tenth:>7.1%}  {each.within:>7.0%}"
        )
    return 0


def _chart(found: list[Point]) -> str:
    lines = []
    for name, adjacency in dict.fromkeys((point.data, point.adjacency) for point in found):
        chosen = [point for point in found if (point.data, point.adjacency) == (name, adjacency)]
        xs = [point.epsilon for point in chosen]
        lines.append(Line(f"{name}, {adjacency}", xs, [100 * point.median for point in chosen]))
    return line_chart("Power of private DCA", lines, x_label="ε", y_label="% of the exact power, median", log_x=True)


if __name__ == "__main__":
    sys.exit(main())
