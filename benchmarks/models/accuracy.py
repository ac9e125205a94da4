"""Accuracy of local trust against the independent reference, with post-processing ``paper``.

    python -m benchmarks.models.accuracy [--repeats 60] [--big-repeats 6] [--data car …] [--engine both] [--json]
    python -m benchmarks.models.accuracy --form numeric [--repeats 40]

A row agrees if its mean over repeats differs from the reference by at most 2 points plus three standard errors of the
difference (with one run of the device engine: three standard deviations); rows of ``she`` may be better. Connect-4 runs
on the vector engine only. ``--form numeric``: rows on numeric features and without privacy, vector engine only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.models.baselines import fit_plain, fit_plain_gaussian
from aggregator.publishing.campaigns import CampaignParameters, parse_answers
from benchmarks.shared import reference
from benchmarks.shared.harness import arguments, machine
from protocol.documents.campaign import GAUSSIAN
from protocol.epsilon import micro_epsilon
from simulation.design import Design, Division
from simulation.local import LocalTrust
from simulation.settings import Settings
from simulation.trust import Simulation

TOLERANCE = 0.02
STANDARD_ERRORS = 3
BIG = "connect-4"
CATEGORICAL = ["car", "chess", "mushroom", BIG]
NUMERIC = ["australian", "pima"]
BITS_APPROACH = 2
VARIANCE_FLOOR = 0.01


class Result(NamedTuple):
    """The measured accuracy of one case."""

    case: reference.Case
    engine: str
    repeats: int
    accuracy: float
    sd: float
    seconds: float

    @property
    def difference(self) -> float:
        """Measured mean accuracy minus the reference's."""
        return self.accuracy - self.case.accuracy

    @property
    def allowed(self) -> float:
        """2 points plus three standard errors of the difference of two means."""
        case = self.case
        spread = max(self.sd, case.sd)
        return TOLERANCE + STANDARD_ERRORS * sqrt(case.sd**2 / case.runs + spread**2 / self.repeats)

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the limit. For ``she`` only a lower accuracy is a disagreement.

        The reference adds the components of ``she`` without clipping. The aggregator clips them and removes the bias
        (decision 37), which halves the variance.
        """
        if self.case.mechanism == "she":
            return self.difference >= -self.allowed
        return abs(self.difference) <= self.allowed


def measure(case: reference.Case, engine: str, repeats: int, seed: int) -> Result:
    """Run one case."""
    began = time.perf_counter()
    design, frame = _design(case)
    if not case.is_private:
        accuracies = plain_accuracies(design, frame, case.family, repeats, seed)
        return Result(case, "none", repeats, fmean(accuracies), stdev(accuracies), time.perf_counter() - began)
    parameters = _parameters(case, design)
    settings = Settings(case.epsilon_total, postprocess="paper", engine=engine, repeats=repeats, seed=seed)
    result, _ = Simulation(settings, frame, design, Division(), LocalTrust(settings, design, parameters)).run()
    sd = result["accuracy_sd"] or 0.0
    return Result(case, engine, repeats, result["accuracy"], sd, time.perf_counter() - began)


def _design(case: reference.Case) -> tuple[Design, pd.DataFrame]:
    if case.form == "discrete":
        frame, schema = reference.categorical_data(case.data)
        return Design(schema), frame
    frame, schema = reference.numeric_data(case.data)
    method, components = case.reduction
    return Design(schema, case.bins, fit_bounds=True, method=method, components=components, fit_on=case.fit_on), frame


def _parameters(case: reference.Case, design: Design) -> CampaignParameters:
    """Return the campaign's parameters of a case.

    The reference's ``approach2 bit`` is ``bits`` here; its approaches 1 and 3 are ``laplace``.
    """
    parameters = CampaignParameters("reference", micro_epsilon(case.epsilon_total), case.mechanism, family=case.family)
    if case.family == GAUSSIAN:
        approach = int(case.form.split()[1].removeprefix("approach"))
        named = {"mechanism": "bits"} if approach == BITS_APPROACH else {"approach": approach}
        return parameters._replace(**named)
    questions = 1 + (design.components or len(design.schema.features))
    return parameters._replace(answers=parse_answers(case.answers, questions, parameters.epsilon_micro))


def plain_accuracies(design: Design, frame: pd.DataFrame, family: str, repeats: int, seed: int) -> list[float]:
    """Return accuracies of models without privacy, one per repetition, of the people whose devices would report."""
    rng = np.random.default_rng(seed)
    accuracies = []
    for _ in range(repeats):
        for split in Division().splits(frame, rng):
            schema, people = design.for_people(split.people, rng)
            model = (
                fit_plain_gaussian(people, schema, VARIANCE_FLOOR) if family == GAUSSIAN else fit_plain(people, schema)
            )
            accuracies.append(model.accuracy(split.test))
    return accuracies


def main() -> int:
    """Measure all cases on all cores. Return 0 if every row agrees."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--big-repeats", type=int, default=6)
    parser.add_argument("--form", choices=["categorical", "numeric"], default="categorical")
    parser.add_argument("--data", nargs="*", help="data sets; default: all of the form")
    parser.add_argument("--engine", choices=["vector", "device", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not reference.available():
        print(reference.NOT_HERE, file=sys.stderr)
        return 2
    jobs = _jobs(options)
    with ProcessPoolExecutor() as pool:
        pending = [pool.submit(measure, *job) for job in jobs]
        results = []
        for done, future in enumerate(pending, 1):
            results.append(future.result())
            print(f"\r{done} of {len(jobs)} rows", end="", file=sys.stderr)
    print(file=sys.stderr)
    _show(results, as_json=options.json)
    return 0 if all(result.agrees for result in results) else 1


def _jobs(options: argparse.Namespace) -> list[tuple[reference.Case, str, int, int]]:
    """Return arguments of :func:`measure`, one per row and engine."""
    numeric = options.form == "numeric"
    cases = reference.numeric_cases() if numeric else reference.discrete_cases()
    names = options.data or (NUMERIC if numeric else CATEGORICAL)
    jobs = []
    for number, case in enumerate(case for case in cases if case.data in names):
        if options.engine != "device":
            repeats = options.big_repeats if case.data == BIG else options.repeats
            jobs.append((case, "vector", repeats, options.seed + number))
        if options.engine != "vector" and case.data != BIG and not numeric:
            jobs.append((case, "device", 1, options.seed + number))
    return jobs


def _show(results: list[Result], *, as_json: bool) -> None:
    if as_json:
        rows = [{**r._asdict(), "case": r.case._asdict(), "allowed": r.allowed, "agrees": r.agrees} for r in results]
        json.dump({"title": "Accuracy", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return
    print(f"{machine()}\n")
    head = "data       mechanism answers  ε/answer  form                              engine  repeats"
    print(f"{head}   here  reference  difference  allowed")
    for r in results:
        case = r.case
        print(
            f"{case.data:<10} {case.mechanism:<9} {case.answers:<7} {case.epsilon_per_answer:>9}"
            f"  {case.form:<34}{r.engine:<7}"
            f"{r.repeats:>8} {r.accuracy:>6.1%} {case.accuracy:>10.1%} {100 * r.difference:>+10.1f}"
            f" {100 * r.allowed:>9.1f}{'' if r.agrees else '   DISAGREES'}"
        )
    agreeing = sum(r.agrees for r in results)
    used = max(abs(r.difference) / r.allowed for r in results)
    print(f"\n{agreeing} of {len(results)} rows agree; the worst uses {used:.0%} of what is allowed")


if __name__ == "__main__":
    sys.exit(main())
