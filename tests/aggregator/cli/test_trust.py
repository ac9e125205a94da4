"""Keys, thresholds, rotation, endings and the served tree by commands, with real devices that follow."""

import json
import random
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from support.commands import REFUSED, mushrooms
from support.failures import reason
from support.publisher import Publisher

from aggregator.cli import options as asking
from aggregator.cli.app import hearsay
from aggregator.common.passphrases import VARIABLE
from aggregator.common.sealing import Cost
from aggregator.publishing import keys as key_rooms
from aggregator.publishing.signatures import signed, to_bytes
from aggregator.reports import fleet as rosters
from edge_sdk import Device
from protocol.documents.envelope import SigningKey, read_envelope

SCHEMA = mushrooms()


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """Passphrases cost a second each; here they cost nothing."""
    monkeypatch.setattr(key_rooms, "COST", Cost(1, 8192))
    monkeypatch.delenv(VARIABLE, raising=False)


class Place:
    """A folder with a workspace and a schema, and commands that run in it."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.work = folder / "work"
        (folder / "s.toml").write_text(SCHEMA)
        self.run("init", "work", *(options or ("--no-passphrase",)))

    def run(self, *arguments, status=0, **options):
        words = [str(word) for word in arguments]
        words = [str(self.folder / word) if word in ("work", "www") or "." in word else word for word in words]
        result = CliRunner().invoke(hearsay, words, **options)
        assert result.exit_code in (REFUSED if status == 1 else (status,)), result.output
        return result

    def read(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", **options).stdout)

    def refused(self, *arguments, **options):
        result = self.run(*arguments, status=1, **options)
        assert result.stderr.count("\n") == 1
        return result.stderr.split(":")[0]

    def trust(self, *arguments, **options):
        return self.read("trust", *arguments, "--workspace", "work", **options)

    def campaign(self, output, *more):
        return self.run("campaign", "s.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "direct",
                        "-o", output, *more)  # fmt: skip

    def bytes(self, name):
        return (self.folder / name).read_bytes()

    def roots(self):
        return [path.read_bytes() for path in sorted((self.work / "roots").iterdir())]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_two_of_three_people_sign_a_campaign_one_by_one(place):
    for name in ("alice", "bob"):
        place.run("key", "new", f"{name}.key", "--role", "campaign", "--no-passphrase")
        place.trust("add-key", "campaign", "--key", f"{name}.key.pub")
    assert place.trust("threshold", "campaign", "2")["in_force"] is True
    shown = place.trust("show")
    assert shown["version"] == 4
    assert shown["roles"]["campaign"]["threshold"] == 2
    assert [each["here"] for each in shown["roles"]["campaign"]["keys"]].count(True) == 1
    made = place.campaign("c.hsc")
    assert "1 of 2 needed signatures" in made.stderr
    (place.folder / "a.hsr").write_bytes(b"not a report")
    ingest = ("ingest", "c.hsc", "a.hsr", "--store", place.folder / "st")
    assert place.refused(*ingest, "--trust", "work/root.hst") == "bad_signature"
    noted = "note: the workspace published this campaign, but its trust root does not accept it: 1 of 2 needed"
    assert noted in place.run(*ingest, "--workspace", "work").stderr
    device = Device.open(None, trust=place.bytes("work/root.hst"))
    assert reason(device.enrol, place.bytes("c.hsc")) == "bad_signature"
    first = place.read("sign", "c.hsc", "--key", "bob.key", "-o", "both.hsc", "--trust", "work/root.hst")
    assert (first["added"], first["signatures"], first["trusted"]["complete"]) == (True, 2, True)
    again = place.read("sign", "both.hsc", "--key", "bob.key", "--trust", "work/root.hst")
    assert (again["added"], again["signatures"]) == (False, 2)
    verified = place.read("verify", "both.hsc", "--trust", "work/root.hst")
    assert verified["signatures"]["needed"] == 2
    assert len(verified["signatures"]["signers"]) == 2
    text = place.run("verify", "both.hsc", "--trust", "work/root.hst").stdout
    assert "signed by 2 of 3 keys, 2 needed: " in text
    assert device.enrol(place.bytes("both.hsc")).header.version == 1
    assert place.refused("verify", "c.hsc", "--trust", "work/root.hst") == "bad_signature"
    assert place.read("publish", "--to", "www", "--workspace", "work")["campaigns"] == 0
    place.run("trust", "gather", "both.hsc", "--workspace", "work")
    assert "note" not in place.run("ingest", "both.hsc", *ingest[2:], "--workspace", "work").stderr
    assert place.read("publish", "--to", "www", "--workspace", "work")["campaigns"] == 1
    assert place.bytes("www/campaigns/mushrooms.hsc") != place.bytes("c.hsc")


def test_a_chain_of_roots_is_followed_in_any_order(place, tmp_path):
    place.campaign("c.hsc")
    first = place.bytes("work/root.hst")
    for role in ("root", "campaign", "model", "root"):
        place.trust("rotate", role)
    place.trust("resign")
    device, roots = Device.open(None, trust=first), place.roots()
    assert len(roots) == 5
    assert reason(device.rotate, [roots[4], roots[2]]) == "bad_signature"
    assert device.rotate(random.Random(1).sample(roots, 5)) == device.rotate(roots) == 5
    assert reason(device.enrol, place.bytes("c.hsc")) == "bad_signature"
    copy = next((place.work / "published").iterdir()).read_bytes()
    assert device.enrol(copy).header.name == "mushrooms"
    assert place.read("verify", "c.hsc", "--trust", "work/roots/1.hst")["root_version"] == 1
    chain = [word for number in (5, 3, 2, 4) for word in ("--trust", f"work/roots/{number}.hst")]
    assert place.refused("verify", "c.hsc", "--trust", "work/roots/1.hst", *chain) == "bad_signature"
    (tmp_path / "re.hsc").write_bytes(copy)
    assert place.read("verify", "re.hsc", "--trust", "work/roots/1.hst", *chain)["root_version"] == 5
    assert place.read("verify", "work/roots/2.hst", "--trust", "work/roots/1.hst")["signatures"]["needed"] == 1


def test_a_revoked_key_signs_for_nobody(place):
    place.trust("add-key", "campaign")
    own = place.trust("show")["roles"]["campaign"]["keys"]
    place.campaign("c.hsc")
    assert place.read("verify", "c.hsc", "--trust", "work/root.hst")["signatures"]["keys"] == 2
    assert place.refused("trust", "revoke", "campaign", "0" * 16, "--workspace", "work") == "key_unknown"
    for each in own:
        result = place.run("trust", "revoke", "campaign", each["id"].upper(), "--workspace", "work",
                           status=0 if each is own[0] else 1)  # fmt: skip
    assert result.stderr.startswith("role_invalid: ")
    assert place.read("verify", "c.hsc", "--trust", "work/root.hst")["signatures"]["signers"] == [own[1]["id"]]
    place.trust("rotate", "campaign")
    assert place.refused("verify", "c.hsc", "--trust", "work/root.hst") == "bad_signature"


def test_the_root_key_can_live_on_another_machine(place, tmp_path):
    (place.work / "keys" / "root.key").rename(tmp_path / "root.key")
    step = place.run("trust", "add-key", "model", "--workspace", "work")
    assert "hearsay sign" in step.stderr
    shown = place.trust("show")
    assert shown["pending"]["root_before"] == {"signers": [], "keys": 1, "needed": 1, "complete": False}
    assert "pending root" in place.run("trust", "show", "--workspace", "work").stdout
    assert place.refused("trust", "renew", "--workspace", "work") == "root_pending"
    assert "nobody yet" in place.run("show", "work/pending/2.hst").stdout
    assert place.read("show", "work/pending/2.hst")["signed_by"] == []
    signed = place.read("sign", "work/pending/2.hst", "--key", "root.key", "-o", "2.hst")
    assert signed["itself"]["complete"] is True
    assert place.trust("gather", "2.hst")["in_force"] is True
    assert place.trust("renew", "--sign-with", "root.key", "--days", "30")["in_force"] is True
    place.run("trust", "renew", "--workspace", "work")
    assert place.trust("discard") == {"discarded": 4}
    assert place.refused("trust", "discard", "--workspace", "work") == "nothing_pending"


def test_what_may_not_be_signed_is_not(place):
    place.campaign("c.hsc")
    place.run("key", "new", "m.key", "--role", "model", "--no-passphrase")
    place.run("key", "new", "c.key", "--role", "campaign", "--no-passphrase")
    before = place.bytes("c.hsc")
    (place.folder / "cut.hsc").write_bytes(before[:-3])
    (place.folder / "lie.hsc").write_bytes(Publisher().campaign({"epsilon_micro": 999_999}))
    for line, why in (
        ("sign c.hsc --key m.key", "wrong_key"),
        ("sign s.toml --key m.key", "unknown_file"),
        ("sign c.hsc --key s.toml", "key_invalid"),
        ("sign c.hsc --key c.key -o s.toml", "output_exists"),
        ("sign cut.hsc --key c.key", "malformed"),
        ("sign lie.hsc --key c.key", "epsilon_understated"),
        ("trust add-key campaign --key m.key.pub --workspace work", "wrong_key"),
        ("key new c.key --role root --no-passphrase", "output_exists"),
    ):
        assert place.refused(*line.split()) == why, line
    assert place.bytes("c.hsc") == before
    stranger = place.run("sign", "c.hsc", "--key", "c.key", "--trust", "work/root.hst")
    assert "names this key" in stranger.stderr
    assert place.run("verify", "c.hsc", "--trust", "work/root.hst").stdout.startswith("verified: ")


def test_an_encrypted_workspace_needs_its_passphrase(tmp_path, monkeypatch):
    (tmp_path / "secret.txt").write_text("correct horse\n")
    (tmp_path / "wrong.txt").write_text("battery staple")
    (tmp_path / "empty.txt").write_text("\n")
    place = Place(tmp_path, "--passphrase-file", "secret.txt")
    assert all(each["encrypted"] for role in place.trust("show")["roles"].values() for each in role["keys"])
    arguments = ("campaign", "s.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "direct", "-o", "c.hsc")
    assert place.refused(*arguments) == "passphrase_missing"
    for name, why in (("wrong", "passphrase_wrong"), ("empty", "passphrase_missing"), ("absent", "file_not_found")):
        assert place.refused(*arguments, "--passphrase-file", f"{name}.txt") == why
    assert not (tmp_path / "c.hsc").exists()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret.txt"))
    place.run(*arguments)
    place.trust("rotate", "campaign")
    assert place.trust("show")["roles"]["campaign"]["keys"][0]["encrypted"] is True
    assert place.trust("resign")["signed"][0]["signatures"]["complete"] is True
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(asking, "is_terminal", lambda: True)
    place.run("campaign", "--end", "mushrooms", "--workspace", "work", "-o", "end.hsc", input="correct horse\n")


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (["init", "w"], ["w/keys/root.key", "w/keys/campaign.key", "w/keys/model.key"]),
        (["key", "new", "a.key", "--role", "campaign"], ["a.key"]),
        (["fleet", "new", "names.txt", "-o", "f"], ["f/fleet.hsf"]),
    ],
)
def test_one_rule_for_all_new_secrets(tmp_path, monkeypatch, command, made):
    """Encrypted, unless --no-passphrase says otherwise; never in the clear because nobody could be asked."""
    defaults = {**rosters.write_roster.__kwdefaults__, "cost": Cost(1, 8192)}
    monkeypatch.setattr(rosters.write_roster, "__kwdefaults__", defaults)
    where = {"HEARSAY_PASSPHRASE_FILE": str(tmp_path / "secret.txt")}
    for number, (more, environment, typed, encrypted) in enumerate(
        (
            ((), {}, None, None),
            (("--passphrase-file", tmp_path / "secret.txt"), {}, None, True),
            ((), where, None, True),
            (("--no-passphrase",), {}, None, False),
            (("--no-passphrase",), where, None, False),
            ((), {}, "one\ntwo\none\none\n", True),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        (folder / "names.txt").write_text("a\nb\n")
        (tmp_path / "secret.txt").write_text("horse\n")
        monkeypatch.setattr(asking, "is_terminal", lambda typed=typed: typed is not None)
        found = CliRunner(env=environment).invoke(hearsay, [*command, *map(str, more), "--json"], input=typed)
        if encrypted is None:
            assert (found.exit_code, found.stderr.split(":")[0]) == (1, "passphrase_missing")
            assert "--no-passphrase" in found.stderr
            assert [path.name for path in folder.iterdir()] == ["names.txt"]
            continue
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout[found.stdout.index("{") :])["encrypted"] is encrypted
        assert {b"hearsay_sealed" in (folder / name).read_bytes() for name in made} == {encrypted}


def test_a_key_changes_its_passphrase_and_stays_the_same(place):
    one, two = ("--passphrase-file", "one.txt"), ("--passphrase-file", "two.txt")
    for name in ("one", "two"):
        (place.folder / f"{name}.txt").write_text(name)
    made = place.read("key", "new", "a.key", "--role", "root", *one)
    after = place.read("key", "protect", "a.key", *one, "--new-passphrase-file", "two.txt")
    assert (after["id"], after["encrypted"]) == (made["id"], True)
    assert place.refused("key", "protect", "a.key", *one, "--no-passphrase") == "passphrase_wrong"
    assert place.read("key", "protect", "a.key", *two, "--no-passphrase")["encrypted"] is False


def test_a_campaign_is_ended_and_devices_obey(place):
    place.campaign("c.hsc")
    device = Device.open(None, trust=place.bytes("work/root.hst"))
    campaign = device.enrol(place.bytes("c.hsc"))
    device.report(campaign.id, {"odor": "a"}, label="e")
    facts = place.read("campaign", "--end", "mushrooms", "--workspace", "work", "-o", "end.hsc")
    assert facts["version"] == 2
    assert "asks nothing" in device.explain(place.bytes("end.hsc"))
    assert device.enrol(place.bytes("end.hsc")).ended
    assert reason(device.report, campaign.id, {"odor": "a"}, "e") == "campaign_unknown"
    assert reason(device.report, bytes.fromhex(facts["id"]), {"odor": "a"}, "e") == "campaign_ended"
    assert "it asks nothing" in place.run("show", "end.hsc").stdout
    assert place.run("verify", "end.hsc", "--trust", "work/root.hst", "--privacy").exit_code == 0
    assert place.refused("ingest", "end.hsc", "s.toml", "--store", "store.d") == "campaign_ended"
    assert place.refused("campaign", "--end", "mushrooms", "--workspace", "work", "-o", "e2.hsc") == "campaign_ended"
    assert place.refused("campaign", "--end", "other", "--workspace", "work", "-o", "e2.hsc") == "campaign_unknown"
    for extra in (("--epsilon", "1"), ("s.toml",), ("--days", "3")):
        place.run("campaign", *extra, "--end", "mushrooms", "--workspace", "work", "-o", "e2.hsc", status=2)
    for lacking in (("--epsilon", "1"), ("--mechanism", "oue")):
        place.run("campaign", "s.toml", *lacking, "--workspace", "work", "-o", "e2.hsc", status=2)
    place.run("campaign", "--epsilon", "1", "--mechanism", "oue", "--workspace", "work", "-o", "e2.hsc", status=2)


def test_a_tree_is_served_without_a_store(place):
    place.campaign("c.hsc")
    place.campaign("d.hsc", "--name", "a/b")
    made = place.read("publish", "--to", "www", "--workspace", "work")
    assert made["files_changed"] == ["roots/1.hst", f"campaigns/{quote('a/b', safe='')}.hsc", "campaigns/mushrooms.hsc"]
    assert place.bytes("www/campaigns/mushrooms.hsc") == place.bytes("c.hsc")
    assert place.read("publish", "--to", "www", "--workspace", "work")["files_changed"] == []
    for wrong in ((), ("--store", "x"), ("-o", "m.hsm"), ("--to", "www", "-o", "m.hsm")):
        place.run("publish", *wrong, "--workspace", "work", status=2)


def test_a_root_that_expires_soon_and_a_lost_copy_are_told(place):
    assert "expires soon" not in place.run("trust", "show", "--workspace", "work").stderr
    place.trust("renew", "--days", "30")
    assert "expires soon" in place.run("trust", "show", "--workspace", "work").stderr
    place.campaign("c.hsc")
    next((place.work / "published").iterdir()).unlink()
    assert place.trust("rotate", "campaign")["in_force"] is True
    assert place.trust("show")["lacking"] == [{"kind": "campaign", "name": "mushrooms", "version": 1}]
    assert place.refused("trust", "resign", "--workspace", "work") == "workspace_damaged"


def test_the_trusted_root_with_other_signatures_is_verified_as_that_root(place):
    envelope = read_envelope(place.bytes("work/root.hst"), "root")
    more = signed(envelope, SigningKey.from_seed(b"x" * 32))
    (place.folder / "more.hst").write_bytes(to_bytes(more, "root"))
    for file, trusted in (("more.hst", "work/root.hst"), ("work/root.hst", "more.hst")):
        assert place.read("verify", file, "--trust", trusted)["verified"] is True
    other = tuple(each for each in more.signatures if each not in envelope.signatures)
    (place.folder / "none.hst").write_bytes(to_bytes(more._replace(signatures=other), "root"))
    assert place.refused("verify", "none.hst", "--trust", "work/root.hst") == "bad_signature"
