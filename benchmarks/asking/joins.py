"""Accuracy with joined features: a pilot's choice with and without joins, on the same divisions of the records.

    python -m benchmarks.asking.joins [--data car …] [--devices 10000 …] [--pilot 300] [--repeats 20]
    python -m benchmarks.asking.joins --data car --ask "buying × maint,persons × lug_boot × safety"

As in ``benchmarks.asking.designs`` each repetition tests on a new random fifth of the records, and the pilot's people
do not answer. Counts are drawn from their law. ``alone``: the best set without joins; with ``--ask``, which needs no
pilot, all features. Columns: mean and standard error of both, the mean and standard error of their difference, and how
many of the repetitions chose a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.models.encoding import EncodedFrame, combined
from aggregator.models.population import Population
from aggregator.planning.feature_selection.forward_selection import Candidate, best_of, part_of
from aggregator.planning.feature_selection.from_pilot import asked_by, design
from aggregator.planning.feature_selection.steps import SeriesFleet
from aggregator.publishing.ask_table import Ask, ask_of, resolve
from aggregator.publishing.schemas.schema_file import SchemaFile
from benchmarks.asking.designs import BIG, DATA, PILOTS, drawn_trial
from benchmarks.models.estimators import Data, divided, frame_of, load
from benchmarks.shared.harness import Table, arguments, mean_error
from benchmarks.shared.reference import require
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical
from protocol.schema import build_schema

COLUMNS = "data<14 devices>9 alone>8.1f ±>5.1f joined>8.1f its_±>7.1f −_alone>9.1f of_±>7.1f joins>7 repeats>9"


def as_asked(data: Data, ask: Ask) -> Data:
    """Return the records with one feature for each question of a campaign."""
    asked = resolve(data.schema, ask).schema
    names = [feature.name for feature in data.schema.features]
    columns = [names.index(feature.name) for feature in asked.ungrouped]
    codes = combined(EncodedFrame(data.codes[:, columns], data.codes[:, columns]), asked).codes
    features = [
        Categorical(str(place), [str(code) for code in range(feature.size)], substitute=0)
        for place, feature in enumerate(asked.observed)
    ]
    return Data(codes, data.labels, build_schema(data.schema.label, features))


def stated(data: Data, fleet: SeriesFleet, ask: Ask, key: Sequence[int]) -> tuple[float, float, bool]:
    """Return the accuracies in points of models of all features and of ``ask``, and whether there is a join: True."""
    people, test = divided(data, np.random.default_rng(key))
    rng = np.random.default_rng([*key, fleet.devices, 1])
    alone, asked = (
        drawn_trial(each, people, test, fleet, rng, refines=False)[0] for each in (data, as_asked(data, ask))
    )
    return alone, asked, True


def trial(data: Data, fleet: SeriesFleet, size: int, key: Sequence[int]) -> tuple[float, float, bool]:
    """Return the accuracies of the fleet's models without and with joins in points, and whether there is a join."""
    people, test = divided(data, np.random.default_rng(key))
    order = np.random.default_rng([*key, fleet.devices]).permutation(people)
    pilot, rest = frame_of(data).iloc[order[:size]], order[size:]
    made = design(pilot, SchemaFile("x", data.schema), fleet.epsilon_micro, fleet.devices, seed=key[1], judge=False)
    records = Population.of_frame(pilot, data.schema)

    def accuracy(chosen: Candidate) -> float:
        rows: Integers = np.arange(len(pilot))
        cuts = part_of(records, data.schema, chosen.ways, rows, rows[:1]).cuts
        asked = as_asked(data, asked_by(cuts, data.schema, chosen.joins)[0])
        return drawn_trial(asked, rest, test, fleet, np.random.default_rng([*key, fleet.devices, 1]), refines=False)[0]

    alone = best_of([each for each in made.path if not each.joins])
    return accuracy(alone), accuracy(made.best), bool(made.best.joins)


def main() -> None:
    """Measure the table."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--devices", nargs="*", type=int, default=(10_000, 100_000, 1_000_000))
    parser.add_argument("--pilot", type=int, default=300)
    parser.add_argument("--ask", help="what to ask, in place of a pilot's choice")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--big-repeats", type=int, default=5, help=f"of {', '.join(BIG)}")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require()
    table = Table("Joins", COLUMNS, as_json=options.json)
    for name, devices in product(options.data, options.devices):
        data, fleet = load(name), SeriesFleet(devices, micro_epsilon(options.epsilon))
        size = int(PILOTS[name].split(":")[1]) if name in PILOTS else options.pilot
        repeats = min(options.repeats, options.big_repeats) if name in BIG else options.repeats
        keys = [[options.seed, number, *name.encode()] for number in range(repeats)]
        trials = [
            trial(data, fleet, size, key) if options.ask is None else stated(data, fleet, ask_of(options.ask, {}), key)
            for key in keys
        ]
        alone, joined, joins = zip(*trials, strict=True)
        row: dict[str, object] = {"data": name, "devices": devices, "joins": sum(joins), "repeats": repeats}
        row |= dict(zip(("alone", "±"), mean_error(alone), strict=True))
        row |= dict(zip(("joined", "its_±"), mean_error(joined), strict=True))
        gains = [one - other for one, other in zip(joined, alone, strict=True)]
        table.add({**row, **dict(zip(("−_alone", "of_±"), mean_error(gains), strict=True))})
    table.end()


if __name__ == "__main__":
    main()
