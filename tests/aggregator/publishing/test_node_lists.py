"""Node lists: versions rise per name, the campaign role signs, and what is no node's key is refused."""

from __future__ import annotations

import pytest
from support.failures import reason
from support.publisher import NOW, key

from aggregator.nodes.campaigns.lists import add_nodes, current_list, make_node_list, remove_nodes, renew_nodes
from aggregator.publishing.roots import ALL, RootChange, change_root, gather_copies, resign
from aggregator.publishing.signatures import check_payload, signed
from aggregator.publishing.tree import write_tree
from aggregator.publishing.workspace import open_workspace
from protocol.document import DAY_SECONDS
from protocol.documents import trust
from protocol.documents.envelope import keyid, read_envelope, write_envelope
from protocol.nodes import summary as node_list

FIRST, SECOND, THIRD = (key(number).public for number in (21, 22, 23))
YEAR = 365 * DAY_SECONDS


def key_file(folder, public, role="node"):
    folder.mkdir(exist_ok=True)
    path = folder / f"{keyid(public).hex()}.key.pub"
    path.write_text(f"hearsay-key-1 {role} {public.hex()}\n")
    return path


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
    assert reason(lambda: renew_nodes(work, "other", now=NOW)) == "list_unknown"


def test_lists_of_several_names_and_campaigns_of_the_same_name_do_not_meet(work):
    make_node_list(work, "clinics", [FIRST], now=NOW)
    other = make_node_list(work, "wards", [FIRST], now=NOW)
    assert other.document.header.version == 1


def test_keys_come_from_files_with_lines_and_from_folders(work, tmp_path):
    folder = tmp_path / "keys"
    key_file(folder, FIRST)
    (folder / "notes.txt").write_text("not a key")
    both = tmp_path / "both.txt"
    both.write_text(f"hearsay-key-1 node {SECOND.hex()}\n\nhearsay-key-1 node {THIRD.hex()}\n")
    assert names(make_node_list(work, "clinics", [folder, both], now=NOW)) == ids(FIRST, SECOND, THIRD)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "key_invalid"),
        ("hearsay-key-1 node 12\n", "key_invalid"),
        (f"hearsay-key-1 node {'x' * 64}\n", "key_invalid"),
        (f"hearsay-key-2 node {FIRST.hex()}\n", "key_invalid"),
        (f"hearsay-key-1 campaign {FIRST.hex()}\n", "wrong_key"),
        (f"hearsay-key-1 node {FIRST.hex()}\nhearsay-key-1 model {SECOND.hex()}\n", "wrong_key"),
        (f"hearsay-key-1 node {FIRST.hex()}\n" * 2, "key_repeated"),
        (f"hearsay-key-1 node {'00' * 32}\n", "key_invalid"),
        (f"hearsay-key-1 node {'01' + '00' * 31}\n", "key_invalid"),
    ],
)
def test_what_is_no_key_of_a_node_is_refused_and_uses_no_version(work, tmp_path, text, expected):
    path = tmp_path / "given.key.pub"
    path.write_text(text)
    assert reason(lambda: make_node_list(work, "clinics", [path], now=NOW)) == expected
    assert open_workspace(work.path).history() == []


def test_the_message_names_file_and_line(work, tmp_path):
    path = tmp_path / "given.key.pub"
    path.write_text(f"hearsay-key-1 node {FIRST.hex()}\nhearsay-key-1 model {SECOND.hex()}\n")
    with pytest.raises(Exception, match=r"given\.key\.pub', line 2: "):
        make_node_list(work, "clinics", [path], now=NOW)


def test_a_publisher_s_key_is_no_node_s_also_after_it_was_replaced(work):
    own = next(iter(work.root.roles["model"].keys))
    assert reason(lambda: make_node_list(work, "clinics", [own], now=NOW)) == "wrong_key"
    change_root(work, RootChange("model", fresh=1, drop=ALL), NOW, YEAR)
    assert reason(lambda: make_node_list(open_workspace(work.path), "clinics", [own], now=NOW)) == "wrong_key"


def test_refusals_of_names_and_numbers(work, monkeypatch):
    assert reason(lambda: add_nodes(work, "clinics", [FIRST], now=NOW)) == "list_unknown"
    assert reason(lambda: remove_nodes(work, "clinics", ids(FIRST), now=NOW)) == "list_unknown"
    assert reason(lambda: make_node_list(work, "clinics", [], now=NOW)) == "nodes_invalid"
    assert reason(lambda: make_node_list(work, "clinics", [FIRST], days=0, now=NOW)) == "terms_invalid"
    make_node_list(work, "clinics", [FIRST], now=NOW)
    assert reason(lambda: make_node_list(work, "clinics", [SECOND], now=NOW)) == "list_exists"
    assert reason(lambda: add_nodes(work, "clinics", [FIRST], now=NOW)) == "key_repeated"
    assert reason(lambda: remove_nodes(work, "clinics", ids(SECOND), now=NOW)) == "key_unknown"
    assert reason(lambda: remove_nodes(work, "clinics", ids(FIRST), now=NOW)) == "nodes_invalid"
    monkeypatch.setattr("aggregator.nodes.campaigns.lists.MAX_NODES", 2)
    assert reason(lambda: add_nodes(work, "clinics", [SECOND, THIRD], now=NOW)) == "nodes_invalid"
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


def test_resign_signs_lists_again_after_the_campaign_key_was_replaced(work, tmp_path):
    make_node_list(work, "clinics", [FIRST], now=NOW)
    change_root(work, RootChange("campaign", fresh=1, drop=ALL), NOW, YEAR)
    fresh = open_workspace(work.path)
    ((item, held),) = resign(fresh, NOW)
    assert (item.role, held.complete) == ("nodes", True)
