"""Further records for the figures of a curator's fits: two synthetic sets, and extracts of the 1940 Census.

    python -m benchmarks.central.figures methods --census usa_00001.csv --states 18 19

IPUMS gives the Census to registered readers, who may not pass it on. A reader orders an extract of ``1940 100%`` as
*comma delimited (.csv)* with the variables of :data:`CENSUS_COLUMNS`. States are FIPS codes: 18 Indiana, 19 Iowa.
Which states, variables and label the published figure used is not known; those of :func:`census` are our choice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aggregator.common.tables import typed
from protocol.errors import InputError
from protocol.features import Categorical, Feature, Numeric
from protocol.schema import Label, Schema, build_schema

CATEGORICAL, NUMERIC = "categorical", "numeric"
ROWS = 10_000
EACH = 5
VALUES = 8
SEPARATION = 0.5
WIDTH = 0.3

CENSUS_CATEGORIES = {
    "SEX": range(1, 3),
    "RACE": range(1, 10),
    "MARST": range(1, 7),
    "EDUC": range(12),
    "CLASSWKR": range(3),
    "OWNERSHP": range(3),
    "FARM": range(3),
}
"""Variable → its general codes. Another code counts as the first one."""
CENSUS_NUMBERS = {"AGE": (14, 100), "FAMSIZE": (1, 20), "NCHILD": (0, 9), "WKSWORK1": (0, 52), "HRSWORK1": (0, 98)}
"""Variable → bounds. A number outside of them counts as the bound."""
STATE, WAGE = "STATEFIP", "INCWAGE"
CENSUS_COLUMNS = (STATE, *CENSUS_CATEGORIES, *CENSUS_NUMBERS, WAGE)
NO_WAGE = 999_998
"""``INCWAGE`` is a wage below this code; from it on it says that the wage is missing or not asked."""
LEAST_AGE = 14
CHUNK = 500_000


def synthetic(informative: str, rows: int = ROWS, seed: int = 1) -> tuple[pd.DataFrame, Schema]:
    """Return two classes, five categories of eight values, and five numbers in [−1, 1]; one kind is informative.

    Classes are equally likely. A number is normal with standard deviation 0.3, cut off at the bounds. If numbers are
    informative, its mean is +0.15 in one class and −0.15 in the other, else 0. If categories are informative, P(v) ∝
    e^{±x/2}, where the sign is the class's and x is the value's number scaled to mean 0 and standard deviation 1; else
    P(v) = 1/8. So one informative feature tells the classes apart about as well as another, whatever its kind.
    """
    random = np.random.default_rng(seed)
    classes = random.integers(0, 2, rows)
    signs = 2 * classes - 1
    columns: dict[str, object] = {}
    features: list[Feature] = []
    steps = (np.arange(VALUES) - (VALUES - 1) / 2) / np.arange(VALUES).std()
    for place in range(EACH):
        weights = np.exp(np.outer([-1, 1], steps) * (SEPARATION if informative == CATEGORICAL else 0))
        edges = (weights / weights.sum(axis=1, keepdims=True)).cumsum(axis=1)
        values = (random.random(rows)[:, None] > edges[classes, :-1]).sum(axis=1)
        name = f"c{place}"
        columns[name] = [f"v{value}" for value in values]
        features.append(Categorical(name, [f"v{value}" for value in range(VALUES)], substitute=0))
    for place in range(EACH):
        means = signs * WIDTH * (SEPARATION if informative == NUMERIC else 0)
        name = f"x{place}"
        columns[name] = np.clip(random.normal(means, WIDTH), -1, 1).round(6)
        features.append(Numeric(name, "-1", "1", [0], substitute=0))
    columns["label"] = np.where(classes == 1, "yes", "no")
    schema = build_schema(Label("label", ["no", "yes"]), features)
    return pd.DataFrame(columns), schema


def census(extract: Path, state: int, wage: int = 1000) -> tuple[pd.DataFrame, Schema]:
    """Return the people of one state, aged 14 or more, with a wage. The label: a wage of at least ``wage``.

    ``extract``: comma-separated file with a header, as IPUMS USA makes it; other columns are ignored.
    """
    header = pd.read_csv(extract, nrows=0).columns
    absent = [name for name in CENSUS_COLUMNS if name not in header]
    if absent:
        raise InputError("columns_missing", f"the extract lacks {', '.join(absent)}")
    kept = []
    for chunk in pd.read_csv(extract, usecols=list(CENSUS_COLUMNS), chunksize=CHUNK):
        paid = chunk[WAGE].between(1, NO_WAGE - 1)
        kept.append(chunk[(chunk[STATE] == state) & (chunk["AGE"] >= LEAST_AGE) & paid])
    people = pd.concat(kept, ignore_index=True)
    if people.empty:
        raise InputError("empty_file", f"the extract has nobody with a wage in state {state}")
    features: list[Feature] = [
        Categorical(name, [str(code) for code in codes], substitute=0) for name, codes in CENSUS_CATEGORIES.items()
    ]
    features += [Numeric(name, str(low), str(high), [0], substitute=0) for name, (low, high) in CENSUS_NUMBERS.items()]
    schema = build_schema(Label("label", ["less", "more"]), features)
    frame = people[[*CENSUS_CATEGORIES, *CENSUS_NUMBERS]].astype(str)
    frame["label"] = np.where(people[WAGE] >= wage, "more", "less")
    return typed(frame, schema, missing=()), schema
