"""The guarantee sheet: when shuffling counts, what devices and nodes spend, how far lies reach, and the page."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from support.commands import run
from support.failures import reason, reason_of
from support.nodes import PERIOD
from support.publisher import DAY, NOW, Publisher, small_schema

from aggregator.cards.guarantee import guarantee_sheet, node_guarantee, spending
from aggregator.cards.manipulation import TableClaim, moved_share
from aggregator.estimates.class_shares import class_shares
from aggregator.models.postprocess.noisy_sums import floored_tables
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Total
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol.documents.campaign import build_payload, parse_campaign
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.features import Categorical
from protocol.nodes.terms import NodeTerms, ranges, released_vectors
from protocol.questions import MOMENT
from protocol.schema import Label, build_schema

SCHEMA = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"]), Categorical("y", ["u", "v", "w"])])
REFUSING = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"], unlisted="refuse")])


def payload(mechanism="oue", epsilon_micro=1_000_000, answers=1, schema=SCHEMA, **more):
    parameters = CampaignParameters("c", epsilon_micro, mechanism, answers, postprocess="simplex", **more)
    return build_campaign(schema, parameters, 1, NOW)


def test_a_central_epsilon_is_stated_only_for_shuffled_reports_of_enough_devices():
    alone = guarantee_sheet(payload()).central
    assert len(alone.obstacles) == 2
    assert alone.epsilon is None
    assert "--shuffled" in guarantee_sheet(payload(), devices=1000).central.obstacles[0]
    few = guarantee_sheet(payload(), devices=3, shuffled=True).central
    assert "too few" in few.obstacles[0]
    many = guarantee_sheet(payload(), devices=10_000, shuffled=True).central
    assert many.obstacles == ()
    assert 0 < many.epsilon == many.bounds.numeric < 0.1
    refusing = guarantee_sheet(payload(schema=REFUSING), devices=10_000, shuffled=True).central
    assert "refuse" in refusing.obstacles[0]


def test_several_answers_take_the_smaller_one_of_two_bounds():
    central = guarantee_sheet(payload("direct", 4_000_000, 2), devices=20_000, shuffled=True).central
    assert central.by_stratum
    assert central.epsilon < central.bounds.numeric < central.local


@pytest.mark.parametrize(
    ("epsilon_micro", "period_seconds", "days", "day", "life", "answered"),
    [
        (1_000_000, DAY, 30, 1_000_000, 31_000_000, 31),
        (1_000_000, 3600, 30, 4_000_000, 100_000_000, 100),
        (500_000, 3600, 3, 4_000_000, 12_000_000, 24),
        (4_000_000, DAY, 60, 4_000_000, 100_000_000, 25),
        (8_000_000, DAY, 10, 8_000_000, 88_000_000, 11),
    ],
)
def test_what_a_device_spends(epsilon_micro, period_seconds, days, day, life, answered):
    raw = payload("direct", epsilon_micro, period_seconds=period_seconds, lifetime_seconds=days * DAY)
    spent = spending(parse_campaign(raw))
    assert (spent.period, spent.day, spent.life, spent.answered) == (epsilon_micro, day, life, answered)


def test_a_sheet_says_what_no_test_can_see_and_where_the_best_test_of_set_bits_is_weak():
    assert "direct" in " ".join(guarantee_sheet(payload("direct")).unseen)
    assert "set one bit" in " ".join(guarantee_sheet(payload("oue")).unseen)
    assert "set one bit" not in " ".join(guarantee_sheet(payload("she")).unseen)

    def said(epsilon_micro, devices=None):
        sheet = guarantee_sheet(payload("oue", epsilon_micro), devices=devices)
        return [one for one in sheet.unseen if "set one bit only" in one]

    assert "1 % of 100000 reports, in 20% of such campaigns" in said(4_000_000)[0]
    assert "1 % of 5000 reports" in said(4_000_000, 5000)[0]
    assert said(4_000_000, 1_000_000) == said(1_000_000) == []


WRONG = [{"devices": 0}, {"devices": 10**15 + 1}, {"liars": (2.0,)}]


@pytest.mark.parametrize("wrong", [*WRONG, *({"delta": delta} for delta in (float("nan"), 0.0, 1.0))])
def test_wrong_arguments_are_refused(wrong):
    assert reason_of(InputError, guarantee_sheet, payload(), **wrong) == "argument_invalid"


def test_the_command_prints_the_sheet_and_the_same_as_json(tmp_path):
    """The numeric bound takes 10⁹ reports at most, so the closed form is smaller for more."""
    raw = Publisher().campaign()
    (tmp_path / "c.hsc").write_bytes(raw)

    def page(*arguments):
        return run("guarantee", tmp_path / "c.hsc", "--shuffled", *arguments).stdout

    printed = page("--devices", 5000)
    assert re.search(r"^central ε after shuffling, δ = 1e-06 .*\(numeric bound\)", printed, re.MULTILINE)
    assert re.search(r"^central ε .*\(closed form\)", page("--devices", 10**14), re.MULTILINE)
    assert "δ is not below 1/N" in page("--devices", 5000, "--delta", 0.001)
    assert "δ is not below 1/N" not in printed
    assert "too few (1)" in page("--devices", 1)
    assert "closed 0.9999999" in page("--devices", 5000, "--liars", 0.9999999)
    found = json.loads(page("--devices", 5000, "--liars", 0.02, "--json"))
    assert found["shuffled"]["applies"]
    assert list(found["lies"][0]["closed"]) == ["0.02"]
    assert found["privacy"]["holds"]
    assert found["device"]["epsilon_per_period"] == "1"
    (tmp_path / "r.hst").write_bytes(Publisher().root())
    assert "not_a_campaign" in run("guarantee", tmp_path / "r.hst", status=1).output


def test_a_campaign_that_has_ended_promises_nothing_more():
    found = parse_campaign(payload())
    texts = {name: getattr(found, name) for name in ("purpose", "contact", "time_precision", "min_batch_size", "fit")}
    ended = build_payload(found.header._replace(version=2), found.stated, (), epsilon_micro=0, **texts)
    sheet = guarantee_sheet(ended, devices=1000, shuffled=True)
    assert sheet.unseen == sheet.lies == ()
    assert sheet.central.obstacles == ("the campaign has ended: there are no reports",)


# Nodes ------------------------------------------------------------------------------------------------


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
