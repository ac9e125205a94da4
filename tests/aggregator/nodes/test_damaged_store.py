"""Damage to a store of summaries is noticed: a store gives what it gave before, or says that it is damaged."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from support.failures import reason
from support.node_fleets import keys, list_of, summaries_of
from support.nodes import PERIOD, node_payload
from support.publisher import DAY, NOW, Publisher
from support.reports import opened

from aggregator.nodes.store.database import Database
from aggregator.nodes.store.opening import make_envelope_store, open_envelope_store
from aggregator.nodes.store.status import status
from aggregator.nodes.store.summaries import NodeStore
from protocol.errors import StorageError

REASONS = {"store_damaged", "store_newer", "store_older"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store with summaries of two periods, a contradiction, an unlisted node and refused pieces."""
    folder = tmp_path_factory.mktemp("whole")
    publisher, nodes = Publisher(), keys(5)
    campaign_file = publisher.sign("campaign", node_payload(publisher))
    campaign = opened(campaign_file)
    store = make_envelope_store(NodeStore, folder / "store", campaign_file)
    store.give_list(list_of(publisher, nodes))
    raws = [*summaries_of(campaign, nodes, period=PERIOD + 1, seed=2), *summaries_of(campaign, nodes)]
    file = folder / "some.hsn"
    file.write_bytes(b"".join([*raws, *summaries_of(campaign, nodes[:1], seed=9), b"no summary", raws[0][:80]]))
    store.ingest([file], now=NOW + DAY)
    store.give_list(list_of(publisher, nodes[:4], version=2))
    return store


def all_of(folder):
    """Everything that a store says: statistics, status, refused pieces and all its summaries."""
    store = open_envelope_store(NodeStore, folder)
    store.export(folder.parent / "export.hsn", everything=True, force=True)
    statistics = store.statistics()
    said = (statistics.statistics_id, statistics.sources[0].nodes, status(store), store.quarantined())
    return (*said, store.list_bytes(), (folder.parent / "export.hsn").read_bytes())


def number_refused(whole, folder, number, seed, spread):
    """How many of ``number`` stores, each with ``spread`` random bytes changed, are refused.

    The others must say what they said before. Bytes that are zero are left out: most of them are free space.
    """
    shutil.copytree(whole.path, folder)
    file, generator = folder / "nodes.sqlite", random.Random(seed)
    content, before = file.read_bytes(), all_of(folder)
    places = [place for place, value in enumerate(content) if value]
    refused = 0
    for _ in range(number):
        damaged = bytearray(content)
        for place in generator.sample(places, spread):
            damaged[place] ^= generator.randrange(1, 256)
        file.write_bytes(damaged)
        (folder / "nodes.sqlite-wal").unlink(missing_ok=True)
        said, reason = all_or_reason(folder)
        assert said == before or reason in REASONS
        refused += reason is not None
    return refused


def all_or_reason(folder):
    """What a store says and None, or None and the reason why it says nothing."""
    try:
        return all_of(folder), None
    except StorageError as error:
        return None, error.reason


def test_a_changed_byte_is_noticed_or_changes_nothing(whole, tmp_path):
    assert number_refused(whole, tmp_path / "store", 50, seed=1, spread=1) > 25


@pytest.mark.slow
@pytest.mark.parametrize(("number", "spread"), [(400, 1), (100, 5), (100, 200)])
def test_many_changed_bytes_are_noticed_or_change_nothing(whole, tmp_path, number, spread):
    assert number_refused(whole, tmp_path / "store", number, seed=spread, spread=spread) > number // 2


CHANGES = {
    "a summary is gone": "DELETE FROM summaries WHERE rowid = 3",
    "a summary is there twice": "INSERT INTO summaries SELECT period + 9, node, identity, digest, envelope "
    "FROM summaries WHERE rowid = 3",
    "a period": "UPDATE summaries SET period = period + 1 WHERE rowid = 3",
    "a node": "UPDATE summaries SET node = zeroblob(8) WHERE rowid = 3",
    "a text for a node": "UPDATE summaries SET node = 'abcdefgh' WHERE rowid = 3",
    "no text for a node": "UPDATE summaries SET node = CAST(x'ff' AS TEXT) WHERE rowid = 3",
    "an envelope": "UPDATE summaries SET envelope = zeroblob(9) WHERE rowid = 3",
    "a text for an envelope": "UPDATE summaries SET envelope = 'a' WHERE rowid = 3",
    "a digest": "UPDATE summaries SET digest = zeroblob(32) WHERE rowid = 3",
    "a list": "UPDATE documents SET raw = x'90' WHERE name = 'list'",
    "no list": "DELETE FROM documents WHERE name = 'list'",
    "a campaign": "UPDATE documents SET raw = x'90' WHERE name = 'campaign'",
    "no campaign": "DELETE FROM documents WHERE name = 'campaign'",
    "a reason": "UPDATE rejected SET reason = 'a' WHERE reason = 'truncated'",
    "a name": "UPDATE rejected SET name = CAST(x'ff' AS TEXT)",
    "a place": "UPDATE quarantine SET place = place + 1",
    "no sum": "DELETE FROM row_sums WHERE name = 'summaries'",
    "a text for a sum": "UPDATE row_sums SET digests = 'a'",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
def test_a_changed_value_is_noticed(whole, tmp_path, statement):
    folder = tmp_path / "store"
    shutil.copytree(whole.path, folder)
    with closing(sqlite3.connect(folder / "nodes.sqlite")) as connection, connection:
        connection.execute(statement)
    assert reason(all_of, folder) == "store_damaged"


def test_ingesting_into_a_damaged_store_does_not_hide_the_damage(whole, tmp_path):
    """The files of a store with a changed, a moved or a missing summary are given again."""
    for number, kind in enumerate(("an envelope", "a node", "a summary is gone")):
        folder = tmp_path / str(number)
        shutil.copytree(whole.path, folder)
        with closing(sqlite3.connect(folder / "nodes.sqlite")) as connection, connection:
            connection.execute(CHANGES[kind])
        found = reason(open_envelope_store(NodeStore, folder).ingest, [whole.path.parent / "some.hsn"], now=NOW + DAY)
        assert found in {None, "store_damaged"}
        assert reason(open_envelope_store(NodeStore, folder).statistics) == "store_damaged"


@pytest.mark.parametrize(("version", "told"), [(1, "store_older"), (3, "store_newer")])
def test_a_store_of_other_software_is_told_apart(whole, tmp_path, version, told):
    folder = tmp_path / "store"
    shutil.copytree(whole.path, folder)
    with closing(sqlite3.connect(folder / "nodes.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    assert reason(open_envelope_store, NodeStore, folder) == told
    (folder / "nodes.sqlite").write_bytes(b"SQLite format 3\0" + bytes(2000))
    assert reason(open_envelope_store, NodeStore, folder) == "store_damaged"


def test_sums_do_not_depend_on_order_and_undo_each_other(whole, tmp_path):
    with closing(Database(whole.path)) as database:
        rows = list(database.rows())
    orders = []
    for number, order in enumerate((rows, rows[::-1])):
        (tmp_path / str(number)).mkdir()
        with closing(Database(tmp_path / str(number), make=True)) as database:
            with database.transaction():
                for row in order:
                    database.put(row)
            assert list(database.rows()) == rows
        with closing(sqlite3.connect(tmp_path / str(number) / "nodes.sqlite")) as connection:
            orders.append(connection.execute("SELECT * FROM row_sums").fetchall())
    assert orders[0] == orders[1]
