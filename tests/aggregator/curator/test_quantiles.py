"""Edges of private bins: exact privacy by enumeration of whole trees of draws, and edges near the quantiles."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from support.failures import reason

from aggregator.curator import binning as quantiles
from aggregator.curator.binning import Draw, edge_law, levels, private_edges
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.noise.rational_bounds import exp_above
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE
from protocol.stream import Stream

BOUNDS = (-2, 2)
DATA = [data for size in range(4) for data in combinations_with_replacement(range(-2, 3), size)]


def probabilities(law):
    """Every integer of the range of a draw with its exact probability."""
    total = sum(w * length for w, length in zip(law.weights, law.lengths.tolist(), strict=True))
    pieces = zip(law.weights, law.starts.tolist(), law.lengths.tolist(), strict=True)
    return {start + i: Fraction(w, total) for w, start, length in pieces for i in range(length)}


@pytest.fixture
def scripted(monkeypatch):
    """The exact law of :func:`private_edges`: every course of draws is run once, with its probability."""

    def law(data, bins, epsilon_micro, adjacency):
        courses, found = [()], {}
        while courses:
            course, taken, weight = courses.pop(), [], Fraction(1)

            def one(draw, _stream, course=course, taken=taken):
                nonlocal weight
                chances = probabilities(draw)
                if len(taken) >= len(course):
                    courses.extend((*taken, other) for other in list(chances)[1:])
                edge = course[len(taken)] if len(taken) < len(course) else next(iter(chances))
                taken.append(edge)
                weight *= chances[edge]
                return edge

            with monkeypatch.context() as patched:
                patched.setattr(Draw, "one", one)
                edges = tuple(private_edges(np.array(data, np.int64), bins, epsilon_micro, adjacency, None, BOUNDS))
            found[edges] = found.get(edges, 0) + weight
        assert sum(found.values()) == 1
        return found

    return law


def neighbours(adjacency):
    """Pairs of data sets; a replaced record may also lose or gain its number, so ``change`` has both kinds of pairs."""
    for one in DATA:
        for other in DATA:
            lost = list(one)
            for value in other:
                if value in lost:
                    lost.remove(value)
            distance = len(lost), len(other) - len(one) + len(lost)
            if distance in ((1, 0), (0, 1)) or (adjacency == CHANGE and distance == (1, 1)):
                yield one, other


def worst_ratio(laws, adjacency):
    return max(laws[one][edges] / laws[other][edges] for one, other in neighbours(adjacency) for edges in laws[one])


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, CHANGE])
@pytest.mark.parametrize("bins", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_all_edges_of_a_number_together_cost_at_most_their_epsilon(scripted, adjacency, bins):
    epsilon = Fraction(3, 2)
    laws = {data: scripted(data, bins, int(epsilon * MICRO), adjacency) for data in DATA}
    assert len({frozenset(law) for law in laws.values()}) == 1
    worst = worst_ratio(laws, adjacency)
    assert worst <= exp_above(epsilon)
    assert worst > exp_above(epsilon / 3), "the bound is far from what the draws cost"


@pytest.mark.slow
def test_the_enumeration_finds_a_level_too_few(scripted, monkeypatch):
    monkeypatch.setattr(quantiles, "levels", lambda _edges: 1)
    laws = {data: scripted(data, 4, MICRO, ADD_REMOVE) for data in DATA}
    assert worst_ratio(laws, ADD_REMOVE) > exp_above(Fraction(1))


def test_records_without_the_number_take_no_part_and_no_number_still_has_edges():
    edges = private_edges(np.empty(0, np.int64), 8, MICRO, CHANGE, Stream(bytes(32), b"t"))
    assert edges == sorted(set(edges))
    assert len(edges) == 7
    assert all(-SCALE < edge <= SCALE for edge in edges)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_bins_hold_about_as_many_records_each(adjacency):
    """20,000 records, ε = 1, 4 levels at most: an edge is off by over 1,000 records with probability below e^−9."""
    numbers = np.clip(np.random.default_rng(1).normal(-20_000, 9_000, 20_000), -SCALE, SCALE).astype(np.int64)
    for bins in (2, 5, 8):
        edges = private_edges(numbers, bins, MICRO, adjacency, Stream(bytes(32), b"t"))
        share = np.diff([0, *np.searchsorted(np.sort(numbers), edges), len(numbers)])
        assert np.abs(share - len(numbers) / bins).max() < 2_000


def test_a_piece_has_the_weight_of_its_miss():
    law = probabilities(edge_law(np.array([-1, 0, 0, 1]), (1, 2), BOUNDS, Fraction(2), ADD_REMOVE))
    expected = {edge: np.exp(-miss) for edge, miss in {-1: 4, 0: 2, 1: 2, 2: 4}.items()}  # |#below − #above|
    total = sum(expected.values())
    assert {edge: float(chance) for edge, chance in law.items()} == pytest.approx(
        {edge: weight / total for edge, weight in expected.items()}, rel=1e-12
    )


def test_far_misses_keep_a_weight_and_levels_are_few():
    law = edge_law(np.full(10_000, 1), (1, 2), (-5, 5), Fraction(1000), ADD_REMOVE)
    assert min(law.weights) > 0
    assert law.one(Stream(bytes(32), b"t")) in range(-4, 6)
    assert [levels(edges) for edges in (1, 2, 3, 4, 7, 8)] == [1, 2, 2, 3, 3, 4]
    some = np.arange(5)
    assert reason(private_edges, some, 1, MICRO, CHANGE, None) == "bins_invalid"
    assert reason(private_edges, some, 2, 0, CHANGE, None) == "epsilon_invalid"


def test_draws_follow_the_law():
    """Chi-square over 4 integers, 2,000 draws: the limit is exceeded by chance with probability below 1e-6."""
    law = edge_law(np.array([-1, 0, 0, 1, 2]), (2, 3), BOUNDS, Fraction(2), CHANGE)
    stream = Stream(bytes(range(32)), b"t")
    drawn = [law.one(stream) for _ in range(2_000)]
    expected = {edge: 2_000 * float(chance) for edge, chance in probabilities(law).items()}
    assert sum((drawn.count(edge) - mean) ** 2 / mean for edge, mean in expected.items()) < 31
