"""A private projection: its cost, and that with little noise it is the exact one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.failures import reason

from aggregator.curator.fitting import made_up_records
from aggregator.curator.projecting import GAUSSIAN, INPUTS, LAPLACE, ProjectionTerms, cost_of_projection, project
from aggregator.models.encoding import NO_NUMBER, projected_numbers
from aggregator.models.reduction import directions_of, moments_of
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.features import Numeric
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE
from protocol.schema import Label, build_schema

SEED = bytes(range(32))
SCHEMA = build_schema(Label("label", ["a", "b"]), [Numeric(f"x{i}", "-1", "1", [0], substitute=None) for i in range(6)])
MANY = 3000 * MICRO


def records(rows=4000):
    """Six numbers, of which the first two tell the class; every 50th record lacks one."""
    rng = np.random.default_rng(3)
    made = made_up_records(SCHEMA)
    labels = np.arange(rows) % 2
    x = rng.normal(0, 0.2, (rows, 6))
    x[:, 0] += 0.2 * labels
    x[:, 1] -= 0.1 * labels
    numbers = np.clip(np.rint(x * SCALE), -SCALE, SCALE).astype(np.int64)
    numbers[::50, 3] = NO_NUMBER
    return made._replace(labels=labels, codes=np.zeros((rows, 6), np.int64), numbers=numbers)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("equal_frequency", [False, True])
def test_the_cost_is_epsilon_and_its_parts_compose(adjacency, delta, equal_frequency):
    terms = ProjectionTerms("dca", 2, MICRO, delta, adjacency, equal_frequency=equal_frequency)
    cost = cost_of_projection(SCHEMA, terms)
    assert cost.epsilon_micro == MICRO
    assert cost.delta == delta
    pure = Fraction(1, 2)
    assert cost.rho < (pure if not delta else pure / 4)
    made = project(made_up_records(SCHEMA), terms, SEED)
    assert made.facts["noise"] == (GAUSSIAN if delta else LAPLACE)


@pytest.mark.parametrize("method", ["pca", "dca"])
def test_with_little_noise_it_is_the_exact_projection_of_the_complete_records(method):
    held = records()
    terms = ProjectionTerms(method, 2, MANY, adjacency=ADD_REMOVE, equal_frequency=True, bins=4)
    found = project(held, terms, SEED)
    complete = (held.numbers != NO_NUMBER).all(axis=1)
    exact = directions_of(moments_of(held.numbers[complete] / SCALE, held.labels[complete]), method, 2, 1e-3)
    known = 2 if method == "pca" else 1  # Of two classes, DCA has one direction that means something.
    assert found.directions.explained[:known] == pytest.approx(exact.explained[:known], abs=1e-3)
    if method == "dca":
        assert np.abs(found.directions.weights[:, 0]) == pytest.approx(np.abs(exact.weights[:, 0]), abs=0.05)
        assert found.facts["discriminant"][0] == pytest.approx(exact.discriminant[0], abs=1e-3)
    assert found.facts["records"] == complete.sum()
    assert found.schema.projection is not None
    outputs = projected_numbers(found.schema.projection, held.numbers[complete])
    for column, part in zip(outputs.T, found.schema.projection.components, strict=True):
        shares = np.diff([0, *np.searchsorted(np.sort(column), part.edges), len(column)]) / len(column)
        assert shares == pytest.approx(0.25, abs=0.01)
        assert (np.abs(column) == SCALE).mean() < 0.02, "three standard deviations clip next to nothing"


def test_bounds_of_the_inputs_clip_nothing_and_do_not_depend_on_noise_of_the_spread():
    held = records()
    found = project(held, ProjectionTerms("pca", 3, MICRO, bounds=INPUTS), SEED)
    assert found.schema.projection is not None
    corners = np.array(np.meshgrid(*[[-SCALE, SCALE]] * 6)).reshape(6, -1).T
    outputs = projected_numbers(found.schema.projection, corners)
    assert outputs.min(axis=0) == pytest.approx(-SCALE, abs=64)
    assert outputs.max(axis=0) == pytest.approx(SCALE, abs=64)


def test_what_no_projection_can_have_is_refused():
    usual = ProjectionTerms("pca", 1, MICRO, adjacency=CHANGE)
    for wrong, expected in (
        ({"method": "lda"}, "method_unknown"),
        ({"components": 7}, "components_invalid"),
        ({"ridge": -1.0}, "ridge_invalid"),
        ({"bins": 1}, "bins_invalid"),
        ({"bounds": "pilot"}, "bounds_invalid"),
        ({"delta": Fraction(1)}, "delta_invalid"),
        ({"adjacency": "other"}, "adjacency_unknown"),
        ({"epsilon_micro": 1}, "epsilon_invalid"),
        ({"epsilon_micro": 1, "equal_frequency": True}, "epsilon_invalid"),
    ):
        assert reason(cost_of_projection, SCHEMA, usual._replace(**wrong)) == expected
