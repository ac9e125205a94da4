"""A closed fleet's secrets: one file per device and one sealed list, written all or none, unreadable for others."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.pwhash import argon2id
from support.examples import examples
from support.reports import digest

from aggregator.common.sealing import Cost, seal_secret
from aggregator.reports import fleet as rosters
from aggregator.reports.fleet import Roster, new_roster, read_roster, write_roster
from protocol import canonical
from protocol.documents.provisioning import parse_provisioning
from protocol.errors import HearsayError, InputError, StorageError

CHEAP = Cost(1, argon2id.MEMLIMIT_MIN)
NAMES = ["gate 7", "Tür", "../../etc/passwd", ".hidden", "..", "a/b", "x" * 190]


def written(folder, names=NAMES):
    made = new_roster("orchard", names)
    write_roster(folder / "out", made, b"horse", cost=CHEAP)
    return made, folder / "out"


def test_every_device_gets_its_own_secret_and_the_list_has_all(tmp_path):
    made, out = written(tmp_path)
    assert len(set(made.each_secret())) == len(NAMES)
    given_out = [parse_provisioning(path.read_bytes()) for path in (out / "devices").iterdir()]
    assert sorted(given_out) == sorted(made.provisionings())
    assert read_roster(out / "fleet.hsf", b"horse") == made
    assert {path.name for path in out.iterdir()} == {"fleet.hsf", "devices"}
    assert {path.name for path in tmp_path.iterdir()} == {"out"}, "no name led out of the folder"


def test_only_the_owner_can_read_them(tmp_path):
    _, out = written(tmp_path)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [out / "fleet.hsf", *(out / "devices").iterdir()]}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (out, out / "devices")} == {0o700}


def test_the_list_on_disk_and_every_repr_show_no_secret(tmp_path):
    made, out = written(tmp_path)
    raw = (out / "fleet.hsf").read_bytes()
    assert all(secret not in raw for secret in made.each_secret())
    assert b"gate 7" not in raw
    assert repr(made) == "Roster('orchard', 7 devices)"


def test_secrets_come_from_the_entropy_given():
    draws = iter([digest(1), digest(2)])
    assert new_roster("f", ["a", "b"], entropy=lambda _: next(draws)).secrets == digest(1) + digest(2)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "b", "a"], "device_repeated"),
        ([], "fleet_empty"),
        (["a\tb"], "name_invalid"),
        (["a", ""], "name_invalid"),
        (["x" * 197], "name_invalid"),
        (["ü" * 40], "name_invalid"),
    ],
)
def test_names_that_will_not_do_are_refused(names, reason):
    with pytest.raises(InputError, match=f"^{reason}"):
        new_roster("fleet", names)


def test_a_fleet_has_a_name_that_prints():
    with pytest.raises(InputError, match=r"^name_invalid"):
        new_roster("a\nb", ["a"])


def test_nothing_is_overwritten(tmp_path):
    _, out = written(tmp_path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"^output_exists"):
        write_roster(out, new_roster("other", ["a"]), b"horse", cost=CHEAP)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    with pytest.raises(InputError, match=r"^output_invalid"):
        write_roster(tmp_path / "absent" / "out", new_roster("other", ["a"]), b"horse", cost=CHEAP)


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "out").mkdir()
    written(tmp_path)


@pytest.mark.parametrize(("where", "step"), [(rosters, "_write_private"), (rosters.os, "sync"), (Path, "rename")])
def test_a_failing_disk_leaves_nothing_behind(tmp_path, monkeypatch, where, step):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(where, step, fail)
    with pytest.raises(StorageError, match=r"^disk_full"):
        write_roster(tmp_path / "out", new_roster("f", ["a", "b"]), b"horse", cost=CHEAP)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_passphrase_and_a_foreign_list(tmp_path):
    _, out = written(tmp_path)
    with pytest.raises(InputError, match=r"^passphrase_wrong"):
        read_roster(out / "fleet.hsf", b"house")
    with pytest.raises(InputError, match=r"^file_not_found"):
        read_roster(out / "absent.hsf", b"house")
    with pytest.raises(StorageError, match=r"^sealed_damaged"):
        read_roster(next((out / "devices").iterdir()), b"horse")


BODY = {"hearsay_fleet": 1, "fleet": "f", "devices": ["a", "b"], "secrets": bytes(64)}


@pytest.mark.parametrize(
    "change",
    [
        {"hearsay_fleet": 2},
        {"devices": ["a"]},
        {"devices": ["a", "a"]},
        {"devices": ["a", 1]},
        {"devices": {"a": "b"}},
        {"secrets": bytes(63)},
        {"secrets": "x" * 64},
        {"fleet": ""},
        {"more": 1},
    ],
)
def test_what_opens_and_is_no_fleet_is_refused(tmp_path, change):
    path = tmp_path / "list"
    path.write_bytes(seal_secret(canonical.pack({**BODY, **change}), b"p", cost=CHEAP))
    with pytest.raises(StorageError, match=r"^fleet_damaged"):
        read_roster(path, b"p")


@examples(20)
@given(st.binary(max_size=100))
def test_sealed_noise_is_no_fleet(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("list") / "list"
    path.write_bytes(seal_secret(noise, b"p", cost=CHEAP))
    with pytest.raises(HearsayError, match=r"^fleet_damaged"):
        read_roster(path, b"p")


def test_a_roster_is_what_its_list_says(tmp_path):
    path = tmp_path / "list"
    path.write_bytes(seal_secret(canonical.pack(BODY), b"p", cost=CHEAP))
    assert read_roster(path, b"p") == Roster("f", ("a", "b"), bytes(64))
