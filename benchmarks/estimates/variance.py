"""Plot of the worst variance of numeric mechanisms by ε, from the mechanisms' integers: docs/plots/variance.svg.

    python -m benchmarks.estimates.variance [--out FILE] [--points 41] [--json]

The variance is per person and coordinate of d numbers in [−1, 1]. ``duchi`` answers about all d numbers at once, the
others about the best number r of them with ε/r each: V(d, r) = max over x of (d/r)·(Var_{ε/r}(x) + x²) − x², where
Var_{ε/r}(x) is the variance of one answer at ε/r about x. Source: Wang et al., ICDE 2019, section IV; docs/math.md, 2.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregator.common.plots import Line, line_chart
from benchmarks.shared.harness import Table, arguments
from benchmarks.shared.study import panels
from protocol import SCALE, mechanisms
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO
from protocol.mechanisms.numeric import NumericMechanism

PLOT = Path(__file__).parents[2] / "docs" / "plots" / "variance.svg"
NAMES = ("laplace", "bit", "duchi", "piecewise", "hybrid")
DIMENSIONS = (1, 5, 10, 20)
LEAST_EPSILON, MOST_EPSILON = 0.25, 16.0
EQUAL = 1e-6
"""Variances with a smaller relative difference count as equal: the mechanisms do not cross."""


class Crossing(NamedTuple):
    """Equal variances: above ``epsilon`` the first mechanism has the smaller worst variance, below it the second."""

    dimensions: int
    better_above: str
    better_below: str
    epsilon: float


@lru_cache(maxsize=100_000)
def moments(name: str, epsilon_micro: int) -> tuple[float, float]:
    """Return the variances of one number's estimate at x = 0 and x = 1; one of these is the largest of all x."""
    mechanism = mechanisms.from_micro(name, epsilon_micro, 1)
    assert isinstance(mechanism, NumericMechanism)
    return float(mechanism.variance(0) / SCALE**2), float(mechanism.variance(SCALE) / SCALE**2)


def worst_variance(name: str, epsilon: float, dimensions: int) -> float:
    """Return V(d, r) of one mechanism with its best r; d is ``dimensions``."""
    micro = round(epsilon * MICRO)
    if name == "duchi":
        mechanism = mechanisms.from_micro(name, micro, dimensions)
        assert isinstance(mechanism, NumericMechanism)
        return float(mechanism.variance(0) / SCALE**2)
    found = []
    for asked in range(1, dimensions + 1):
        share = min(micro // asked, MAX_ANSWER_MICRO)
        at_zero, at_one = moments(name, share)
        weight = dimensions / asked
        found.append(max(weight * at_zero, weight * (at_one + 1) - 1))
    return min(found)


def crossings(grid: list[float], dimensions: int) -> list[Crossing]:
    """Return the crossings of all pairs of mechanisms, by bisection between points of a grid of ε."""
    found = []
    for place, first in enumerate(NAMES):
        for second in NAMES[place + 1 :]:
            signs = [_sign(first, second, epsilon, dimensions) for epsilon in grid]
            known = [(epsilon, sign) for epsilon, sign in zip(grid, signs, strict=True) if sign]
            for (low, before), (high, after) in pairwise(known):
                if before != after:
                    where = _bisect(first, second, low, high, before, dimensions)
                    better, worse = (first, second) if after < 0 else (second, first)
                    found.append(Crossing(dimensions, better, worse, where))
    return found


def _sign(first: str, second: str, epsilon: float, dimensions: int) -> int:
    a, b = (worst_variance(name, epsilon, dimensions) for name in (first, second))
    return 0 if abs(a - b) <= EQUAL * max(a, b) else (1 if a > b else -1)


def _bisect(first: str, second: str, low: float, high: float, before: int, dimensions: int) -> float:
    while high - low > 1e-4:
        middle = (low + high) / 2
        if _sign(first, second, middle, dimensions) == before:
            low = middle
        else:
            high = middle
    return high


def chart(grid: list[float], dimensions: int, found: list[Crossing]) -> str:
    """Return one panel of the plot, with marks at the crossings with ``piecewise``."""
    lines = [Line(name, grid, [worst_variance(name, epsilon, dimensions) for epsilon in grid]) for name in NAMES]
    marks = [
        (c.epsilon, worst_variance(c.better_above, c.epsilon, dimensions), f"{c.better_above} from {c.epsilon:.2f}")
        for c in found
        if {c.better_above, c.better_below} & {"piecewise"} and {c.better_above, c.better_below} & {"bit", "duchi"}
    ]
    title = f"Worst-case variance per person, d = {dimensions}"
    return line_chart(title, lines, x_label="ε", y_label="variance", log_x=True, log_y=True, marks=marks)


def main() -> None:
    """Compute, draw, print the crossings."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=PLOT)
    parser.add_argument("--points", type=int, default=41)
    options = parser.parse_args()
    grid = np.exp(np.linspace(log(LEAST_EPSILON), log(MOST_EPSILON), options.points)).round(4).tolist()
    found = {dimensions: crossings(grid, dimensions) for dimensions in DIMENSIONS}
    charts = [chart(grid, dimensions, found[dimensions]) for dimensions in DIMENSIONS]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(panels(charts, 2), encoding="utf-8")
    table = Table("Variance", "d>3 better>11 than>11 from_ε>9.3f", as_json=options.json)
    for each in (crossing for dimensions in DIMENSIONS for crossing in found[dimensions]):
        table.add(dict(zip(("d", "better", "than", "from_ε"), each, strict=True)))
    for dimensions, epsilon in product(DIMENSIONS, (0.5, 1.0, 2.0, 4.0, 8.0)):
        values = "  ".join(f"{name} {worst_variance(name, epsilon, dimensions):.4g}" for name in NAMES)
        table.note(f"d = {dimensions:>2}  ε = {epsilon:g}  {values}")
    table.end()


if __name__ == "__main__":
    main()
