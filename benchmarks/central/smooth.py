"""Time of the smooth sensitivity of variance and trimmed mean by n, its growth, and the time of the O(n²) definition.

    python -m benchmarks.central.smooth [--largest 1000000] [--runs 5] [--json]

A time is the processor time of the slowest of four kinds of n values (uniform, normal, equal, half at either bound),
with checks, sorting and statistic. ε is 0.1 and β = ε/6, the published choice for Cauchy noise. The definition is that
of ``tests/support/smooth_definition.py``.
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from collections.abc import Callable

from support.smooth_definition import changes_of_mean, changes_of_variance, smooth

from aggregator.common.arrays import Integers
from aggregator.curator.noise import NAMES, law
from aggregator.curator.smooth_sensitivity import (
    BoundedValues,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
    trimmed_mean,
    variance,
)
from protocol.noise.law import rounded
from protocol.stream import Stream

BETA = Fraction(1, 60)
TINY = Fraction(1, 100_000)
LOW, HIGH = -(1 << 15), 1 << 15
TRIM_PARTS = 20
"""The trimmed mean leaves out n/20 values at either end."""
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
LEAST_TO_FIT = 2


def kinds(n: int) -> list[Integers]:
    """Return four data sets of n integers within the bounds."""
    random = np.random.default_rng(n)
    normal = np.clip(random.normal(0, HIGH / 20, n), LOW, HIGH).astype(np.int64)
    halves = np.where(np.arange(n) % 2 == 0, LOW, HIGH)
    return [random.integers(LOW, HIGH + 1, n), normal, np.full(n, 7), halves]


def fast_variance(values: Integers) -> float:
    """Compute the exact variance and its smooth sensitivity."""
    data = BoundedValues(values, LOW, HIGH)
    variance(data)
    return float(smooth_sensitivity_of_variance(data, BETA).value)


def fast_mean(values: Integers) -> float:
    """Compute the exact trimmed mean and its smooth sensitivity."""
    data = BoundedValues(values, LOW, HIGH)
    trim = data.n // TRIM_PARTS
    trimmed_mean(data, trim)
    return float(smooth_sensitivity_of_mean(data, BETA, trim).value)


def defined_variance(values: Integers) -> float:
    """Compute the variance's smooth sensitivity by its definition, array by array."""
    return smooth(changes_of_variance(np.sort(values - LOW).astype(float), HIGH - LOW), float(BETA))


def defined_mean(values: Integers) -> float:
    """Compute the trimmed mean's smooth sensitivity by its definition, array by array."""
    x = np.sort(values - LOW).astype(float)
    return smooth(changes_of_mean(x, HIGH - LOW, len(x) // TRIM_PARTS), float(BETA))


def seconds(action: Callable[[], object], runs: int) -> float:
    """Return the median of the processor time of an action, after one run that does not count."""
    action()
    return interleaved_seconds([action], runs, time.process_time)[0]


def slowest(action: Callable[[Integers], float], n: int, runs: int) -> float:
    """Return the median seconds of ``action`` for the slowest kind of values."""
    return max(seconds(partial(action, values), runs) for values in kinds(n))


def growth(sizes: list[int], taken: list[float]) -> float:
    """Return the exponent p of the power law n^p that fits the times best, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])


class Statistic(NamedTuple):
    """A statistic and the two ways to its smooth sensitivity."""

    name: str
    fast: Callable[[Integers], float]
    defined: Callable[[Integers], float]


def rows_of(statistic: Statistic, sizes: list[int], runs: int) -> list[Row]:
    """Return the times of one statistic at all sizes, their growth, and the time of its definition."""
    name, least = statistic.name, sizes[0]
    found = [slowest(statistic.fast, n, runs) for n in sizes]
    rows = [Row(f"{name}, n = {n:,}", 1e3 * taken, "ms") for n, taken in zip(sizes, found, strict=True)]
    if len(sizes) > LEAST_TO_FIT:
        rows.append(Row(f"{name}, growth from n = {sizes[1]:,}", growth(sizes[1:], found[1:]), "power of n"))
    taken = seconds(partial(statistic.defined, kinds(least)[0]), 3)
    rows.append(Row(f"{name}, definition, n = {least:,}", 1e3 * taken, "ms", "the fast form", taken / found[0]))
    differences = [abs(statistic.fast(values) / statistic.defined(values) - 1) for values in kinds(least)]
    rows.append(Row(f"{name}, largest difference from the definition", 1e12 * max(differences), "parts in 10¹²"))
    return rows


def hard_rows(n: int, runs: int) -> list[Row]:
    """Measure the slowest settings: a tiny β for the variance; the median of equal values, with all pairs searched."""
    data = BoundedValues(np.full(n, 7), LOW, HIGH)
    wide = BoundedValues(kinds(n)[1], LOW, HIGH)
    settings: list[tuple[str, Callable[[], object]]] = [
        ("variance, β = 10⁻⁵", partial(smooth_sensitivity_of_variance, wide, TINY)),
        ("median, β = 10⁻⁵, all values equal", partial(smooth_sensitivity_of_mean, data, TINY, (n - 1) // 2)),
        ("median, β = 10⁻⁵, normal values", partial(smooth_sensitivity_of_mean, wide, TINY, (n - 1) // 2)),
    ]
    return [Row(f"{name}, n = {n:,}, after sorting", 1e3 * seconds(action, runs), "ms") for name, action in settings]


def draw(name: str, count: int) -> None:
    """Draw a noise ``count`` times, each number rounded to a grid of 10⁻⁹ of its scale."""
    found = law(name)
    for index in range(count):
        rounded(Fraction(0), Fraction(10**9), found.draw(Stream(index.to_bytes(32, "big"), b"benchmark")))


def noise_rows(runs: int) -> list[Row]:
    """Return the time of one draw of every noise."""
    count = 500
    times = [seconds(partial(draw, name, count), runs) / count for name in NAMES]
    return [Row(f"{name} noise", 1e6 * taken, "µs a draw") for name, taken in zip(NAMES, times, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    sizes = [n for n in SIZES if n <= options.largest] or [SIZES[0]]
    rows = [
        *rows_of(Statistic("variance", fast_variance, defined_variance), sizes, options.runs),
        *rows_of(Statistic("trimmed mean", fast_mean, defined_mean), sizes, options.runs),
        *hard_rows(sizes[-1], options.runs),
        *noise_rows(options.runs),
    ]
    show("smooth sensitivity at ε = 0.1 (β = 1/60), 5 % trimmed at either end", rows, as_json=options.json)


if __name__ == "__main__":
    main()
