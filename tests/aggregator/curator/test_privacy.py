"""Privacy by enumeration of all small data sets and all their neighbours: exact for integers, numeric for densities."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import exp

import numpy as np
import pytest
from support.noise import log_density

from aggregator.curator.accounting import Share
from aggregator.curator.fitting import cost_of_fit
from aggregator.curator.methods import smooth
from aggregator.curator.methods.global_sensitivity import GlobalDeviation, GlobalVariance
from aggregator.curator.methods.sums import vectors
from aggregator.curator.methods.table import METHODS
from aggregator.curator.records import Records
from aggregator.curator.terms import DIVISIONS, FitTerms
from aggregator.models.encoding import NO_NUMBER
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.noise.sums import Vector, with_noise
from protocol.questions import ADJACENCIES, CLASS, SENSITIVITIES, Subject
from protocol.schema import Label, build_schema
from protocol.stream import Stream

SCHEMA = build_schema(
    Label("label", ["a", "b"]),
    [Categorical("colour", ["red", "blue"], substitute=0), Numeric("size", "0", "1", [0], substitute=None)],
)
KINDS = tuple(product((0, 1), (0, 1), (-SCALE, 0, SCALE, NO_NUMBER)))
"""All records: label, colour, and a number that may be missing."""


def privacy_loss(first, second):
    """Largest |ln ratio| of the probabilities of one release under two data sets: Σ_j ‖f_j(x) − f_j(x')‖₁ ε_j/Δ_j.

    The supremum over all outputs is reached far out on the side of one data set, since the noise of every entry is
    independent discrete Laplace noise.
    """
    total = Fraction(0)
    for one, other in zip(first, second, strict=True):
        distance = sum(abs(a - b) for a, b in zip(one.values, other.values, strict=True))
        if distance and not (one.sensitivity and other.sensitivity):
            raise InputError("loss_unbounded", "an entry without noise tells the two data sets apart")
        if distance:
            total += distance * Fraction(one.epsilon_micro, MICRO * one.sensitivity)
    return total


def records(rows):
    labels, colours, numbers = np.array(rows, np.int64).reshape(-1, 3).T
    bins = np.where(numbers == NO_NUMBER, 2, numbers >= 0)
    known = np.stack([np.full(len(labels), NO_NUMBER), numbers], axis=1)
    return Records(SCHEMA, labels, np.stack([colours, bins], axis=1), known, {}, ())


def neighbours(rows, adjacency):
    """All data sets next to one data set, a sorted tuple of records."""
    if adjacency == "add-remove":
        yield from (tuple(sorted([*rows, kind])) for kind in KINDS)
        return
    for place, kind in product(range(len(rows)), KINDS):
        if adjacency == "change" or kind[0] == rows[place][0]:
            yield tuple(sorted([*rows[:place], kind, *rows[place + 1 :]]))


def pairs(adjacency, terms):
    """The exact vectors of all data sets of at most two records, and of each of their neighbours."""
    known = {}

    def of(rows):
        if rows not in known:
            known[rows] = vectors(records(rows), terms)
        return known[rows]

    sizes = (0, 1) if adjacency == "add-remove" else (1, 2)
    for rows in (rows for size in sizes for rows in combinations_with_replacement(sorted(KINDS), size)):
        for other in set(neighbours(rows, adjacency)):
            yield of(rows), of(other)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("family", ["discrete", "gaussian"])
def test_sums_cost_at_most_epsilon_and_every_sensitivity_is_reached(adjacency, family):
    """So a lower sensitivity is seen as too low, and a higher one as wasted noise."""
    terms = FitTerms("sums", MICRO, adjacency=adjacency, family=family)
    worst, reached = Fraction(0), Counter()
    for one, other in pairs(adjacency, terms):
        worst = max(worst, privacy_loss(one, other))
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            distance = sum(abs(a - b) for a, b in zip(first.values, second.values, strict=True))
            reached[place] = max(reached[place], distance)
    assert worst <= Fraction(cost_of_fit(SCHEMA, terms).epsilon_micro, MICRO) <= 1
    assert [reached[place] for place in range(len(one))] == [vector.sensitivity for vector in one]
    if adjacency == "change":
        assert worst == Fraction(cost_of_fit(SCHEMA, terms).epsilon_micro, MICRO)


@pytest.mark.parametrize(
    ("adjacency", "kind"), [(adjacency, kind) for kind in SENSITIVITIES for adjacency in ADJACENCIES]
)
def test_a_sensitivity_that_is_too_small_is_rejected(adjacency, kind, monkeypatch):
    right = SENSITIVITIES[kind][adjacency]
    if not right:
        pytest.skip("no noise is needed")
    terms = FitTerms("sums", MICRO, adjacency=adjacency)
    wrong = {**SENSITIVITIES[kind], adjacency: right // 2}
    monkeypatch.setitem(SENSITIVITIES, kind, wrong)
    place = [(one.subject.kind, one.subject.power) for one in vectors(records([KINDS[0]]), terms)].index(kind)
    # Half of a sensitivity of 1 is 0: then nothing hides the count, and the loss has no bound.
    assert exceeds(place, adjacency, terms)


def exceeds(place, adjacency, terms):
    """Whether one vector costs more than its share of ε on some pair of neighbours."""
    try:
        return any(
            privacy_loss([one[place]], [other[place]]) > Fraction(one[place].epsilon_micro, MICRO)
            for one, other in pairs(adjacency, terms)
        )
    except InputError as error:
        return error.reason == "loss_unbounded"


@pytest.mark.parametrize("exact", [GlobalVariance().vectors, GlobalDeviation().vectors])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_means_variances_and_deviations_change_by_at_most_their_sensitivity(exact, n):
    budgets = (Share(MICRO // 2), Share(MICRO // 2))
    values = (-SCALE, -SCALE // 2 - 1, 0, 3, SCALE)
    worst = Fraction(0)
    most = [0, 0]
    for chosen in product(values, repeat=n):
        one = exact(np.array(chosen), budgets)
        for new in values:
            other = exact(np.array([new, *chosen[1:]]), budgets)
            worst = max(worst, privacy_loss(one, other))
            most = [max(m, abs(a.values[0] - b.values[0])) for m, a, b in zip(most, one, other, strict=True)]
    assert most == [one[0].sensitivity, one[1].sensitivity]
    assert worst <= 1


def test_a_wider_change_than_the_bounds_is_rejected():
    budgets = (Share(MICRO // 2), Share(MICRO // 2))
    one, other = (GlobalVariance().vectors(np.array([last, SCALE, SCALE]), budgets) for last in (SCALE, -2 * SCALE))
    assert privacy_loss(one, other) > 1


def chi_square(noise, rate):
    """Pearson's statistic of noise in {≤ −3, −2, …, 2, ≥ 3} against P(m) ∝ e^(−|m|·rate)."""
    q = exp(-rate)
    centre = (1 - q) / (1 + q)
    expected = np.array(
        [centre * q**3 / (1 - q), *(centre * q ** abs(m) for m in range(-2, 3)), centre * q**3 / (1 - q)]
    )
    counts = np.bincount(np.clip(noise, -3, 3) + 3, minlength=7)
    return float(((counts - len(noise) * expected) ** 2 / (len(noise) * expected)).sum())


def test_the_noise_has_the_rate_epsilon_over_sensitivity():
    """Pearson's test, 6 degrees of freedom, false-alarm rate 1e-6 (once, as the seed is fixed)."""
    vector = Vector(Subject(CLASS, None, 4000), (7,) * 4000, 2, MICRO)
    noise = np.array(with_noise(vector, Stream(bytes(32), b"test")).values) - 7
    limit = 39.0
    assert chi_square(noise, 0.5) < limit
    assert chi_square(noise, 0.6) > limit
    assert chi_square(noise, 0.4) > limit


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("epsilon_micro", [1000, 999_999, 5_000_001])
def test_a_division_spends_nearly_all_and_never_more(adjacency, division, epsilon_micro):
    cost = cost_of_fit(SCHEMA, FitTerms("sums", epsilon_micro, adjacency=adjacency, division=division))
    assert epsilon_micro - 6 <= cost.epsilon_micro <= epsilon_micro


GRID_OF_VALUES = (-SCALE, -SCALE // 3, SCALE)


def released_by(method, noise, values, monkeypatch, epsilon_micro):
    """Statistic, scale k·S and noise's name of both numbers that a method releases of one class."""
    found = []

    def note(statistic, sensitivity, calibration, grid, stream):
        assert sensitivity.beta <= calibration.beta
        found.append((float(statistic), float(calibration.multiplier * sensitivity.value)))
        return grid

    monkeypatch.setattr(smooth, "release", note)
    terms = FitTerms(method, MICRO, adjacency="change-features", noise=noise, trim_micro=250_000)
    budgets = (Share(epsilon_micro), Share(epsilon_micro))
    METHODS[method].moments(np.array(values), budgets, terms, Stream(bytes(32), b"test"))
    return found


def largest_log_ratio(one, other, density):
    """Largest |ln| ratio of the densities of two releases (f, k·S), over a grid of outputs around both."""
    centre, width = (one[0] + other[0]) / 2, max(one[1], other[1]) + abs(one[0] - other[0])
    y = centre + width * np.concatenate([np.linspace(-6, 6, 1201), [-1e6, -1e3, 1e3, 1e6]])
    first, second = (density((y - f) / scale) - np.log(scale) for f, scale in (one, other))
    return float(np.abs(first - second).max())


@pytest.mark.parametrize(
    ("method", "noise"),
    [("smooth", "cauchy"), ("smooth", "gamma4"), ("smooth-trimmed", "student-t"), ("bun-steinke", "student-t")],
)
def test_densities_of_smooth_methods_differ_by_at_most_epsilon_on_all_neighbours(method, noise, monkeypatch):
    epsilon = 0.7
    known = {
        values: released_by(method, noise, values, monkeypatch, round(epsilon * MICRO))
        for values in combinations_with_replacement(sorted(GRID_OF_VALUES), 4)
    }
    worst = [0.0, 0.0]
    too_thin = [0.0, 0.0]
    for values, ours in known.items():
        for replaced, new in product(range(4), GRID_OF_VALUES):
            theirs = known[tuple(sorted([*values[:replaced], new, *values[replaced + 1 :]]))]
            for place in (0, 1):
                one, other = ours[place], theirs[place]
                worst[place] = max(worst[place], largest_log_ratio(one, other, log_density(noise)))
                thin = [(f, scale / 4) for f, scale in (one, other)]
                too_thin[place] = max(too_thin[place], largest_log_ratio(*thin, log_density(noise)))
    assert max(worst) <= epsilon * (1 + 1e-9)
    assert min(too_thin) > epsilon  # a quarter of the noise is seen as too little
