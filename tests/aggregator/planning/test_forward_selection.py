"""Features, groups and bins from a pilot: cuts of values, and the forward selection."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.models.encoding import MISSING, NO_NUMBER, EncodedFrame
from aggregator.models.population import Population
from aggregator.planning.feature_selection import forward_selection
from aggregator.planning.feature_selection.codings import (
    AS_STATED,
    EDGES,
    GROUPS,
    QUANTILES,
    Way,
    best_groups,
    cut,
    mutual_information,
    ways,
)
from aggregator.planning.feature_selection.forward_selection import best_of, fleet_scores, plain_scores, select
from protocol import SCALE
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

LETTERS = ["a", "b", "c", "d", "e", "f"]
SCHEMA = build_schema(
    Label("class", ["n", "y"]),
    [
        Categorical("letter", LETTERS, substitute=0),
        Numeric("size", "-1", "1", [0]),
        *(Categorical(f"noise {each}", ["p", "q"], substitute=0) for each in range(2)),
    ],
)


@pytest.fixture(scope="module")
def records():
    """Letters a, c and e go with class n; sizes above 0.5 with class y; all other features tell nothing."""
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 2, 200)
    letters = 2 * rng.integers(0, 3, 200) + (labels ^ (rng.random(200) < 0.15))
    sizes = np.where(labels ^ (rng.random(200) < 0.1), rng.uniform(0.5, 1, 200), rng.uniform(-1, 0.5, 200))
    numbers = np.full((200, 4), NO_NUMBER)
    numbers[:, 1] = np.rint(sizes * SCALE)
    codes = np.column_stack([letters, sizes > 0, rng.integers(0, 2, (200, 2))]).astype(np.int64)
    encoded = EncodedFrame(codes, numbers)
    return Population(encoded, labels, encoded, labels)


def columns(records, feature):
    return records.reported.codes[:, feature], records.reported.numbers[:, feature], records.labels


def test_groups_hold_the_values_that_go_with_one_class(records):
    codes, numbers, labels = columns(records, 0)
    found = cut(Way(0, GROUPS, 2), SCHEMA, codes, numbers, labels)
    assert (found.group_of, found.size) == ((0, 1, 0, 1, 0, 1), 2)
    assert found.codes(np.array([3, MISSING]), np.array([0, 0])).tolist() == [1, MISSING]
    assert cut(Way(0, GROUPS, 2), SCHEMA, codes, numbers, 1 - labels // 2).group_of != (0, 1) * 3
    table = np.array([[9, 1, 0], [0, 0, 9], [8, 1, 1], [1, 9, 0], [0, 0, 0], [0, 1, 9]], float)
    groups = best_groups(table, 3)  # of three classes; the value that was never seen has a group
    assert groups[0] == groups[2]
    assert groups[1] == groups[5] != groups[0]
    assert len(set(groups)) == 3
    assert best_groups(table[:2], 2) is None


def test_edges_are_where_the_class_changes(records):
    found = cut(Way(1, EDGES, 2), SCHEMA, *columns(records, 1))
    assert found.edges[0] / SCALE == pytest.approx(0.5, abs=0.1)
    numbers = np.array([-SCALE, SCALE, NO_NUMBER])
    assert found.codes(np.array([0, 1, MISSING]), numbers).tolist() == [0, 1, MISSING]
    four = cut(Way(1, QUANTILES, 4), SCHEMA, *columns(records, 1))
    assert np.bincount(four.codes(*columns(records, 1)[:2])).min() >= 45


def test_a_missing_number_keeps_its_code_and_a_column_without_different_numbers_gets_no_bins():
    schema = build_schema(Label("class", ["n", "y"]), [Numeric("size", "-1", "1", [0], substitute=None)])
    numbers = np.array([-SCALE, 0, SCALE // 2, SCALE, NO_NUMBER])
    found = cut(Way(0, QUANTILES, 2), schema, np.array([0, 1, 1, 1, 2]), numbers, np.array([0, 0, 1, 1, 1]))
    assert found.size == 3
    assert found.codes(np.array([0, 2]), np.array([SCALE, NO_NUMBER])).tolist() == [1, 2]
    same = np.zeros(9, np.int64)
    for way in (Way(0, QUANTILES, 4), Way(0, EDGES, 2)):
        assert cut(way, schema, same, same, same) is None
    assert [way.kind for way in ways(SCHEMA, 0)] == [AS_STATED, GROUPS, GROUPS]
    assert {way.kind for way in ways(SCHEMA, 1)} == {AS_STATED, QUANTILES, EDGES}
    assert mutual_information(np.full((2, 2), 50.0)) == pytest.approx(0, abs=1e-12)
    assert mutual_information(np.array([[50.0, 0], [0, 50]])) > 0.5


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 3)
    monkeypatch.setattr(forward_selection, "FOLDS", 2)


def test_the_selection_asks_about_what_tells_the_class_and_leaves_out_what_does_not(records, quick):
    path = select(records, SCHEMA, np.arange(200), fleet_scores(20_000, 10**6), 1, np.random.default_rng(2))
    assert [len(each.ways) for each in path[:2]] == [1, 2]
    chosen = best_of(path)
    assert {way.feature for way in chosen.ways} <= {0, 1}
    assert Way(1) not in chosen.ways
    assert chosen.accuracy > 0.8
    assert len(path[-1].ways) == 4
    assert path[-1].ways[0] == Way(0)


def test_with_few_devices_the_noise_decides(records, quick):
    noisy = select(records, SCHEMA, np.arange(200), fleet_scores(40, 200_000), 1, np.random.default_rng(2))
    plain = select(records, SCHEMA, np.arange(200), plain_scores, 1, np.random.default_rng(2))
    assert noisy[-1].accuracy < plain[-1].accuracy - 0.1
    assert best_of(plain).error == pytest.approx(0.02, abs=0.01)
