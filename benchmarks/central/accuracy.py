"""Accuracy of a curator's fits against the independent reference, rows of setting ``central``.

    python -m benchmarks.central.accuracy [--data adult …] [--methods sums …] [--repeats 5] [--as-reference] [--json]

Ten folds, repeated; adjacency ``change-features``. A row is ``below`` or ``above`` if its mean differs from the
reference's by more than 2 points plus three standard errors. ``--as-reference`` undoes what makes the product better:
a variance floor of 0.0003 in place of 0.01, the published constants of smooth sensitivity (Cauchy noise for
``bun-steinke``, which has none), and the post-processing ``add-one``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import NamedTuple

import numpy as np

from aggregator.curator.fitting import fit
from aggregator.curator.methods import smooth
from aggregator.curator.methods.smooth import BunSteinke
from aggregator.curator.noise import published
from aggregator.curator.records import Records, read_records
from aggregator.curator.terms import EQUAL, TWO_TO_ONE, FitTerms
from aggregator.models.encoding import EncodedFrame, recognise
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.reference import NOT_HERE, Case, Comparison, available, central_cases, mixed_data
from protocol.documents.campaign import DISCRETE, GAUSSIAN
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


class FitComparison(Comparison):
    """A measured row that may be better than the reference's row."""

    @property
    def verdict(self) -> str:
        """``below``, ``=`` or ``above``."""
        if self.difference < -self.allowed():
            return "below"
        return "=" if self.difference <= self.allowed() else "above"


class Data(NamedTuple):
    """The records of one data set, for fits and for scoring."""

    records: Records
    encoded: EncodedFrame

    @classmethod
    def load(cls, name: str) -> Data:
        """Read the data set ``name``."""
        frame, schema = mixed_data(name)
        return cls(read_records(frame, schema), recognise(frame, schema))

    @property
    def family(self) -> str:
        """``gaussian`` if there is a number, else ``discrete``."""
        return GAUSSIAN if self.records.schema.numeric else DISCRETE

    def accuracies(self, terms: FitTerms, repeats: int, seed: int) -> list[float]:
        """Return the accuracy on each of ten folds of a model of the other nine, ``repeats`` times."""
        found = []
        for repeat in range(repeats):
            folds = np.random.default_rng([seed, repeat]).permutation(self.records.rows) % FOLDS
            for fold in range(FOLDS):
                test = folds == fold
                model = fit(self.records.part(~test), terms, os.urandom(32)).model
                scores = model.scores_of(EncodedFrame(self.encoded.codes[test], self.encoded.numbers[test]))
                found.append(float((scores.argmax(axis=1) == self.records.labels[test]).mean()))
        return found


def measured(case: Case, data: Data, options: argparse.Namespace) -> FitComparison:
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
    return FitComparison(case, data.accuracies(terms, options.repeats, options.seed))


def printed(row: Comparison, seconds: float) -> str:
    """Return a row as one line of the table."""
    case = row.case
    return (
        f"{case.data:10} {METHODS[case.mechanism]:15} {case.epsilon_total:>4}"
        f" {100 * row.accuracy:6.1f} ± {100 * row.error:3.1f} {100 * case.accuracy:6.1f} {100 * row.difference:+6.1f}"
        f" (allowed {100 * row.allowed():4.1f})  {row.verdict:6} {seconds:5.0f} s"
    )


def use_published_constants() -> None:
    """Make smooth methods use the constants of Nissim, Raskhodnikova and Smith, and ``bun-steinke`` Cauchy noise."""
    smooth.calibrate = published  # type: ignore[assignment]
    BunSteinke.noises = ("cauchy",)


def main() -> int:
    """Measure and print. Return 1 if a row is below the reference, else 0."""
    parser = arguments("accuracy of a curator's fits against the reference")
    parser.add_argument("--data", nargs="+", default=[])
    parser.add_argument("--methods", nargs="+", default=list(METHODS.values()))
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of the ten folds")
    parser.add_argument("--division", help="default: 2:1, and equal with --as-reference")
    parser.add_argument("--postprocess", default="posterior")
    parser.add_argument("--as-reference", action="store_true", help="low floor, published constants, add-one")
    parser.add_argument("--seed", type=int, default=1, help="of the folds; noise is always fresh")
    options = parser.parse_args()
    if not available():
        print(NOT_HERE, file=sys.stderr)
        return 0
    if options.as_reference:
        use_published_constants()
    loaded: dict[str, Data] = {}
    rows = []
    for case in central_cases():
        if (options.data and case.data not in options.data) or METHODS[case.mechanism] not in options.methods:
            continue
        if case.data not in loaded:
            loaded[case.data] = Data.load(case.data)
        began = time.perf_counter()
        rows.append(measured(case, loaded[case.data], options))
        if not options.json:
            print(printed(rows[-1], time.perf_counter() - began), flush=True)
    below = [row for row in rows if row.verdict == "below"]
    if options.json:
        named = [{**row.case._asdict(), "measured": row.accuracy, "verdict": row.verdict} for row in rows]
        json.dump({"machine": machine(), "rows": named}, sys.stdout, indent=1)
    else:
        print(f"{len(rows)} rows, {len(below)} below the reference; {machine()}")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
