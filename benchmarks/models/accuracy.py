"""Accuracy of local trust against the independent reference, with post-processing ``paper``.

    python -m benchmarks.models.accuracy [--repeats 60] [--big-repeats 6] [--data car …] [--engine both] [--json]
    python -m benchmarks.models.accuracy --form numeric [--repeats 40]

A row agrees if its mean over repeats differs from the reference by at most 2 points plus three standard errors of the
difference (with one run of the device engine: three standard deviations); rows of ``she`` may be better. Connect-4 runs
on the vector engine only. ``--form numeric``: rows on numeric features and without privacy, vector engine only.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd

from aggregator.models.baselines import fit_plain, fit_plain_gaussian
from aggregator.publishing.campaigns import CampaignParameters, parse_answers
from benchmarks.shared import reference
from benchmarks.shared.harness import arguments
from benchmarks.shared.reference import Case, Comparison, compare
from protocol.documents.campaign import GAUSSIAN
from protocol.epsilon import micro_epsilon
from simulation.design import Design, Division
from simulation.local import LocalTrust
from simulation.settings import Settings
from simulation.trust import Simulation

BIG = "connect-4"
CATEGORICAL = ["car", "chess", "mushroom", BIG]
NUMERIC = ["australian", "pima"]
BITS_APPROACH = 2
VARIANCE_FLOOR = 0.01


def measure(case: Case, engine: str, repeats: int, seed: int) -> Comparison:
    """Run one case.

    Rows of ``she`` may be better: the reference adds its components without clipping. The aggregator clips them and
    removes the bias (decision 37), which halves the variance.
    """
    design, frame = _design(case)
    if case.is_private:
        parameters = _parameters(case, design)
        settings = Settings(case.epsilon_total, postprocess="paper", engine=engine, repeats=repeats, seed=seed)
        _, trials = Simulation(settings, frame, design, Division(), LocalTrust(settings, design, parameters)).run()
        accuracies = [trial.accuracy for trial in trials]
    else:
        accuracies = plain_accuracies(design, frame, case.family, repeats, seed)
    return Comparison(case, accuracies, may_be_better=case.mechanism == "she")


def _design(case: Case) -> tuple[Design, pd.DataFrame]:
    if case.form == "discrete":
        frame, schema = reference.categorical_data(case.data)
        return Design(schema), frame
    frame, schema = reference.numeric_data(case.data)
    method, components = case.reduction
    return Design(schema, case.bins, fit_bounds=True, method=method, components=components, fit_on=case.fit_on), frame


def _parameters(case: Case, design: Design) -> CampaignParameters:
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
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--big-repeats", type=int, default=6)
    parser.add_argument("--form", choices=["categorical", "numeric"], default="categorical")
    parser.add_argument("--data", nargs="*", help="data sets; default: all of the form")
    parser.add_argument("--engine", choices=["vector", "device", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    reference.require()
    jobs = _jobs(options)
    labels = [
        f"{case.data:<10} {case.mechanism:<9} {case.answers:<7} {case.epsilon_per_answer:>9}  {case.form:<34}"
        f"{engine if case.is_private else 'none':<7}{repeats:>5}"
        for case, engine, repeats, _ in jobs
    ]
    with ProcessPoolExecutor() as pool:
        measured = pool.map(measure, *zip(*jobs, strict=True))
        return compare(zip(labels, measured, strict=True), as_json=options.json)


def _jobs(options: argparse.Namespace) -> list[tuple[Case, str, int, int]]:
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


if __name__ == "__main__":
    sys.exit(main())
