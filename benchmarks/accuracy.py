"""Accuracy against the independent reference: local, discrete, post-processing ``paper``.

    python benchmarks/accuracy.py [--repeats 60] [--big-repeats 6] [--data car …] [--engine both] [--json]

A row agrees if the mean over repeats is within 2 points plus three standard errors of the reference,
where the standard error is that of both means. Connect-4 runs on the vector engine only, with fewer
repeats; the other data sets also once per row through the real device code, which is one repetition
and so is held against 2 points plus three standard deviations of one run.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from typing import NamedTuple

from harness import arguments, machine
from reference import Case, available, categorical_data, discrete_cases

from aggregator.publishing.campaigns import Terms, parse_answers
from protocol.epsilon import micro_epsilon
from simulation.simulate import run_simulation, summarise
from simulation.splits import Division

TOLERANCE = 0.02
STANDARD_ERRORS = 3
BIG = "connect-4"


class Result(NamedTuple):
    """One case, as measured here."""

    case: Case
    engine: str
    repeats: int
    accuracy: float
    sd: float
    seconds: float

    @property
    def difference(self) -> float:
        """Ours minus the reference."""
        return self.accuracy - self.case.accuracy

    @property
    def allowed(self) -> float:
        """2 points plus three standard errors of the difference of two means."""
        case = self.case
        spread = max(self.sd, case.sd)
        return TOLERANCE + STANDARD_ERRORS * sqrt(case.sd**2 / case.runs + spread**2 / self.repeats)

    @property
    def agrees(self) -> bool:
        """Whether the two means are as near as they should be."""
        return abs(self.difference) <= self.allowed


def measure(case: Case, engine: str, repeats: int, seed: int) -> Result:
    """Run one case."""
    began = time.perf_counter()
    frame, schema = categorical_data(case.data)
    answers = parse_answers(case.answers, schema)
    terms = Terms("reference", micro_epsilon(case.epsilon_total), case.mechanism, answers)
    trials = run_simulation(
        frame, schema, terms, Division(), postprocess="paper", engine=engine, repeats=repeats, seed=seed
    )
    result = summarise(trials, terms, engine, repeats)
    sd = result["accuracy_sd"] or 0.0
    return Result(case, engine, repeats, result["accuracy"], sd, time.perf_counter() - began)


def main() -> int:
    """Measure all cases on all cores; 0 if every row agrees."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--big-repeats", type=int, default=6)
    parser.add_argument("--data", nargs="*", default=["car", "chess", "mushroom", BIG])
    parser.add_argument("--engine", choices=["vector", "device", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not available():
        print("the reference data sets are not beside the repository; see benchmarks/reference.py", file=sys.stderr)
        return 2
    jobs = []
    for number, case in enumerate(case for case in discrete_cases() if case.data in options.data):
        if options.engine != "device":
            repeats = options.big_repeats if case.data == BIG else options.repeats
            jobs.append((case, "vector", repeats, options.seed + number))
        if options.engine != "vector" and case.data != BIG:
            jobs.append((case, "device", 1, options.seed + number))
    with ProcessPoolExecutor() as pool:
        pending = [pool.submit(measure, *job) for job in jobs]
        results = []
        for done, future in enumerate(pending, 1):
            results.append(future.result())
            print(f"\r{done} of {len(jobs)} rows", end="", file=sys.stderr)
    print(file=sys.stderr)
    _show(results, as_json=options.json)
    return 0 if all(result.agrees for result in results) else 1


def _show(results: list[Result], *, as_json: bool) -> None:
    if as_json:
        rows = [{**r._asdict(), "case": r.case._asdict(), "allowed": r.allowed, "agrees": r.agrees} for r in results]
        json.dump({"title": "Accuracy", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return
    print(f"{machine()}\n")
    print("data       mechanism answers  ε/answer  engine  repeats   here  reference  difference  allowed")
    for r in results:
        case = r.case
        print(
            f"{case.data:<10} {case.mechanism:<9} {case.answers:<7} {case.epsilon_per_answer:>9}  {r.engine:<7}"
            f"{r.repeats:>8} {r.accuracy:>6.1%} {case.accuracy:>10.1%} {100 * r.difference:>+10.1f}"
            f" {100 * r.allowed:>9.1f}{'' if r.agrees else '   DISAGREES'}"
        )
    agreeing = sum(r.agrees for r in results)
    used = max(abs(r.difference) / r.allowed for r in results)
    print(f"\n{agreeing} of {len(results)} rows agree; the worst uses {used:.0%} of what is allowed")


if __name__ == "__main__":
    sys.exit(main())
