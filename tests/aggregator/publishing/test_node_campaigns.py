"""Campaigns for nodes and node lists: what is signed, what is refused, and the exact ε that a summary spends."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.failures import failure, reason
from support.publisher import NOW, key, small_schema
from support.reports import opened

from aggregator.nodes.campaigns.campaigns import make_node_campaign
from aggregator.nodes.campaigns.lists import add_nodes, current_list, make_node_list, remove_nodes, renew_nodes
from aggregator.nodes.campaigns.sheet import is_refused, node_sheet, node_warnings, noise_text, usual_cost
from aggregator.operations.campaigns import make_campaign
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.roots import ALL, RootChange, change_root, gather_copies, resign
from aggregator.publishing.signatures import check_payload, signed
from aggregator.publishing.tree import write_tree
from aggregator.publishing.workspace import open_workspace
from protocol import SCALE
from protocol.documents import trust
from protocol.documents.envelope import keyid, read_envelope, write_envelope
from protocol.documents.payload import DAY_SECONDS
from protocol.epsilon import MICRO
from protocol.features import Categorical
from protocol.nodes import summary as node_list
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
    ended = opened(end_campaign(work, "sums", NOW + 1))
    assert (ended.ended, ended.nodes) == (True, None)
    assert reason(end_campaign, work, "sums", NOW + 2) == "campaign_ended"


def test_the_family_follows_from_the_schema_and_asking_leaves_features_out_and_groups_values(work):
    assert make(work, CATEGORIES).campaign.fit.family == "discrete"
    assert make(work, family="discrete").campaign.fit.family == "discrete"
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
    sheet = node_sheet(make(work, epsilon="0.999999").campaign)
    assert sheet.total("add-remove") == Fraction(4 * 249_999, MICRO)
    assert sheet.holds
    assert not sheet._replace(booked_micro={"add-remove": 999_995}).holds


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
    found = make(work, sensitivity="smooth", epsilon=21).campaign
    deviations = [vector.deviation for vector in node_sheet(found).vectors]
    said = f"standard deviation {min(deviations):.4g} to {max(deviations):.4g} records"
    assert noise_text(node_sheet(found)).startswith(said)
    _, high, limits = node_warnings(found)
    assert high == "ε = 21 for changed features of a record; above 20 it hides next to nothing of a record"
    assert limits.startswith("a node with that node_adjacency whose owner set no limits refuses this campaign")
    assert is_refused(make(work, sensitivity="smooth").campaign)
    assert is_refused(make(work, epsilon=3).campaign)
    assert not is_refused(make(work).campaign)


def test_a_name_is_of_devices_or_of_nodes_and_not_of_both(work):
    """Devices fetched a campaign for nodes as the next version of their own, and refused it for ever."""
    terms = {"epsilon": 1, "mechanism": "direct", "now": NOW}
    assert make_campaign(work, small_schema(), name="ward", **terms).campaign.header.version == 1
    assert reason(make, work, name="ward") == "name_taken"
    assert make(work, name="ward-nodes").campaign.header.version == 1
    assert reason(make_campaign, work, small_schema(), name="ward-nodes", **terms) == "name_taken"
    assert work.latest("campaign", "ward").version == 1


# Node lists ------------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (key(number).public for number in (21, 22, 23))
YEAR = 365 * DAY_SECONDS


def ids(*publics):
    return {keyid(public).hex() for public in publics}


def names(made):
    return {hint.hex() for hint in made.document.nodes}


def test_versions_rise_and_the_campaign_role_signs(work):
    first = make_node_list(work, "clinics", [FIRST, SECOND], now=NOW)
    more = add_nodes(work, "clinics", [THIRD], now=NOW + 1)
    less = remove_nodes(work, "clinics", ids(FIRST), now=NOW + 2)
    assert [made.document.header.version for made in (first, more, less)] == [1, 2, 3]
    assert [made.changed for made in (first, more, less)] == [2, 1, 1]
    assert [names(made) for made in (first, more, less)] == [
        ids(FIRST, SECOND),
        ids(FIRST, SECOND, THIRD),
        ids(SECOND, THIRD),
    ]
    state = trust.pin(work.root_bytes, NOW)
    for made in (first, more, less):
        assert made.standing.complete
        state = trust.verify(state, made.raw, "nodes", NOW + 3, node_list.UNDERSTOOD).state
    assert reason(lambda: trust.verify(state, more.raw, "nodes", NOW + 3, node_list.UNDERSTOOD)) == "rollback"
    assert current_list(open_workspace(work.path), "clinics") == less.document
    assert current_list(work, "other") is None


def test_a_list_is_renewed_with_the_same_nodes(work):
    first = make_node_list(work, "clinics", [FIRST, SECOND], days=10, now=NOW)
    renewed = renew_nodes(work, "clinics", days=20, now=NOW + 5)
    assert renewed.document.nodes == first.document.nodes
    assert (renewed.document.header.version, renewed.changed) == (2, 0)
    assert renewed.document.header.expires == NOW + 5 + 20 * DAY_SECONDS
    assert reason(renew_nodes, work, "other", now=NOW) == "list_unknown"
    assert make_node_list(work, "wards", [FIRST], now=NOW).document.header.version == 1


def test_keys_come_from_files_with_lines_and_from_folders(work, tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "one.key.pub").write_text(f"hearsay-key-1 node {FIRST.hex()}\n")
    (tmp_path / "keys" / "notes.txt").write_text("not a key")
    both = tmp_path / "both.txt"
    both.write_text(f"hearsay-key-1 node {SECOND.hex()}\n\nhearsay-key-1 node {THIRD.hex()}\n")
    assert names(make_node_list(work, "clinics", [tmp_path / "keys", both], now=NOW)) == ids(FIRST, SECOND, THIRD)


def line(digits, role="node", form=1):
    return f"hearsay-key-{form} {role} {digits}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "key_invalid"),
        (line("12"), "key_invalid"),
        (line("x" * 64), "key_invalid"),
        (line(FIRST.hex(), form=2), "key_invalid"),
        (line(FIRST.hex(), "campaign"), "wrong_key"),
        (line(FIRST.hex()) + line(SECOND.hex(), "model"), "wrong_key"),
        (line(FIRST.hex()) * 2, "key_repeated"),
        (line("00" * 32), "key_invalid"),
        (line("01" + "00" * 31), "key_invalid"),
    ],
)
def test_what_is_no_key_of_a_node_is_refused_and_uses_no_version(work, tmp_path, text, expected):
    path = tmp_path / "given.key.pub"
    path.write_text(text)
    refused = failure(make_node_list, work, "clinics", [path], now=NOW)
    assert refused.reason == expected
    assert ("given.key.pub', line 2: " in str(refused)) == (text.count("\n") == 2 and expected == "wrong_key")
    assert open_workspace(work.path).history() == []


def test_a_publisher_s_key_is_no_node_s_also_after_it_was_replaced(work):
    own = next(iter(work.root.roles["model"].keys))
    assert reason(make_node_list, work, "clinics", [own], now=NOW) == "wrong_key"
    change_root(work, RootChange("model", fresh=1, drop=ALL), NOW, YEAR)
    assert reason(make_node_list, open_workspace(work.path), "clinics", [own], now=NOW) == "wrong_key"


def test_refusals_of_names_and_numbers(work, monkeypatch):
    assert reason(add_nodes, work, "clinics", [FIRST], now=NOW) == "list_unknown"
    assert reason(remove_nodes, work, "clinics", ids(FIRST), now=NOW) == "list_unknown"
    assert reason(make_node_list, work, "clinics", [], now=NOW) == "nodes_invalid"
    assert reason(make_node_list, work, "clinics", [FIRST], days=0, now=NOW) == "terms_invalid"
    make_node_list(work, "clinics", [FIRST], now=NOW)
    assert reason(make_node_list, work, "clinics", [SECOND], now=NOW) == "list_exists"
    assert reason(add_nodes, work, "clinics", [FIRST], now=NOW) == "key_repeated"
    assert reason(remove_nodes, work, "clinics", ids(SECOND), now=NOW) == "key_unknown"
    assert reason(remove_nodes, work, "clinics", ids(FIRST), now=NOW) == "nodes_invalid"
    monkeypatch.setattr("aggregator.nodes.campaigns.lists.MAX_NODES", 2)
    assert reason(add_nodes, work, "clinics", [SECOND, THIRD], now=NOW) == "nodes_invalid"
    assert len(open_workspace(work.path).history()) == 1


def test_a_list_needs_as_many_signatures_as_a_campaign(work, tmp_path):
    other = key(31)
    change_root(work, RootChange("campaign", add=(other.public,), threshold=2), NOW, YEAR)
    work = open_workspace(work.path)
    made = make_node_list(work, "clinics", [FIRST], now=NOW)
    assert not made.standing.complete
    assert [item.role for item in write_tree(work, tmp_path / "www").lacking] == ["nodes"]
    full = write_envelope(signed(read_envelope(made.raw, "nodes"), other))
    assert check_payload(read_envelope(full, "nodes"), "nodes").name == "clinics"
    _, held = gather_copies(work, "nodes", [full])
    assert held.complete
    tree = write_tree(work, tmp_path / "www")
    assert tree.lists == 1
    listed = (tmp_path / "www" / "nodes" / "clinics.hsl").read_bytes()
    assert trust.verify(trust.pin(work.root_bytes, NOW), listed, "nodes", NOW, node_list.UNDERSTOOD).header.version == 1
    change_root(work, RootChange("campaign", fresh=1, drop=ALL, threshold=1), NOW, YEAR)
    ((item, held),) = resign(open_workspace(work.path), NOW)
    assert (item.role, held.complete) == ("nodes", True)
