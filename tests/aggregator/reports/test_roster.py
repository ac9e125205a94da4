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
from support.failures import refusal
from support.reports import digest

from aggregator.common.sealing import Cost, seal_secret
from aggregator.reports import fleet as rosters
from aggregator.reports.fleet import new_roster, read_roster, write_roster
from protocol import canonical
from protocol.documents.provisioning import parse_provisioning
from protocol.errors import HearsayError, StorageError

CHEAP = Cost(1, argon2id.MEMLIMIT_MIN)
NAMES = ["gate 7", "Tür", "../../etc/passwd", ".hidden", "..", "a/b", "x" * 190]


@pytest.fixture
def out(tmp_path):
    """A folder for a fleet list: it may exist if it is empty."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_every_device_gets_its_own_secret_and_only_the_owner_of_the_list_sees_all(tmp_path, out):
    made = new_roster("orchard", NAMES)
    write_roster(out, made, b"horse", cost=CHEAP)
    assert len(set(made.each_secret())) == len(NAMES)
    given_out = [parse_provisioning(path.read_bytes()) for path in (out / "devices").iterdir()]
    assert sorted(given_out) == sorted(made.provisionings())
    assert read_roster(out / "fleet.hsf", b"horse") == made
    assert {path.name for path in out.iterdir()} == {"fleet.hsf", "devices"}
    assert {path.name for path in tmp_path.iterdir()} == {"out"}, "no name led out of the folder"
    files = [out / "fleet.hsf", *(out / "devices").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (out, out / "devices")} == {0o700}
    raw = (out / "fleet.hsf").read_bytes()
    assert not [shown for shown in (*made.each_secret(), b"gate 7") if shown in raw]
    assert repr(made) == "Roster('orchard', 7 devices)"
    before = {path: path.read_bytes() for path in files}
    for path, reason in ((out, "output_exists"), (tmp_path / "absent" / "out", "output_invalid")):
        assert refusal(write_roster, path, new_roster("other", ["a"]), b"horse", cost=CHEAP) == reason
    assert {path: path.read_bytes() for path in files} == before
    assert refusal(read_roster, out / "fleet.hsf", b"house") == "passphrase_wrong"
    assert refusal(read_roster, out / "absent.hsf", b"house") == "file_not_found"
    assert refusal(read_roster, files[1], b"horse") == "sealed_damaged"


@pytest.mark.parametrize(
    ("fleet", "names", "reason"),
    [
        ("f", ["a", "b", "a"], "device_repeated"),
        ("f", [], "fleet_empty"),
        ("f", ["a\tb"], "name_invalid"),
        ("f", ["a", ""], "name_invalid"),
        ("f", ["x" * 197], "name_invalid"),
        ("f", ["ü" * 40], "name_invalid"),
        ("a\nb", ["a"], "name_invalid"),
    ],
)
def test_names_that_will_not_do_are_refused(fleet, names, reason):
    assert refusal(new_roster, fleet, names) == reason


def test_secrets_come_from_the_entropy_given():
    draws = iter([digest(1), digest(2)])
    assert new_roster("f", ["a", "b"], entropy=lambda _: next(draws)).secrets == digest(1) + digest(2)


@pytest.mark.parametrize(("where", "step"), [(rosters, "_write_private"), (rosters.os, "sync"), (Path, "rename")])
def test_a_failing_disk_leaves_nothing_behind(tmp_path, monkeypatch, where, step):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(where, step, fail)
    with pytest.raises(StorageError, match=r"^disk_full"):
        write_roster(tmp_path / "out", new_roster("f", ["a", "b"]), b"horse", cost=CHEAP)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


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
