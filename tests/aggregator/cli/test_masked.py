"""``hearsay masked``, ``nodes campaign --masked``, and what other commands say of the files of masked sums."""

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

from protocol.documents.envelope import keyid, read_envelope
from protocol.masked.costs import ciphertexts_of
from protocol.masked.message import build_message
from protocol.masked.release import build_request

NODES = [key(number) for number in (51, 52, 53, 54)]


def write_keys(folder, name, nodes):
    path = folder / name
    path.write_text("".join(f"hearsay-key-1 node {node.public.hex()}\n" for node in nodes))
    return path


def campaign(folder, *more):
    terms = ("--list", "clinics", "--epsilon", "1", "--max-records", "1000", "--masked", folder / "dealer/dealer.pub")
    return "nodes", "campaign", folder / "schema.toml", "--workspace", folder / "work", *terms, *more


def parsed(path):
    return opened(path.read_bytes())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a workspace, lists of three and of four nodes, a dealer, a masked campaign and its key book."""
    folder = tmp_path_factory.mktemp("masked")
    (folder / "schema.toml").write_text(mushrooms(bins=4))
    run("init", folder / "work", "--no-passphrase")
    work = ("--workspace", folder / "work")
    run("nodes", "new", "clinics", write_keys(folder, "k1", NODES[:3]), *work, "-o", folder / "l.hsl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aggregator.nodes.dealer.dealer.new_modulus", lambda: MODULUS)
        run("masked", "new", folder / "dealer", "--no-passphrase")
    run(*campaign(folder, "--honest-share", "0.6", "--most-parties", "50"), "-o", folder / "c.hsc")
    run("masked", "setup", *book(folder, "l.hsl"), "-o", folder / "b.hsk")
    return folder


def book(folder, listed):
    root = ("--trust", folder / "work" / "root.hst")
    return folder / "dealer", folder / "c.hsc", "--nodes", folder / listed, *root


def request(folder, nodes, version=1):
    found = parsed(folder / "c.hsc")
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
    made = run(*campaign(world, *options, "--name", "other"), "-o", tmp_path / "c.hsc")
    assert "one missing party blocks a period: all 3 parties must report" in made.stderr
    assert "only its first 1000 records count" in made.stderr
    terms = parsed(tmp_path / "c.hsc").masked
    assert (terms.noise, terms.delta_pico, terms.honest_micro, terms.unit) == ("diluted", 10**7, 1_000_000, "party")
    assert terms.modulus == MODULUS
    found = json.loads(run(*campaign(world, *options), "--name", "x", "-o", tmp_path / "d.hsc", "--json").stdout)
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
    refused = run(*campaign(world, *options.split()), "--name", "x", "-o", tmp_path / "c.hsc", status=status).stderr
    assert refused.startswith(reason)
    assert not (tmp_path / "c.hsc").exists()


def test_options_of_a_masked_campaign_need_a_dealer(world, tmp_path):
    plain = [each for each in campaign(world, "--unit", "party") if each != "--masked"]
    plain.remove(world / "dealer" / "dealer.pub")
    assert "--masked" in run(*plain, "-o", tmp_path / "c.hsc", status=2).stderr
    (tmp_path / "dealer.pub").write_bytes(
        (world / "dealer" / "dealer.pub").read_bytes().replace(b'"key": "', b'"key": "0')
    )
    other = [tmp_path / "dealer.pub" if each == world / "dealer" / "dealer.pub" else each for each in campaign(world)]
    more = ("--honest-share", "1", "--most-parties", "5", "-o", tmp_path / "c.hsc")
    assert run(*other, *more, status=1).stderr.startswith("dealer_invalid: ")


def test_a_dealer_makes_books_and_releases_one_set(world, tmp_path):
    def released(asked, name="r.hsd", *more, status=0):
        return run("masked", "release", world / "dealer", asked, *more, "-o", tmp_path / name, status=status).stderr

    again = run("masked", "setup", *book(world, "l.hsl"), "-o", tmp_path / "b.hsk", status=1)
    assert again.stderr.startswith("already_set_up: ")
    run("masked", "rekey", *book(world, "l.hsl"), "-o", tmp_path / "b.hsk")
    assert (tmp_path / "b.hsk").read_bytes() == (world / "b.hsk").read_bytes()
    assert released(request(world, NODES[:1]), status=1).startswith("parties_too_few: ")
    some = request(world, NODES[:2])
    assert released(some, "r.hsd", "--at-least", "3", status=1).startswith("parties_too_few: ")
    missing = f"1 party is not in the sum of this period, for ever: {keyid(NODES[2].public).hex()}"
    assert missing in released(some)
    released(some, "r2.hsd")
    assert (tmp_path / "r.hsd").read_bytes() == (tmp_path / "r2.hsd").read_bytes()
    assert released(request(world, NODES[:3]), "r3.hsd", status=1).startswith("set_released: ")
    shown = json.loads(run("masked", "show", world / "dealer", "--json").stdout)
    assert [each["parties"] for each in shown["campaigns"][0]["releases"]] == [2]
    assert "1" in run("masked", "show", world / "dealer").stdout
    work = ("--workspace", world / "work")
    run("nodes", "add", "clinics", write_keys(world, "k2", NODES[3:]), *work, "-o", world / "l2.hsl")
    joined = json.loads(run("masked", "rekey", *book(world, "l2.hsl"), "-o", world / "b2.hsk", "--json").stdout)
    assert (joined["version"], joined["parties"], joined["joined"]) == (2, 4, [keyid(NODES[3].public).hex()])
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
    assert keyid(NODES[0].public).hex() in shown
    identity = sha256(read_envelope((world / "b.hsk").read_bytes(), "keys").payload).hexdigest()
    assert identity in shown
    assert "verified" in run("verify", world / "b.hsk", *root, "--campaign", world / "c.hsc").stdout
    assert run("verify", world / "b.hsk", *root, status=2).exit_code == 2
    signing = ("--key", world / "work" / "keys" / "campaign.key", "-o", tmp_path / "no")
    assert run("sign", world / "b.hsk", *signing, status=1).stderr.startswith("wrong_role: ")
    assert "request for a masked sum" in run("show", request(world, NODES[:3])).stdout
    assert "dealer's public file" in run("show", world / "dealer" / "dealer.pub").stdout
    found = parsed(world / "c.hsc")
    numbers = [3 + place for place in range(ciphertexts_of(found))]
    message = build_message(found, NODES[0], found.period_at(int(time.time())), 1, numbers)
    (tmp_path / "m.hse").write_bytes(b"x" + message + message[:50])
    told = run("show", tmp_path / "m.hse").stdout
    assert "UNVERIFIED masked messages" in told
    assert keyid(NODES[0].public).hex() in told
    assert "damage" in told
    assert run("verify", tmp_path / "m.hse", *root, status=1).stderr.startswith("wrong_role: ")


def test_a_copy_is_adopted_from_the_next_period_on_and_a_dealer_is_not_in_a_workspace(world, tmp_path):
    shutil.copytree(world / "dealer", tmp_path / "copy")
    assert run("masked", "show", tmp_path / "copy", status=1).stderr.startswith("dealer_copied: ")
    found = json.loads(run("masked", "adopt", tmp_path / "copy", "--json").stdout)
    campaign = parsed(world / "c.hsc")
    assert found["first_periods"] == {campaign.header.name: campaign.period_at(int(time.time())) + 1}
    refused = run("masked", "release", tmp_path / "copy", request(world, NODES[1:3]), "-o", tmp_path / "r", status=1)
    assert refused.stderr.split(":")[0] in {"period_refused", "set_released"}
    within = run("masked", "new", world / "work" / "dealer", "--no-passphrase", status=1)
    assert within.stderr.startswith("dealer_in_workspace: ")
