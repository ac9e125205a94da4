"""A private projection and its noisy moments: cost, sensitivities, and that with little noise it is the exact one."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason

from aggregator.curator import projecting as second_moments
from aggregator.curator.accounting import Spending, total
from aggregator.curator.fitting import made_up_records
from aggregator.curator.projecting import (
    GAUSSIAN,
    INPUTS,
    LAPLACE,
    MomentTerms,
    Noise,
    ProjectionTerms,
    cost_of_projection,
    noise_of,
    project,
    release,
)
from aggregator.curator.sampling import below, coin_of_exponential, discrete_gaussian
from aggregator.models.encoding import NO_NUMBER, projected_numbers
from aggregator.models.reduction import directions_of, moments_of
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.features import Numeric
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE, CHANGE_FEATURES
from protocol.schema import Label, build_schema
from protocol.stream import Stream

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


def exact_vectors(numbers, labels, classes, monkeypatch):
    """The exact integers of a release, in the place of the noisy ones."""
    seen = []
    monkeypatch.setattr(Noise, "added", lambda _noise, values, _stream: (seen.append(values), values * 1.0)[1])
    terms = MomentTerms(numbers.shape[1], classes, True, MICRO, Fraction(0), ADD_REMOVE)
    release(numbers, labels, terms, Stream(SEED, b"t"))
    return [each.ravel().astype(object) for each in seen]


RECORD = st.tuples(st.integers(0, 1), st.lists(st.integers(-SCALE, SCALE), min_size=3, max_size=3))
CORNERS = list(product((-SCALE, 0, SCALE), repeat=2))


def check_distances(one, other, adjacency, classes, monkeypatch, *, has_missing=False):
    """Compare the distances of two single records' vectors with the stated sensitivities; None is no record."""
    d = len((one or other)[1])
    vectors = []
    for record in (one, other):
        rows = [] if record is None else [record]
        numbers = np.array([numbers for _, numbers in rows], np.int64).reshape(len(rows), d)
        vectors.append(exact_vectors(numbers, np.array([label for label, _ in rows], np.int64), classes, monkeypatch))
    terms = MomentTerms(d, classes, has_missing, MICRO, Fraction(1, 10**6), adjacency)
    first, squares = second_moments._sensitivities(terms)
    shares = []
    for a, b, most, square in zip(*vectors, first, squares, strict=True):
        apart = np.abs(a - b)
        assert apart.sum() <= most
        assert (apart**2).sum() <= square
        shares.append(apart.sum() / most if most else 1)
    return shares


@given(one=RECORD, other=RECORD, adjacency=st.sampled_from(ADJACENCIES), classes=st.integers(1, 2))
@examples(200)
def test_no_neighbours_are_further_apart_than_stated(one, other, adjacency, classes):
    if adjacency == CHANGE_FEATURES:
        other = (one[0], other[1])
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_distances(one, None if adjacency == ADD_REMOVE else other, adjacency, classes, monkeypatch)
        if adjacency != ADD_REMOVE:
            check_distances(one, None, adjacency, classes, monkeypatch, has_missing=True)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_extreme_neighbours_come_close_to_what_is_stated(adjacency, monkeypatch):
    labels = (0, 1) if adjacency == CHANGE else (0,)
    best = np.zeros(3)
    for numbers, others, label in product(CORNERS, CORNERS, labels):
        other = None if adjacency == ADD_REMOVE else (label, others)
        best = np.maximum(best, check_distances((0, numbers), other, adjacency, 2, monkeypatch))
    assert best.min() > 0.99


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_a_release_costs_its_epsilon_and_no_more(adjacency, delta):
    for inputs in (1, 4, 30):
        found = noise_of(MomentTerms(inputs, 2, False, MICRO, delta, adjacency))
        assert found.cost.epsilon_micro == MICRO
        assert found.cost.delta == (delta if found.name == GAUSSIAN else 0)
        vectors = found.counts, found.sums, found.products
        if found.name == LAPLACE:
            assert sum(each.epsilon_micro for each in vectors) == MICRO
            continue
        squares = second_moments._sensitivities(MomentTerms(inputs, 2, False, MICRO, delta, adjacency))[1]
        rho = sum(Fraction(square, 2 * each.variance) for square, each in zip(squares, vectors, strict=True) if square)
        assert rho <= found.cost.rho
        whole = total(MICRO, 2 * delta, delta)
        assert whole.covers(Spending(2 * MICRO, Fraction(0), found.cost.rho))
    assert (found.name == GAUSSIAN) == bool(delta)


def people(rows=4000, seed=2):
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 3
    x = rng.normal(0, 0.2, (rows, 3)) + np.array([[0.2, 0, 0], [-0.2, 0.1, 0], [0, -0.3, 0.1]])[labels]
    return np.clip(np.rint(x * SCALE), -SCALE, SCALE).astype(np.int64), labels


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**5)])
def test_moments_with_little_noise_are_the_moments(adjacency, delta):
    numbers, labels = people()
    terms = MomentTerms(3, 3, False, 2000 * MICRO, delta, adjacency)
    found = release(numbers, labels, terms, Stream(SEED, b"t"))
    for noisy, exact in zip(found.moments, moments_of(numbers / SCALE, labels), strict=True):
        assert noisy == pytest.approx(exact, abs=1e-3)
    assert found.records == pytest.approx(len(labels), abs=5)


def test_both_scatters_stay_positive_and_no_direction_is_more_discriminant_than_one():
    numbers, labels = people(60)
    for seed in range(20):
        terms = MomentTerms(3, 3, False, MICRO, Fraction(0), CHANGE)
        moments = release(numbers, labels, terms, Stream(bytes([seed] * 32), b"t")).moments
        assert np.linalg.eigvalsh(moments.between)[0] > -1e-9
        assert np.linalg.eigvalsh(moments.total - moments.between)[0] > 0
        assert directions_of(moments, "dca", 2, 1e-3).discriminant.max() <= 1 + 1e-9


def test_pca_does_not_look_at_labels():
    numbers, labels = people(500)
    terms = MomentTerms(3, 1, False, MICRO, Fraction(0), CHANGE)
    one, other = (release(numbers, each, terms, Stream(SEED, b"t")).moments for each in (labels, labels[::-1]))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_discrete_gaussian_noise_follows_its_law():
    """Chi-square, 13 cells, 3,000 draws: 48 is exceeded by chance with probability below 1e-5; σ² = 5 is rejected."""
    stream = Stream(SEED, b"t")
    drawn = np.clip([discrete_gaussian(stream, 4) for _ in range(3_000)], -6, 6)
    for variance, fits in ((4, True), (5, False)):
        law = {n: exp(-n * n / 2 / variance) for n in range(-40, 41)}
        whole = sum(law.values())
        cells = [sum(p for n, p in law.items() if np.clip(n, -6, 6) == cell) / whole for cell in range(-6, 7)]
        chi = sum(
            ((drawn == cell).sum() - 3_000 * p) ** 2 / 3_000 / p for cell, p in zip(range(-6, 7), cells, strict=True)
        )
        assert (chi < 48) == fits


def test_large_bounds_and_coins_of_small_probability():
    """Each frequency of 2,000 coins is within 5 standard deviations: wrong by chance with probability below 1e-6."""
    stream = Stream(SEED, b"t")
    bound = 3 << 199
    drawn = [below(stream, bound) for _ in range(300)]
    assert max(drawn) < bound
    assert 60 < sum(number < bound // 3 for number in drawn) < 140
    assert below(stream, 1) == 0
    for exponent in (Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)):
        share = sum(coin_of_exponential(stream, exponent) for _ in range(2_000)) / 2_000
        p = exp(-exponent)
        assert abs(share - p) <= 5 * (p * (1 - p) / 2_000) ** 0.5
