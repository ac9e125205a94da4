"""The guarantee sheet of a campaign for nodes: no lie within the accepted ranges moves a class's share further."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.failures import reason
from support.nodes import PERIOD
from support.publisher import NOW, small_schema

from aggregator.cards.guarantee import node_guarantee
from aggregator.cards.manipulation import TableClaim, moved_share
from aggregator.estimates.class_shares import class_shares
from aggregator.models.postprocess.noisy_sums import floored_tables
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Total
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol.documents.campaign import parse_campaign
from protocol.epsilon import MICRO
from protocol.features import Categorical
from protocol.nodes.terms import NodeTerms, ranges, released_vectors
from protocol.questions import MOMENT
from protocol.schema import Label, build_schema


def asking(epsilon_micro=MICRO, max_records=1000, sensitivity="global", family="gaussian", schema=None):
    terms = NodeTerms("clinics", max_records, epsilon_micro, sensitivity)
    parameters = CampaignParameters("sums", epsilon_micro, family=family, nodes=terms)
    return parse_campaign(build_campaign(schema or small_schema(), parameters, 1, NOW))


def summed(found, rows, claim, nodes=20):
    """Totals of ``nodes`` nodes: honest ones with ``rows`` as their records of each class, and the claims of liars.

    ``claim``: the claimed (count of class 0, count of any other class) for the class counts, and for all other tables.
    """
    classes, numbers = len(rows), []
    for place, subject in enumerate(released_vectors(found)):
        values = np.zeros((subject.size // classes, classes), int)
        if subject.kind != MOMENT:
            values[0] = rows
            first, others = claim[min(place, 1)]
            values[:, 0] += first
            values[:, 1:] += others
        numbers += values.ravel().tolist()
    return Total(found.id, nodes, {found.epsilon_micro: nodes}, {PERIOD: sum(numbers[:classes])}, tuple(numbers))


@pytest.mark.parametrize("family", ["discrete", "gaussian"])
@pytest.mark.parametrize("epsilon_micro", [MICRO, 20_000])
@pytest.mark.parametrize("honest", [[500, 500], [0, 1000], [1000, 0], [3, 7]])
def test_no_claim_of_two_liars_among_twenty_nodes_moves_a_share_further(family, epsilon_micro, honest):
    """All claims at the ends of the accepted ranges, of each class, in the class counts and in the other tables."""
    found = asking(epsilon_micro, family=family)
    low, high = ranges(found)[0]
    told = node_guarantee(found, nodes=20, records=sum(honest), liars=[0.1]).reach[0].moved[0.1]
    total = [18 * count for count in honest]
    largest = 0.0
    for ends in itertools.product((2 * low, 2 * high), repeat=4):
        shares = class_shares(federated(found, summed(found, total, (ends[:2], ends[2:])))).share
        raw = float(np.clip(shares / shares.sum(), 0, 1)[0]) if shares.sum() > 0 else np.inf
        largest = max(largest, min(1.0, abs(raw - total[0] / sum(total))))
    assert largest <= told + 1e-12
    if 0 in honest:
        assert largest > 0.95 * told  # the bound is nearly reached


def test_a_published_share_moves_no_further():
    """One of 100 nodes with 8 features of 40 values claims in every table: the published share is within the bound."""
    schema = build_schema(
        Label("label", ["rare", "common"]),
        [Categorical(f"f{place}", [f"v{value}" for value in range(39)]) for place in range(8)],
    )
    found = asking(9 * MICRO, family="discrete", schema=schema)
    low, high = ranges(found)[0]
    told = node_guarantee(found, nodes=100, records=1000, liars=[0.01]).reach[0].moved[0.01]
    statistics = federated(found, summed(found, [0, 99_000], ((high, low), (high, low)), nodes=100))
    published = floored_tables(statistics, range(8)).prior[0]
    assert 0.2 < published <= told < 0.35


def test_many_classes_of_few_records_are_taken_away():
    """Where the noise's range exceeds the records of a node, claims of −H empty nine of ten classes."""
    classes, noise, records = 10, 5000, 100_000
    below = 2 * (classes - 1) * noise
    honest = [records - below, *[2 * noise] * (classes - 1)]
    claims = [TableClaim(1, noise, 10 + noise, 1.0)]
    told = moved_share(claims, classes, records / 18, 0.1, 20)
    lied = [honest[0] + 2 * (10 + noise), *(count - 2 * noise for count in honest[1:])]
    assert lied[0] / sum(lied) - honest[0] / records <= told + 1e-12
    assert lied[0] / sum(lied) - honest[0] / records == pytest.approx(told)


def test_what_a_node_books_in_a_campaign_s_life():
    spent = node_guarantee(asking(), liars=[0.1]).spending
    assert (spent.period, spent.day, spent.life, spent.answered) == (2 * MICRO, 2 * MICRO, 62 * MICRO, 31)
    sheet = node_guarantee(asking(sensitivity="smooth"), liars=[0.1])
    assert sheet.privacy.booked_micro == {"change-features": MICRO}
    assert sheet.spending.period == MICRO


@pytest.mark.parametrize("changes", [{"nodes": 0}, {"records": 0}, {"liars": [0]}, {"liars": [1]}])
def test_arguments_out_of_range_are_refused(changes):
    assert reason(lambda: node_guarantee(asking(), **({"liars": [0.1]} | changes))) == "argument_invalid"
