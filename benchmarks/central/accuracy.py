"""Accuracy of a curator's fits against the independent reference, rows of setting ``central``.

    python -m benchmarks.central.accuracy [--data adult …] [--methods sums …] [--repeats 5] [--as-reference] [--json]

Ten folds, repeated; adjacency ``change-features``. A row holds unless its mean is below the reference's by more than
2 points plus three standard errors. ``--as-reference`` undoes what makes the product better: a variance floor of 0.0003
in place of 0.01, the published constants of smooth sensitivity (Cauchy noise for ``bun-steinke``, which has none), and
the post-processing ``add-one``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from aggregator.curator.fitting import fit
from aggregator.curator.methods import smooth
from aggregator.curator.methods.smooth import BunSteinke
from aggregator.curator.noise import published
from aggregator.curator.terms import EQUAL, TWO_TO_ONE, FitTerms
from benchmarks.federated.data import Data
from benchmarks.shared.harness import arguments
from benchmarks.shared.reference import Case, Comparison, cases, compare, require
from protocol.epsilon import micro_epsilon
from protocol.questions import CHANGE_FEATURES

METHODS = {
    "sums": "sums",
    "vaidya": "global-std",
    "gvar": "global-var",
    "smooth": "smooth",
    "trim": "smooth-trimmed",
    "bs": "bun-steinke",
}
"""Names of the reference → names of methods."""
NOISE = {"smooth": "cauchy", "smooth-trimmed": "cauchy", "bun-steinke": "student-t"}
FOLDS = 10
LOW_FLOOR_MICRO = 300


def accuracies(data: Data, terms: FitTerms, repeats: int, seed: int) -> list[float]:
    """Return the accuracy on each of ten folds of a model of the other nine, ``repeats`` times."""
    found, records = [], data.records
    for repeat in range(repeats):
        folds = np.random.default_rng([seed, repeat]).permutation(records.rows) % FOLDS
        for fold in range(FOLDS):
            model = fit(records.part(folds != fold), terms, os.urandom(32)).model
            found.append(data.accuracy_of(model, np.flatnonzero(folds == fold)))
    return found


def measured(case: Case, data: Data, options: argparse.Namespace) -> Comparison:
    """Measure one row of the reference."""
    method = METHODS[case.mechanism]
    noise = NOISE.get(method)
    if options.as_reference:
        noise = noise and "cauchy"
    terms = FitTerms(
        method,
        micro_epsilon(case.epsilon_total),
        adjacency=CHANGE_FEATURES,
        division=options.division or (EQUAL if options.as_reference else TWO_TO_ONE),
        noise=noise,
        family=data.family,
        postprocess="add-one" if options.as_reference else options.postprocess,
        variance_floor_micro=LOW_FLOOR_MICRO if options.as_reference else 10_000,
    )
    return Comparison(case, accuracies(data, terms, options.repeats, options.seed), may_be_better=True)


def rows(options: argparse.Namespace) -> Iterator[tuple[str, Comparison]]:
    """Yield data set, method and ε of each chosen row of the reference, and what was measured."""
    data_of = lru_cache(maxsize=1)(Data.load)
    for case in cases("central"):
        method = METHODS[case.mechanism]
        if case.data in (options.data or [case.data]) and method in options.methods:
            found = measured(case, data_of(case.data), options)
            yield f"{case.data:10} {method:15} {case.epsilon_total:>4}", found


def use_published_constants() -> None:
    """Make smooth methods use the constants of Nissim, Raskhodnikova and Smith, and ``bun-steinke`` Cauchy noise."""
    smooth.calibrate = published  # type: ignore[assignment]
    BunSteinke.noises = ("cauchy",)


def main() -> int:
    """Measure and print. Return 1 if a row is below the reference, else 0."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", default=[])
    parser.add_argument("--methods", nargs="+", default=list(METHODS.values()))
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of the ten folds")
    parser.add_argument("--division", help="default: 2:1, and equal with --as-reference")
    parser.add_argument("--postprocess", default="posterior")
    parser.add_argument("--as-reference", action="store_true", help="low floor, published constants, add-one")
    parser.add_argument("--seed", type=int, default=1, help="of the folds; noise is always fresh")
    options = parser.parse_args()
    require()
    if options.as_reference:
        use_published_constants()
    return compare(rows(options), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
