"""Files beside the state that are missing, empty, or no files; and a state folder that is named relatively."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.failures import failure, reason

from edge_sdk import Device, Policy
from edge_sdk.policy import load_policy
from edge_sdk.storage.marker import read_marker
from edge_sdk.storage.outbox import Fetched

STRANGE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("absent"),
}
"""What may be in the place of a file, and how it is made."""


NAMES = ["a%20b", "q?x=1", "h#1", "k/../up", "new\nline", "file:x", ":memory:", "%zz", "'quote\"", "e\udce9x", "b\\s"]


@pytest.mark.parametrize("name", [*(f"{{}}/{each}" for each in NAMES), "/{}/d", "//{}/d", *NAMES])
def test_a_folder_may_have_any_name(tmp_path, publisher, clock, monkeypatch, name):
    """SQLite reads an address: after two slashes a host, after a question mark options. Absolute and relative."""
    monkeypatch.chdir(tmp_path)
    place = name.replace("{}", str(tmp_path))
    with Device.provision(place, publisher.root(), clock=clock) as device:
        device.report(device.enrol(publisher.campaign()).id, {})
    with Device.open(place, clock=clock) as device:
        assert device.status().spent_micro == 1_000_000
        assert (Path(device.folder) / "state.db").is_file()


def test_a_relative_folder_is_the_same_after_a_change_of_the_working_folder(tmp_path, publisher, clock, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "policy.toml").write_text('epsilon_lifetime = "1"\n')
    (tmp_path / "other").mkdir()
    with Device.provision("state", publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        monkeypatch.chdir(tmp_path / "other")
        assert device.policy.lifetime_micro == device.status().left_micro == 1_000_000
        assert device.folder == str(tmp_path / "state")
        assert device.report(campaign.id, {})
        device.disable()
    assert list((tmp_path / "other").iterdir()) == []


def test_a_relative_folder_below_a_removed_one_is_refused(tmp_path, publisher, clock, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert reason(Device.provision, "state", publisher.root(), clock=clock) == "argument_invalid"


def test_a_program_remembers_a_policy_file_without_the_marker(tmp_path, publisher, clock):
    path = tmp_path / "policy.toml"
    path.write_text('epsilon_lifetime = "1"\n')
    with Device.provision(tmp_path, publisher.root(), clock=clock) as device:
        (tmp_path / "installed").unlink()
        path.unlink()
        for _ in range(2):
            assert reason(lambda: device.policy) == "policy_missing"
        assert device.status().policy.startswith("policy_missing")


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_policy_is_what_a_power_cut_leaves(tmp_path, publisher, clock, content):
    path = tmp_path / "policy.toml"
    path.write_bytes(content)
    error = failure(load_policy, str(path))
    assert (error.reason, "mv" in error.detail, "# defaults" in error.detail) == ("policy_invalid", True, True)
    assert reason(Device.provision, tmp_path, publisher.root(), clock=clock) == "policy_invalid"
    path.write_text("# defaults\n")


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_a_policy_that_is_no_file_is_refused_at_once(tmp_path, publisher, clock, make):
    path = tmp_path / "policy.toml"
    with Device.provision(tmp_path, publisher.root(), clock=clock) as device:
        make(path)
        error = failure(lambda: device.policy)
        assert (error.reason, "no regular file" in error.detail) == ("policy_invalid", True)
        assert device.status().policy.startswith("policy_invalid")
        device.disable()
    assert reason(Device.reset, tmp_path, publisher.root(), clock=clock) == "policy_invalid"


def test_a_policy_may_not_fill_the_memory(tmp_path):
    with (tmp_path / "policy.toml").open("wb") as file:
        file.write(b"# a comment\n")
        file.truncate(1 << 40)
    assert "more than" in failure(load_policy, str(tmp_path / "policy.toml")).detail


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_a_marker_that_is_no_file_is_refused_with_the_way_out(tmp_path, publisher, clock, make):
    Device.provision(tmp_path, publisher.root(), clock=clock).close()
    marker = tmp_path / "installed"
    marker.unlink()
    make(marker)
    for call in (Device.open, Device.reset):
        error = failure(call, tmp_path, publisher.root(), clock=clock)
        assert (error.reason, "put an empty file" in error.detail) == ("state_damaged", True)
    (marker.rmdir if stat.S_ISDIR(marker.lstat().st_mode) else marker.unlink)()
    marker.touch()  # what the refusal says
    Device.open(tmp_path, clock=clock).close()
    assert not read_marker(str(marker)).whole
    before = (tmp_path / "state.db").read_bytes()
    lowered = Policy.of(epsilon_lifetime="5")  # the largest lifetime may have been another
    error = failure(Device.reset, tmp_path, publisher.root(), policy=lowered, clock=clock)
    assert (error.reason, "remove 'installed'" in error.detail) == ("state_damaged", True)
    assert "set epsilon_lifetime" in error.detail
    assert (tmp_path / "state.db").read_bytes() == before
    marker.unlink()  # what this refusal says
    assert Device.reset(tmp_path, publisher.root(), clock=clock) == 100_000_000
    assert read_marker(str(marker)).lifetime_micro == 100_000_000


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_notes_that_are_no_file_count_as_empty(tmp_path, make):
    make(tmp_path / "fetched.json")
    assert Fetched(str(tmp_path), "https://example.org").get("campaigns/a.hsc", 1) is None
