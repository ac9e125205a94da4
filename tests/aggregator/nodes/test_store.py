"""A store of summaries: a union of sets, in any order, twice or damaged; what is refused, and why."""

import gzip
import os

import pytest
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
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
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
    with pytest.raises(InputError, match="summary_repeated"):
        online.add(summaries[0])


def test_totals_of_large_numbers_are_exact():
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


def test_a_node_counts_once_in_each_period_and_periods_can_be_chosen(tmp_path):
    store = made(tmp_path / "store")
    days = [again(period=PERIOD + back, seed=back) for back in range(3)]
    store.ingest([written(tmp_path, "all.hsn", *SUMMARIES[1:], *days)], now=NOW + 2 * DAY)
    source = store.statistics().source
    assert (source.nodes, source.summaries) == (4, 6)
    one = store.statistics(scope_of(range(PERIOD + 2, PERIOD + 3))).source
    assert (one.nodes, one.summaries, one.periods) == (1, 1, f"{PERIOD + 2}..{PERIOD + 2}")
    with pytest.raises(PolicyError, match="batch_too_small"):
        store.statistics(scope_of(range(5)))


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
    for listed, reason in ((LIST, "rollback"), (list_of(PUBLISHER, NODES, version=3), "equivocation"),
                           (list_of(PUBLISHER, NODES, name="other", version=9), "other_name"),
                           (CAMPAIGN_FILE, "wrong_role")):  # fmt: skip
        with pytest.raises(DocumentError, match=reason):
            store.give_list(listed)
    store.give_list(list_of(PUBLISHER, NODES[1:], version=3))


def test_a_store_without_a_list_takes_nothing(tmp_path):
    store = made(tmp_path / "store", None)
    with pytest.raises(InputError, match="nodes_unknown"):
        store.ingest([written(tmp_path, "all.hsn", *SUMMARIES)], now=NOW)
    with pytest.raises(InputError, match="nodes_unknown"):
        new_or_open(tmp_path / "new", CAMPAIGN_FILE, None, ["a.hsn"])
    with pytest.raises(InputError, match="unreadable"):
        new_or_open(tmp_path / "new", CAMPAIGN_FILE, LIST, ["a.hsn"])
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
    with pytest.raises(StorageError, match="store_of_nodes"):
        open_store(tmp_path / "nodes")
    with pytest.raises(StorageError, match="not_a_store"):
        open_envelope_store(NodeStore, reports.path)
    with pytest.raises(StorageError, match="not_a_store"):
        make_envelope_store(NodeStore, reports.path, CAMPAIGN_FILE)
    with pytest.raises(InputError, match="campaign_for_nodes"):
        create_store(tmp_path / "new", CAMPAIGN_FILE)
    with pytest.raises(InputError, match="campaign_for_devices"):
        make_envelope_store(NodeStore, tmp_path / "new", PUBLISHER.campaign())
    other = PUBLISHER.sign("campaign", node_payload(PUBLISHER, name="others"))
    with pytest.raises(StorageError, match="other_campaign"):
        make_envelope_store(NodeStore, tmp_path / "nodes", other)


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
