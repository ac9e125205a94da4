"""A store of summaries: a union of sets, in any order, twice or damaged; what is refused, and why."""

import gzip
import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from support.failures import reason, refusal
from support.node_fleets import keys, list_of, summaries_of
from support.nodes import PERIOD, node_campaign, node_payload
from support.publisher import DAY, NOW, Publisher, key
from support.reports import opened

from aggregator.nodes.statistics.totals import Totals
from aggregator.nodes.store import database
from aggregator.nodes.store.database import Database
from aggregator.nodes.store.opening import is_node_store, make_envelope_store, new_or_open, open_envelope_store
from aggregator.nodes.store.status import status
from aggregator.nodes.store.summaries import NodeStore
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.tally.scope import scope_of
from protocol import canonical
from protocol.documents.envelope import keyid, read_envelope, seal
from protocol.errors import StorageError
from protocol.nodes.summary import SUMMARY_PAYLOAD_TYPE, build_summary, read_summary
from protocol.nodes.terms import ranges

PUBLISHER = Publisher()
CAMPAIGN_FILE = PUBLISHER.sign("campaign", node_payload(PUBLISHER))
CAMPAIGN = opened(CAMPAIGN_FILE)
NODES = keys(4)
LIST = list_of(PUBLISHER, NODES)
SUMMARIES = summaries_of(CAMPAIGN, NODES)


def made(folder, listed=LIST):
    store = make_envelope_store(NodeStore, folder, CAMPAIGN_FILE)
    if listed is not None:
        store.give_list(listed)
    return store


def written(folder, name, *contents):
    path = folder / name
    path.write_bytes(b"".join(contents))
    return path


def again(node=0, period=PERIOD, seed=99, **options):
    """Another summary of a node and period."""
    [found] = summaries_of(CAMPAIGN, [NODES[node]], period=period, seed=seed, **options)
    return found


def test_one_by_one_all_at_once_and_the_union_of_sets_are_equal(tmp_path):
    summaries = [read_summary(raw)[1] for raw in SUMMARIES]
    online = Totals(CAMPAIGN)
    for summary in summaries:
        online.add(summary)
    store = made(tmp_path / "a")
    store.ingest([written(tmp_path, "a.hsn", *SUMMARIES[:3])], now=NOW)
    other = made(tmp_path / "b")
    other.ingest([written(tmp_path, "b.hsn", *SUMMARIES[1:])], now=NOW)
    other.export(tmp_path / "b.out")
    store.ingest([tmp_path / "b.out"], now=NOW)
    assert online.total() == Totals.of(CAMPAIGN, summaries[::-1]).total() == store.totals().total()
    assert online.total().statistics_id == store.statistics().statistics_id
    assert refusal(online.add, summaries[0]) == "summary_repeated"


def test_a_node_counts_once_in_each_period_and_periods_can_be_chosen(tmp_path):
    store = made(tmp_path / "store")
    days = [again(period=PERIOD + back, seed=back) for back in range(3)]
    store.ingest([written(tmp_path, "all.hsn", *SUMMARIES[1:], *days)], now=NOW + 2 * DAY)
    source = store.statistics().source
    assert (source.nodes, source.summaries) == (4, 6)
    one = store.statistics(scope_of(range(PERIOD + 2, PERIOD + 3))).source
    assert (one.nodes, one.summaries, one.periods) == (1, 1, f"{PERIOD + 2}..{PERIOD + 2}")
    assert refusal(store.statistics, scope_of(range(5))) == "batch_too_small"
    campaign = node_campaign(terms=CAMPAIGN.nodes._replace(max_records=1 << 40))
    high = [each for (_, most), size in zip(ranges(campaign), (2, 8, 2, 2), strict=True) for each in [most] * size]
    summaries = [read_summary(build_summary(campaign, one, PERIOD, high))[1] for one in keys(300)]
    assert Totals.of(campaign, summaries).total().numbers == tuple(300 * number for number in high)
    assert 300 * max(high) > 1 << 63


def test_two_summaries_of_one_node_and_period_are_both_set_aside(tmp_path):
    store = made(tmp_path / "store")
    others = [again(seed=seed) for seed in range(90, 95)]
    files = [written(tmp_path, f"{number}.hsn", raw) for number, raw in enumerate([*SUMMARIES, *others])]
    taken = store.ingest(files, now=NOW)
    assert (taken.accepted, taken.conflicting) == (4, 5)
    assert store.rejected() == {"summary_conflict": 2}, "a flood of contradictions keeps two"
    assert store.statistics().source.nodes == 3
    [period] = status(store).periods
    assert (period.seen, period.conflicting) == (3, (keyid(NODES[0].public).hex(),))
    reverse = made(tmp_path / "reverse")
    reverse.ingest(files[::-1], now=NOW)
    reverse.export(tmp_path / "one.out", everything=True)
    store.export(tmp_path / "other.out", everything=True)
    assert (tmp_path / "one.out").read_bytes() == (tmp_path / "other.out").read_bytes()


def forged(raw, **changes):
    """A summary with changed payload, signed by the first node."""
    body = canonical.unpack(read_envelope(raw, "node").payload)
    return seal(SUMMARY_PAYLOAD_TYPE, canonical.pack({**body, **changes}), [NODES[0]])


BAD = {
    "node_not_listed": lambda: summaries_of(CAMPAIGN, [key(200)])[0],
    "bad_signature": lambda: SUMMARIES[0][:-1] + bytes([SUMMARIES[0][-1] ^ 1]),
    "invalid_message": lambda: b"no summary" * 3,
    "truncated": lambda: SUMMARIES[0][:-9],
}


@pytest.mark.parametrize("reason", BAD)
def test_what_is_bad_is_refused_by_reason_with_its_place_and_the_rest_counts(tmp_path, reason):
    store = made(tmp_path / "store")
    bad = BAD[reason]()
    file = written(tmp_path, "mixed.hsn", SUMMARIES[1], SUMMARIES[2], bad)
    for _ in range(2):
        taken = store.ingest([file], now=NOW)
        assert dict(taken.rejected) == {reason: 1}
    assert store.rejected() == {reason: 1}, "the same file again is not counted again"
    [(name, _, piece)] = store.quarantined()
    assert (name, piece) == (str(file), (len(SUMMARIES[1] + SUMMARIES[2]), len(bad), reason))
    assert store.statistics().source.nodes == 2


def test_what_was_refused_is_judged_again_with_its_file(tmp_path):
    store = made(tmp_path / "store", list_of(PUBLISHER, NODES[:2]))
    file = written(tmp_path, "all.hsn", *SUMMARIES, forged(SUMMARIES[0], period=PERIOD + 1))
    store.ingest([file], now=NOW)
    assert store.rejected() == {"node_not_listed": 2, "report_too_early": 1}
    store.give_list(list_of(PUBLISHER, NODES, version=2))
    taken = store.ingest([file], now=NOW + DAY)
    assert (taken.accepted, taken.replayed, dict(taken.rejected)) == (3, 2, {})
    assert store.rejected() == {}


def test_a_removed_nodes_summary_is_counted_once_however_often_it_is_given(tmp_path):
    store = made(tmp_path / "store")
    file = written(tmp_path, "all.hsn", *SUMMARIES)
    store.ingest([file], now=NOW)
    store.give_list(list_of(PUBLISHER, NODES[1:], version=3))
    other = written(tmp_path, "more.hsn", SUMMARIES[0], summaries_of(CAMPAIGN, [key(200)])[0])
    taken = store.ingest([file, other], now=NOW)
    assert (taken.replayed, dict(taken.rejected)) == (len(SUMMARIES) + 1, {"node_not_listed": 1})
    assert store.rejected() == {"node_not_listed": 2}, "the removed node, and the unknown one"


def test_the_newest_list_decides_also_of_what_is_there_already(tmp_path):
    store = made(tmp_path / "store")
    store.ingest([written(tmp_path, "all.hsn", *SUMMARIES)], now=NOW)
    store.give_list(list_of(PUBLISHER, NODES[1:], version=3))
    assert store.rejected() == {"node_not_listed": 1}
    assert store.statistics().source.nodes == 3
    assert status(store).periods[0].unlisted == 1
    for listed, why in (
        (LIST, "rollback"),
        (list_of(PUBLISHER, NODES, version=3), "equivocation"),
        (list_of(PUBLISHER, NODES, name="other", version=9), "other_name"),
        (CAMPAIGN_FILE, "wrong_role"),
    ):
        assert refusal(store.give_list, listed) == why
    store.give_list(list_of(PUBLISHER, NODES[1:], version=3))


def test_a_store_without_a_list_takes_nothing(tmp_path):
    store = made(tmp_path / "store", None)
    assert refusal(store.ingest, [written(tmp_path, "all.hsn", *SUMMARIES)], now=NOW) == "nodes_unknown"
    assert refusal(new_or_open, tmp_path / "new", CAMPAIGN_FILE, None, ["a.hsn"]) == "nodes_unknown"
    assert refusal(new_or_open, tmp_path / "new", CAMPAIGN_FILE, LIST, ["a.hsn"]) == "unreadable"
    assert not (tmp_path / "new").exists()


def test_compressed_cut_and_unreadable_files(tmp_path, monkeypatch):
    store = made(tmp_path / "store")
    whole = gzip.compress(b"".join(SUMMARIES))
    cut = written(tmp_path, "cut.hsn.gz", whole[: len(whole) * 3 // 4])
    bomb = written(tmp_path, "bomb.hsn.gz", gzip.compress(bytes(8 << 20)))
    files = [cut, tmp_path / "none.hsn", tmp_path, written(tmp_path, "empty.hsn"), bomb]
    taken = store.ingest(files, now=NOW)
    assert [found.reason for found in taken.unreadable] == ["file_not_found", "is_folder", "empty_file",
                                                           "expands_too_far"]  # fmt: skip
    assert (taken.accepted >= 2, dict(taken.rejected)) == (True, {"truncated": 1})
    assert store.ingest([written(tmp_path, "whole.hsn.gz", whole)], now=NOW).accepted == 4 - taken.accepted
    monkeypatch.setattr("aggregator.nodes.store.envelope_store.MAX_FILE_BYTES", 1000)
    assert store.ingest([written(tmp_path, "large.hsn", *SUMMARIES)], now=NOW).unreadable[0].reason == "too_large"


def test_a_file_of_many_tiny_pieces_is_counted_and_not_kept_whole(tmp_path):
    store = made(tmp_path / "store")
    junk = [b"\x94\xa4hsy1" + SUMMARIES[0][6:40], SUMMARIES[0]] * 1200
    store.ingest([written(tmp_path, "junk.hsn", *junk)], now=NOW)
    assert store.rejected()["invalid_message"] == 1200
    assert len(store.quarantined()) == 1000


def test_stores_of_reports_and_of_summaries_are_told_apart(tmp_path):
    made(tmp_path / "nodes")
    reports = create_store(tmp_path / "reports", PUBLISHER.campaign())
    assert is_node_store(tmp_path / "nodes")
    assert not is_node_store(reports.path)
    assert refusal(open_store, tmp_path / "nodes") == "store_of_nodes"
    assert refusal(open_envelope_store, NodeStore, reports.path) == "not_a_store"
    assert refusal(make_envelope_store, NodeStore, reports.path, CAMPAIGN_FILE) == "not_a_store"
    assert refusal(create_store, tmp_path / "new", CAMPAIGN_FILE) == "campaign_for_nodes"
    assert refusal(make_envelope_store, NodeStore, tmp_path / "new", PUBLISHER.campaign()) == "campaign_for_devices"
    other = PUBLISHER.sign("campaign", node_payload(PUBLISHER, name="others"))
    assert refusal(make_envelope_store, NodeStore, tmp_path / "nodes", other) == "other_campaign"


def test_a_file_whose_name_is_no_utf_8_is_taken_in(tmp_path):
    store = made(tmp_path / "store")
    file = written(tmp_path, os.fsdecode(b"\xff.hsn"), b"nonsense")
    assert store.ingest([file], now=NOW).rejected == {"invalid_message": 1}
    [(name, _, _)] = store.quarantined()
    assert name.endswith("\\udcff.hsn")


def test_a_writer_waits_for_another_and_then_gives_up(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "SCHEMA", database.SCHEMA._replace(busy_seconds=0.05))
    store = made(tmp_path / "store")
    holder = Database(store.path)
    with holder.transaction(), pytest.raises(StorageError, match="store_busy"):
        store.ingest([written(tmp_path, "all.hsn", *SUMMARIES)], now=NOW)
    holder.close()
    assert store.ingest([tmp_path / "all.hsn"], now=NOW).accepted == 4


def test_two_processes_take_files_in_at_the_same_time(tmp_path):
    """Eight batches of overlapping files in two processes: no summary is lost, and conflicts are found."""
    store = made(tmp_path / "store", list_of(PUBLISHER, keys(40)))
    raws = [*summaries_of(CAMPAIGN, keys(40), 20), again(seed=77)]
    files = [written(tmp_path, f"{number}.hsn", raw) for number, raw in enumerate(raws)]
    children = []
    for order in (files, files[::-1]):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for start in range(0, len(order), 10):
                    open_envelope_store(NodeStore, store.path).ingest(order[start : start + 10], now=NOW)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert store.rejected() == {"summary_conflict": 2}
    expected = [read_summary(raw)[1] for raw in raws[1:-1]]
    assert store.totals().total() == Totals.of(CAMPAIGN, expected).total()


# Damage to a store of summaries is noticed: a store gives what it gave before, or says that it is damaged


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
