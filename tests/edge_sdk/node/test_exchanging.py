"""Set-union gossip: any order of exchanges ends in equal files; only signed summaries of listed nodes count."""

from __future__ import annotations

import os
from functools import lru_cache, partial
from itertools import permutations
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.killed import every_death
from support.nodes import NODE_KEYS, PERIOD, node_campaign, plain_sums, summary_of
from support.publisher import DAY, NOW, Publisher

from edge_sdk.node import exchanging
from edge_sdk.node.exchanging import exchange, totals
from protocol.documents.envelope import keyid
from protocol.nodes.summary import NodeList, SummarySet, build_node_list, judge_summary, parse_node_list
from protocol.stream import sha256

AT = NOW + 20 * DAY
LISTED = 4
"""The last of the keys is not on the list."""


@lru_cache(maxsize=1)
def campaign():
    return node_campaign()


@lru_cache(maxsize=1)
def listed() -> NodeList:
    header = Publisher().header("wards", 1)
    return parse_node_list(build_node_list(header, [key.public for key in NODE_KEYS[:LISTED]]))


@lru_cache(maxsize=256)
def summary(node: int = 0, number: int = 1, period: int = PERIOD) -> bytes:
    return summary_of(campaign(), node, number, period)


def write(path, *envelopes: bytes) -> str:
    path.write_bytes(b"".join(envelopes))
    return str(path)


def run(own, *peers, nodes: NodeList | None = None):
    return exchange(campaign(), nodes or listed(), AT, str(own), [str(peer) for peer in peers])


def test_peers_are_united_and_what_was_found_is_told(tmp_path):
    own = write(tmp_path / "own.hsn", summary(0))
    peer = write(tmp_path / "peer.hsn", summary(1), summary(0), summary(2, 1, PERIOD + 1))
    found = run(own, peer)
    assert (len(found.summaries), found.added, found.refused, found.dropped, found.unread) == (3, 2, {}, {}, ())
    content = (tmp_path / "own.hsn").read_bytes()
    assert found.digest == sha256(content).digest()
    assert content == found.summaries.to_bytes()
    assert SummarySet.from_bytes(content, lambda raw: judge_summary(raw, campaign(), listed(), AT)) == found.summaries
    again = run(own, peer)
    assert (again.added, again.digest) == (0, found.digest)


def test_a_first_exchange_makes_the_file_and_folders_are_read(tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    write(folder / "a.hsn", summary(0))
    write(folder / "b.hsn", summary(1))
    write(folder / ".hidden.hsn", summary(2))
    write(folder / "notes.txt", summary(3))
    found = run(tmp_path / "own.hsn", folder)
    assert len(found.summaries) == 2
    assert (tmp_path / "own.hsn").stat().st_mode & 0o777 == 0o600
    assert run(folder / "a.hsn", folder).added == 1, "a folder may hold the node's own file"


EXCHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)
SUMMARIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, LISTED), st.integers(1, 4), st.sampled_from((PERIOD, PERIOD + 1))),
    max_size=12,
)


@given(SUMMARIES, EXCHANGES, st.permutations(range(4)))
@examples(60)
def test_any_order_of_exchanges_ends_in_equal_files(tmp_path_factory, summaries, exchanges, order):
    """Random files of four peers, random exchanges, then enough for everybody to have heard of everything."""
    folder = tmp_path_factory.mktemp("peers")
    paths = [folder / f"{number}.hsn" for number in range(4)]
    for number, path in enumerate(paths):
        write(path, *(summary(node, value, period) for holder, node, value, period in summaries if holder == number))
    given = b"".join(path.read_bytes() for path in paths)
    for receiver, sender in exchanges:
        run(paths[receiver], paths[sender])
    for receiver, sender in [*zip(order[1:], order, strict=False), *((one, order[-1]) for one in order)]:
        run(paths[receiver], paths[sender])
    expected = SummarySet()
    expected.add_file(given, lambda raw: judge_summary(raw, campaign(), listed(), AT))
    assert {path.read_bytes() for path in paths} == {expected.to_bytes()}
    sums = [totals(SummarySet.from_bytes(path.read_bytes()), campaign()) for path in paths]
    assert sums == [sums[0]] * 4


def test_conflicts_count_for_nobody_and_do_not_grow(tmp_path):
    versions = [summary(0, number) for number in range(1, 12)]
    files = set()
    for number, order in enumerate((versions, versions[::-1], versions[5:] + versions[:5])):
        own = tmp_path / f"{number}.hsn"
        for one in order:
            found = run(own, write(tmp_path / "peer.hsn", one, summary(1)))
        files.add(own.read_bytes())
        assert found.summaries.conflicts() == [(campaign().id, PERIOD, keyid(NODE_KEYS[0].public))]
        assert len(found.summaries) == 3
        assert [one.nodes for one in totals(found.summaries, campaign())] == [1]
    assert len(files) == 1


def test_what_a_peer_must_not_add_is_counted_by_reason(tmp_path):
    stranger, other = summary(LISTED), summary_of(node_campaign(version=2))
    late = summary(1, 1, campaign().header.expires // DAY - 1)
    damaged = bytearray(summary(2))
    damaged[-5] ^= 1
    peer = write(tmp_path / "peer.hsn", b"noise", stranger, other, late, bytes(damaged), summary(3)[:-9])
    found = run(tmp_path / "own.hsn", peer)
    assert found.refused == {
        "invalid_message": 1,
        "node_not_listed": 1,
        "unrecognized_campaign": 1,
        "report_too_early": 1,
        "bad_signature": 1,
        "truncated": 1,
    }
    assert (len(found.summaries), found.added) == (0, 0)
    assert (tmp_path / "own.hsn").read_bytes() == b""


def test_a_node_that_left_the_list_leaves_the_set(tmp_path):
    own = write(tmp_path / "own.hsn", summary(0), summary(1), b"damage")
    shorter = parse_node_list(build_node_list(Publisher().header("wards", 2), [NODE_KEYS[0].public]))
    found = run(own, nodes=shorter)
    assert found.dropped == {"node_not_listed": 1, "invalid_message": 1}
    assert (tmp_path / "own.hsn").read_bytes() == summary(0)


def test_a_set_of_another_campaign_is_not_emptied(tmp_path):
    own = write(tmp_path / "own.hsn", summary_of(node_campaign(version=2)))
    before = (tmp_path / "own.hsn").read_bytes()
    assert reason(run, own, write(tmp_path / "peer.hsn", summary(1))) == "other_campaign"
    assert (tmp_path / "own.hsn").read_bytes() == before


def test_peers_that_can_not_be_read_do_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(exchanging, "MOST_BYTES", 2000)
    os.mkfifo(tmp_path / "pipe.hsn")
    huge = write(tmp_path / "huge.hsn", bytes(2001))
    peer = write(tmp_path / "peer.hsn", summary(1))
    found = run(tmp_path / "own.hsn", tmp_path / "missing.hsn", tmp_path / "pipe.hsn", huge, peer)
    assert [each.reason for each in found.unread] == ["file_unreadable", "file_unreadable", "too_large"]
    assert len(found.summaries) == 1
    monkeypatch.setattr(exchanging, "MOST_BYTES", 2 * len(summary()))
    before = (tmp_path / "own.hsn").read_bytes()
    for age in range(3):
        one = write(tmp_path / "one.hsn", summary(0, 1, PERIOD + age))
        result = reason(run, tmp_path / "own.hsn", one)
    assert result == "too_large", "the union would be larger than what peers read"
    assert before in (tmp_path / "own.hsn").read_bytes()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "dangling"])
def test_nothing_but_a_file_is_replaced_by_the_set(tmp_path, kind):
    own, peer = tmp_path / "own.hsn", write(tmp_path / "peer.hsn", summary(1))
    assert reason(run, tmp_path / "missing" / "own.hsn", peer) == "io_failed"
    target = tmp_path / "target"
    if kind in ("folder", "pipe"):
        (own.mkdir if kind == "folder" else partial(os.mkfifo, own))()
    else:
        own.symlink_to(target.name)
    if kind == "link":
        write(target, summary(0))
    before = own.lstat()
    assert reason(run, own, peer) in (("file_unreadable",) if kind == "folder" else ("io_failed", "file_unreadable"))
    assert (own.lstat().st_ino, own.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not target.exists() or target.read_bytes() == summary(0)


def test_a_kill_at_any_write_leaves_the_old_file_or_the_new_one(tmp_path):
    own, peer = tmp_path / "own.hsn", write(tmp_path / "peer.hsn", summary(1))
    old = summary(0)
    united = SummarySet.from_bytes(old + summary(1)).to_bytes()
    seen = set()

    def restarted():
        write(own, old)
        for number in every_death(lambda: run(own, peer)):
            yield number
            seen.add(own.read_bytes())
            write(own, old)

    assert len(list(restarted())) >= 2
    assert seen <= {old, united}
    write(own, old)
    with own.open("rb") as reader:  # written in place, the file would be short for a moment
        assert run(own, peer).digest == sha256(united).digest()
        assert reader.read() == old
    assert own.read_bytes() == united


def test_two_processes_lose_nothing(tmp_path):
    own = tmp_path / "own.hsn"
    halves = [
        [write(tmp_path / f"{node}-{age}.hsn", summary(node, 1, PERIOD + age)) for age in range(10)] for node in (0, 1)
    ]
    context = get_context("fork")
    processes = [context.Process(target=lambda mine=half: [run(own, each) for each in mine]) for half in halves]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(run(own).summaries) == 20


def test_totals_are_sums_of_the_nodes_that_count(tmp_path):
    files = [write(tmp_path / f"{n}.hsn", summary(n, n + 1), summary(3, n + 1, PERIOD + 1)) for n in range(3)]
    for order in permutations(files):
        own = tmp_path / "own.hsn"
        own.unlink(missing_ok=True)
        found = totals(run(own, *order).summaries, campaign())
    (only,) = found
    assert (only.period, only.nodes) == (PERIOD, 3), "the summaries of the other period are a conflict"
    assert only.sums == tuple(plain_sums(campaign(), 6))
    parts = only.vectors(campaign())
    assert sum(subject.size for subject, _ in parts) == len(only.sums)
    assert all(len(values) == subject.size for subject, values in parts)
    assert totals(SummarySet(), campaign()) == []
