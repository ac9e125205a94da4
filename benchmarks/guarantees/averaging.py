"""The probability that the best guess from all answers of one device is right, by the lifetime ε, exactly.

    python -m benchmarks.guarantees.averaging [--values 8] [--out docs/plots/averaging.svg] [--json]

A device answers the same question about one of k values by ``direct`` with ε per period, until its lifetime ε E is
spent. The attacker knows everything except the value and the noise. The guess is right with probability (1/k) Σ_y max_x
P(y | x), x being the value and y the counts of the answers; the bound is e^E/(e^E + k − 1) (decision 22).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import exp, factorial
from pathlib import Path

from aggregator.common.plots import Line, line_chart
from benchmarks.shared.harness import Row, arguments, show
from protocol import mechanisms
from protocol.epsilon import MICRO

PER_PERIOD = (250_000, 500_000, 1_000_000, 2_000_000)
LIFETIMES = range(0, 8 * MICRO + 1, 250_000)


def partitions(total: int, parts: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write ``total`` as a sum of at most ``parts`` positive integers, the largest first."""
    most = total if most is None else most
    if total == 0:
        yield ()
    elif parts:
        for first in range(min(total, most), 0, -1):
            for rest in partitions(total - first, parts - 1, first):
                yield (first, *rest)


def success(micro: int, periods: int, values: int) -> float:
    """Return the probability that the best guess is right after ``periods`` answers by ``direct``.

    Only the counts of the answers matter.
    """
    mechanism = mechanisms.from_micro("direct", micro, values)
    keep, lie = float(mechanism.p), float(mechanism.q)
    total = 0.0
    for counts in partitions(periods, values):
        padded = (*counts, *(0,) * (values - len(counts)))
        orders = factorial(values)
        for number in Counter(padded).values():
            orders //= factorial(number)
        sequences = factorial(periods)
        for number in counts:
            sequences //= factorial(number)
        total += orders * sequences * keep ** max(padded) * lie ** (periods - max(padded))
    return total / values


def bound(micro: int, values: int) -> float:
    """Return the bound e^E/(e^E + k − 1), with E in millionths in ``micro``, and k = ``values``."""
    return exp(micro / MICRO) / (exp(micro / MICRO) + values - 1)


def curves(values: int) -> list[Line]:
    """Return the curves: the bound, and one curve for each ε per period, at lifetimes of whole numbers of periods."""
    lines = [Line("bound", [m / MICRO for m in LIFETIMES], [bound(m, values) for m in LIFETIMES])]
    for micro in PER_PERIOD:
        lifetimes = range(0, LIFETIMES[-1] + 1, micro)
        shares = [success(micro, lifetime // micro, values) for lifetime in lifetimes]
        lines.append(Line(f"ε = {micro / MICRO:g} a period", [m / MICRO for m in lifetimes], shares))
    return lines


def main() -> None:
    """Compute, print and draw."""
    parser = arguments(__doc__)
    parser.add_argument("--values", type=int, default=8, help="k: how many values there are (8)")
    parser.add_argument("--out", type=Path, help="an SVG file to draw into")
    options = parser.parse_args()
    lines = curves(options.values)
    limit = dict(zip(lines[0].xs, lines[0].ys, strict=True))
    rows = [
        Row(f"{line.name}, lifetime {x:g}", 100 * y, "% right", "bound", y / limit[x])
        for line in lines
        for x, y in zip(line.xs, line.ys, strict=True)
        if x in (1, 2, 4, 8)
    ]
    show(f"The best guess of one of {options.values} values, from all a device says", rows, as_json=options.json)
    if options.out:
        title = f"The best guess of one of {options.values} values"
        chart = line_chart(title, lines, x_label="lifetime ε", y_label="share of right guesses")
        options.out.write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main()
