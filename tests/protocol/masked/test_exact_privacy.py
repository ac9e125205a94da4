"""The privacy of what an aggregator and its helpers see in a masked campaign, by enumeration of small cases.

They see the totals of a released set. They know what colluding parties added, so these parties' noise protects nobody.
What remains is the noise of the honest parties: here at the smallest sets that are released, for all numbers u that
parties can have, with colluders removed. Data sets are all those of few records; e^−rate is a rational number q, so
probabilities are fractions. e^ε is then a power of 1/q.
"""

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from math import ceil

import numpy as np
import pytest
from support.masked import TERMS, masked_campaign
from support.publisher import Publisher

from edge_sdk.node import encryption
from edge_sdk.node.sums import ExactSums
from edge_sdk.policy import Policy
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.masked_terms import DILUTED, PARTY, RECORD
from protocol.epsilon import MICRO
from protocol.features import Categorical, Numeric
from protocol.masked import noise
from protocol.masked.costs import (
    PICO,
    cost,
    delta_of,
    delta_share,
    honest_parties,
    least_parties,
    moved,
    ranges_of,
    rates,
)
from protocol.masked.noise import COIN, noise_of
from protocol.nodes.terms import NodeTerms, cost_micro, released_vectors, shares
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE, CHANGE_FEATURES
from protocol.schema import Label, build_schema

EPSILON = 1_200_000
CAP = 2
DELTA_PICO = 10**9
Q = Fraction(1, 2)
"""q = e^−rate of the enumerated laws. Every law is taken for this q; the rates of a campaign are ε_q/Δ_q."""


def campaign_of(kind=TERMS.noise, unit=RECORD, family=DISCRETE, *, with_number=False, **terms):
    features = [Categorical("colour", ["red", "blue"], substitute=0)]
    if with_number:
        features.append(Numeric("size", "0", "1", [0], substitute=None))
    return masked_campaign(
        family,
        Publisher(schema=build_schema(Label("label", ["a", "b"]), features)),
        terms=NodeTerms("wards", CAP, EPSILON),
        epsilon_micro=EPSILON,
        masked=TERMS._replace(
            noise=kind, unit=unit, delta_pico=DELTA_PICO if kind == DILUTED else 0, slot_bits=64, **terms
        ),
    )


def kinds(sizes=(0,)):
    return [
        {"label": label, "colour": colour, "size": size}
        for label, colour, size in product(("a", "b"), ("red", "blue"), sizes)
    ]


class Totals:
    """Exact totals of data sets, which are sorted tuples of places in a list of possible records."""

    def __init__(self, campaign, records):
        self.records = records
        self._subjects = released_vectors(campaign)
        self._schema = campaign.schema
        self._known = {}
        self.rates = [
            each for each, subject in zip(rates(campaign), self._subjects, strict=True) for _ in range(subject.size)
        ]

    def exact(self, places):
        if places not in self._known:
            sums = ExactSums(self._schema, self._subjects)
            sums.add_all([self.records[place] for place in places])
            self._known[places] = np.array(sums.totals)
        return self._known[places]

    def sets(self, most):
        """All data sets of at most ``most`` records."""
        return [
            each for size in range(most + 1) for each in combinations_with_replacement(range(len(self.records)), size)
        ]

    def pairs(self, unit, adjacency, most=2):
        """All pairs of neighbours. For the unit ``party`` the data sets are those of the one party that differs."""
        if unit == PARTY:
            sets = self.sets(CAP)
            if adjacency == ADD_REMOVE:
                return [((), other) for other in sets]
            return [(one, other) for one in sets for other in sets if adjacency == CHANGE or self.labels(one, other)]
        found = []
        for one in self.sets(most):
            if adjacency == ADD_REMOVE:
                found += [(one, tuple(sorted((*one, new)))) for new in range(len(self.records))]
            else:
                found += [
                    (one, tuple(sorted((*one[:at], new, *one[at + 1 :]))))
                    for at, new in product(range(len(one)), range(len(self.records)))
                    if adjacency == CHANGE or self.labels((one[at],), (new,))
                ]
        return found

    def labels(self, one, other):
        """Whether two data sets have the same labels."""
        return sorted(self.records[at]["label"] for at in one) == sorted(self.records[at]["label"] for at in other)

    def differences(self, unit, adjacency, most=2):
        """The distinct vectors of differences of all pairs of neighbours."""
        return {
            tuple(int(x) for x in self.exact(one) - self.exact(other))
            for one, other in self.pairs(unit, adjacency, most)
        }


# Who is in the total


def sets_of_honest_parties(campaign, parties):
    """The numbers u of the honest members of every smallest set that is released, for all u of (n/2, n]."""
    terms = campaign.masked
    colluding = terms.colluding_micro * parties // MICRO
    least = least_parties(terms, parties)
    for us in product(range(parties // 2 + 1, parties + 1), repeat=parties):
        for members in combinations(range(parties), least):
            for bad in combinations(members, min(colluding, least)):
                yield [us[i] for i in members if i not in bad]


SHARES = [(1_000_000, 0), (500_000, 250_000), (500_000, 500_000), (333_334, 200_000), (1, 0), (750_001, 200_000)]


@pytest.mark.parametrize("parties", [2, 3, 4])
@pytest.mark.parametrize(("honest", "colluding"), SHARES)
def test_honest_parties_of_every_released_set_add_a_whole_copy(honest, colluding, parties):
    campaign = campaign_of(honest_micro=honest, colluding_micro=colluding)
    diluted = campaign_of(DILUTED, honest_micro=honest, colluding_micro=colluding)
    least = Fraction(10**9)
    for us in map(tuple, {tuple(sorted(each)) for each in sets_of_honest_parties(campaign, parties)}):
        least = min(least, sum(Fraction(1, noise_of(campaign, u)[0].honest) for u in us))
        nobody = Fraction(1)
        for u in us:
            nobody *= 1 - Fraction(noise_of(diluted, u)[0].chance, COIN)
        assert nobody <= delta_share(diluted)
    assert least == 1  # reached where all honest parties have u = n


@pytest.mark.parametrize("parties", [2, 3, 7, 10, 1000, 65_536])
@pytest.mark.parametrize(("honest", "colluding"), SHARES)
def test_the_same_for_many_parties(honest, colluding, parties):
    """The worst numbers are u = n. The number of honest parties is least for the smallest set."""
    campaign = campaign_of(honest_micro=honest, colluding_micro=colluding)
    number = least_parties(campaign.masked, parties) - colluding * parties // MICRO
    assert number == ceil(Fraction(honest, MICRO) * parties) == honest_parties(campaign.masked, parties)
    assert all(
        1 <= honest_parties(campaign.masked, u) <= number for u in (parties // 2 + 1, parties - parties // 7, parties)
    )


def test_a_set_with_one_party_fewer_lacks_noise():
    campaign = campaign_of(honest_micro=500_000, colluding_micro=250_000)
    us = [4] * (least_parties(campaign.masked, 4) - 1 - 1)
    assert sum(Fraction(1, noise_of(campaign, u)[0].honest) for u in us) < 1


# Divided noise


def law(shape, q, reach):
    """Bounds of P(k)/(1 − q)^{2R}, k = 0 … reach, for the difference of two negative binomial numbers of shape R ≤ 2.

    P(k) = Σ_j c_j c_{j+k} q^{2j+k}, c_j = C(j + R − 1, j) ≤ j + 1. The rest of the sum after the last term is below
    Σ_j (j + reach + 1)² q^{2j}.
    """
    terms = 60 if q <= Fraction(1, 2) else 200
    c = [Fraction(1)]
    for j in range(1, terms + reach):
        c.append(c[-1] * (j - 1 + shape) / j)
    rest = (terms + reach + 1) ** 2 * q ** (2 * terms) * 4
    for k in range(reach + 1):
        low = sum(c[j] * c[j + k] * q ** (2 * j) for j in range(terms))
        yield low * q**k, (low + rest) * q**k


def largest_ratio(shape, q, reach=6):
    """Bounds of the largest P(k)/P(k + 1), 0 ≤ k < reach: of two data sets whose totals differ by 1."""
    if shape == 1:
        return 1 / q, 1 / q  # P(k) = q^k/(1 − q²) exactly: the sum is geometric
    found = list(law(shape, q, reach))
    ratios = [(found[k][0] / found[k + 1][1], found[k][1] / found[k + 1][0]) for k in range(reach)]
    return max(low for low, _ in ratios), max(high for _, high in ratios)


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10)])
def test_a_whole_copy_or_more_has_the_ratio_of_epsilon_and_less_has_not(q):
    for shape in (Fraction(1), Fraction(31, 30), Fraction(3, 2), Fraction(2)):
        assert largest_ratio(shape, q)[1] <= 1 / q
    for shape in (Fraction(29, 30), Fraction(1, 2), Fraction(2, 3)):  # one of 30 honest parties fewer; half the noise
        assert largest_ratio(shape, q)[0] > 1 / q


CASES = [(RECORD, DISCRETE, False), (RECORD, GAUSSIAN, True), (PARTY, DISCRETE, False), (PARTY, GAUSSIAN, True)]


def divided_losses(campaign, adjacency, records, most=1):
    """The losses of all pairs of neighbours under exactly one whole copy, Σ|difference|·rate, as fractions."""
    totals = Totals(campaign, records)
    return [
        sum(abs(d) * each for d, each in zip(ds, totals.rates, strict=True))
        for ds in totals.differences(campaign.masked.unit, adjacency, most)
    ]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("unit", "family", "with_number"), CASES)
def test_divided_noise_costs_what_is_stated_and_no_less(unit, family, with_number, adjacency):
    check_divided(campaign_of(unit=unit, family=family, with_number=with_number), with_number, adjacency)


def check_divided(campaign, with_number, adjacency, most=1):
    records = kinds((None, 0, 1) if with_number else (0,))
    found = max(divided_losses(campaign, adjacency, records, most))
    spent = Fraction(sum(shares(campaign)), MICRO)
    booked, delta = cost(campaign, adjacency)
    assert delta == 0
    assert booked == cost_micro(campaign, adjacency)
    assert found <= Fraction(booked, MICRO)
    if adjacency != CHANGE_FEATURES:
        assert found == spent * (2 if adjacency == CHANGE else 1)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_same_for_data_sets_of_two_and_three_records(adjacency):
    check_divided(campaign_of(family=GAUSSIAN, with_number=True), True, adjacency, most=2)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("family", [DISCRETE, GAUSSIAN])
def test_sums_cut_off_at_their_range_differ_no_more(family, adjacency):
    """A party of the unit ``record`` with more records than ``max_records``: every entry is cut off by itself."""
    campaign = campaign_of(family=family, with_number=True)
    totals = Totals(campaign, kinds((None, Fraction(1, 4), 1)))
    subjects = released_vectors(campaign)
    low, high = (np.repeat([each[end] for each in ranges_of(campaign)], [s.size for s in subjects]) for end in (0, 1))
    fold = 1 if adjacency == ADD_REMOVE else 2
    most = np.array([fold * delta_of(campaign, subject) for subject in subjects])
    starts = np.cumsum([0] + [subject.size for subject in subjects[:-1]])
    beyond = 0
    for one, other in totals.pairs(RECORD, adjacency):
        sums = [totals.exact(each) + totals.exact((0, 0)) for each in (one, other)]
        beyond += sum((each > high).any() for each in sums)
        first, second = (np.clip(each, low, high) for each in sums)
        assert (np.add.reduceat(abs(first - second), starts) <= most).all()
    assert beyond


@pytest.mark.parametrize("unit", [RECORD, PARTY])
def test_rates_twice_as_large_are_seen(unit, monkeypatch):
    """Half the noise: the rates of the unit ``record`` for a party of two records, or ε twice."""
    campaign = campaign_of(unit=unit)
    doubled = [2 * each for each in rates(campaign)]
    monkeypatch.setitem(globals(), "rates", lambda _: doubled)
    assert max(divided_losses(campaign, ADD_REMOVE, kinds())) > Fraction(cost(campaign, ADD_REMOVE)[0], MICRO)


# Numbers that one unit moves


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("unit", "family", "with_number"), [*CASES, (RECORD, DISCRETE, True), (PARTY, DISCRETE, True)])
def test_as_many_numbers_move_as_is_stated(unit, family, with_number, adjacency):
    campaign = campaign_of(unit=unit, family=family, with_number=with_number)
    totals = Totals(campaign, kinds((None, Fraction(1, 4), 1) if with_number else (0,)))
    most = max(sum(d != 0 for d in ds) for ds in totals.differences(unit, adjacency, most=1))
    assert most == moved(campaign, adjacency)


# Diluted noise


def copies(parts):
    """P(c of these honest parties add a whole copy), c = 0, 1, 2."""
    chances = [Fraction(1)]
    for part in parts:
        beta = Fraction(part.chance, COIN)
        chances = [
            (chances[c] if c < len(chances) else 0) * (1 - beta) + (chances[c - 1] * beta if c else 0)
            for c in range(len(chances) + 1)
        ]
    return chances


def laplace(k, count, q):
    """P(the sum of ``count`` ≤ 2 discrete Laplace numbers is k)."""
    k = abs(k)
    if count == 0:
        return Fraction(k == 0)
    each = (1 - q) / (1 + q)
    return each * q**k if count == 1 else each**2 * q**k * (k + 1 + 2 * q**2 / (1 - q**2))


def classes(chances, difference, q, reach=8):
    """P and P' of one number under two data sets, for every output: float64 of shape (2, outputs).

    Where both totals are further than ``reach`` away a copy or more was added. All these outputs are one, with P' as
    small as copies allow, P·q^|difference|: an upper bound of what they need.
    """
    outputs = range(min(0, difference) - reach, max(0, difference) + reach + 1)
    law = [
        [sum(chance * laplace(y - shift, count, q) for count, chance in enumerate(chances)) for y in outputs]
        for shift in (0, difference)
    ]
    rest = 1 - sum(law[0])
    return np.array(
        [[float(x) for x in law[0]] + [rest], [float(x) for x in law[1]] + [rest * q ** abs(difference)]], float
    )


def joint(tables):
    """P and P' of several independent numbers; outputs with equal ratio are one."""
    found = np.ones((2, 1))
    for table in tables:
        both = (found[:, :, None] * table[:, None, :]).reshape(2, -1)
        _, place = np.unique(np.round(np.log(both[0] / both[1]), 9), return_inverse=True)
        found = np.array([np.bincount(place, each) for each in both])
    return found


def delta_needed(parts, differences, exponent, q=Q):
    """The smallest δ for these two data sets at e^ε = q^−exponent: Σ max(0, P − e^ε·P') over all outputs.

    Right to about 1e-9, and from above.
    """
    chances = copies(parts)
    one, other = joint([classes(chances, d, q) for d in differences if d])
    return float(np.maximum(one - float(q) ** -exponent * other, 0).sum())


def parts_of(campaign, us):
    return [noise_of(campaign, u)[0] for u in us]


def worst_delta(campaign, adjacency, parts):
    """The largest δ that any pair of neighbours needs, at the ε that is booked. Distinct counts of differences only."""
    unit = campaign.masked.unit
    totals = Totals(campaign, kinds())
    vectors = len(released_vectors(campaign))
    exponent = vectors * (CAP if unit == PARTY else 1) * (1 if adjacency == ADD_REMOVE else 2)
    found = {tuple(sorted(abs(d) for d in ds if d)) for ds in totals.differences(unit, adjacency)}
    return max(delta_needed(parts, ds, exponent) for ds in found)


SETTINGS = [
    # γ, κ, parties; the numbers u of the honest parties of the smallest set
    (500_000, 500_000, 2, [2]),
    (500_000, 250_000, 4, [4, 4]),
    pytest.param(500_000, 250_000, 4, [3, 4], marks=pytest.mark.slow),
    (1_000_000, 0, 2, [2, 2]),
]


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, CHANGE])
@pytest.mark.parametrize("unit", [RECORD, PARTY])
@pytest.mark.parametrize(("honest", "colluding", "parties", "us"), SETTINGS)
def test_diluted_noise_costs_at_most_what_is_stated(honest, colluding, parties, us, unit, adjacency):
    campaign = campaign_of(DILUTED, unit, honest_micro=honest, colluding_micro=colluding)
    assert len(us) == least_parties(campaign.masked, parties) - colluding * parties // MICRO
    stated = cost(campaign, adjacency)[1] / PICO
    found = worst_delta(campaign, adjacency, parts_of(campaign, us))
    assert found <= stated * (1 + 1e-6)
    assert len(us) > 1 or found > stated / 6  # one party's noise needs nearly all of δ; that of two hides more


@pytest.mark.parametrize("unit", [RECORD, PARTY])
@pytest.mark.parametrize("adjacency", [ADD_REMOVE, CHANGE])
def test_too_little_diluted_noise_is_refused(unit, adjacency):
    campaign = campaign_of(DILUTED, unit, honest_micro=500_000, colluding_micro=250_000)
    stated = cost(campaign, adjacency)[1] / PICO
    right = parts_of(campaign, [4, 4])
    half_of_beta = [part._replace(chance=part.chance // 2) for part in right]
    for wrong in (right[:1], half_of_beta):
        assert worst_delta(campaign, adjacency, wrong) > 2 * stated
    alone = campaign_of(DILUTED, unit, honest_micro=500_000, colluding_micro=500_000)
    (part,) = parts_of(alone, [2])
    assert worst_delta(alone, adjacency, [part]) <= stated * (1 + 1e-6)
    assert worst_delta(alone, adjacency, [part._replace(chance=part.chance * 99 // 100)]) > 2 * stated


def test_noise_of_half_the_width_is_refused():
    """The law at q² in place of q, for the ε of q."""
    campaign = campaign_of(DILUTED, honest_micro=500_000, colluding_micro=250_000)
    parts, stated = parts_of(campaign, [4, 4]), cost(campaign, ADD_REMOVE)[1] / PICO
    assert delta_needed(parts, (1, 1), 2) <= stated
    assert delta_needed(parts, (1, 1), 2, q=Q) < 0.01 < delta_needed(parts, (1, 1), 1, q=Q**2)


def test_one_party_alone_needs_all_of_delta():
    """One honest party and one number: no noise with probability 1 − β. The bound is reached."""
    campaign = campaign_of(DILUTED, honest_micro=500_000, colluding_micro=500_000)
    part = parts_of(campaign, [2])
    nobody = 1 - part[0].chance / COIN
    assert delta_needed(part, (1,), 1) == pytest.approx(nobody, rel=1e-6)
    assert nobody <= float(delta_share(campaign))


# What a party draws


@pytest.mark.parametrize("unit", [RECORD, PARTY])
def test_a_party_draws_its_part_for_every_number_with_the_rate_of_its_vector(unit, monkeypatch):
    """The laws above are those that the code of a node asks for: one draw per number, rates and h as stated."""
    campaign = campaign_of(unit=unit, family=GAUSSIAN, with_number=True, honest_micro=500_000)
    asked = []
    monkeypatch.setattr(noise, "divided", lambda stream, rate, honest: asked.append((rate, honest)) or 1 << 80)
    drawn = encryption.drawn_noise(campaign, 5, bytes(32))
    assert drawn == [1 << 80] * sum(subject.size for subject in released_vectors(campaign))  # without a limit
    assert asked == [(each, 3) for each in Totals(campaign, []).rates]


# Costs


def car():
    """A schema with the sizes of the car data: six features of 4, 4, 4, 3, 3 and 3 values, four classes."""
    sizes = (4, 4, 4, 3, 3, 3)
    features = [Categorical(f"f{i}", [str(v) for v in range(size)]) for i, size in enumerate(sizes)]
    return Publisher(schema=build_schema(Label("label", ["unacc", "acc", "good", "vgood"]), features))


@pytest.mark.parametrize("kind", [TERMS.noise, DILUTED])
def test_car_costs_seven_times_the_epsilon_of_a_count_and_fourteen_when_a_record_changes(kind):
    each = 100_000
    campaign = masked_campaign(
        DISCRETE,
        car(),
        terms=NodeTerms("wards", 1000, 7 * each),
        epsilon_micro=7 * each,
        masked=TERMS._replace(noise=kind, delta_pico=7_000_000 if kind == DILUTED else 0),
    )
    delta = 7_000_000 if kind == DILUTED else 0
    assert shares(campaign) == (each,) * 7
    assert cost(campaign, ADD_REMOVE) == (7 * each, delta)
    assert cost(campaign, CHANGE) == (14 * each, 2 * delta)
    assert (moved(campaign, ADD_REMOVE), moved(campaign, CHANGE)) == (7, 14)
    for adjacency in (ADD_REMOVE, CHANGE):  # what the owner's ledger books
        policy = Policy.of(node_adjacency=adjacency)
        assert (policy.cost_micro(campaign), policy.cost_delta(campaign)) == cost(campaign, adjacency)
    assert delta_share(campaign) == Fraction(delta, 7 * PICO)
