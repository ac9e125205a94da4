"""Accuracy of the post-processings on noisy sums, paired: all fit the same sums, of every kind of trust.

    python -m benchmarks.models.sums [--data car made-20 …] [--forms masked …] [--epsilon 0.1 1 4] [--repeats 8]

A random fifth of the records is the test; of the rest at most 20,000 are dealt to 10 or 100 nodes
(``federated``), 50 nodes with masked sums (``masked``), one curator (``central``, adjacency ``change``) or two
collectors (``shared``, and ``shared-δ`` with δ = 10⁻⁶). Numbers are fitted as numbers (``gaussian``) and in four bins
of equal width (``discrete``). All noise is drawn by numpy from the law that the sums have. ``made-…`` are sets of
:func:`made`, on whose seeds no constant was chosen. ``LOSES``: the default is more than a point below the better of
``posterior`` and ``floored``, beyond two standard errors over repeated splits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.collectors.campaigns import MAX_CELLS, shared_terms
from aggregator.collectors.pair import made_up_pair
from aggregator.collectors.statistics import shared_statistics
from aggregator.common.arrays import Floats, Integers
from aggregator.curator.methods import sums as curator
from aggregator.curator.terms import FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.methods import OF_SUMS
from aggregator.planning.power_analysis.study import with_bins
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import discrete_laplace
from benchmarks.federated.data import FLOOR_MICRO, Data, Split, part
from benchmarks.masked.data import masked_campaign, masked_statistics
from benchmarks.shared.harness import Table, arguments
from benchmarks.shared.reference import require
from protocol.documents.campaign import DISCRETE, Campaign, parse_campaign
from protocol.documents.shared_terms import shared_subjects
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical, Feature, Numeric
from protocol.noise.sums import Noisy, laplace_variance, rate
from protocol.schema import Label, build_schema
from simulation.drawn import collected
from simulation.trust import SIMULATED_NOW

SETS = ("car", "chess", "mushroom", "connect-4", "votes", "spect", "australian", "pima", "adult", "skin", "seeds",
        "glass", "accelerometer")  # fmt: skip
OUTSIDE = ("breast-cancer", "digits")
BINS = 4
MOST_TESTED = 3000
MOST_LEARNED = 20_000
TEST_SHARE = 0.2
TOLERANCE = 1.0
OTHERS = ("posterior", "floored")
FEWEST = 1_000
"""Fewest records that are dealt to a hundred nodes, or summed at ε = 0.1."""
BIG = 5_000


class Form(NamedTuple):
    """How sums of one kind of trust are drawn: ``prepared`` gives terms or a campaign, ``drawn`` the statistics."""

    prepared: Callable[[Data, str, int], Any]
    drawn: Callable[[Data, Any, Integers, np.random.Generator], Statistics]


class Made(NamedTuple):
    """What :func:`made` is told.

    ``features``: numbers and categories. ``tell``: how far classes are apart in a feature that tells; ``telling``: the
    share of such features; ``depend``: how far hidden groups within a class are apart, which makes features depend on
    each other; ``skew``: the largest class over the smallest.
    """

    seed: int
    classes: int
    numbers: int
    categories: int
    records: int
    tell: float
    telling: float
    depend: float
    skew: float


MADE = {
    "made-2": Made(9002, 2, 12, 12, 1_500, 0.6, 0.5, 0.5, 4.0),
    "made-4": Made(9004, 4, 0, 40, 6_000, 0.8, 0.3, 0.6, 2.0),
    "made-7": Made(9007, 7, 20, 0, 3_000, 1.0, 0.8, 0.5, 8.0),
    "made-12": Made(9012, 12, 30, 30, 4_000, 1.2, 0.6, 0.4, 1.0),
    "made-20": Made(9020, 20, 0, 16, 20_000, 1.0, 0.9, 0.5, 3.0),
}
"""The sets that judge. They were fixed before anything was measured on them."""


def made(name: str, told: Made) -> Data:
    """Return a set of invented records.

    A class is a mixture of three hidden groups. A category of 2 to 6 values has P(value | group) ∝ exp of a common
    part, a part of the class and a part of the group, all normal; a number is normal around such a sum, and is clipped
    to [−3, 3].
    """
    rng = np.random.default_rng(told.seed)
    classes, rows, groups = told.classes, told.records, 3
    share = told.skew ** -(np.arange(classes) / max(classes - 1, 1))
    drawn = rng.choice(classes, rows, p=share / share.sum())
    labels = rng.permutation(np.concatenate([np.arange(classes).repeat(2), drawn]))
    group = labels * groups + rng.integers(0, groups, len(labels))
    columns: dict[str, Sequence[str] | Floats] = {}
    features: list[Feature] = []
    for place in range(told.numbers + told.categories):
        size = int(rng.integers(2, 7)) if place >= told.numbers else 1
        strength = told.tell * rng.exponential() if rng.random() < told.telling else 0.0
        centre = strength * rng.normal(size=(classes, 1, size)) + told.depend * rng.normal(size=(classes, groups, size))
        centre = (rng.normal(size=size) * (size > 1) + centre).reshape(classes * groups, size)
        feature = f"x{place}"
        if size == 1:
            scale = float(rng.uniform(0.3, 1.0))
            shift = float(rng.normal())
            columns[feature] = np.clip(shift + scale * (centre[group, 0] + rng.normal(size=len(labels))), -3, 3)
            features.append(Numeric(feature, "-3", "3", [0], substitute=0))
        else:
            codes = (centre[group] + rng.gumbel(size=(len(labels), size))).argmax(axis=1)
            columns[feature] = [f"v{code}" for code in codes.tolist()]
            features.append(Categorical(feature, [f"v{code}" for code in range(size)], substitute=0))
    frame = pd.DataFrame({**columns, "label": [f"c{code}" for code in labels]})
    return Data.of(name, frame, build_schema(Label("label", [f"c{code}" for code in range(classes)]), features))


def outside(name: str) -> Data:
    """Return a set of scikit-learn's, with the bounds that its records have."""
    from sklearn import datasets

    numbers, labels = getattr(datasets, f"load_{name.replace('-', '_')}")(return_X_y=True)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    high = np.where(high > low, high, low + 1)
    features = [Numeric(f"x{at}", repr(float(a)), repr(float(b)), [0], substitute=0)
                for at, (a, b) in enumerate(zip(low, high, strict=True))]  # fmt: skip
    classes = [str(label) for label in labels.tolist()]
    frame = pd.DataFrame({f"x{at}": column for at, column in enumerate(numbers.T)} | {"label": classes})
    return Data.of(name, frame, build_schema(Label("label", sorted(set(classes))), features))


def load(name: str) -> Data:
    """Return the data set of this name."""
    if name in MADE:
        return made(name, MADE[name])
    return outside(name) if name in OUTSIDE else Data.load(name)


def binned(data: Data) -> Data:
    """Return the same records with every number in :data:`BINS` bins of equal width."""
    schema = with_bins(data.schema, BINS)
    codes = [data.observed.codes, data.recognised.codes]
    for feature in schema.numeric:
        edges = schema.observed[feature].edges
        for each, numbers in zip(codes, (data.observed.numbers, data.recognised.numbers), strict=True):
            each[:, feature] = np.searchsorted(edges, numbers[:, feature], side="right")
    return Discrete(*data)._replace(schema=schema)


class Discrete(Data):
    """Records whose numbers are used by their bins alone."""

    @property
    def family(self) -> str:
        """The family ``discrete``."""
        return DISCRETE


def federated(nodes: int) -> Form:
    """Return the form of so many nodes with sums in the clear."""

    def prepared(data: Data, epsilon: str, records: int) -> Campaign:
        return data.campaign(epsilon, 2 * -(-records // nodes))

    def drawn(data: Data, campaign: Campaign, rows: Integers, rng: np.random.Generator) -> Statistics:
        return data.noisy(campaign, rows, nodes, rng)

    return Form(prepared, drawn)


def masked(nodes: int) -> Form:
    """Return the form of so many nodes whose total is decrypted."""

    def prepared(data: Data, epsilon: str, records: int) -> Campaign:
        return masked_campaign(data, epsilon, nodes, records, "divided")

    def drawn(data: Data, campaign: Campaign, rows: Integers, rng: np.random.Generator) -> Statistics:
        return masked_statistics(data, campaign, rows, nodes, rng)

    return Form(prepared, drawn)


def central() -> Form:
    """Return the form of one curator's method ``sums``."""

    def prepared(data: Data, epsilon: str, records: int) -> FitTerms:
        del records
        return FitTerms("sums", micro_epsilon(epsilon), family=data.family, variance_floor_micro=FLOOR_MICRO)

    def drawn(data: Data, terms: FitTerms, rows: Integers, rng: np.random.Generator) -> Statistics:
        found = []
        for one in curator.vectors(data.records.part(rows), terms):
            law = rate(one.epsilon_micro, one.sensitivity)
            values = np.array(one.values) + discrete_laplace(float(law), (len(one.values),), rng)
            found.append(curator.sum_of(Noisy(one.subject, tuple(values.tolist()), laplace_variance(law))))
        cost = curator.Sums().cost(data.schema, terms)
        return curator.statistics_of(found, len(rows), data.schema, terms, cost)

    return Form(prepared, drawn)


def shared(delta: str) -> Form:
    """Return the form of two collectors."""

    def prepared(data: Data, epsilon: str, records: int) -> Campaign:
        del records
        micro = micro_epsilon(epsilon)
        terms = shared_terms(made_up_pair(), shared_subjects(data.schema), micro, delta=delta)
        raw = build_campaign(data.schema, CampaignParameters("sums", micro, shared=terms), 1, SIMULATED_NOW)
        return parse_campaign(raw)

    def drawn(data: Data, campaign: Campaign, rows: Integers, rng: np.random.Generator) -> Statistics:
        return shared_statistics(collected(campaign, part(data.observed, rows), data.labels[rows], 0, rng))

    return Form(prepared, drawn)


FORMS = {
    "federated-10": federated(10),
    "federated-100": federated(100),
    "masked": masked(50),
    "central": central(),
    "shared": shared("0"),
    "shared-δ": shared("0.000001"),
}


def divided(data: Data, rng: np.random.Generator) -> Split:
    """Return a random fifth for the test and the rest to learn from, at most so many as the constants say."""
    order = rng.permutation(len(data.labels))
    count = round(TEST_SHARE * len(order))
    return Split(order[count:][:MOST_LEARNED], order[:count][:MOST_TESTED])


class Cell(NamedTuple):
    """Accuracies of one setting in points: post-processing → shape (repeats,) float64."""

    data: str
    family: str
    form: str
    epsilon: str
    found: dict[str, Floats]

    def versus(self, other: str) -> tuple[float, float]:
        """Return how much better the default is than another on average, and the standard error, in points."""
        difference = self.found[OF_SUMS] - self.found[other]
        return float(difference.mean()), float(difference.std(ddof=1)) / sqrt(len(difference))

    @property
    def better(self) -> str:
        """The better one of :data:`OTHERS` on average."""
        return max(OTHERS, key=lambda name: float(self.found[name].mean()))

    @property
    def loses(self) -> bool:
        """Whether the default is more than a point below one of :data:`OTHERS`, beyond two standard errors."""
        return any(mean + 2 * error < -TOLERANCE for mean, error in map(self.versus, OTHERS))

    @property
    def shown(self) -> dict[str, object]:
        """The cells of a row of the table."""
        mean, error = self.versus(self.better)
        row = {"data": self.data, "family": self.family, "form": self.form, "ε": self.epsilon}
        return {**row, **{name: float(each.mean()) for name, each in self.found.items()}, "−_better": mean, "±": error}


def measured(name: str, options: argparse.Namespace) -> Iterator[Cell]:
    """Yield all cells of one data set. Every cell has its own random generator, so it can be measured again alone."""
    whole = load(name)
    repeats = min(options.repeats, options.big_repeats) if len(whole.labels) > BIG else options.repeats
    for data in [whole, binned(whole)] if whole.schema.numeric else [whole]:
        cells = sum(feature.size for feature in data.schema.observed) * len(data.schema.label.classes)
        for form, epsilon in product(options.forms, options.epsilon):
            is_shared = form.startswith("shared")
            few = len(data.labels) < FEWEST and (form == "federated-100" or epsilon == "0.1")
            if few or (is_shared and (data.family != DISCRETE or cells > MAX_CELLS)):
                continue
            seed = [options.seed, *f"{name} {data.family} {form}".encode(), micro_epsilon(epsilon)]
            rng, found = np.random.default_rng(seed), []
            prepared = FORMS[form].prepared(data, epsilon, min(MOST_LEARNED, len(data.labels)))
            for _ in range(repeats):
                split = divided(data, rng)
                statistics = FORMS[form].drawn(data, prepared, split.learning, rng)
                found.append([100 * data.accuracy(statistics, each, split.test) for each in (OF_SUMS, *OTHERS)])
            columns = np.array(found).T
            yield Cell(name, data.family, form, epsilon, dict(zip((OF_SUMS, *OTHERS), columns, strict=True)))


def summary(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield means over all cells of each family and ε, and in how many the default loses."""
    for family, epsilon in dict.fromkeys((cell.family, cell.epsilon) for cell in cells):
        own = [cell for cell in cells if (cell.family, cell.epsilon) == (family, epsilon)]
        means = (f"{name} {np.mean([cell.found[name].mean() for cell in own]):.2f}" for name in (OF_SUMS, *OTHERS))
        best = np.mean([cell.found[cell.better].mean() for cell in own])
        lost = sum(cell.loses for cell in own)
        told = f"{', '.join(means)}, the better of the two {best:.2f}"
        yield f"{family}, ε = {epsilon}: {told}; loses in {lost} of {len(own)} cells"


def main() -> int:
    """Measure all cells. Return 0 if the default loses in none."""
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="*", default=[*SETS, *OUTSIDE, *MADE])
    parser.add_argument("--forms", nargs="*", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--epsilon", nargs="*", default=["0.1", "1", "4"])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--big-repeats", type=int, default=3, help=f"of sets with more than {BIG} records")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require()
    columns = " ".join(f"{name}>10.1f" for name in (OF_SUMS, *OTHERS))
    table = Table("Sums", f"data<14 family<9 form<14 ε>4 {columns} −_better>+9.1f ±>6.1f", as_json=options.json)
    cells = []
    for name in options.data:
        for cell in measured(name, options):
            cells.append(cell)
            table.add(cell.shown, "  LOSES" if cell.loses else "")
    table.end("\n" + "\n".join(summary(cells)))
    return int(any(cell.loses for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
