"""``hearsay nodes`` and ``hearsay masked``, and what other commands say of files of nodes, parties and dealers."""

from __future__ import annotations

import json
import shutil
import time
from hashlib import sha256

import pytest
from support.commands import mushrooms, run
from support.masked import MODULUS
from support.publisher import key
from support.reports import opened

from protocol.documents.envelope import SigningKey, keyid, read_envelope
from protocol.masked.costs import ciphertexts_of
from protocol.masked.message import build_message
from protocol.masked.release import build_request
from protocol.nodes.summary import build_summary
from protocol.nodes.terms import ranges, released_vectors

NODES = [key(number) for number in (41, 42, 43)]


def write_key(folder, node: SigningKey):
    path = folder / f"{keyid(node.public).hex()}.key.pub"
    path.write_text(f"hearsay-key-1 node {node.public.hex()}\n")
    return path


def with_list(folder, nodes):
    """A folder with a workspace, a schema, and the list ``clinics`` of these nodes."""
    (folder / "schema.toml").write_text(mushrooms(bins=4))
    run("init", folder / "work", "--no-passphrase")
    keys = [write_key(folder, node) for node in nodes]
    run("nodes", "new", "clinics", *keys, "--workspace", folder / "work", "-o", folder / "l.hsl")
    return folder


@pytest.fixture(scope="module")
def publisher(tmp_path_factory):
    """A folder with a workspace, a list of two nodes, and a campaign for these nodes."""
    folder = with_list(tmp_path_factory.mktemp("publisher"), NODES[:2])
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


# ``hearsay masked``, ``nodes campaign --masked``, and what other commands say of the files of masked sums


PARTIES = [key(number) for number in (51, 52, 53, 54)]


def masked(folder, *more):
    return campaign(folder, "--masked", folder / "dealer/dealer.pub", *more)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a workspace, a list of three nodes, a dealer, a masked campaign and its key book."""
    folder = with_list(tmp_path_factory.mktemp("masked"), PARTIES[:3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aggregator.nodes.dealer.dealer.new_modulus", lambda: MODULUS)
        run("masked", "new", folder / "dealer", "--no-passphrase")
    run(*masked(folder, "--honest-share", "0.6", "--most-parties", "50"), "-o", folder / "c.hsc")
    run("masked", "setup", *book(folder, "l.hsl"), "-o", folder / "b.hsk")
    return folder


def book(folder, listed):
    root = ("--trust", folder / "work" / "root.hst")
    return folder / "dealer", folder / "c.hsc", "--nodes", folder / listed, *root


def request(folder, nodes, version=1):
    found = asked(folder)
    raw = build_request(found.id, found.period_at(int(time.time())), version, [keyid(node.public) for node in nodes])
    (folder / "q.hsq").write_bytes(raw)
    return folder / "q.hsq"


def test_a_masked_campaign_says_what_it_hides_and_what_it_needs(world, tmp_path):
    shown = run("show", world / "c.hsc").stdout
    assert "honest share 0.6, colluding 0: of 50 parties, the most, 30" in shown
    assert "only the total of a set of nodes is decrypted" in shown
    assert "the total of 50 parties" in shown
    assert "the dealer's secret and the parties' messages" in run("show", world / "c.hsc").stderr
    options = ("--honest-share", "1", "--most-parties", "3", "--noise", "diluted", "--delta", "1e-5", "--unit", "party")
    made = run(*masked(world, *options, "--name", "other"), "-o", tmp_path / "c.hsc")
    assert "one missing party blocks a period: all 3 parties must report" in made.stderr
    assert "only its first 1000 records count" in made.stderr
    terms = asked(tmp_path).masked
    assert (terms.noise, terms.delta_pico, terms.honest_micro, terms.unit) == ("diluted", 10**7, 1_000_000, "party")
    assert terms.modulus == MODULUS
    found = json.loads(run(*masked(world, *options), "--name", "x", "-o", tmp_path / "d.hsc", "--json").stdout)
    assert found["masked"]["least_parties_of_most"] == 3
    root = ("--trust", world / "work" / "root.hst")
    assert run("verify", world / "c.hsc", *root, "--privacy").exit_code == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--honest-share 0 --most-parties 5", "terms_invalid"),
        ("--honest-share 0.7 --colluding-share 0.4 --most-parties 5", "terms_invalid"),
        ("--honest-share x --most-parties 5", "terms_invalid"),
        ("--honest-share 0.00000001 --most-parties 5", "terms_invalid"),
        ("--honest-share 1 --most-parties 5 --noise diluted", "delta_invalid"),
        ("--honest-share 1 --most-parties 5 --noise diluted --delta 0.1", "delta_invalid"),
        ("--honest-share 1 --most-parties 5 --delta 1e-5", "delta_invalid"),
        ("--honest-share 1 --most-parties 5 --sensitivity smooth", "terms_invalid"),
        ("--honest-share 1 --most-parties 5 --least-epsilon 0.5", "terms_invalid"),
        ("--honest-share 1", "usage"),
        ("--most-parties 5", "usage"),
    ],
)
def test_choices_that_fit_no_masked_campaign_are_refused(world, tmp_path, options, reason):
    status = 2 if reason == "usage" else 1
    refused = run(*masked(world, *options.split()), "--name", "x", "-o", tmp_path / "c.hsc", status=status).stderr
    assert refused.startswith(reason)
    assert not (tmp_path / "c.hsc").exists()


def test_options_of_a_masked_campaign_need_a_dealer(world, tmp_path):
    assert "--masked" in run(*campaign(world, "--unit", "party"), "-o", tmp_path / "c.hsc", status=2).stderr
    (tmp_path / "dealer.pub").write_bytes(
        (world / "dealer" / "dealer.pub").read_bytes().replace(b'"key": "', b'"key": "0')
    )
    other = campaign(world, "--masked", tmp_path / "dealer.pub")
    more = ("--honest-share", "1", "--most-parties", "5", "-o", tmp_path / "c.hsc")
    assert run(*other, *more, status=1).stderr.startswith("dealer_invalid: ")


def test_a_dealer_makes_books_and_releases_one_set(world, tmp_path):
    def released(asked, name="r.hsd", *more, status=0):
        return run("masked", "release", world / "dealer", asked, *more, "-o", tmp_path / name, status=status).stderr

    again = run("masked", "setup", *book(world, "l.hsl"), "-o", tmp_path / "b.hsk", status=1)
    assert again.stderr.startswith("already_set_up: ")
    run("masked", "rekey", *book(world, "l.hsl"), "-o", tmp_path / "b.hsk")
    assert (tmp_path / "b.hsk").read_bytes() == (world / "b.hsk").read_bytes()
    assert released(request(world, PARTIES[:1]), status=1).startswith("parties_too_few: ")
    some = request(world, PARTIES[:2])
    assert released(some, "r.hsd", "--at-least", "3", status=1).startswith("parties_too_few: ")
    missing = f"1 party is not in the sum of this period, for ever: {keyid(PARTIES[2].public).hex()}"
    assert missing in released(some)
    released(some, "r2.hsd")
    assert (tmp_path / "r.hsd").read_bytes() == (tmp_path / "r2.hsd").read_bytes()
    assert released(request(world, PARTIES[:3]), "r3.hsd", status=1).startswith("set_released: ")
    shown = json.loads(run("masked", "show", world / "dealer", "--json").stdout)
    assert [each["parties"] for each in shown["campaigns"][0]["releases"]] == [2]
    assert "1" in run("masked", "show", world / "dealer").stdout
    work = ("--workspace", world / "work")
    run("nodes", "add", "clinics", write_key(world, PARTIES[3]), *work, "-o", world / "l2.hsl")
    joined = json.loads(run("masked", "rekey", *book(world, "l2.hsl"), "-o", world / "b2.hsk", "--json").stdout)
    assert (joined["version"], joined["parties"], joined["joined"]) == (2, 4, [keyid(PARTIES[3].public).hex()])
    old = run("masked", "rekey", *book(world, "l.hsl"), "-o", tmp_path / "old.hsk", status=1)
    assert old.stderr.startswith("rollback: ")
    for own in ("journal.sqlite", "dealer.key"):
        assert released(some, world / "dealer" / own, "--force", status=1).startswith("output_invalid: ")
    with_campaign = ("--trust", world / "work" / "root.hst", "--campaign", world / "c.hsc")
    assert "UNVERIFIED release of a masked sum" in run("show", tmp_path / "r.hsd").stdout
    assert json.loads(run("verify", tmp_path / "r.hsd", *with_campaign, "--json").stdout)["parties"] == 2
    damaged = bytearray((tmp_path / "r.hsd").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "r.hsd").write_bytes(damaged)
    assert run("verify", tmp_path / "r.hsd", *with_campaign, status=1).stderr.startswith("bad_signature: ")


def test_show_verify_and_sign_know_the_files_of_masked_sums(world, tmp_path):
    root = ("--trust", world / "work" / "root.hst")
    shown = run("show", world / "b.hsk").stdout
    assert shown.startswith("UNVERIFIED key book: ")
    assert keyid(PARTIES[0].public).hex() in shown
    identity = sha256(read_envelope((world / "b.hsk").read_bytes(), "keys").payload).hexdigest()
    assert identity in shown
    assert "verified" in run("verify", world / "b.hsk", *root, "--campaign", world / "c.hsc").stdout
    assert run("verify", world / "b.hsk", *root, status=2).exit_code == 2
    signing = ("--key", world / "work" / "keys" / "campaign.key", "-o", tmp_path / "no")
    assert run("sign", world / "b.hsk", *signing, status=1).stderr.startswith("wrong_role: ")
    assert "request for a masked sum" in run("show", request(world, PARTIES[:3])).stdout
    assert "dealer's public file" in run("show", world / "dealer" / "dealer.pub").stdout
    found = asked(world)
    numbers = [3 + place for place in range(ciphertexts_of(found))]
    message = build_message(found, PARTIES[0], found.period_at(int(time.time())), 1, numbers)
    (tmp_path / "m.hse").write_bytes(b"x" + message + message[:50])
    told = run("show", tmp_path / "m.hse").stdout
    assert "UNVERIFIED masked messages" in told
    assert keyid(PARTIES[0].public).hex() in told
    assert "damage" in told
    assert run("verify", tmp_path / "m.hse", *root, status=1).stderr.startswith("wrong_role: ")


def test_a_copy_is_adopted_from_the_next_period_on_and_a_dealer_is_not_in_a_workspace(world, tmp_path):
    shutil.copytree(world / "dealer", tmp_path / "copy")
    assert run("masked", "show", tmp_path / "copy", status=1).stderr.startswith("dealer_copied: ")
    found = json.loads(run("masked", "adopt", tmp_path / "copy", "--json").stdout)
    document = asked(world)
    assert found["first_periods"] == {document.header.name: document.period_at(int(time.time())) + 1}
    refused = run("masked", "release", tmp_path / "copy", request(world, PARTIES[1:3]), "-o", tmp_path / "r", status=1)
    assert refused.stderr.split(":")[0] in {"period_refused", "set_released"}
    within = run("masked", "new", world / "work" / "dealer", "--no-passphrase", status=1)
    assert within.stderr.startswith("dealer_in_workspace: ")
