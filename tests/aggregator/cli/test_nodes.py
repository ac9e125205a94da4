"""``hearsay nodes``, and what other commands say of node lists, campaigns for nodes and summaries."""

from __future__ import annotations

import json
import time

import pytest
from support.commands import mushrooms, run
from support.publisher import key
from support.reports import opened

from protocol.documents.envelope import SigningKey, keyid
from protocol.nodes.summary import build_summary
from protocol.nodes.terms import ranges, released_vectors

NODES = [key(number) for number in (41, 42, 43)]


def write_key(folder, node: SigningKey):
    path = folder / f"{keyid(node.public).hex()}.key.pub"
    path.write_text(f"hearsay-key-1 node {node.public.hex()}\n")
    return path


@pytest.fixture(scope="module")
def publisher(tmp_path_factory):
    """A folder with a workspace, a list of two nodes, and a campaign for these nodes."""
    folder = tmp_path_factory.mktemp("publisher")
    (folder / "schema.toml").write_text(mushrooms(bins=4))
    run("init", folder / "work", "--no-passphrase")
    keys = [write_key(folder, node) for node in NODES[:2]]
    run("nodes", "new", "clinics", *keys, "--workspace", folder / "work", "-o", folder / "l.hsl")
    run(*campaign(folder), "-o", folder / "c.hsc")
    return folder


def campaign(folder, *more):
    terms = ("--list", "clinics", "--epsilon", "1", "--max-records", "1000")
    return "nodes", "campaign", folder / "schema.toml", "--workspace", folder / "work", *terms, *more


def asked(folder):
    return opened((folder / "c.hsc").read_bytes())


def summary(folder, node, first=5):
    found = asked(folder)
    numbers = sum(subject.size for subject in released_vectors(found))
    return build_summary(found, node, found.period_at(int(time.time())), [first, *[0] * (numbers - 1)])


def test_lists_change_version_by_version(publisher, tmp_path):
    work = ("--workspace", publisher / "work", "-o", tmp_path / "l.hsl")
    made = json.loads(run("nodes", "new", "wards", write_key(tmp_path, NODES[0]), *work, "--json").stdout)
    assert (made["list"], made["version"], made["nodes"], made["added"]) == ("wards", 1, 1, 1)
    assert run("nodes", "new", "wards", tmp_path, *work, status=1).stderr.startswith("output_exists: ")
    assert run("nodes", "new", "wards", tmp_path, *work, "--force", status=1).stderr.startswith("list_exists: ")
    added = run("nodes", "add", "wards", write_key(tmp_path, NODES[1]), *work, "--force")
    assert "added    1" in added.stdout
    removed = run("nodes", "remove", "wards", keyid(NODES[0].public).hex().upper(), *work, "--force")
    assert "version  3" in removed.stdout
    shown = json.loads(run("nodes", "show", "wards", "--workspace", publisher / "work", "--json").stdout)
    assert shown["nodes"] == {keyid(NODES[1].public).hex(): NODES[1].public.hex()}
    assert shown["signatures"]["complete"]
    assert keyid(NODES[1].public).hex() in run("nodes", "show", "wards", "--workspace", publisher / "work").stdout
    unknown = run("nodes", "show", "ward", "--workspace", publisher / "work", status=1).stderr
    assert unknown.startswith("list_unknown: ")
    assert "'wards'" in unknown


def test_show_verify_and_sign_know_lists(publisher, tmp_path):
    shown = run("show", publisher / "l.hsl").stdout
    assert shown.startswith("UNVERIFIED node list: ")
    assert keyid(NODES[0].public).hex() in shown
    root = ("--trust", publisher / "work" / "root.hst")
    assert run("verify", publisher / "l.hsl", *root).stdout.startswith("verified: node list 'clinics', version 1")
    found = json.loads(run("verify", publisher / "l.hsl", *root, "--json").stdout)
    assert (found["kind"], found["verified"]) == ("node list", True)
    keys = publisher / "work" / "keys"
    copy = tmp_path / "copy.hsl"
    signed = run("sign", publisher / "l.hsl", "--key", keys / "campaign.key", "-o", copy, *root)
    assert "1 of 1 needed signatures" in signed.stdout
    wrong = run("sign", publisher / "l.hsl", "--key", keys / "model.key", "-o", tmp_path / "no.hsl", status=1)
    assert wrong.stderr.startswith("wrong_key: ")
    gathered = run("trust", "gather", copy, "--workspace", publisher / "work")
    assert "clinics" in gathered.stdout
    altered = bytearray((publisher / "l.hsl").read_bytes())
    altered[-1] ^= 1
    copy.write_bytes(altered)
    assert run("verify", copy, *root, status=1).stderr.startswith("bad_signature: ")


def test_a_campaign_prints_both_costs(publisher, tmp_path):
    made = run(*campaign(publisher, "--least-epsilon", "0.5"), "--name", "other", "-o", tmp_path / "c.hsc")
    assert "1 for one record more or less; 2 for one record changed" in made.stdout
    assert "least epsilon  0.5" in made.stdout
    found = json.loads(run(*campaign(publisher), "--name", "third", "-o", tmp_path / "d.hsc", "--json").stdout)
    assert found["epsilon_booked"] == {"add-remove": "1", "change": "2", "change-features": "2"}
    assert (found["queries"], found["numbers"]) == (4, 14)
    high = run(
        *campaign(publisher)[:-4], "--epsilon", "11", "--max-records", "9", "-o", tmp_path / "e.hsc", "--name", "f"
    )
    assert "warning: ε = 11 for one record more or less is ε = 22 for a changed record" in high.stderr
    assert run(*campaign(publisher, "--mechanism", "direct"), "-o", tmp_path / "g.hsc", status=2).stderr.startswith(
        "usage"
    )


def test_show_verify_and_guarantee_know_campaigns_for_nodes(publisher):
    shown = run("show", publisher / "c.hsc").stdout
    assert "nodes of the list 'clinics'" in shown
    assert "in 2 periods" in shown
    verify = ("verify", publisher / "c.hsc", "--trust", publisher / "work" / "root.hst", "--privacy")
    assert "a summary spends no more than a node books" in run(*verify).stdout
    sheet = json.loads(run(*verify, "--json").stdout)["privacy"]
    assert (sheet["total"], sheet["holds"]) == ({"add-remove": 1.0, "change": 2.0, "change-features": 1.25}, True)
    told = run("guarantee", publisher / "c.hsc", "--devices", "10", "--records", "1000", "--liars", "0.1").stdout
    assert "1 for one record more or less; 2 for one record changed" in told
    assert "no test of the summaries can see:" in told
    assert "--shuffled" in run("guarantee", publisher / "c.hsc", "--shuffled", status=2).stderr


def test_show_and_verify_read_damaged_files_of_summaries(publisher, tmp_path):
    good, other, foreign = (summary(publisher, node) for node in NODES)
    path = tmp_path / "s.hsn"
    path.write_bytes(good + b"damage" + other)
    shown = run("show", path).stdout
    assert shown.startswith("UNVERIFIED node summaries: ")
    assert "nothing shows whether they are true" in shown
    content = json.loads(run("show", path, "--json").stdout)
    assert (content["summaries"], content["damaged_bytes"]) == (2, 6)
    assert [entry.get("largest") for entry in content["entries"]] == [5, None, 5]
    with_list = ("--campaign", publisher / "c.hsc", "--nodes", publisher / "l.hsl")
    root = ("--trust", publisher / "work" / "root.hst")
    damaged = run("verify", path, *root, *with_list, status=1)
    assert damaged.stderr.startswith("summaries_refused: 1 of 3 ")
    path.write_bytes(b"at the beginning" + good)
    assert "invalid_message" in run("show", path).stdout
    path.write_bytes(good + other)
    assert run("verify", path, *root, *with_list).stdout.count("verified") == 2
    path.write_bytes(good + foreign)
    assert "node_not_listed" in run("verify", path, *root, *with_list, status=1).stdout
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert "bad_signature" in run("verify", path, *root, *with_list, status=1).stdout
    assert run("verify", path, *root, status=2).stderr.startswith("usage: ")
    assert run("verify", publisher / "c.hsc", *root, *with_list, status=2).stderr.startswith("usage: ")
    assert run("sign", path, "--key", publisher / "work/keys/campaign.key", status=1).stderr.startswith("wrong_role: ")


def test_the_guarantee_says_the_most_that_a_summary_can_state_and_whether_nodes_refuse(publisher, tmp_path):
    most = json.loads(run("guarantee", publisher / "c.hsc", "--json").stdout)["most_claimed"]
    assert ranges(asked(publisher))[0][1] == most
    summary(publisher, NODES[0], first=most)
    with pytest.raises(Exception, match="outside its range"):
        summary(publisher, NODES[0], first=most + 1)
    run(*campaign(publisher, "--sensitivity", "smooth"), "--name", "smooth", "-o", tmp_path / "c.hsc")
    told = run("guarantee", tmp_path / "c.hsc").stdout
    assert "at most 1 booked, if the owner's policy allows it; under the default policy a node refuses" in told
    assert "under the default limits of a node's owner" in run("guarantee", publisher / "c.hsc").stdout


def test_the_published_folder_has_lists_and_commands_about_ids_refuse_files_of_nodes(publisher, tmp_path):
    done = json.loads(run("publish", "--to", tmp_path / "www", "--workspace", publisher / "work", "--json").stdout)
    assert done["node_lists"] >= 1
    assert (tmp_path / "www" / "nodes" / "clinics.hsl").read_bytes() == (publisher / "l.hsl").read_bytes()
    (tmp_path / "names.txt").write_text("a\nb\n")
    run("fleet", "new", tmp_path / "names.txt", "-o", tmp_path / "fleet", "--no-passphrase")
    ids = ("--fleet", tmp_path / "fleet" / "fleet.hsf", "--periods", "..", "-o", tmp_path / "ids.hsi")
    assert run("fleet", "ids", publisher / "c.hsc", *ids, status=1).stderr.startswith("campaign_for_nodes: ")
    (tmp_path / "s.hsn").write_bytes(summary(publisher, NODES[0]))
    joined = run("merge", tmp_path / "s.hsn", "-o", tmp_path / "m.hsr", status=1)
    assert joined.stderr.startswith("wrong_role: ")
    assert "concatenate" in joined.stderr
