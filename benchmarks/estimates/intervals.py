"""Coverage of 95 % intervals if devices answer repeatedly, and time of estimating cells.

    python -m benchmarks.estimates.intervals [--repeats 4000] [--json]

Coverage: fleets of 500 devices and 31 periods; all devices answer daily, or a fifth daily and the others once, or each
at its own rate, or all once. A repetition draws the records, the answering devices, the devices of one question (a
third of the answers) and the noise of ``direct`` over two classes. Time: processor seconds for 601 questions by
``piecewise`` and ``hybrid``, with integers over a common denominator, and with fractions as in the definition.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from aggregator.estimates.debias import Law, debias
from aggregator.estimates.intervals import score_interval
from benchmarks.shared.harness import arguments, machine
from protocol import SCALE, mechanisms
from protocol.mechanisms import FrequencyMechanism
from protocol.mechanisms.numeric import NumericMechanism

Answered = NDArray[np.bool_]


DEVICES, PERIODS = 500, 31
QUESTIONS = 601
_BY_FRACTIONS = 12
"""Number of questions that are estimated by fractions; their time is scaled up to all questions."""


def always(_: np.random.Generator) -> Answered:
    """All devices answer every day."""
    return np.ones((DEVICES, PERIODS), np.bool_)


def a_fifth(generator: np.random.Generator) -> Answered:
    """A fifth of the devices answers every day, the others once."""
    answered = once(generator)
    answered[: DEVICES // 5] = True
    return answered


def rates(generator: np.random.Generator) -> Answered:
    """Each device answers at its own rate."""
    return generator.random((DEVICES, PERIODS)) < generator.random((DEVICES, 1))


def once(generator: np.random.Generator) -> Answered:
    """All devices answer once."""
    answered = np.zeros((DEVICES, PERIODS), np.bool_)
    answered[np.arange(DEVICES), generator.integers(0, PERIODS, DEVICES)] = True
    return answered


def coverage(
    answering: Callable[[np.random.Generator], Answered], epsilon: float, share: float, repeats: int
) -> dict[str, float]:
    """Shares of intervals that contain the true value: of these devices, and of the population."""
    mechanism = mechanisms.from_epsilon("direct", epsilon, 2)
    assert isinstance(mechanism, FrequencyMechanism)
    p, q = float(mechanism.p), float(mechanism.q)
    law = Law.pure(p, q)
    generator = np.random.default_rng(6)
    held = dict.fromkeys(("devices", "known", "bound", "once"), 0)
    for _ in range(repeats):
        holds, answered = generator.random(DEVICES) < share, answering(generator)
        asked = answered & (generator.random(answered.shape) < 1 / 3)
        n, own = int(asked.sum()), int(asked[holds].sum())
        found = ((generator.binomial(own, p) + generator.binomial(n - own, q)) / n - q) / (p - q)
        times, falling = answered.sum(axis=1), np.sort(answered.sum(axis=0))[::-1]
        total, chosen = int(times.sum()), n / int(times.sum())
        pairs = int((falling * (2 * np.arange(1, PERIODS + 1) - 1)).sum())
        scatter = {"devices": 0.0, "known": n * int((times**2).sum()) / total**2, "bound": n * pairs / total**2}
        scatter["once"] = chosen
        for name, more in scatter.items():
            low, high = score_interval(np.array(found), n, law, 1 - chosen + more)
            truth = float(times @ holds) / total if name == "devices" else share
            held[name] += bool(low <= truth <= high)
    return {name: number / repeats for name, number in held.items()}


def speed(name: str) -> tuple[float, float]:
    """Processor seconds for all questions, by integers and by fractions."""
    mechanism = mechanisms.from_epsilon(name, 1, 1)
    assert isinstance(mechanism, NumericMechanism)
    generator = np.random.default_rng(7)
    counts = [generator.integers(0, 50, mechanism.answers).tolist() for _ in range(QUESTIONS)]
    begun = time.process_time()
    for row in counts:
        debias(mechanism, sum(row), row)
    by_integers = time.process_time() - begun
    begun = time.process_time()
    for row in counts[:_BY_FRACTIONS]:
        values = [mechanism.estimate(answer) / SCALE for answer in range(mechanism.answers)]
        total = sum((count * value for count, value in zip(row, values, strict=True)), Fraction(0))
        squares = sum((count * value**2 for count, value in zip(row, values, strict=True)), Fraction(0))
        float(squares - total**2 / sum(row))
    return by_integers, (time.process_time() - begun) * QUESTIONS / _BY_FRACTIONS


def main() -> None:
    """Count, time, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=4000)
    options = parser.parse_args()
    rows = [
        {"answering": answering.__name__, "epsilon": epsilon, "share": share}
        | coverage(answering, epsilon, share, options.repeats)
        for answering in (always, a_fifth, rates, once)
        for epsilon in (1, 4, 16)
        for share in (0.3, 0.01)
    ]
    times = {name: speed(name) for name in ("piecewise", "hybrid")}
    if options.json:
        json.dump(
            {"title": "Intervals", "machine": machine(), "coverage": rows, "seconds": times}, sys.stdout, indent=1
        )
        print()
        return
    print("answering  ε   share  devices  known  bound  as if once")
    for row in rows:
        values = "  ".join(f"{row[name]:.3f}" for name in ("devices", "known", "bound", "once"))
        print(f"{row['answering']:<9}  {row['epsilon']:<2}  {row['share']:<5}  {values}")
    for name, (by_integers, by_fractions) in times.items():
        print(f"{name}: {QUESTIONS} questions, {by_fractions / by_integers:.0f} times faster than by fractions")


if __name__ == "__main__":
    main()
