"""Noise of masked sums: the time of drawing it, and how many copies of it a total has.

    python -m benchmarks.masked.noise [--json] [--repeats 9] [--out docs/plots/masked-noise.svg]

*Time*: one party's noise for all numbers of a message, in turns with as many discrete Laplace numbers of the same
rates, which is what a summary in the clear draws. *Copies*: the variance of a total's noise in units of one discrete
Laplace number, all parties reporting, with the numbers u that the dealer gives at first. A curator adds 1 copy, and n
summaries in the clear have n. δ is that of one released number.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from aggregator.common.plots import Line, line_chart
from aggregator.nodes.campaigns.numbering import first_numbers
from benchmarks.shared.harness import Row, arguments, show
from protocol.documents.masked_terms import DILUTED, DIVIDED
from protocol.epsilon import MICRO
from protocol.masked.noise import PartyNoise, party_noise
from protocol.mechanisms.noise import discrete_laplace
from protocol.stream import Stream

OUT = Path(__file__).parents[2] / "docs" / "plots" / "masked-noise.svg"
PARTIES = (10, 30, 100, 300, 1000, 3000, 10_000)
HONEST = (0.5, 0.75, 1.0)
DELTAS = (Fraction(1, 10**5), Fraction(1, 10**7), Fraction(1, 10**9))
SCALE = 65_536
MESSAGES = {
    "300 counts, ε 1 on 8 vectors": [Fraction(1, 8)] * 300,
    "300 counts, ε 0.1 on 8 vectors": [Fraction(1, 80)] * 300,
    # 14 numbers and two classes: class counts, sums and sums of squares of each number
    "58 sums, ε 1 on 29 vectors": [Fraction(1, 29)] * 2 + [Fraction(1, 29 * SCALE)] * 56,
    "58 sums, the same for a party of 1000 records": [Fraction(1, 29_000)] * 2 + [Fraction(1, 29_000 * SCALE)] * 56,
}
"""Name → the rate of each number."""
SHARED_AMONG = (1, 2, 4, 10, 100, 1000)
"""Numbers h of honest parties for which the time is measured."""


def drawn(stream: Stream, parts: Sequence[PartyNoise]) -> None:
    """One party's noise for every number of a message."""
    for part in parts:
        part.draw(stream)


def laplace(stream: Stream, rates: Sequence[tuple[int, int]]) -> None:
    """A discrete Laplace number for every number of a message."""
    for s, t in rates:
        discrete_laplace(stream, s, t)


def timed(action: Callable[[], None]) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    action()
    return time.process_time() - began


def times(repeats: int) -> list[Row]:
    """Milliseconds, and medians of the ratios of turns that follow each other."""
    stream = Stream(bytes(range(32)), b"hearsay/benchmark")
    found = []
    for name, rates in MESSAGES.items():
        pairs = [each.as_integer_ratio() for each in rates]
        baseline = f"{len(rates)} discrete Laplace numbers"
        for kind, honest in [*((DIVIDED, each) for each in SHARED_AMONG), (DILUTED, 1000)]:
            parts = [party_noise(kind, rate, honest, DELTAS[0]) for rate in rates]
            taken = [
                (timed(lambda parts=parts: drawn(stream, parts)), timed(lambda pairs=pairs: laplace(stream, pairs)))  # type: ignore[misc]
                for _ in range(repeats)
            ]
            found.append(
                Row(
                    f"{name}: {kind}, h = {honest}",
                    1000 * statistics.median(each for each, _ in taken),
                    "ms",
                    baseline,
                    statistics.median(each / least for each, least in taken),
                )
            )
    return found


def copies(kind: str, parties: int, honest: float, delta: Fraction) -> float:
    """The variance of a total's noise in units of that of one discrete Laplace number."""
    micro, total = round(honest * MICRO), Fraction(0)
    nodes = [number.to_bytes(8, "big") for number in range(parties)]
    for u in first_numbers(nodes).values():
        total += party_noise(kind, Fraction(1), -(-micro * u // MICRO), delta).copies
    return float(total)


def names() -> list[tuple[str, str, float, Fraction]]:
    """The lines of table and plot: name, kind, γ and δ of one number. Names of ``diluted`` noise state δ."""
    found = [(f"divided, γ {honest}", DIVIDED, honest, Fraction(0)) for honest in HONEST]
    for delta in DELTAS:
        exponent = len(str(delta.denominator)) - 1
        found += [(f"diluted 1e-{exponent}, γ {honest}", DILUTED, honest, delta) for honest in HONEST]
    return found


def table() -> list[Row]:
    """Copies in a total, for every line and number of parties."""
    return [
        Row(f"{name}, {parties:,} parties", copies(kind, parties, honest, delta), "copies")
        for name, kind, honest, delta in names()
        for parties in PARTIES
    ]


def draw(found: Sequence[Row]) -> str:
    """The plot of :func:`table`, without the lines for γ = 0.75 and δ = 1e-7."""
    values = iter(row.value for row in found)
    lines = [Line("in the clear", PARTIES, PARTIES), Line("one curator", PARTIES, [1] * len(PARTIES))]
    for name, *_ in names():
        line = Line(name, PARTIES, [next(values) for _ in PARTIES])
        if "0.75" not in name and "1e-7" not in name:
            lines.append(line)
    return line_chart(
        "Noise of a total, in copies of a discrete Laplace number",
        lines,
        x_label="parties",
        y_label="variance in copies",
        log_x=True,
        log_y=True,
    )


def main() -> None:
    """Measure, print the table, and draw the plot."""
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    counted = table()
    given.out.write_text(draw(counted), encoding="utf-8")
    show("Noise of masked sums", [*times(given.repeats), *counted], as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
