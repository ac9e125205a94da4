"""Campaigns for nodes: what is signed, what is refused, and the exact ε that a summary spends."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.failures import reason
from support.publisher import NOW, key, small_schema
from support.reports import opened

import aggregator
from aggregator.nodes.campaigns.campaigns import make_node_campaign
from aggregator.nodes.campaigns.lists import make_node_list
from aggregator.nodes.campaigns.sheet import is_refused, node_sheet, node_warnings, noise_text, usual_cost
from aggregator.operations.campaigns import make_campaign
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.workspace import open_workspace
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.features import Categorical
from protocol.schema import Label, build_schema

CATEGORIES = build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "n", "f"])])


def make(work, schema=None, **changes):
    given = {"epsilon": 1, "nodes": "clinics", "max_records": 1000, "name": "sums", "now": NOW} | changes
    return make_node_campaign(work, small_schema() if schema is None else schema, **given)


def test_a_campaign_for_nodes_has_terms_and_no_questions(work):
    made = make(work)
    found = made.campaign
    assert found.nodes == ("clinics", 1000, MICRO, "global")
    assert (found.questions, found.answers, found.ended, found.fit.family) == ((), 0, False, "gaussian")
    assert made.standing.complete
    assert any("no node list 'clinics'" in text for text in made.warnings)
    make_node_list(work, "clinics", [key(21).public], now=NOW)
    second = make(work)
    assert second.warnings == ()
    assert second.campaign.header.version == 2
    assert aggregator.make_node_campaign is make_node_campaign


def test_the_family_follows_from_the_schema(work):
    assert make(work, CATEGORIES).campaign.fit.family == "discrete"
    assert make(work, family="discrete").campaign.fit.family == "discrete"


def test_asking_leaves_features_out_of_the_document_and_groups_values(work):
    found = make(work, ask={"odor": AskedFeature((("a", "n"),))}).campaign
    assert [feature.name for feature in found.stated.features] == ["odor"]
    assert found.schema.observed[0].size == 2
    assert make(work, ask="width").campaign.schema.observed[0].name == "width"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epsilon": 0}, "epsilon_invalid"),
        ({"epsilon": "x"}, "epsilon_invalid"),
        ({"least_epsilon": 2}, "terms_invalid"),
        ({"max_records": 0}, "terms_invalid"),
        ({"max_records": (1 << 40) + 1}, "terms_invalid"),
        ({"max_records": 10.0}, "terms_invalid"),
        ({"nodes": ""}, "invalid_campaign"),
        ({"sensitivity": "local"}, "invalid_campaign"),
        ({"family": "truncated-gaussian"}, "family_unknown"),
        ({"schema": CATEGORIES, "family": "gaussian"}, "no_numbers"),
        ({"family": "discrete", "variance_floor": "0.1"}, "family_unknown"),
        ({"variance_floor": "2"}, "floor_invalid"),
        ({"period": "0d"}, "period_invalid"),
        ({"days": 0}, "terms_invalid"),
        ({"postprocess": "none-such"}, "postprocess_unknown"),
        ({"ask": {"odor": AskedFeature(share=2)}}, "ask_invalid"),
        ({"ask": "smell"}, "ask_invalid"),
        ({"name": None}, "name_invalid"),
        ({"epsilon": "0.000003"}, "invalid_campaign"),
    ],
)
def test_refusals_use_no_version(work, changes, expected):
    assert reason(lambda: make(work, **changes)) == expected
    assert open_workspace(work.path).history() == []


def test_a_campaign_for_nodes_ends_as_others_do(work):
    make(work)
    ended = opened(end_campaign(work, "sums", NOW + 1))
    assert ended.ended
    assert ended.nodes is None
    assert reason(lambda: end_campaign(work, "sums", NOW + 2)) == "campaign_ended"


def test_the_sheet_recomputes_every_vector_s_loss(work):
    """small_schema: counts of 2 classes, 2 × 4 cells of odor, sums and squares of width: 4 vectors."""
    sheet = node_sheet(make(work).campaign)
    assert [vector.size for vector in sheet.vectors] == [2, 8, 2, 2]
    assert [vector.sensitivity for vector in sheet.vectors] == [1] * 4
    assert {vector.epsilon_micro for vector in sheet.vectors} == {250_000}
    assert sheet.total("add-remove") == 1
    assert sheet.total("change") == 2
    assert sheet.total("change-features") == Fraction(5, 4)  # class counts do not change, squares by S at most
    assert sheet.booked_micro == {"add-remove": MICRO, "change": 2 * MICRO, "change-features": 2 * MICRO}
    assert sheet.holds
    count, _, total, square = (vector.deviation for vector in sheet.vectors)
    assert count == pytest.approx(5.6421, abs=1e-3)  # √(2q)/(1 − q), q = e^{−1/4}
    assert total == square == pytest.approx(2**0.5 * 4, abs=1 / SCALE)


def test_a_sheet_that_spends_more_than_it_books_does_not_hold(work):
    sheet = node_sheet(make(work).campaign)
    assert not sheet._replace(booked_micro={"add-remove": 999_999}).holds


def test_what_does_not_divide_is_not_spent(work):
    sheet = node_sheet(make(work, epsilon="0.999999").campaign)
    assert sheet.total("add-remove") == Fraction(4 * 249_999, MICRO)
    assert sheet.holds


def test_warnings_speak_of_changed_records(work):
    assert usual_cost(make(work).campaign) == 2 * MICRO
    assert node_warnings(make(work, epsilon=1).campaign) == ("", "", "")
    _, _, limits = node_warnings(make(work, epsilon=3).campaign)
    assert "would count ε = 6 for a summary" in limits
    _, high, _ = node_warnings(make(work, epsilon=11).campaign)
    assert "ε = 22 for a changed record" in high
    _, _, pace = node_warnings(make(work, epsilon=2, period="6h").campaign)
    assert pace.startswith("a node whose owner set no limits answers 1 of the 4 periods")


def test_smooth_sensitivity_books_changed_features_alone_and_says_so(work):
    found = make(work, sensitivity="smooth").campaign
    sheet = node_sheet(found)
    assert sheet.booked_micro == {"change-features": MICRO}
    assert [vector.losses["change-features"] for vector in sheet.vectors] == [0, *[Fraction(1, 4)] * 3]
    assert [vector.sensitivity for vector in sheet.vectors] == [1, 2, 2, 1]
    assert sheet.vectors[3].deviation > sheet.vectors[2].deviation > sheet.vectors[0].deviation
    assert sheet.holds
    uncovered, _, _ = node_warnings(found)
    assert 'node_adjacency = "change-features"' in uncovered


def test_texts_on_smooth_campaigns_speak_of_what_these_cover(work):
    """One range of deviations; changed features in place of changed records; owners who set node_adjacency."""
    found = make(work, sensitivity="smooth", epsilon=21).campaign
    deviations = [vector.deviation for vector in node_sheet(found).vectors]
    assert noise_text(node_sheet(found)).startswith(
        f"standard deviation {min(deviations):.4g} to {max(deviations):.4g} records"
    )
    _, high, limits = node_warnings(found)
    assert high == "ε = 21 for changed features of a record; above 20 it hides next to nothing of a record"
    assert limits.startswith("a node with that node_adjacency whose owner set no limits refuses this campaign")
    assert is_refused(make(work, sensitivity="smooth").campaign)
    assert is_refused(make(work, epsilon=3).campaign)
    assert not is_refused(make(work).campaign)


def test_a_name_is_of_devices_or_of_nodes_and_not_of_both(work):
    """Devices fetched a campaign for nodes as the next version of their own, and refused it for ever."""
    made = make_campaign(work, small_schema(), epsilon=1, mechanism="direct", name="ward", now=NOW)
    assert made.campaign.header.version == 1
    assert reason(make, work, name="ward") == "name_taken"
    assert make(work, name="ward-nodes").campaign.header.version == 1
    assert (
        reason(make_campaign, work, small_schema(), epsilon=1, mechanism="direct", name="ward-nodes", now=NOW)
        == "name_taken"
    )
    assert work.latest("campaign", "ward").version == 1
