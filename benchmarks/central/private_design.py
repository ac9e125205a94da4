"""Accuracy of campaigns whose features were chosen with privacy from a pilot, against the ε of the pilot's people.

    python -m benchmarks.central.private_design [--repeats 4] [--json]

Data set mushroom, 100,000 devices at ε = 1, adjacency ``change``, parts at random. The campaign that asks what was
chosen is simulated from a random half of all records, five times, and its models are tested on the other half.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggregator.models.population import Population
from aggregator.planning.feature_selection.codings import Cut, Way
from aggregator.planning.feature_selection.forward_selection import Part, fleet_scores
from aggregator.planning.feature_selection.from_private_pilot import PARTS, DesignTerms, choose
from aggregator.publishing.schemas.schema_file import SchemaFile
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.reference import NOT_HERE, available, categorical_data
from protocol.epsilon import MICRO
from protocol.schema import Schema

DATA = "mushroom"
DEVICES = 100_000
EPSILONS = (0.1, 0.3, 1.0, 3.0, 30.0)
CAMPAIGNS = 5


def accuracy(population: Population, schema: Schema, cuts: Sequence[Cut], rng: np.random.Generator) -> float:
    """Mean accuracy of the models of simulated campaigns that ask by these cuts."""
    order = rng.permutation(np.flatnonzero(population.known))
    learned, tested = order[: len(order) // 2], order[len(order) // 2 :]
    columns = [
        np.column_stack([cut.codes(codes[rows, cut.way.feature], numbers[rows, cut.way.feature]) for cut in cuts])
        for (codes, numbers), rows in ((population.reported, learned), (population.scored, tested))
    ]
    truth, labels = population.truth[tested], population.labels[learned]
    part = Part(tuple(cuts), columns[0], labels, columns[1], tested, truth, tuple(schema.label.classes))
    models = fleet_scores(DEVICES, MICRO)(part)
    found = []
    for _ in range(CAMPAIGNS):
        scores = models(len(cuts), rng)
        found.append(float(((scores.prior + scores.terms.sum(axis=1)).argmax(axis=1) == truth).mean()))
    return float(np.mean(found))


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    if not available():
        print(NOT_HERE, file=sys.stderr)
        return 2
    frame, schema = categorical_data(DATA)
    population = Population.of_frame(frame, schema)
    everything = [Cut(Way(index), feature.size) for index, feature in enumerate(schema.features)]
    rows: list[dict[str, Any]] = []
    rng = np.random.default_rng(0)
    rows.append({"epsilon": "all features", "features": len(everything), "printed": None,
                 "accuracy": accuracy(population, schema, everything, rng)})  # fmt: skip
    for epsilon in EPSILONS:
        made = []
        for repeat in range(options.repeats):
            parts = np.random.default_rng(repeat).choice(3, len(frame), p=np.array(PARTS) / sum(PARTS))
            terms = DesignTerms(round(epsilon * MICRO), "change", DEVICES, MICRO, repeat)
            found = choose(population, parts, SchemaFile(DATA, schema), terms, (repeat + 1).to_bytes(32, "big"))
            told = np.nan if found.accuracy is None else found.accuracy.accuracy
            made.append((len(found.chosen), told, accuracy(population, schema, found.chosen, rng)))
        count, printed, reached = np.nanmean(np.array(made, np.float64), axis=0).tolist()
        rows.append({"epsilon": f"ε = {epsilon:g}", "features": count, "printed": printed, "accuracy": reached})
    if options.json:
        json.dump({"title": "Private design", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()
        return 0
    for row in rows:
        told = "" if row["printed"] is None else f"  printed {row['printed']:.1%}"
        print(
            f"{row['epsilon']:<13} {row['features']:>5.1f} features  campaign {row['accuracy']:.1%}{told}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
