"""Old files in a dealer's folder, all of them or one, never lead to a second set of a period or a second book."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from support.failures import failing, reason, refusal
from support.killed import every_death
from support.nodes import NODE_KEYS, PERIOD, signed_list
from support.publisher import DAY, NOW
from support.sources import Cut

from aggregator.common import databases
from aggregator.common.databases import marks_beside
from aggregator.nodes.dealer import journal
from aggregator.nodes.dealer.dealer import JOURNAL_FILE, Dealer
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import InputError, PolicyError, StorageError
from protocol.masked.keys import read_key_book
from tests.aggregator.nodes.test_dealer import IDS, new_world, refused


@pytest.fixture
def world(tmp_path):
    made = new_world(tmp_path / "dealer")
    made.setup()
    yield made
    made.dealer.close()


def opened(folder, now=NOW) -> Dealer:
    return Dealer.open(folder, clock=lambda: now)


def listed(world, number=4, version=1) -> bytes:
    return signed_list(world.publisher, NODE_KEYS[:number], version)


def restore(backup, folder, *, wipe=False) -> None:
    """Write the files of a backup into the files of a folder, whose inodes stay, or into the emptied folder."""
    before = {each.name: each.stat().st_ino for each in folder.iterdir()}
    for name in before if wipe else ():
        (folder / name).unlink()
    subprocess.run(["cp", "-a", f"{backup}/.", str(folder)], check=True)
    assert wipe or before.items() <= {each.name: each.stat().st_ino for each in folder.iterdir()}.items()


@pytest.mark.parametrize(("changes", "wipe"), [*((number, False) for number in range(1, 6)), (1, True)])
def test_an_old_state_is_refused_whatever_inode_the_mark_had(world, tmp_path, changes, wipe):
    """A file system gives inodes again, so that after some changes the mark has the inode which the backup names."""
    backup, folder = tmp_path / "backup", tmp_path / "dealer"
    shutil.copytree(folder, backup)
    for version in range(2, changes + 1):
        world.rekey(NODE_KEYS[:4], version)
    world.dealer.release(world.request(IDS[:4]))
    restore(backup, folder, wipe=wipe)
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    refused(StorageError, "dealer_copied", world.dealer.release, world.request(IDS[:3]))
    with Dealer.adopt(folder, clock=lambda: NOW) as adopted:
        refused(PolicyError, "period_refused", adopted.release, world.request(IDS[:3]))
    with opened(folder, NOW + DAY) as adopted:
        adopted.release(world.request(IDS[:3], PERIOD + 1))


def test_without_the_time_of_the_last_change_some_restored_states_would_pass(world, tmp_path, monkeypatch):
    """The check of the inode alone finds a restored state by luck only: here the restored mark has the named inode."""
    folder, backup = tmp_path / "dealer", tmp_path / "backup"
    monkeypatch.setattr(journal.Journal, "check_original", lambda _self: None)
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    restore(backup, folder)
    opened(folder).release(world.request(IDS[:3]))


CHANGES = {
    "setup": lambda dealer, world: dealer.setup(world.campaign, listed(world), world.root),
    "rekey": lambda dealer, world: dealer.rekey(world.campaign, listed(world, 5, 2), world.root),
    "release": lambda dealer, world: dealer.release(world.request(IDS[:4])),
}


@pytest.mark.parametrize("later", [[], ["rekey", "release"]])
@pytest.mark.parametrize("name", CHANGES)
def test_a_journal_restored_alone_is_refused_however_few_changes_it_lacks(tmp_path, name, later):
    """A second book 1 with the same serials and keys would let a set of two be released with 0.4 of a noise copy."""
    folder, old = tmp_path / "dealer", tmp_path / "old"
    with new_world(folder).dealer as dealer:
        world = new_world(tmp_path / "documents")._replace(dealer=dealer)
        if name != "setup":
            CHANGES["setup"](dealer, world)
        shutil.copy(folder / JOURNAL_FILE, old)
        for each in [name, *later]:
            CHANGES[each](dealer, world)
        (folder / JOURNAL_FILE).write_bytes(old.read_bytes())
        refused(StorageError, "dealer_copied", Dealer.open, folder)
        for change in CHANGES.values():
            refused(StorageError, "dealer_copied", change, dealer, world)
        for mark in marks_beside(folder / JOURNAL_FILE):
            mark.unlink()
        refused(StorageError, "dealer_copied", Dealer.open, folder)


def test_a_dealer_that_lost_its_journal_is_not_told_to_make_another(world, tmp_path):
    """`masked new` elsewhere is another dealer, which ends the campaign."""
    (tmp_path / "dealer" / "journal.sqlite").unlink()
    with pytest.raises(StorageError, match=r"^dealer_damaged.*is missing.*then hearsay masked adopt"):
        opened(tmp_path / "dealer")
    assert refusal(opened, tmp_path) == "not_a_dealer"


def test_an_old_mark_among_new_files_is_one_too_many_and_is_removed(world, tmp_path):
    folder, old = tmp_path / "dealer", tmp_path / "old"
    (before,) = marks_beside(folder / JOURNAL_FILE)
    shutil.copy2(before, old)
    first = world.dealer.release(world.request(IDS[:4]))
    shutil.copy2(old, before)
    with opened(folder) as dealer:
        assert dealer.release(world.request(IDS[:4])).raw == first.raw
        refused(PolicyError, "set_released", dealer.release, world.request(IDS[:3]))
    assert not before.exists()


@pytest.mark.parametrize("name", ["rekey", "release"])
def test_whatever_a_killed_change_leaves_a_copy_of_it_is_refused_once_the_dealer_has_gone_on(tmp_path, name):
    """The copy is written back at once: a kernel gives inodes again, so it may have the inode that the copy names."""
    folder, copy, kills = tmp_path / "dealer", tmp_path / "copy", 0

    def fresh():
        world = new_world(folder)
        with world.dealer:
            world.setup()
        return world

    worlds = [fresh()]
    for _ in every_death(lambda: CHANGES[name](opened(folder), worlds[-1])):
        kills += 1
        shutil.copytree(folder, copy)
        with opened(folder) as dealer:
            dealer.release(worlds[-1].request(IDS[:4]))
        for wipe in (False, True):
            restore(copy, folder, wipe=wipe)
            refused(StorageError, "dealer_copied", Dealer.open, folder)
        shutil.rmtree(folder)
        shutil.rmtree(copy)
        worlds.append(fresh())
    assert kills >= 2  # before the mark is made, and before the old one is removed


@pytest.mark.parametrize("name", CHANGES)
def test_a_killed_change_was_made_or_not_and_the_dealer_goes_on(tmp_path, name):
    folder = tmp_path / "dealer"
    world = new_world(folder)
    if name != "setup":
        world.setup()
    world.dealer.close()
    seen = set()
    for _ in every_death(lambda: failing(CHANGES[name], opened(folder), world)):  # A second setup is refused.
        before = (folder / JOURNAL_FILE).read_bytes()
        with opened(folder) as dealer:
            assert len(marks_beside(folder / JOURNAL_FILE)) == 1
            served = dealer.served()
            seen.add((len(served), *(len(each.books) + 9 * len(each.releases) for each in served)))
        assert (folder / JOURNAL_FILE).read_bytes() == before
    made = {"setup": {(0,), (1, 1)}, "rekey": {(1, 1), (1, 2)}, "release": {(1, 1), (1, 10)}}[name]
    assert seen == made
    with opened(folder) as dealer:
        if name != "release":
            return
        refused(PolicyError, "set_released", dealer.release, world.request(IDS[:3]))
        assert dealer.release(world.request(IDS[:4])).repeated


def test_what_an_interrupted_change_left_is_finished_before_anything_leaves(world, tmp_path, monkeypatch):
    """Interrupted at its commit, of which nothing had left, or before the mark of the older journal is removed."""
    folder, old, plain = tmp_path / "dealer", tmp_path / "old", journal.Journal._run

    def failing(self, statement, values=()):
        if statement == "COMMIT":
            raise OSError(5, "Input/output error")
        return plain(self, statement, values)

    def cut(*_):
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "_run", failing)
        refused(StorageError, "io_failed", world.dealer.release, world.request(IDS[:4]))
    assert len(marks_beside(folder / JOURNAL_FILE)) == 2
    with opened(folder) as dealer:
        assert not dealer.release(world.request(IDS[:3])).repeated
    assert len(marks_beside(folder / JOURNAL_FILE)) == 1
    shutil.copy(folder / JOURNAL_FILE, old)
    with monkeypatch.context() as patch:
        patch.setattr(databases, "remove_marks", cut)
        with pytest.raises(Cut):
            CHANGES["rekey"](opened(folder), world)
    assert len(marks_beside(folder / JOURNAL_FILE)) == 2
    world.dealer.book(world.id)  # This process had the folder open all the time.
    (folder / JOURNAL_FILE).write_bytes(old.read_bytes())
    refused(StorageError, "dealer_copied", Dealer.open, folder)


@pytest.mark.parametrize("is_set_up", [False, True])
def test_serial_numbers_never_come_twice_after_an_adoption(tmp_path, is_set_up):
    """The lost dealer made books that the copy does not know, of a campaign that the copy knows or not."""
    folder, copy = tmp_path / "dealer", tmp_path / "copy"
    world = new_world(folder)
    with world.dealer as dealer:
        known = serials(world, world.setup().raw) if is_set_up else {}
        shutil.copytree(folder, copy)
        made = [] if is_set_up else [world.setup()]
        lost = [serials(world, each.raw) for each in (*made, CHANGES["rekey"](dealer, world))]
    with Dealer.adopt(copy, clock=lambda: NOW) as adopted:
        fresh = serials(world, CHANGES["rekey" if is_set_up else "setup"](adopted, world).raw)
    new = {serial for node, serial in fresh.items() if known.get(node) != serial}
    assert min(new) >= 2**24 > max(serial for each in lost for serial in each.values())


def serials(world, raw) -> dict:
    book = read_key_book(raw, parse_campaign(read_envelope(world.campaign, "campaign").payload))
    return {node: party.serial for node, party in book.parties.items()}


def test_a_killed_adoption_leaves_a_copy(world, tmp_path):
    folder, backup = tmp_path / "dealer", tmp_path / "backup"
    shutil.copytree(folder, backup)
    world.dealer.release(world.request(IDS[:4]))
    restore(backup, folder)
    states = []
    for _ in every_death(lambda: Dealer.adopt(folder, clock=lambda: NOW)):
        states.append(reason(Dealer.open, folder))
        if states[-1] is None:
            with opened(folder) as dealer:
                refused(PolicyError, "period_refused", dealer.release, world.request(IDS[:3]))
    assert states[0] == "dealer_copied"
    assert set(states) <= {"dealer_copied", None}
    Dealer.adopt(folder, clock=lambda: NOW).close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_journal_of_before_the_first_release_is_refused(world, tmp_path, version):
    world.dealer.close()
    with closing(sqlite3.connect(tmp_path / "dealer" / JOURNAL_FILE, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    refused(StorageError, "dealer_damaged", Dealer.open, tmp_path / "dealer")


def test_a_mark_that_is_moved_or_named_otherwise_is_no_mark(world, tmp_path):
    folder = tmp_path / "dealer"
    others = [folder / f"{JOURNAL_FILE}.{name}.mark" for name in ("", "0" * 31, "G" * 32, "A" * 32)]
    for each in others:
        each.touch()
    world.rekey(NODE_KEYS[:4], 2)
    assert all(each.exists() for each in others)
    (mark,) = marks_beside(folder / JOURNAL_FILE)
    mark.rename(tmp_path / "away")
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    (tmp_path / "away").rename(mark)
    refused(StorageError, "dealer_copied", Dealer.open, folder)
    assert mark.stat().st_mode & 0o077 == 0
    refused(StorageError, "dealer_copied", world.dealer.book, world.id)
    refused(
        InputError, "book_unknown", Dealer.adopt(folder, clock=lambda: NOW).release, world.request(IDS[:4], version=3)
    )
