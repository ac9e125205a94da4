"""Changes of the trust root, signatures of one document, and the tree for devices; crashes at any moment."""

import errno
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.killed import every_death
from support.publisher import CAMPAIGN_KEY, NOW, Publisher, key, small_schema
from support.reports import opened

from aggregator.common.files import write_output
from aggregator.common.sealing import Cost
from aggregator.publishing import keys as key_rooms
from aggregator.publishing import roots as rotations
from aggregator.publishing import workspace as workspaces
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.roots import ALL, RootChange, change_root, discard, gather_copies, lacking, pending, resign
from aggregator.publishing.signatures import (
    UNSIGNED,
    check_payload,
    draft,
    joined,
    signed,
    standing,
    successor,
    to_bytes,
)
from aggregator.publishing.tree import file_name, write_tree
from aggregator.publishing.workspace import create_workspace, latest_of_each, open_workspace
from edge_sdk import Device
from protocol import canonical
from protocol.documents import campaign, trust
from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, keyid, read_envelope, seal
from protocol.documents.payload import DAY_SECONDS
from protocol.documents.trust import Role
from protocol.epsilon import MICRO
from protocol.errors import StorageError

TERMS = CampaignParameters("mushrooms", MICRO, "direct")
YEAR = 365 * DAY_SECONDS


def again(work):
    return open_workspace(work.path, work.passphrase)


def change(work, *arguments, now=NOW, signers=(), **fields):
    return change_root(again(work), RootChange(*arguments, **fields), now, YEAR, signers=signers)


def publish(work, name="mushrooms", now=NOW):
    return publish_campaign(again(work), small_schema(), TERMS._replace(name=name), now)


def roots(work):
    return again(work).roots()


def accepted(work, raw, role="campaign", now=NOW):
    return reason(trust.verify, trust.pin(again(work).root_bytes, now), raw, role, now, campaign.UNDERSTOOD)


def sign_file(path, *keys):
    envelope = read_envelope(path.read_bytes(), "root")
    for each in keys:
        envelope = signed(envelope, each)
    return to_bytes(envelope, "root")


def key_id(each):
    return keyid(each.public).hex()


def test_a_key_added_here_signs_at_once_and_a_change_names_what_it_changes_and_nothing_else(work):
    before = work.root
    step = change(work, now=NOW + 5)
    assert step.root.roles == before.roles
    assert (step.root.header.issued_at, step.root.header.expires) == (NOW + 5, NOW + 5 + YEAR)
    step = change(work, "campaign", fresh=1, threshold=2)
    assert (step.in_force, step.root.header.version, step.path.name) == (True, 3, "3.hst")
    assert again(work).root == step.root
    assert (work.path / "root.hst").read_bytes() == step.path.read_bytes()
    assert len(again(work).signing_keys("campaign")) == 2
    raw = publish(work)
    assert len(read_envelope(raw, "campaign").signatures) == 2
    assert accepted(work, raw) is None
    last = change(work, "model", fresh=2, drop=ALL, threshold=2)
    assert last.root.roles["root"] == before.roles["root"]
    assert last.root.roles["campaign"] == step.root.roles["campaign"]
    assert not last.root.roles["model"].keys & before.roles["model"].keys


def test_roles_that_can_not_be_met_are_refused_and_nothing_changes(work):
    own = next(iter(work.root.roles["model"].keys))
    for fields, why in (
        ({"threshold": 2}, "role_invalid"),
        ({"threshold": 0}, "role_invalid"),
        ({"drop": [keyid(own).hex()]}, "role_invalid"),
        ({"drop": ALL}, "role_invalid"),
        ({"fresh": 16}, "role_invalid"),
        ({"drop": ["00" * 8]}, "key_unknown"),
        ({"add": (own,)}, "key_repeated"),
        ({"add": (key(9).public, key(9).public)}, "key_repeated"),
    ):
        assert reason(lambda fields=fields: change(work, "model", **fields)) == why
    assert again(work).root == work.root
    assert len(list((work.path / "keys").iterdir())) == 3


def test_two_of_three_gathered_one_by_one_and_one_key_twice_does_not_count(work):
    """The root role needs two of three keys, one of them here; the next root waits for one of the others."""
    alice, bob = key(41), key(42)
    assert change(work, "root", add=(alice.public, bob.public), threshold=2).in_force is False
    discard(again(work))
    first = change(work, "root", add=(alice.public, bob.public), threshold=2, signers=[alice])
    assert first.in_force
    step = change(work, "campaign", fresh=1)
    assert (step.in_force, len(step.before.signers), len(step.own.signers)) == (False, 1, 1)
    assert again(work).root == first.root
    here = sign_file(step.path, again(work).signing_keys("root")[0].open())
    for _ in range(2):
        assert not gather_copies(again(work), "root", [here, here]).in_force
    assert again(work).root == first.root
    stranger = sign_file(step.path, key(43))
    assert not gather_copies(again(work), "root", [stranger]).in_force
    whole = gather_copies(again(work), "root", [sign_file(step.path, bob)])
    assert whole.in_force
    assert again(work).root == whole.root
    assert not step.path.exists()
    assert gather_copies(again(work), "root", [whole.path.read_bytes()]).in_force
    state = trust.install_roots(trust.pin(roots(work)[0], NOW), random.Random(1).sample(roots(work), 3), NOW)
    assert state.root.header.version == 3


def test_only_one_next_root_waits_at_a_time(work):
    change(work, "root", add=(key(41).public,), threshold=2)
    waiting = pending(again(work))
    assert waiting is not None
    assert waiting.root.header.version == 2
    assert reason(change, work, "campaign") == "root_pending"
    other = seal(PAYLOAD_TYPES["root"], read_envelope(work.root_bytes, "root").payload + b"", [key(41)])
    assert gather_copies(again(work), "root", [other]).in_force, "that is the root in force"
    assert discard(again(work)) == 2
    assert pending(again(work)) is None
    assert reason(discard, again(work)) == "nothing_pending"
    stray = work.path / "pending" / "2 (copy).hst"
    stray.write_bytes(b"a file manager's copy")
    assert change(again(work)).in_force
    assert stray.exists()


def test_a_root_signed_elsewhere_comes_into_force_if_it_is_the_next(work, tmp_path):
    (work.path / "keys" / "root.key").rename(tmp_path / "root.key")
    step = change(work, "campaign", fresh=1, drop=ALL)
    assert not step.in_force
    assert step.before.signers == ()
    offline = key_rooms.read_key(tmp_path / "root.key").open()
    done = sign_file(step.path, offline)
    assert gather_copies(again(work), "root", [done]).in_force
    assert accepted(work, publish(work)) is None
    foreign = create_workspace(tmp_path / "other", name="workspace", now=NOW)
    assert reason(gather_copies, again(work), "root", [change(foreign).path.read_bytes()]) == "bad_signature"
    assert change(work, signers=[offline]).in_force
    assert reason(gather_copies, again(work), "root", [roots(work)[1]]) == "rollback"


def test_what_a_replaced_key_signs_is_refused_and_running_campaigns_are_signed_again_with_the_same_id(work):
    thief = again(work).signing_keys("campaign")[0].open()
    old, other = publish(work), publish(work, "other")
    step = change(work, "campaign", fresh=1, drop=[key_id(thief)])
    assert step.in_force
    assert [each.public for each in again(work).key_files("campaign")] == list(step.root.roles["campaign"].keys)
    assert (work.path / "keys" / "retired" / f"campaign-{key_id(thief)}.key").is_file()
    assert accepted(work, old) == "bad_signature"
    assert [item.name for item in lacking(again(work), NOW)] == ["mushrooms", "other"]
    assert lacking(again(work), NOW + 31 * DAY_SECONDS) == []
    assert all(held.complete for _, held in resign(again(work), NOW))
    assert resign(again(work), NOW) == []
    for item, raw in zip(latest_of_each(again(work).history()), (old, other), strict=True):
        copy = again(work).copy(item)
        assert accepted(work, copy) is None
        assert read_envelope(copy, "campaign").payload == read_envelope(raw, "campaign").payload
        assert len(read_envelope(copy, "campaign").signatures) == 1
    again(work).check_signed(old)
    assert accepted(work, publish(work, "third")) is None


def test_a_draft_uses_up_its_version_and_waits_for_signatures(work):
    alice = key(41)
    change(work, "campaign", add=(alice.public,), threshold=2)
    raw = publish(work)
    assert accepted(work, raw) == "bad_signature"
    assert again(work).standing("campaign", raw).signers == (again(work).signing_keys("campaign")[0].id,)
    whole = to_bytes(signed(read_envelope(raw, "campaign"), alice), "campaign")
    assert accepted(work, whole) is None
    item, held = gather_copies(again(work), "campaign", [whole])
    assert (item.version, held.complete) == (1, True)
    assert accepted(work, again(work).copy(item)) is None
    assert opened(publish(work)).header.version == 2
    strange = Device.open(None, trust=again(work).root_bytes, clock=lambda: NOW)
    assert strange.enrol(whole).id == item.digest
    assert reason(gather_copies, again(work), "campaign", [whole, publish(work, "other")]) == "copies_differ"
    elsewhere = create_workspace(work.path.parent / "elsewhere", name="w", now=NOW)
    assert reason(gather_copies, elsewhere, "campaign", [whole]) == "document_unknown"
    assert reason(gather_copies, elsewhere, "root", [whole]) == "wrong_role"


def test_a_fast_forward_by_a_thief_is_undone_by_rotation(work):
    """A stolen campaign key signs the last version there is; all keys new, and devices forget that floor."""
    device = Device.open(None, trust=work.root_bytes, clock=lambda: NOW)
    device.enrol(publish(work))
    thief = again(work).signing_keys("campaign")[0].open()
    evil = seal(PAYLOAD_TYPES["campaign"], Publisher().campaign_payload(version=(1 << 32) - 1), [thief])
    device.enrol(evil)
    good = publish(work)
    assert reason(device.enrol, good) == "rollback"
    change(work, "campaign", fresh=1, drop=ALL)
    resign(again(work), NOW)
    item = again(work).latest("campaign", "mushrooms")
    state = trust.TrustState(work.root_bytes, work.root, {("campaign", "mushrooms"): ((1 << 32) - 1, bytes(32))}, NOW)
    state = trust.install_roots(state, [again(work).root_bytes], NOW)
    assert state.floors == {}
    verdict = trust.verify(state, again(work).copy(item), "campaign", NOW, campaign.UNDERSTOOD)
    assert verdict.header.version == item.version
    assert reason(trust.verify, state, evil, "campaign", NOW, campaign.UNDERSTOOD) == "bad_signature"


CHANGES = st.sampled_from(
    [
        RootChange(),
        RootChange("root", fresh=1),
        RootChange("root", fresh=1, drop=ALL),
        RootChange("campaign", fresh=1, drop=ALL),
        RootChange("model", fresh=2, threshold=2),
        RootChange("root", fresh=2, drop=ALL, threshold=2),
        RootChange("campaign", fresh=1),
    ]
)


@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, min_size=1, max_size=5), data=st.data())
def test_from_any_root_to_the_newest_in_any_order(tmp_path_factory, changes, data):
    work = create_workspace(tmp_path_factory.mktemp("chain") / "work", name="workspace", now=NOW)
    for each in changes:
        with suppress(key_rooms.InputError):  # a role that is full, or a threshold that is too high for it
            assert change_root(again(work), each, NOW, YEAR).in_force
    chain = roots(work)
    assert [trust.restore(raw, {}, 0).root.header.version for raw in chain] == list(range(1, len(chain) + 1))
    start = data.draw(st.integers(0, len(chain) - 1))
    given_roots = data.draw(st.permutations(chain))
    state = trust.install_roots(trust.pin(chain[start], NOW), given_roots, NOW)
    assert state.root_bytes == again(work).root_bytes == (work.path / "root.hst").read_bytes()


@pytest.mark.parametrize("wrong", [b"", b"\x94", None])
def test_a_damaged_chain_is_told(work, wrong):
    change(work)
    change(work)
    lost = work.path / "roots" / "2.hst"
    if wrong is None:
        lost.unlink()
    else:
        (work.path / "root.hst").write_bytes(work.root_bytes)
        lost.write_bytes(wrong)
    assert reason(lambda: again(work).roots()) == "workspace_damaged"


def test_encrypted_keys_stay_encrypted_and_new_ones_join_them(tmp_path, monkeypatch):
    monkeypatch.setattr(key_rooms, "COST", Cost(1, 8192))
    secret = b"one for all"
    work = create_workspace(tmp_path / "work", name="w", now=NOW, passphrase=secret)
    assert all(each.encrypted for each in work.key_files())
    assert reason(lambda: publish(open_workspace(work.path))) == "passphrase_missing"
    assert change(work, "campaign", fresh=1, drop=ALL).in_force
    assert all(each.encrypted for each in again(work).key_files())
    assert accepted(work, publish(work)) is None
    wrong = open_workspace(work.path, lambda: b"another")
    (work.path / "keys" / "root.key").rename(tmp_path / "root.key")
    assert reason(lambda: change(wrong, "model", fresh=1)) == "passphrase_wrong"
    assert pending(again(work)) is None
    assert reason(lambda: create_workspace(tmp_path / "x", name="w", now=NOW, passphrase=b"")) == "passphrase_missing"
    assert not (tmp_path / "x").exists()


def test_many_who_change_the_root_at_once_make_one_chain(work):
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: change(work, "root", fresh=1), range(6)))
    chain = roots(work)
    assert len(chain) == 7
    assert len(again(work).root.roles["root"].keys) == 7
    assert trust.install_roots(trust.pin(chain[0], NOW), chain[::-1], NOW).root.header.version == 7


def test_a_death_at_any_moment_of_a_rotation_leaves_one_chain(tmp_path):
    """Whatever was on the disk by then, the same rotation can be made; no root number is used for two roots."""
    made = []

    def rotate():
        change_root(made[-1], RootChange("campaign", fresh=1, drop=ALL), NOW, YEAR)

    def fresh():
        made.append(create_workspace(tmp_path / f"work{len(made)}", name="workspace", now=NOW))
        publish(made[-1])
        change(made[-1], "root", fresh=1, drop=ALL)

    def stored(path):
        return {each.name: each.read_bytes() for each in (path / "roots").glob("*.hst")}

    fresh()
    for _ in every_death(rotate):
        path = made[-1].path
        left, work = stored(path), open_workspace(path)
        work.roots()
        assert work.root.header.version in (2, 3)
        if work.root.header.version == 2:
            assert change(work, "campaign", fresh=1, drop=ALL).in_force
        publish(work)
        assert left.items() <= stored(path).items()
        chain = open_workspace(path).roots()
        assert trust.install_roots(trust.pin(chain[0], NOW), chain[::-1], NOW).root.header.version == 3
        assert (path / "root.hst").read_bytes() == chain[-1]
        assert len(open_workspace(path).signing_keys("campaign")) == 1
        fresh()
    assert len(made) > 8


def test_a_death_at_any_moment_of_publishing_never_makes_two_documents_of_one_version(tmp_path):
    work = create_workspace(tmp_path / "work", name="workspace", now=NOW)
    output = tmp_path / "c.hsc"

    def run():
        output.write_bytes(publish(work, now=NOW + attempt[0]))

    attempt = [0]
    left_the_house: dict[int, bytes] = {}
    deaths = 0
    for number in every_death(run):
        deaths, attempt[0] = number, number
        copies = {item.version: again(work).copy(item) for item in again(work).history()}
        if output.exists() and output.read_bytes():
            header = opened(output.read_bytes()).header
            assert copies[header.version] == output.read_bytes()
        assert left_the_house.items() <= copies.items()
        left_the_house = copies
    assert deaths >= 5
    versions = [item.version for item in again(work).history()]
    assert versions == list(range(1, len(versions) + 1))


@pytest.mark.parametrize(("fresh", "fields"), [(1, {}), (2, {"drop": ALL})])
def test_a_root_that_can_not_be_written_leaves_no_new_keys(work, monkeypatch, fresh, fields):
    before = sorted((work.path / "keys").iterdir())

    def failed(*_, **__):
        raise StorageError("io_failed", "full")

    with monkeypatch.context() as patch:
        patch.setattr(rotations, "write_output", failed)
        assert reason(change, work, "root", fresh=fresh, **fields) == "io_failed"
    assert sorted((work.path / "keys").iterdir()) == before

    def written_then_failed(path, *arguments, **options):
        write_output(path, *arguments, **options)
        failed()

    monkeypatch.setattr(rotations, "write_output", written_then_failed)  # the root is there: its keys stay
    assert reason(change, work, "root", fresh=fresh, **fields) == "io_failed"
    assert len(list((work.path / "keys").iterdir())) == len(before) + fresh


@pytest.mark.parametrize("step", ["root.hst", "keys"])
def test_a_rotation_that_is_in_force_says_so_when_the_disk_is_full(work, monkeypatch, step):
    """The file in roots/ is the commit. What follows may fail, and a repetition would make one more root."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(workspaces, "sync_folder" if step == "keys" else "write_output", full)
        with pytest.raises(StorageError) as caught:
            change(work, role="root", fresh=1, drop=ALL)
    assert caught.value.reason == "disk_full"
    assert caught.value.detail.startswith("root 2 is in force, but ")
    assert "do not repeat the command; hearsay trust resign " in caught.value.detail
    assert again(work).root.header.version == 2
    resign(again(work), NOW)
    assert (work.path / "root.hst").read_bytes() == (work.path / "roots" / "2.hst").read_bytes()
    assert len(again(work).key_files("root")) == 1


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_an_old_history_that_is_restored_alone_gives_no_version_twice(tmp_path, lacking):
    work = create_workspace(tmp_path / "work", name="workspace", now=NOW)
    publish(work, now=NOW)
    old = (work.path / "history.json").read_bytes()
    left = {number: publish(work, now=NOW + number) for number in range(2, 2 + lacking)}
    whole = again(work).history()
    (work.path / "history.json").write_bytes(old)
    (work.path / "published" / "notes.txt").write_text("of the publisher")
    (work.path / "published" / f"{'0' * 64}.hsc").write_bytes(left[2])
    last = publish(work, now=NOW + 1 + lacking)
    header = opened(last).header
    assert header.version == 2 + lacking
    assert again(work).history()[:-1] == whole
    assert {item.version: again(work).copy(item) for item in whole[1:]} == left


# Signatures of one document ---------------------------------------------------------------------------


PAYLOAD = Publisher().campaign_payload()
TYPE = PAYLOAD_TYPES["campaign"]
KEYS = [key(number) for number in range(20, 37)]
ROLE = Role(frozenset(each.public for each in KEYS[:3]), 2)


def test_a_draft_without_signatures_is_an_envelope_that_holds_under_no_key():
    made = draft(TYPE, PAYLOAD)
    assert made.signatures == (UNSIGNED,)
    assert read_envelope(to_bytes(made, "campaign"), "campaign") == made
    assert standing(made, ROLE).signers == ()
    assert str(standing(made, ROLE)) == "0 of 2 needed signatures"
    assert signed(made, KEYS[0]) == read_envelope(seal(TYPE, PAYLOAD, KEYS[:1]), "campaign")


def test_a_key_signs_once_and_no_more_than_sixteen_sign():
    once = signed(draft(TYPE, PAYLOAD), KEYS[0])
    assert signed(once, KEYS[0]) is once
    assert not standing(once, ROLE).complete
    twice = once._replace(signatures=once.signatures * 2)
    assert len(standing(twice, ROLE).signers) == 1
    assert len(joined([once, twice, once], ROLE.keys).signatures) == 1
    assert standing(signed(once, KEYS[1]), ROLE).complete
    full = draft(TYPE, PAYLOAD, KEYS[:16])
    assert len(full.signatures) == 16
    assert signed(full, KEYS[3]) is full
    assert reason(signed, full, KEYS[16]) == "signatures_invalid"


def test_a_forged_signature_under_a_keys_id_is_replaced_and_hides_no_good_one():
    good = signed(draft(TYPE, PAYLOAD), KEYS[0])
    forged = Envelope(TYPE, PAYLOAD, ((keyid(KEYS[0].public), b"\1" * 64),))
    assert standing(forged, ROLE).signers == ()
    assert signed(forged, KEYS[0]) == good
    assert joined([good._replace(signatures=(*forged.signatures, *good.signatures))], ROLE.keys) == good


@examples(60)
@given(
    copies=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_joined_copies_hold_what_any_of_them_held(copies, order):
    known = [each.public for each in KEYS[:4]]
    envelopes = [draft(TYPE, PAYLOAD, [KEYS[number] for number in members]) for members in copies]
    whole = joined(envelopes, known)
    held = {number for members in copies for number in members if number < 4}
    assert {hint for hint, _ in whole.signatures if hint != UNSIGNED[0]} == {keyid(KEYS[n].public) for n in held}
    order.shuffle(envelopes)
    assert joined(envelopes, known) == whole
    assert joined([joined(envelopes[:2], known), *envelopes[1:], whole], known) == whole


def test_a_payload_that_no_device_accepts_is_refused():
    publisher = Publisher()
    for changes, why in (
        ({"epsilon_micro": 999_999}, "epsilon_understated"),
        ({"answers": 2}, "invalid_campaign"),
        ({"crit": ["later"]}, "unknown_crit"),
        ({"spec": "2.0"}, "unsupported_version"),
        ({"expires": NOW}, "malformed"),
    ):
        assert reason(check_payload, read_envelope(publisher.campaign(changes), "campaign"), "campaign") == why
    root = canonical.unpack(read_envelope(publisher.root(), "root").payload)
    root["roles"]["model"]["threshold"] = 0
    hollow = Envelope(PAYLOAD_TYPES["root"], canonical.pack(root), (UNSIGNED,))
    assert reason(check_payload, hollow, "root") == "malformed"
    assert check_payload(read_envelope(publisher.model(), "model"), "model").name == "mushrooms"


def test_the_successor_is_the_next_version_signed_by_both():
    publisher = Publisher()
    first = trust.restore(publisher.root(), {}, 0).root
    assert successor(first, publisher.root(version=2)).header.version == 2
    assert reason(successor, first, publisher.root()) == "rollback"
    assert reason(successor, first, publisher.root(version=3)) == "rollback"
    stranger = publisher.sign("root", read_envelope(publisher.root(version=2), "root").payload, CAMPAIGN_KEY)
    assert reason(successor, first, stranger) == "bad_signature"


# The tree that devices fetch from --------------------------------------------------------------------


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_tree_has_all_roots_and_the_newest_of_each_name(work, tmp_path):
    publish(work)
    newest, other = publish(work, now=NOW + 1), publish(work, "a/b é..")
    model = work.publish("model", "mushrooms", NOW, lambda *_: read_envelope(Publisher().model(), "model").payload)
    change(work, "campaign", fresh=1)
    made = write_tree(work, tmp_path / "www")
    roots = open_workspace(work.path).roots()
    assert files(tmp_path / "www") == {
        "roots/1.hst": roots[0],
        "roots/2.hst": roots[1],
        "campaigns/mushrooms.hsc": newest,
        "campaigns/a%2Fb%20%C3%A9...hsc": other,
        "models/mushrooms.hsm": model,
    }
    assert (made.roots, made.campaigns, made.models, len(made.written)) == (2, 2, 1, 5)
    assert made.written[:2] == ("roots/1.hst", "roots/2.hst")
    assert (tmp_path / "www" / "reports").is_dir()


def test_a_repetition_writes_nothing_and_damage_is_repaired(work, tmp_path):
    publish(work)
    write_tree(work, tmp_path / "www")
    before, whole = {path: path.stat().st_mtime_ns for path in (tmp_path / "www").rglob("*")}, files(tmp_path / "www")
    assert write_tree(work, tmp_path / "www").written == ()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "www").rglob("*")} == before
    for name in whole:
        (tmp_path / "www" / name).write_bytes(b"x")
    write_tree(work, tmp_path / "www")
    assert files(tmp_path / "www") == whole
    publish(work)
    assert write_tree(work, tmp_path / "www").written == ("campaigns/mushrooms.hsc",)


def test_the_end_and_new_signatures_reach_the_tree(work, tmp_path):
    publish(work)
    end = end_campaign(work, "mushrooms", NOW)
    write_tree(work, tmp_path / "www")
    assert (tmp_path / "www" / "campaigns" / "mushrooms.hsc").read_bytes() == end
    change(work, "campaign", fresh=1, drop=ALL)
    made = write_tree(work, tmp_path / "www")
    assert [item.version for item in made.lacking] == [2]
    assert made.written == ("roots/2.hst",)
    resign(open_workspace(work.path), NOW)
    assert write_tree(work, tmp_path / "www").written == ("campaigns/mushrooms.hsc",)


def test_a_draft_stays_out_and_the_version_before_it_in(work, tmp_path):
    first = publish(work)
    write_tree(work, tmp_path / "www")
    change(work, "campaign", add=(key(41).public,), threshold=2)
    change(work, "campaign", threshold=1)
    served = tmp_path / "www" / "campaigns" / "mushrooms.hsc"
    write_tree(work, tmp_path / "www")
    assert served.read_bytes() == first
    change(work, "campaign", threshold=2)
    publish(work)
    made = write_tree(work, tmp_path / "www")
    assert [(item.name, item.version) for item in made.lacking] == [("mushrooms", 2)]
    assert served.read_bytes() == first


def test_a_tree_never_goes_back(work, tmp_path):
    publish(work)
    shutil.copytree(work.path, tmp_path / "backup")
    old = open_workspace(tmp_path / "backup")
    publish(work)
    write_tree(work, tmp_path / "www")
    before = files(tmp_path / "www")
    assert reason(write_tree, old, tmp_path / "www") == "tree_newer"
    publish(old, now=NOW + 1)
    assert reason(write_tree, open_workspace(old.path), tmp_path / "www") == "tree_newer"
    foreign = create_workspace(tmp_path / "foreign", name="workspace", now=NOW)
    assert reason(write_tree, foreign, tmp_path / "www") == "tree_newer"
    assert files(tmp_path / "www") == before
    shutil.copytree(work.path, tmp_path / "before")  # of a root that the copy does not know
    change(work, "campaign", fresh=1)
    write_tree(work, tmp_path / "www")
    assert reason(write_tree, open_workspace(tmp_path / "before"), tmp_path / "www") == "tree_newer"


def test_places_and_names_that_no_file_can_have(work, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert reason(write_tree, work, tmp_path / "file") == "io_failed"
    assert reason(write_tree, work, tmp_path / "absent" / "www") == "io_failed"
    publish(work)
    publish(work, "é" * 60)
    made = write_tree(work, tmp_path / "www")
    assert (made.unnamable, made.campaigns) == (("é" * 60,), 1)


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_names_become_one_part_of_a_path_and_never_meet(one, other):
    for text in (one, other):
        if any("\ud800" <= character <= "\udfff" for character in text):
            return
    place = file_name("campaign", one)
    assert place.count("/") == 1
    assert place.isascii()
    assert (place == file_name("campaign", other)) == (one == other)


def test_a_death_at_any_moment_leaves_a_tree_that_devices_can_follow(work, tmp_path):
    """Whatever is there: each file is whole, and the campaign is accepted under the roots beside it."""
    publish(work)
    old, new = tmp_path / "old", tmp_path / "www"
    write_tree(work, old)
    change(work, "campaign", fresh=1, drop=ALL)
    resign(open_workspace(work.path), NOW)
    shutil.copytree(old, new)
    deaths = 0
    for number in every_death(lambda: write_tree(open_workspace(work.path), new)):
        deaths = number
        roots = [(new / "roots" / f"{n}.hst") for n in (1, 2)]
        chain = [path.read_bytes() for path in roots if path.exists()]
        state = trust.install_roots(trust.pin(chain[0], NOW), chain, NOW)
        raw = (new / "campaigns" / "mushrooms.hsc").read_bytes()
        if raw != (old / "campaigns" / "mushrooms.hsc").read_bytes():
            assert trust.verify(state, raw, "campaign", NOW, campaign.UNDERSTOOD).header.version == 1
        shutil.rmtree(new)
        shutil.copytree(old, new)
    assert deaths >= 4
    assert trust.pin((new / "roots" / "2.hst").read_bytes(), NOW).root.header.version == 2
