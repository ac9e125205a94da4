"""A pilot's records joined with a fleet's answers: accuracy, coverage of intervals, and the test of one population.

    python -m benchmarks.estimates.counted accuracy [--data car …] [--devices 10000 100000] [--repeats 40]
    python -m benchmarks.estimates.counted coverage [--data car …] [--repeats 100]
    python -m benchmarks.estimates.counted chosen [--data chess …] [--repeats 40]
    python -m benchmarks.estimates.counted test [--data car …] [--repeats 100]

The fleet's counts are drawn from their law, one answer per device at ε = 1 about all features; the pilot's counts are
signed, verified and joined as by ``hearsay publish --counts``. ``accuracy``: of fleet, pilot and both, with the default
post-processing, in per cent on a random fifth of the records. ``coverage``: share of true values in 95 % intervals; the
population is the data set. ``chosen``: the same of features that ``hearsay design`` chose by the same pilot, or by
another. ``test``: alarms where a parameter P(value | class) of the pilot's population is moved by six standard errors
of the difference between fleet and pilot, and where nothing is moved.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.curator.counting import count_frame, open_counts
from aggregator.estimates.conditional import conditionals
from aggregator.estimates.joining import join
from aggregator.estimates.ratios import cell_variance
from aggregator.estimates.reports import estimate
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import fit
from aggregator.models.population import Population
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.workspace import Workspace, create_workspace
from benchmarks.models.estimators import BIG, MOST_TESTED, Data, divided, frame_of, load, right
from benchmarks.shared import fleets
from benchmarks.shared.harness import Table, arguments, mean_error
from benchmarks.shared.reference import require
from protocol.documents.campaign import Campaign
from protocol.questions import CELL

DATA = ("mushroom", "chess", "votes", "australian", "pima", "adult", "connect-4", "car")
PILOT = 300
MICRO = 1_000_000
MOVED = 6.0
COLUMNS = {
    "accuracy": "data<12 devices>8 fleet>7.1f fleet_±>8.1f pilot>7.1f pilot_±>8.1f joined>8.1f joined_±>9.1f "
                "−_better>10.1f its_±>7.1f",
    "coverage": "data<12 devices>8 overlap>9 population>11.1% counts>8.1% of_devices>11.1% intervals>10",
    "chosen": "data<12 devices>8 chosen_by>14 population>11.1% intervals>10 features>9.1f",
    "test": "data<12 devices>8 moved>7 alarms>8 of>6",
}  # fmt: skip


class World(NamedTuple):
    """A data set, the workspace that signs, the randomness of a row, and a campaign with all records as it asks."""

    data: Data
    work: Workspace
    rng: np.random.Generator
    campaign: Campaign
    people: Population

    @classmethod
    def of(cls, data: Data, work: Workspace, rng: np.random.Generator, asked: SchemaFile | None = None) -> World:
        """Return a world whose campaign asks about all features, or as a schema file says."""
        schema = data.schema if asked is None else asked.schema
        parameters = CampaignParameters("counted", MICRO, "auto", class_question=False)
        campaign = fleets.campaign_of(schema, parameters if asked is None else parameters._replace(ask=asked.ask))
        return cls(data, work, rng, campaign, Population.of_frame(frame_of(data), campaign.schema))

    def fleet(self, rows: Integers) -> Statistics:
        """Return statistics of one answer of each device; ``rows``: the records of the devices."""
        return estimate(self.campaign, fleets.tally_of(self.campaign, self.people.take(rows), self.rng))

    def pilot(self, rows: Integers, data: Data | None = None) -> Statistics:
        """Return the verified statistics of signed counts of some records."""
        frame = frame_of(data or self.data, rows)
        made = count_frame(self.work, frame, frame, self.campaign, consent="a benchmark", now=fleets.NOW)
        return open_counts(made.raw, [self.campaign], fleets.NOW, workspace=self.work)

    def shares(self, rows: Integers) -> list[Floats]:
        """Return for each question the shares of value and class among the records ``rows``: (values, k) float64."""
        classes, own = len(self.campaign.schema.label.classes), self.people.take(rows)
        return [
            np.bincount(own.reported.codes[:, one.feature] * classes + own.labels, minlength=one.size).reshape(
                -1, classes
            )
            / len(rows)
            for one in self.campaign.questions
        ]

    def drawn(self, number: int) -> Integers:
        """Return the records of devices, drawn from all with replacement."""
        return self.rng.integers(0, len(self.data.labels), number)


def joined(fleet: Statistics, pilot: Statistics, *, disjoint: bool = True) -> Statistics:
    """Return the statistics of both, as of one population, with the test of that."""
    return join([fleet, pilot], one_population=True, disjoint=disjoint).statistics


def accuracy(world: World, devices: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield the row of accuracies."""
    data, rng = world.data, world.rng
    found: dict[str, list[float]] = {"fleet": [], "pilot": [], "joined": []}
    for _ in range(repeats):
        people, test = divided(data, rng)
        order, test = rng.permutation(people), test[:MOST_TESTED]
        number = min(PILOT, len(people) // 2)
        own, rest = order[:number], order[number:]
        fleet, pilot = world.fleet(rest[rng.integers(0, len(rest), devices)]), world.pilot(own)
        for name, each in (("fleet", fleet), ("pilot", pilot), ("joined", joined(fleet, pilot))):
            found[name].append(right(*fit(each, DEFAULT), data.codes[test], data.labels[test]))
    better = max(("fleet", "pilot"), key=lambda name: float(np.mean(found[name])))
    row: dict[str, object] = {}
    for name, values in found.items():
        row |= dict(zip((name, f"{name}_±"), mean_error(values), strict=True))
    apart = [own - other for own, other in zip(found["joined"], found[better], strict=True)]
    yield row | dict(zip(("−_better", "its_±"), mean_error(apart), strict=True))


class Covered(NamedTuple):
    """How many of ``number`` determined intervals hold the truth."""

    right: int = 0
    number: int = 0

    def plus(self, low: Floats, high: Floats, truth: Floats, counts: NDArray[np.bool_] | None = None) -> Covered:
        """Add intervals, and the true values; ``counts``: which of them are looked at."""
        kept = np.isfinite(truth) if counts is None else counts & np.isfinite(truth)
        held = (low <= truth + 1e-12) & (truth <= high + 1e-12) & kept
        return Covered(self.right + int(held.sum()), self.number + int(kept.sum()))

    @property
    def share(self) -> float:
        """The share that holds the truth."""
        return self.right / max(self.number, 1)


def parameters_of(found: Statistics, shares: Sequence[Floats], covered: Covered) -> Covered:
    """Add the population's intervals of all P(value | class) that joined statistics determine."""
    tables = {
        question.subject.feature: place
        for place, question in enumerate(found.questions)
        if question.subject.kind == CELL
    }
    for one in conditionals(found.questions, found.schema):
        if one.subject.kind == CELL:
            table = shares[sorted(tables).index(one.subject.feature)]
            with np.errstate(invalid="ignore"):
                truth = (table / table.sum(axis=0)).ravel()
            covered = covered.plus(one.population.low, one.population.high, truth, one.population.determined)
    return covered


def coverage(world: World, devices: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield the rows of coverage: with pilots apart from the fleet, and with pilots whose people answer too."""
    truth = world.shares(np.arange(len(world.data.labels)))
    for overlaps in (False, True):
        population = counts = of_devices = Covered()
        for _ in range(repeats):
            rows = world.drawn(devices)
            own = rows[:PILOT] if overlaps else world.drawn(PILOT)
            fleet, pilot = world.fleet(rows), world.pilot(own)
            both = joined(fleet, pilot, disjoint=not overlaps)
            population = parameters_of(both, truth, population)
            shown, of_pilot = world.shares(rows), world.shares(own)
            for question in both.questions:
                if question.subject.kind != CELL:
                    continue
                place = question.subject.feature
                weight = question.samples[-1].weight
                here = (1 - weight) * shown[place] + weight * of_pilot[place]
                counts = counts.plus(question.low, question.high, question.n * truth[place].ravel())
                ends = question.devices_interval
                of_devices = of_devices.plus(ends.low, ends.high, question.n * here.ravel())
        yield {
            "overlap": "yes" if overlaps else "no",
            "population": population.share,
            "counts": counts.share,
            "of_devices": of_devices.share,
            "intervals": population.number,
        }


def chosen(world: World, devices: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield the coverage of the parameters of chosen features: by the counted pilot, and by another one."""
    found = {"this pilot": Covered(), "another pilot": Covered()}
    sizes = []
    for number in range(repeats):
        own, other, rows = world.drawn(PILOT), world.drawn(PILOT), world.drawn(devices)
        file = SchemaFile("counted", world.data.schema)
        made = design(frame_of(world.data, own), file, MICRO, devices, seed=number, judge=False)
        asked = World.of(world.data, world.work, world.rng, made.file)
        fleet, truth = asked.fleet(rows), asked.shares(np.arange(len(world.data.labels)))
        for name, each in (("this pilot", own), ("another pilot", other)):
            found[name] = parameters_of(joined(fleet, asked.pilot(each)), truth, found[name])
        sizes.append(len(asked.campaign.schema.observed))
    for name, covered in found.items():
        yield {
            "chosen_by": name,
            "population": covered.share,
            "intervals": covered.number,
            "features": float(np.mean(sizes)),
        }


def moved(world: World, fleet: Statistics) -> Data:
    """Return other records, of whose population one random P(value | class) is six standard errors away.

    The standard error is that of the difference between fleet and pilot, each by its own question. Parameters without
    room for such a move are not chosen.
    """
    data, rng = world.data, world.rng
    shares = world.shares(np.arange(len(data.labels)))
    while True:
        feature, of_class = int(rng.integers(data.codes.shape[1])), int(rng.integers(len(data.schema.label.classes)))
        within = data.labels == of_class
        value = int(data.codes[rng.choice(np.flatnonzero(within)), feature])
        asked, size = fleet.questions[feature], float(within.mean())
        assert asked.law is not None
        assert asked.pairs is not None
        members, whole = len(shares[feature]), np.array([size])
        share = float(shares[feature][value, of_class]) / size
        noise = cell_variance(whole, asked.n, asked.law, asked.pairs, members, asked.scatter).at(share)
        far = MOVED * sqrt(float(noise[0]) / size**2 + share * (1 - share) / (size * PILOT))
        codes = data.codes.copy()
        if share + far <= 1:
            change = within & (codes[:, feature] != value) & (rng.random(len(codes)) < far / (1 - share))
            codes[change, feature] = value
        elif share - far >= 0 and share < 1:
            change = within & (codes[:, feature] == value) & (rng.random(len(codes)) < far / share)
            others = codes[within & (codes[:, feature] != value), feature]
            codes[change, feature] = rng.choice(others, int(change.sum()))
        else:
            continue
        return data._replace(codes=codes)


def test(world: World, devices: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield the number of alarms where nothing is moved, and where one parameter is."""
    alarms = {"no": 0, "yes": 0}
    for _ in range(repeats):
        fleet, own = world.fleet(world.drawn(devices)), world.drawn(PILOT)
        pilot = world.pilot(own)
        other = world.pilot(own, moved(world, fleet))
        for name, each in (("no", pilot), ("yes", other)):
            tested = joined(fleet, each).homogeneity
            assert tested is not None
            alarms[name] += tested.differs
    for name, number in alarms.items():
        yield {"moved": name, "alarms": number, "of": repeats}


def main() -> None:
    """Measure one kind of table."""
    parser = arguments(__doc__)
    parser.add_argument("kind", choices=list(COLUMNS))
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--devices", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--big-repeats", type=int, default=20, help=f"of {', '.join(BIG)}")
    parser.add_argument("--seed", type=int, default=1)
    options: argparse.Namespace = parser.parse_args()
    require()
    table = Table("Counted pilots", COLUMNS[options.kind], as_json=options.json)
    measure = {"accuracy": accuracy, "coverage": coverage, "chosen": chosen, "test": test}[options.kind]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.data:
            data = load(name)
            for devices in options.devices:
                rng = np.random.default_rng([options.seed, devices, *name.encode()])
                work = create_workspace(Path(folder) / f"{name}-{devices}", name="counted", now=fleets.NOW)
                repeats = min(options.repeats, options.big_repeats) if name in BIG else options.repeats
                for row in measure(World.of(data, work, rng), devices, repeats):
                    table.add({"data": name, "devices": devices, **row})
    table.end()


if __name__ == "__main__":
    main()
