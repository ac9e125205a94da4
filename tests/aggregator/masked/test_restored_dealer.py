"""A backup that is copied over a dealer's folder, with every inode kept, never leads to a second set of a period."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess

import pytest
from support.nodes import NODE_KEYS, PERIOD, signed_list
from support.publisher import DAY, NOW

from aggregator.masked import journal, mark
from aggregator.masked.dealer import JOURNAL_FILE, Dealer
from aggregator.masked.journal import MARK_FILE
from protocol.errors import PolicyError, StorageError
from tests.aggregator.masked.test_dealer import IDS, new_world, refused


@pytest.fixture
def world(tmp_path):
    made = new_world(tmp_path / "dealer")
    made.setup()
    yield made
    made.dealer.close()


def inodes(folder) -> dict[str, int]:
    return {each.name: each.stat().st_ino for each in folder.iterdir()}


def write_over(backup, folder) -> None:
    """Write the files of a backup into the files of a folder: the content is old, and the inodes stay."""
    before = inodes(folder)
    subprocess.run(["cp", "-a", f"{backup}/.", str(folder)], check=True)
    after = inodes(folder)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("changes", range(1, 6))
def test_an_old_state_in_the_same_files_is_refused_whatever_inode_the_mark_had(world, tmp_path, changes):
    """A file system gives inodes again, so that after some changes the mark has the inode which the backup names."""
    backup, folder = tmp_path / "backup", tmp_path / "dealer"
    shutil.copytree(folder, backup)
    for version in range(2, changes + 1):
        world.rekey(NODE_KEYS[:4], version)
    world.dealer.release(world.request(IDS[:4]))
    write_over(backup, folder)
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    refused(StorageError, "dealer_copied", world.dealer.release, world.request(IDS[:3]))
    with Dealer.adopt(folder, clock=lambda: NOW) as adopted:
        refused(PolicyError, "period_refused", adopted.release, world.request(IDS[:3]))
    with Dealer.open(folder, clock=lambda: NOW + DAY) as adopted:
        adopted.release(world.request(IDS[:3], PERIOD + 1))


def test_without_the_time_of_the_last_change_some_restored_states_would_pass(world, tmp_path, monkeypatch):
    """The check of the inode alone finds a restored state by luck only: here the restored mark has the named inode."""
    folder, backup = tmp_path / "dealer", tmp_path / "backup"
    monkeypatch.setattr(journal.Journal, "check_original", lambda _self: None)
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    write_over(backup, folder)
    Dealer.open(folder, clock=lambda: NOW).release(world.request(IDS[:3]))


def test_a_folder_emptied_and_filled_from_a_backup_is_refused(world, tmp_path):
    backup, folder = tmp_path / "backup", tmp_path / "dealer"
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    for each in folder.iterdir():
        each.unlink()
    subprocess.run(["cp", "-a", f"{backup}/.", str(folder)], check=True)
    refused(StorageError, "dealer_copied", Dealer.open, folder)


@pytest.mark.parametrize("name", [JOURNAL_FILE, MARK_FILE])
def test_one_old_file_among_new_ones_is_refused(world, tmp_path, name):
    folder, old = tmp_path / "dealer", tmp_path / "old"
    shutil.copy(folder / name, old)
    world.rekey(NODE_KEYS[:5])
    world.dealer.release(world.request(IDS[:4]))
    (folder / name).write_bytes(old.read_bytes())
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    (folder / MARK_FILE).unlink()
    refused(StorageError, "dealer_copied", Dealer.open, folder)


def test_of_a_journal_that_is_one_change_old_the_set_of_the_mark_counts_as_released(world, tmp_path):
    """A killed process looks the same, so the folder stays usable; the set that may have left is the only one."""
    folder, old = tmp_path / "dealer", tmp_path / "old"
    shutil.copy(folder / JOURNAL_FILE, old)
    first = world.dealer.release(world.request(IDS[:4]))
    (folder / JOURNAL_FILE).write_bytes(old.read_bytes())
    with Dealer.open(folder, clock=lambda: NOW) as dealer:
        assert dealer.served()[0].releases == []
        refused(PolicyError, "set_released", dealer.release, world.request(IDS[:3]))
        again = dealer.release(world.request(IDS[:4]))
        assert again.repeated
        assert again.raw == first.raw
        assert [row.period for row in dealer.served()[0].releases] == [PERIOD]


def killed(act) -> None:
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("times", [1, 3])
def test_a_dealer_killed_between_mark_and_journal_continues(world, tmp_path, monkeypatch, times):
    folder, plain = tmp_path / "dealer", mark.write_mark

    def fatal(*arguments):
        plain(*arguments)
        os._exit(9)

    for _ in range(times):
        with monkeypatch.context() as patch:
            patch.setattr(journal, "write_mark", fatal)
            killed(lambda: Dealer.open(folder, clock=lambda: NOW).release(world.request(IDS[:4])))
    refused(PolicyError, "set_released", world.dealer.release, world.request(IDS[:3]))
    assert world.dealer.release(world.request(IDS[:4])).repeated


def test_a_backup_made_at_such_a_moment_is_refused_when_it_is_written_over_the_folder(world, tmp_path, monkeypatch):
    folder, backup, plain = tmp_path / "dealer", tmp_path / "backup", mark.write_mark

    def fatal(*arguments):
        plain(*arguments)
        os._exit(9)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_mark", fatal)
        killed(lambda: Dealer.open(folder, clock=lambda: NOW).rekey(world.campaign, listed(world), world.root))
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    write_over(backup, folder)
    monkeypatch.setattr(mark, "_MOST_DELAY", 0)  # As if a minute had passed since the kill.
    refused(StorageError, "dealer_copied", Dealer.open, folder)


def listed(world) -> bytes:
    return signed_list(world.publisher, NODE_KEYS[:4], 2)


def test_a_killed_adoption_leaves_a_copy(world, tmp_path, monkeypatch):
    folder, backup, plain = tmp_path / "dealer", tmp_path / "backup", mark.write_mark
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    write_over(backup, folder)

    def fatal(*arguments):
        plain(*arguments)
        os._exit(9)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_mark", fatal)
        killed(lambda: Dealer.adopt(folder, clock=lambda: NOW))
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    Dealer.adopt(folder, clock=lambda: NOW).close()


def test_a_journal_of_version_1_gets_a_mark_with_its_first_change(world, tmp_path):
    folder, backup = tmp_path / "dealer", tmp_path / "backup"
    world.dealer.close()
    with sqlite3.connect(folder / JOURNAL_FILE, isolation_level=None) as connection:
        connection.execute("DROP TABLE mark")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    (folder / MARK_FILE).unlink()
    shutil.copytree(folder, backup)
    with Dealer.open(folder, clock=lambda: NOW) as dealer:
        assert not (folder / MARK_FILE).exists()
        dealer.release(world.request(IDS[:4]))
        assert (folder / MARK_FILE).exists()
    write_over(backup, folder)
    with Dealer.open(folder, clock=lambda: NOW) as dealer:
        refused(PolicyError, "set_released", dealer.release, world.request(IDS[:3]))
    for number in range(2, 4):
        with Dealer.open(folder, clock=lambda: NOW) as dealer:
            dealer.rekey(world.campaign, signed_list(world.publisher, NODE_KEYS[:4], number), world.root)
    write_over(backup, folder)
    refused(StorageError, "dealer_copied", Dealer.open, folder)


def test_a_mark_that_is_damaged_is_no_mark(world, tmp_path):
    path = tmp_path / "dealer" / MARK_FILE
    raw = path.read_bytes()
    for bad in (b"", raw[:-1], raw + b"x", raw[:20] + b"\xff" + raw[21:], b"x" * (mark._MOST_BYTES + 1)):
        path.write_bytes(bad)
        assert mark.read_mark(path) is None
        refused(StorageError, "dealer_copied", Dealer.open, tmp_path / "dealer")
    assert path.stat().st_mode & 0o077 == 0
