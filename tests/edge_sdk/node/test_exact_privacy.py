"""The privacy of a summary by enumeration: all data sets of up to three records, all neighbours, the noise's exact law.

The law of a released number is taken from the code, not from the text: :class:`Channel` runs the release with noise
that the test chooses, and records with which rate the code asked for it. That the sampler has this rate is tested by
``tests/protocol/test_mechanism_sampling.py``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import pytest
from support.nodes import node_campaign
from support.publisher import Publisher

from edge_sdk.node import release
from edge_sdk.node.sums import ExactSums
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.epsilon import MICRO
from protocol.features import Categorical, Numeric
from protocol.nodes.terms import NodeTerms, cost_micro, released_vectors
from protocol.noise import sums as vectors
from protocol.noise.rational_bounds import exp_above, exp_below, log_above
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE, CHANGE_FEATURES
from protocol.schema import Label, build_schema

EPSILON = 1_000_003
"""In millionths; not divisible by a number of vectors."""
SIZES = (None, 0, Fraction(1, 4), Fraction(1, 2), 1)
"""A missing number, and numbers with u = −S, −S/2, 0, S."""
SEED = bytes(32)


def campaign_of(family, *, may_be_missing=True, max_records=1000):
    schema = build_schema(
        Label("label", ["a", "b"]),
        [
            Categorical("colour", ["red", "blue"], substitute=0),
            Numeric("size", "0", "1", [0], substitute=None if may_be_missing else 0),
        ],
    )
    terms = NodeTerms("wards", max_records, MICRO)
    return node_campaign(family, Publisher(schema=schema), terms=terms, epsilon_micro=EPSILON)


KINDS = [
    {"label": label, "colour": colour, "size": size}
    for label, colour, size in product(("a", "b"), ("red", "blue"), SIZES)
]


class Number(NamedTuple):
    """The law of one released number besides its exact value: the rate of the noise, and the ends of the range."""

    rate: Fraction
    low: int
    high: int


class Channel:
    """The release of a campaign's sums, with the law of every number. It fails where the law depends on the records."""

    def __init__(self, campaign, monkeypatch):
        self.campaign = campaign
        self._subjects = released_vectors(campaign)
        self._known = {}
        self._noise = 0
        self._asked = []
        monkeypatch.setattr(vectors, "discrete_laplace", self._draw)
        self.law = None

    def _draw(self, stream, s, t):
        self._asked.append(Fraction(s, t))
        return self._noise

    def _released(self, exact, noise):
        self._noise, self._asked = noise, []
        return release.noisy_sums(self.campaign, exact, EPSILON, SEED)

    def exact(self, places):
        """The exact sums of the records of :data:`KINDS` at these places. The law must be the same for all of them."""
        if places not in self._known:
            sums = ExactSums(self.campaign.schema, self._subjects)
            sums.add_all([KINDS[place] for place in places])
            exact = self._known[places] = tuple(sums.totals)
            far = 1 << 60
            lows, highs = (self._released(exact, noise) for noise in (-far, far))
            law = [Number(*one) for one in zip(self._asked, lows, highs, strict=True)]
            self.law = self.law or law
            assert law == self.law, "rate or range depend on the records"
            for noise in (-7, 0, 3, SCALE):
                expected = [min(max(a + noise, one.low), one.high) for a, one in zip(exact, law, strict=True)]
                assert list(self._released(exact, noise)) == expected
        return self._known[places]

    def loss(self, one, other):
        """Largest ln of the ratio of the probabilities of a release under two data sets: that of ``one`` on top."""
        first, second = self.exact(one), self.exact(other)
        pairs = zip(self.law, first, second, strict=True)
        return sum((largest_log_ratio(number, a, b) for number, a, b in pairs if a != b), Fraction(0))


def log_ratio(number, a, b, y):
    """Ln of P(y | exact a)/P(y | exact b), exactly, for noise P(m) = (1 − q)/(1 + q)·q^|m|, q = e^−rate, clipped.

    At the upper end: P = Σ_{m ≥ high − a} = q^(high − a)/(1 + q) for a ≤ high, else 1 − q^(a − high + 1)/(1 + q). With
    the second form the ratio is not a power of q; it is rounded up.
    """
    if y == number.low:
        number, a, b, y = Number(number.rate, -number.high, -number.low), -a, -b, -y
    if y < number.high:
        return number.rate * (abs(y - b) - abs(y - a))
    if max(a, b) <= y:
        return number.rate * (a - b)
    return log_above(tail(number, a)[1] / tail(number, b)[0])


def tail(number, exact):
    """Bounds of the probability of the upper end."""
    q_low, q_high = exp_below(-number.rate), exp_above(-number.rate)
    steps = number.high - exact
    if steps >= 0:
        return q_low**steps / (1 + q_high), q_high**steps / (1 + q_low)
    return 1 - q_high ** (1 - steps) / (1 + q_low), 1 - q_low ** (1 - steps) / (1 + q_high)


@lru_cache(maxsize=100_000)
def largest_log_ratio(number, a, b):
    """The largest ln ratio over all outputs. Between these outputs it is linear: their ends suffice."""
    inside = {number.low + 1, number.high - 1, a, b}
    outputs = {number.low, number.high, *(y for y in inside if number.low < y < number.high)}
    return max(log_ratio(number, a, b, y) for y in outputs)


def neighbours(places, adjacency):
    """All data sets next to one: sorted tuples of places in :data:`KINDS`."""
    if adjacency == ADD_REMOVE:
        return {tuple(sorted((*places, added))) for added in range(len(KINDS))}
    return {
        tuple(sorted((*places[:at], new, *places[at + 1 :])))
        for at, new in product(range(len(places)), range(len(KINDS)))
        if adjacency == CHANGE or KINDS[new]["label"] == KINDS[places[at]]["label"]
    }


def worst(channel, adjacency, most):
    """The largest loss over all pairs of neighbours, in both directions, of which the smaller has ``most`` records."""
    found = Fraction(0)
    for size in range(most + 1):
        for places in combinations_with_replacement(range(len(KINDS)), size):
            for other in neighbours(places, adjacency):
                found = max(found, channel.loss(places, other))
                if adjacency == ADD_REMOVE:  # neighbours of the other kinds are enumerated from both sides
                    found = max(found, channel.loss(other, places))
    return found


EXPECTED = [
    # family, a missing number has its own vector, Q, loss of changed features in units of ε_q
    (DISCRETE, True, 3, Fraction(4)),
    (GAUSSIAN, True, 5, Fraction(2 + 4)),
    (GAUSSIAN, False, 4, Fraction(2) + Fraction(9, 4)),
]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("family", "missing", "count", "features"), EXPECTED)
def test_a_summary_costs_what_is_stated_and_no_less(adjacency, family, missing, count, features, monkeypatch):
    """Adding: ε; changing: 2ε; both are reached. Changing features costs less than the 2ε that are booked."""
    channel = Channel(campaign_of(family, may_be_missing=missing), monkeypatch)
    share = Fraction(EPSILON // count, MICRO)
    expected = {ADD_REMOVE: count * share, CHANGE: 2 * count * share, CHANGE_FEATURES: features * share}[adjacency]
    found = worst(channel, adjacency, 1)
    assert found == expected
    assert found <= Fraction(cost_micro(channel.campaign, adjacency), MICRO)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_same_for_data_sets_of_two_and_three_records(adjacency, monkeypatch):
    channel = Channel(campaign_of(GAUSSIAN), monkeypatch)
    share = Fraction(EPSILON // 5, MICRO)
    assert worst(channel, adjacency, 2) == share * {ADD_REMOVE: 5, CHANGE: 10, CHANGE_FEATURES: 6}[adjacency]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_more_records_than_the_public_limit_cost_no_more(adjacency, monkeypatch):
    """Clipping is post-processing of the noisy number, also where the exact number is outside its range."""
    campaign = campaign_of(DISCRETE, max_records=1)
    channel = Channel(campaign, monkeypatch)
    channel.exact(())
    high = channel.law[0].high
    many = high + 5
    beyond = [largest_log_ratio(channel.law[0], a, b) for a in (high, high + 1, many) for b in (a - 1, a + 1)]
    assert max(beyond) <= channel.law[0].rate
    assert worst(channel, adjacency, 1) <= Fraction(cost_micro(campaign, adjacency), MICRO)


def test_every_single_output_of_a_count(monkeypatch):
    """The outputs at which the law bends suffice: no other has a larger ratio, and the probabilities sum to 1."""
    channel = Channel(campaign_of(DISCRETE, max_records=3), monkeypatch)
    exact = channel.exact((0, 0, 1))[0]
    number = channel.law[0]
    assert number.high - number.low < 1000
    for b in (exact - 1, exact + 1, exact - 2):
        every = [log_ratio(number, exact, b, y) for y in range(number.low, number.high + 1)]
        assert max(every) == largest_log_ratio(number, exact, b) == abs(exact - b) * number.rate
    q = float(exp_below(-number.rate))
    inside = sum((1 - q) / (1 + q) * q ** abs(y - exact) for y in range(number.low + 1, number.high))
    ends = (q ** (number.high - exact) + q ** (exact - number.low)) / (1 + q)
    assert abs(inside + ends - 1) < 1e-12


def fails(monkeypatch, adjacency=ADD_REMOVE, family=GAUSSIAN):
    """Whether the test above refuses the code as it is now."""
    channel = Channel(campaign_of(family), monkeypatch)
    try:
        return worst(channel, adjacency, 1) > Fraction(cost_micro(channel.campaign, adjacency), MICRO)
    except AssertionError:
        return True


def halved(vector, stream):
    return vectors.with_noise(vector._replace(epsilon_micro=2 * vector.epsilon_micro), stream)


def halved_squares(vector, stream):
    return halved(vector, stream) if vector.subject.power == 2 else vectors.with_noise(vector, stream)


def missing_on_one_entry(vector, stream):
    found = vectors.with_noise(vector, stream)
    return found._replace(values=(vector.values[0], *found.values[1:]))


def more_where_more_is_counted(vector, stream):
    share = vector.epsilon_micro // (1 + (sum(vector.values) > 1))
    return vectors.with_noise(vector._replace(epsilon_micro=share), stream)


@pytest.mark.parametrize("wrong", [halved, halved_squares, missing_on_one_entry, more_where_more_is_counted])
def test_wrong_noise_is_refused(wrong, monkeypatch):
    monkeypatch.setattr(release, "with_noise", wrong)
    assert fails(monkeypatch)
    assert fails(monkeypatch, CHANGE)


def test_a_range_that_follows_from_the_records_is_refused(monkeypatch):
    right = release.noisy_sums

    def wrong(campaign, exact, epsilon_micro, seed):
        return [min(number, 2 * max(exact) + 1000) for number in right(campaign, exact, epsilon_micro, seed)]

    monkeypatch.setattr(release, "noisy_sums", wrong)
    assert fails(monkeypatch)
