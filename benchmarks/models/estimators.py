"""Accuracy of the post-processings on real records, paired: all fit the same counts.

    python -m benchmarks.models.estimators budgets [--repeats 200] [--big-repeats 40] [--data car …] [--epsilon 0.1 …]
    python -m benchmarks.models.estimators resampled [--devices 100000 1000000] [--repeats 20]
    python -m benchmarks.models.estimators devices [--repeats 100] [--warnings 10]

``budgets``: every person of a random 80 % answers once; the others are the test. ``resampled``: ``--devices`` people
drawn from the 80 %. ``devices``: 10 to 1,000 devices; ``prior`` predicts the largest estimated share, ``largest`` the
largest class, and ``publish``'s warning is computed ``--warnings`` times. Counts are drawn from the mechanisms' laws.
``--data breast-cancer`` is scikit-learn's set; no constant was chosen on it. ``LOSES``: more than one point worse,
beyond two standard errors over repeated splits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from math import nan, sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.reports import estimate
from aggregator.models.baselines import fit_plain
from aggregator.models.fitting import fit
from aggregator.models.foresight import foresee
from aggregator.models.postprocess.methods import DEFAULT, POSTPROCESSES
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.mechanisms.draws import counts_of
from aggregator.reports.tally.tally import Tally
from benchmarks.shared import fleets
from benchmarks.shared.harness import Table, arguments
from benchmarks.shared.reference import BINS, FOLDER, entry, require
from protocol.documents.campaign import Campaign
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical
from protocol.schema import Label, Schema, build_schema

LABEL = "label"
HELD_OUT = "breast-cancer"
BIG = ("connect-4", "adult", "skin", "accelerometer")
GRIDS = {
    "budgets": ["car", "chess", "mushroom", "connect-4", "votes", "australian", "pima", "adult"],
    "resampled": ["car", "chess", "mushroom", "connect-4", "votes", "australian", "pima", "adult"],
    "devices": ["car", "chess", "mushroom", "connect-4", "votes", "australian", "pima", "adult", "skin", "seeds",
                "glass", "spect", "accelerometer"],
}  # fmt: skip
EPSILONS = {"budgets": ["0.1", "0.25", "0.5", "1", "2", "3", "5"], "resampled": ["0.1", "1", "4"],
            "devices": ["0.1", "1", "4"]}  # fmt: skip
FLEETS: dict[str, list[int | None]] = {
    "budgets": [None],
    "resampled": [100_000, 1_000_000],
    "devices": [10, 30, 100, 300, 1000],
}
DEFAULT_BINS = 4
MOST_TESTED = 4000
TEST_SHARE = 0.2
TOLERANCE = 0.01


class Data(NamedTuple):
    """Records as codes (people, features) int64, class codes (people,) int64, and the schema."""

    codes: Integers
    labels: Integers
    schema: Schema


def load(name: str) -> Data:
    """Read a data set. Adult keeps its categorical columns only.

    The parts of a set with a test file are joined, except adult's.
    """
    if name == HELD_OUT:
        return _held_out()
    about = entry(name)
    parts = [part for part in about["files"] if not (name == "adult" and part == "test")]
    files = [f"{name}.csv.gz" if part == "all" else f"{name}.{part}.csv.gz" for part in parts]
    frame = pd.concat([pd.read_csv(FOLDER / "datasets" / file, dtype=str) for file in files], ignore_index=True)
    named = {column["name"]: column for column in about["columns"] if column["name"] != LABEL}
    columns = [column for column, kept in named.items() if name != "adult" or kept["kind"] == "categorical"]
    codes, features = [], []
    for column in columns:
        if named[column]["kind"] == "categorical" and name not in BINS:
            values = list(dict.fromkeys([*named[column]["values"], *sorted(frame[column].unique())]))
            codes.append(frame[column].map({value: code for code, value in enumerate(values)}).to_numpy(np.int64))
        else:
            bins = BINS.get(name, DEFAULT_BINS)
            numbers = pd.to_numeric(frame[column]).to_numpy(np.float64)
            width = (numbers.max() - numbers.min()) / bins
            codes.append(np.minimum((numbers - numbers.min()) // width, bins - 1).astype(np.int64))
            values = [f"bin {number}" for number in range(bins)]
        features.append(Categorical(column, values, substitute=0))
    labels, classes = pd.factorize(frame[LABEL], sort=True)
    schema = build_schema(Label(LABEL, list(map(str, classes))), features)
    return Data(np.column_stack(codes), labels.astype(np.int64), schema)


def _held_out() -> Data:
    """Return scikit-learn's breast cancer set in :data:`DEFAULT_BINS` bins of equal width."""
    from sklearn.datasets import load_breast_cancer

    numbers, labels = load_breast_cancer(return_X_y=True)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    codes = np.minimum((numbers - low) / (high - low) * DEFAULT_BINS, DEFAULT_BINS - 1).astype(np.int64)
    values = [f"bin {number}" for number in range(DEFAULT_BINS)]
    features = [Categorical(f"x{place}", values, substitute=0) for place in range(codes.shape[1])]
    return Data(codes, labels.astype(np.int64), build_schema(Label(LABEL, ["malignant", "benign"]), features))


def campaign_of(schema: Schema, epsilon: str) -> Campaign:
    """Return a campaign with the mechanism ``auto`` that also asks for the class alone, which ``paper`` needs."""
    return fleets.campaign_of(schema, CampaignParameters("estimators", micro_epsilon(epsilon), "auto"))


def tally_of(campaign: Campaign, codes: Integers, labels: Integers, rng: np.random.Generator) -> Tally:
    """Draw the counts of one answer per person, for each question from the mechanism's law."""
    classes = len(campaign.schema.label.classes)
    asked = rng.integers(0, len(campaign.questions), len(labels))
    order = np.argsort(asked, kind="stable")
    ends = np.searchsorted(asked[order], np.arange(len(campaign.questions) + 1))
    n, counts = [], []
    for place, question in enumerate(campaign.questions):
        people = order[ends[place] : ends[place + 1]]
        cells = (
            labels[people] if question.feature is None else codes[people, question.feature] * classes + labels[people]
        )
        n.append(len(people))
        counts.append(tuple(counts_of(question.mechanism, cells, rng).tolist()))
    return Tally(campaign.id, tuple(n), tuple(counts))


def right(log_prior: Floats, tables: Sequence[Floats], codes: Integers, labels: Integers) -> float:
    """Return the share of right predictions, in points."""
    score = np.tile(log_prior, (len(labels), 1))
    for feature, table in enumerate(tables):
        score += table[codes[:, feature]]
    return 100 * float((score.argmax(axis=1) == labels).mean())


def trial(
    data: Data, campaign: Campaign, devices: int | None, rng: np.random.Generator, *, warns: bool
) -> dict[str, float]:
    """Return the accuracies of one split in points; ``warned`` is 1 or 0 if ``warns``, else NaN."""
    people, test = divided(data, rng)
    test = test[:MOST_TESTED]
    if devices is not None:
        people = people[rng.integers(0, len(people), devices)]
    codes, labels = data.codes[test], data.labels[test]
    statistics = estimate(campaign, tally_of(campaign, data.codes[people], data.labels[people], rng))
    found = {name: right(*fit(statistics, name), codes, labels) for name in POSTPROCESSES}
    found["prior"] = alone(class_shares(statistics).share, labels)
    found["largest"] = 100 * float((labels == np.bincount(data.labels).argmax()).mean())
    found["warned"] = float(foresee(statistics, DEFAULT).warning is not None) if warns else nan
    return found


def alone(share: Floats, labels: Integers) -> float:
    """Return the accuracy of always predicting the class of the largest estimated share, in points.

    ``share``: shape (k,) float64. For tied classes it is the mean over them, since the first of them is often the most
    frequent class.
    """
    tied = np.flatnonzero(share >= share.max() - 1e-12)
    return 100 * float(np.isin(labels, tied).mean()) / len(tied)


def frame_of(data: Data, rows: Integers | None = None) -> pd.DataFrame:
    """Return the records, or some of them, as typed values."""
    codes, labels = (data.codes, data.labels) if rows is None else (data.codes[rows], data.labels[rows])
    columns = {
        feature.name: np.array(feature.labels(), object)[codes[:, place]]
        for place, feature in enumerate(data.schema.observed)
    }
    return pd.DataFrame({**columns, LABEL: np.array(data.schema.label.classes, object)[labels]})


def without_privacy(data: Data, people: Integers, test: Integers) -> float:
    """Return the accuracy of the model of these people's records on the test records, in points."""
    model = fit_plain(frame_of(data, people), data.schema)
    return right(model.log_prior, model.terms, data.codes[test], data.labels[test])


def divided(data: Data, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Divide the records: return the indices of those on devices, and of a random fifth for the test, int64 each."""
    order = rng.permutation(len(data.labels))
    count = round(TEST_SHARE * len(order))
    return order[count:], order[:count]


def plain(data: Data) -> float:
    """Return the accuracy without privacy of all people but the test part, in points: the mean of five splits."""
    rng = np.random.default_rng(0)
    parts = [divided(data, rng) for _ in range(5)]
    return float(np.mean([without_privacy(data, people, test[:MOST_TESTED]) for people, test in parts]))


class Row(NamedTuple):
    """All accuracies of one row of the table, in points: name of the post-processing → shape (repeats,) float64."""

    data: str
    epsilon: str
    devices: int | None
    found: dict[str, Floats]

    def mean(self, name: str) -> float:
        """Return the mean accuracy in points."""
        return float(np.nanmean(self.found[name]))

    def versus(self, other: str, among: NDArray[np.bool_] | None = None) -> tuple[float, float]:
        """Return how much better the default is than another on average, and the standard error, in points."""
        difference = self.found[DEFAULT] - self.found[other]
        if among is not None:
            difference = difference[among]
        if len(difference) < 2:
            return nan, nan
        return float(difference.mean()), float(difference.std(ddof=1)) / sqrt(len(difference))

    def loses(self, other: str) -> bool:
        """Return whether the default is more than one point worse than another, beyond two standard errors."""
        mean, error = self.versus(other)
        return mean + 2 * error < -100 * TOLERANCE


def measure(name: str, data: Data, epsilon: str, devices: int | None, options: argparse.Namespace) -> Row:
    """Measure one row of the table. Every row has its own random generator, so that it can be measured again alone."""
    campaign = campaign_of(data.schema, epsilon)
    seed = [options.seed, *name.encode(), micro_epsilon(epsilon), devices or 0]
    rng = np.random.default_rng(seed)
    repeats = min(options.repeats, options.big_repeats) if name in BIG else options.repeats
    trials = [trial(data, campaign, devices, rng, warns=number < options.warnings) for number in range(repeats)]
    return Row(name, epsilon, devices, {key: np.array([one[key] for one in trials]) for key in trials[0]})


def cells(row: Row, others: Sequence[str]) -> dict[str, object]:
    """Return the cells of a row: accuracies, differences to others and their standard errors, warnings.

    ``needless``: warnings though the default is better than the largest class; ``quiet``: without a warning, by how
    much the default is better than it.
    """
    found = {"data": row.data, "devices": row.devices or "", "ε": row.epsilon}
    found |= {name: row.mean(name) for name in row.found if name != "warned"}
    for name in others:
        found |= dict(zip((f"−_{name}", f"±_{name}"), row.versus(name), strict=True))
    warned = row.found["warned"]
    known = ~np.isnan(warned)
    if known.any():
        needless = (warned == 1) & (row.found[DEFAULT] > row.found["largest"])
        mean, error = row.versus("largest", known & (warned == 0))
        found |= {"warned": f"{int((warned == 1).sum())} of {int(known.sum())}", "needless": int(needless.sum())}
        found |= {"quiet": mean, "quiet_loss": "yes" if mean + 2 * error < -100 * TOLERANCE else ""}
    return found


def summarise(rows: Sequence[Row], others: Sequence[str]) -> Iterator[str]:
    """Yield for each other the mean difference over all rows, and the number of rows in which the default loses."""
    for name in others:
        each = np.array([row.versus(name) for row in rows])
        error = sqrt(float((each[:, 1] ** 2).sum())) / len(rows)
        lost = sum(row.loses(name) for row in rows)
        mean = f"{each[:, 0].mean():+.2f} ± {error:.2f} on average"
        yield f"{DEFAULT} − {name}: {mean}; loses in {lost} of {len(rows)} cells"


def main() -> int:
    """Measure all rows. Return 0 if the default loses in no row."""
    parser = arguments(__doc__)
    parser.add_argument("grid", choices=list(GRIDS))
    parser.add_argument("--data", nargs="*", help="data sets; default: all of the grid")
    parser.add_argument("--epsilon", nargs="*", help="default: all of the grid")
    parser.add_argument("--devices", nargs="*", type=int, help="fleet sizes; default: all of the grid")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--big-repeats", type=int, default=40, help=f"of {', '.join(BIG)}")
    parser.add_argument("--warnings", type=int, default=0, help="repetitions in which publish's warning is computed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require()
    others = ["prior"] if options.grid == "devices" else ["paper", "simplex"]
    columns = ["data<14 devices>8 ε>6", *(f"{name}>11.1f" for name in (*POSTPROCESSES, "prior", "largest"))]
    columns += [f"−_{name}>+11.1f ±_{name}>11.1f" for name in others]
    if options.warnings:
        columns.append("warned>12 needless>10 quiet>+8.1f quiet_loss>12")
    table = Table("Estimators", " ".join(columns), as_json=options.json)
    rows = []
    for name in options.data or GRIDS[options.grid]:
        data = load(name)
        table.note(f"{name:<28}without privacy {plain(data):.1f}")
        fleets, budgets = options.devices or FLEETS[options.grid], options.epsilon or EPSILONS[options.grid]
        for devices, epsilon in product(fleets, budgets):
            rows.append(measure(name, data, epsilon, devices, options))
            marks = [f"  LOSES to {other}" for other in others if rows[-1].loses(other)]
            table.add(cells(rows[-1], others), "".join(marks))
    table.end("\n" + "\n".join(summarise(rows, others)))
    return int(any(row.loses(name) for row in rows for name in others))


if __name__ == "__main__":
    sys.exit(main())
