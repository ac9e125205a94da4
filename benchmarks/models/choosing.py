"""How many records each kind of trust needs for the same accuracy: learning curves of all five, on the same records.

    python -m benchmarks.models.choosing [--data mushroom car chess] [--epsilons 1 0.1 4] [--repeats 20] [--quick]

N records are drawn from nine tenths of a data set, N rising by √10, and tested on the other tenth: ``local`` (N devices
with one answer, mechanism ``auto``, ``posterior``), ``shared`` (N devices and two collectors, all features,
``posterior``, δ = 0, or ``shared-δ`` with 10⁻⁶), ``federated`` and ``distributed`` (10, 100 or 1000 nodes,
``floored``, divided noise with γ = 0.8), ``central`` (``sums``, ``posterior``) and ``no privacy``. ε is for a record
that is replaced, so nodes, who state it for a record more or less, get half. Counts of fleets are drawn from laws.

``choosing.csv`` gets the points. ``choosing-needed.csv`` gets the N at which each curve reaches the model without
privacy less 10, 5 and 2 points, interpolated between logarithms; ``low`` and ``high`` are for two standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path

import numpy as np

from aggregator.collectors.campaigns import shared_terms
from aggregator.collectors.pair import made_up_pair
from aggregator.collectors.statistics import shared_statistics
from aggregator.common.arrays import Integers
from aggregator.curator.fitting import fit
from aggregator.curator.terms import FitTerms
from aggregator.models.baselines import plain_model
from aggregator.models.population import Population
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.scoring import Model, model_of
from aggregator.planning.power_analysis.rehearsal import Fleet, laws_of, simulated
from aggregator.planning.power_analysis.study import Design
from aggregator.planning.power_analysis.targets import rising
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.choice import AUTO
from benchmarks.federated.data import FLOOR_MICRO, Data, part
from benchmarks.masked.data import masked_campaign, masked_statistics
from benchmarks.shared import study
from protocol.documents.campaign import DISCRETE, Campaign, parse_campaign
from protocol.documents.shared_terms import shared_subjects
from protocol.epsilon import format_micro, micro_epsilon
from protocol.questions import CHANGE
from simulation.drawn import collected
from simulation.trust import SIMULATED_NOW

DATA, BUDGETS = ("mushroom", "car", "chess"), ("1", "0.1", "4")
LOCAL, CENTRAL, PLAIN = "local", "central", "no privacy"
FEDERATED, DISTRIBUTED = "federated", "distributed"
SHARED = {"shared": "0", "shared-δ": "0.000001"}
"""Kind of trust with two collectors → δ."""
KINDS = (
    (PLAIN, 1),
    (CENTRAL, 1),
    *((kind, 1) for kind in SHARED),
    (DISTRIBUTED, 10),
    (DISTRIBUTED, 100),
    (DISTRIBUTED, 1000),
    (FEDERATED, 10),
    (FEDERATED, 100),
    (FEDERATED, 1000),
    (LOCAL, 1),
)
"""Kinds of trust, and their numbers of nodes; 1 where there are none."""
DRAWN = ((PLAIN, 1), (CENTRAL, 1), ("shared", 1), (DISTRIBUTED, 100), (FEDERATED, 10), (FEDERATED, 1000), (LOCAL, 1))
"""The curves in the drawing. Those of the same total with other numbers of nodes are hardly apart."""
LARGEST = {LOCAL: 10**9}
"""The largest N of a kind. Local fleets are drawn from laws in a time that does not depend on N."""
LARGEST_ELSE = 10**6
SMALLEST = 30
NEAR = 0.005
"""A curve ends at the first point that is so near to the accuracy of endless records without privacy."""
HONEST = "0.8"
TARGETS = (10, 5, 2)
"""Points below the model of endless records without privacy."""
FEWEST_PER_NODE = 2
MANY = 10**5
"""Records above which a point has a quarter of the splits, at least two."""
ENDLESS = "endless"


class Trial:
    """One random split of a data set, and models of fleets drawn from its learning part."""

    def __init__(self, data: Data, seed: list[int], rng: np.random.Generator) -> None:
        self.data, self.rng = data, rng
        self.split = data.split(np.random.default_rng([*seed, *data.name.encode()]))

    def accuracy(self, model: Model) -> float:
        """Return the share of the test records that the model classifies rightly."""
        return self.data.accuracy_of(model, self.split.test)

    def drawn(self, size: int) -> Integers:
        """Return row numbers of ``size`` records of the learning part, drawn with replacement: (size,) int64."""
        learning = self.split.learning
        return learning[self.rng.integers(0, len(learning), size)]

    def plain(self, size: int) -> float:
        """Return the accuracy of Naive Bayes on the exact counts of ``size`` records. 0 stands for endless records."""
        rows = self.drawn(size) if size else self.split.learning
        return self.accuracy(plain_model(part(self.data.observed, rows), self.data.labels[rows], self.data.schema))

    def central(self, size: int, epsilon_micro: int) -> float:
        """Return the accuracy of one curator's fit of ``size`` records."""
        terms = FitTerms(
            "sums",
            epsilon_micro,
            adjacency=CHANGE,
            family=self.data.family,
            postprocess=DEFAULT,
            variance_floor_micro=FLOOR_MICRO,
        )
        return self.accuracy(fit(self.data.records.part(self.drawn(size)), terms, self.rng.bytes(32)).model)

    def local(self, size: int, campaign: Campaign) -> float:
        """Return the accuracy of a campaign that ``size`` devices answer once."""
        data, learning = self.data, self.split.learning
        people = Population(data.observed, data.labels, data.recognised, data.labels).take(learning)
        laws = laws_of(campaign, people, np.full(len(learning), 1 / len(learning)))
        return self.accuracy(model_of(simulated(campaign, laws, Fleet(size), self.rng), campaign.fit.postprocess))

    def shared(self, size: int, epsilon: str, delta: str) -> float:
        """Return the accuracy of the total that two collectors make of ``size`` devices' records."""
        data, rows = self.data, self.drawn(size)
        micro = micro_epsilon(epsilon)
        terms = shared_terms(made_up_pair(), shared_subjects(data.schema), micro, delta=delta)
        parameters = CampaignParameters("choosing", micro, postprocess=DEFAULT, shared=terms)
        campaign = parse_campaign(build_campaign(data.schema, parameters, 1, SIMULATED_NOW))
        total = collected(campaign, part(data.observed, rows), data.labels[rows], 0, self.rng)
        return data.accuracy(shared_statistics(total), DEFAULT, self.split.test)

    def federated(self, size: int, epsilon: str, nodes: int) -> float:
        """Return the accuracy of added noisy sums of nodes with ``size`` records in all."""
        campaign = self.data.campaign(epsilon, 2 * -(-size // nodes))
        statistics = self.data.noisy(campaign, self.drawn(size), nodes, self.rng)
        return self.data.accuracy(statistics, "floored", self.split.test)

    def distributed(self, size: int, epsilon: str, nodes: int) -> float:
        """Return the accuracy of the decrypted total of nodes with ``size`` records in all."""
        campaign = masked_campaign(self.data, epsilon, nodes, size, "divided", honest=HONEST)
        statistics = masked_statistics(self.data, campaign, self.drawn(size), nodes, self.rng)
        return self.data.accuracy(statistics, "floored", self.split.test)


def measure(trial: Trial, kind: str, nodes: int, size: int, epsilon: str) -> float:
    """Return the accuracy of one kind of trust on one split. ``epsilon`` is for a replaced record."""
    micro = micro_epsilon(epsilon)
    half = format_micro(micro // 2)
    if kind == PLAIN:
        return trial.plain(size)
    if kind == CENTRAL:
        return trial.central(size, micro)
    if kind in SHARED:
        return trial.shared(size, epsilon, SHARED[kind])
    if kind == LOCAL:
        campaign = Design(DISCRETE, AUTO).campaign(trial.data.schema, micro, DEFAULT)
        return trial.local(size, campaign)
    return (trial.federated if kind == FEDERATED else trial.distributed)(size, half, nodes)


def sizes(kind: str, nodes: int) -> list[int]:
    """Return the rising values of N for a kind of trust."""
    steps = (round(SMALLEST * 10 ** (step / 2)) for step in range(16))
    fewest, most = FEWEST_PER_NODE * nodes if nodes > 1 else 1, LARGEST.get(kind, LARGEST_ELSE)
    return [size for size in steps if fewest <= size <= most]


def jobs(options: argparse.Namespace) -> Iterator[study.Job]:
    """Yield all points. A curve ends where it is near the accuracy without privacy."""
    for name in options.data:
        data = Data.load(name)
        noise = np.random.default_rng(options.seed)
        best = [Trial(data, [options.seed, turn], noise).plain(0) for turn in range(options.repeats)]
        names = {"data": name, "epsilon": "", "kind": PLAIN, "nodes": 1, "records": ENDLESS}
        yield study.single(names, row_of, best, best)
        for number, epsilon in enumerate(options.epsilons):
            for kind, nodes in KINDS:
                if kind == PLAIN and number:
                    continue
                for size in sizes(kind, nodes):
                    names = {"data": name, "epsilon": "" if kind == PLAIN else epsilon, "kind": kind, "nodes": nodes}
                    found = point(data, options, best, (kind, nodes, size, epsilon))
                    yield study.Job([{**names, "records": size}], list, ([found],))
                    if found["lacking"] < NEAR:
                        break


def point(
    data: Data, options: argparse.Namespace, best: Sequence[float], of: tuple[str, int, int, str]
) -> study.TableRow:
    """Measure one point of a curve. Large fleets differ less, so they have fewer splits.

    ``of``: kind of trust, number of nodes, N, and ε for a replaced record.
    """
    kind, nodes, size, epsilon = of
    turns = max(options.repeats // 4, 2) if kind != LOCAL and size > MANY else options.repeats
    found = []
    for turn in range(turns):
        noise = np.random.default_rng([options.seed, *kind.encode(), nodes, size, micro_epsilon(epsilon), turn])
        found.append(measure(Trial(data, [options.seed, turn], noise), kind, nodes, size, epsilon))
    return row_of(found, best)


def row_of(found: Sequence[float], best: Sequence[float]) -> study.TableRow:
    """Return the mean accuracy, and how far it is below ``best``, the accuracy without privacy on the same splits."""
    lacking = study.spread([other - own for own, other in zip(found, best, strict=False)])
    accuracy = study.spread(list(found))
    return {**accuracy, "lacking": lacking["accuracy"], "lacking_error": lacking["error"]}


def reached(points: Sequence[study.TableRow], below: float, shift: float) -> str:
    """Return the N, with two digits, at which the accuracy without privacy is missed by at most ``below``.

    The result is ``>N`` if no point is so near.
    """
    values = [int(row["records"]) for row in points]
    heights = rising(np.array([shift * float(row["lacking_error"]) - float(row["lacking"]) for row in points]))
    above = np.flatnonzero(heights >= -below)
    if not above.size:
        return f">{values[-1]}"
    place = int(above[0])
    if place == 0:
        return f"<={values[0]}"
    share = (-below - heights[place - 1]) / (heights[place] - heights[place - 1])
    return f"{float(f'{exp(log(values[place - 1]) * (1 - share) + log(values[place]) * share):.2g}'):.0f}"


def needed(rows: Sequence[study.TableRow]) -> Iterator[study.TableRow]:
    """Yield for every curve and target the number of records needed, and its range by two standard errors."""
    for points in curves(rows).values():
        names = {name: points[0][name] for name in ("data", "epsilon", "kind", "nodes")}
        for below in TARGETS:
            fewest, middle, most = (reached(points, below / 100, shift) for shift in (2, 0, -2))
            yield {**names, "points_below": below, "records": middle, "low": fewest, "high": most}


def curves(rows: Sequence[study.TableRow]) -> dict[tuple[str, ...], list[study.TableRow]]:
    """Return the points of each curve, by data set, ε, kind and number of nodes."""
    return study.grouped((row for row in rows if row["records"] != ENDLESS), "data", "epsilon", "kind", "nodes")


def draw(rows: Sequence[study.TableRow]) -> str:
    """Draw the accuracy against the number of records, a line per kind in :data:`DRAWN`; a chart per data set and ε."""
    charts, known = [], curves(rows)
    for name, epsilon in dict.fromkeys((data, epsilon) for data, epsilon, _, _ in known if epsilon):
        lines = [
            study.line(kind if nodes == "1" else f"{kind}, {nodes} nodes", points, "records")
            for (data, budget, kind, nodes), points in known.items()
            if data == name and budget in ("", epsilon) and (kind, int(nodes)) in DRAWN
        ]
        charts.append(study.accuracies(f"{name}, ε = {epsilon} for a replaced record", lines, "records or devices"))
    return study.panels(charts, 2)


def write_needed(rows: Sequence[study.TableRow], folder: Path) -> bool:
    """Interpolate, and write ``choosing-needed.csv``."""
    (folder / "choosing-needed.csv").write_text(study.csv_text(list(needed(rows))), "utf-8")
    return True


def main() -> int:
    """Measure, interpolate and draw."""
    options = study.arguments("records that each kind of trust needs for the same accuracy", DATA).parse_args()
    options.repeats = options.repeats or (2 if options.quick else 20)
    options.data = options.data or list(DATA[1:2] if options.quick else DATA)
    options.epsilons = options.epsilons or list(BUDGETS[:1] if options.quick else BUDGETS)
    return study.run(study.Study("choosing", jobs, draw), options, write_needed)


if __name__ == "__main__":
    sys.exit(main())
