"""Two collectors make one exact total with both noises, whatever devices or the other collector send."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter, deque
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from types import SimpleNamespace

import numpy as np
import pytest
from support.collectors import DAY, LATER, NOW, PERIOD, ROOT, SEEDS, Forged, Two, report_of
from support.engine import Engine
from support.failures import reason_of, refusal
from support.shared import ALLOWED, COLLECTOR_KEYS

from aggregator.collectors.collector import CollectorFolder
from aggregator.collectors.exchange import ANSWER, REQUEST, Head, Reader, RequestRow, rows_of, write_file
from aggregator.collectors.pair import common_secret
from aggregator.collectors.verification import checked_remotely
from aggregator.reports.cluster import open_cluster
from edge_sdk import Device, Policy
from protocol.errors import DocumentError, PolicyError, StorageError
from protocol.shared.field import FIELD128
from protocol.shared.report import variant_of

P = FIELD128.modulus.to_bytes(16, "little")


def other(value):
    return bytes([value[0] ^ 1]) + value[1:]


def placed(at, value, roles=(0, 1)):
    """A device that binds a share to another campaign, period, id, role or public share."""
    return Forged(
        bound=lambda role, bound: [value if place == at and role in roles else part for place, part in enumerate(bound)]
    )


CELL = 8
"""Cells of the first block of the tests' schema: a feature of four codes, two classes."""
DEVICES = {
    "two ones in a block": (Forged(vector=lambda v: [1] * 2 + v[2:]), "proof_invalid"),
    "no one in a block": (Forged(vector=lambda v: [0] * CELL + v[CELL:]), "proof_invalid"),
    "a weight of two": (Forged(vector=lambda v: [2 * each for each in v]), "proof_invalid"),
    "a negative count": (Forged(vector=lambda v: [FIELD128.modulus - each for each in v]), "proof_invalid"),
    "leader's share changed": (Forged(shares=lambda s: (other(s[0]), s[1])), "public_share"),
    "leader's proof changed": (Forged(shares=lambda s: (s[0][:-48] + other(s[0][-48:]), s[1])), "proof_invalid"),
    "leader's blind changed": (Forged(shares=lambda s: (s[0][:-32] + other(s[0][-32:]), s[1])), "public_share"),
    "helper's seed changed": (Forged(shares=lambda s: (s[0], other(s[1]))), "public_share"),
    "helper's blind changed": (Forged(shares=lambda s: (s[0], s[1][:32] + other(s[1][32:]))), "public_share"),
    "an element that is p": (Forged(shares=lambda s: (P + s[0][16:], s[1])), "value_out_of_domain"),
    "a public share of both that lies": (Forged(public=lambda p: p[:32] + other(p[32:])), "public_share"),
    "a public share exchanged on the way": (Forged(sealed=lambda f: f[:16] + other(f[16:])), "share_misplaced"),
    "another campaign": (placed(0, bytes(32)), "share_misplaced"),
    "another period": (placed(1, (PERIOD + 1).to_bytes(4, "big")), "share_misplaced"),
    "another period for the helper": (placed(1, (PERIOD - 1).to_bytes(4, "big"), (1,)), "share_misplaced"),
    "another id": (placed(2, b"no such "), "share_misplaced"),
    "the other role": (placed(3, b"\1", (0,)), "share_misplaced"),
    "the other role for the helper": (placed(3, b"\0", (1,)), "share_misplaced"),
    "replayed under a new id": (Forged(identifier=b"replayed"), "share_misplaced"),
    "a truncated share": (Forged(sealed=lambda f: f[:-1] + b"\0"), "share_unreadable"),
    "exchanged boxes": (Forged(sealed=lambda f: f[:112] + f[-189:] + f[112:-189]), "share_unreadable"),
    "another sender": (Forged(sealed=lambda f: f[:80] + other(f[80:])), "share_unreadable"),
    "a question": (Forged(question=1), "value_out_of_domain"),
}


@pytest.mark.parametrize("fault", DEVICES)
def test_a_hostile_report_is_refused_with_its_reason_and_the_total_is_exactly_that_of_the_others(tmp_path, fault):
    two, (how, reason) = Two(tmp_path), DEVICES[fault]
    reports = [report_of(two.campaign, number, how if number == 7 else None) for number in (3, 7, 9, 12)]
    found = two.total(two.batch(reports))
    assert (found.accepted, found.refused) == (3, {reason: 1})
    assert found.numbers == two.expected([3, 9, 12])


def all_of(two):
    """Two files with thirty good reports, some of them twice, one of each hostile device, and a conflict."""
    bad = [report_of(two.campaign, 1000 + at, how) for at, (how, _) in enumerate(DEVICES.values())]
    good = [report_of(two.campaign, number) for number in range(30)]
    twice = [report_of(two.campaign, 41), report_of(two.campaign, 41, Forged(vector=lambda v: [1, *v[1:]]))]
    return [two.batch(reversed([*good[:20], *bad, twice[0]]), "a"), two.batch([*good[10:], twice[1], twice[0]], "b")]


def test_all_hostile_reports_of_many_at_once_in_any_order_and_some_files(tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.collectors.leading.at_once", lambda _: 5)
    monkeypatch.setattr("aggregator.collectors.helping.at_once", lambda _: 4)
    two = Two(tmp_path)
    found = two.total(*all_of(two))
    assert Counter(found.refused) == Counter(reason for _, reason in DEVICES.values()) + Counter(report_conflict=1)
    assert (found.accepted, found.numbers) == (30, two.expected(range(30)))


def with_cluster(two, cluster, files):
    """Let both collectors check with a cluster, and return what they say and the bytes that leave."""
    said = []
    with two.open("leader") as leader, two.open("helper") as helper:
        leader.cluster = helper.cluster = cluster
        said.append(leader.check(two.raw, ROOT, PERIOD, files, two.folder / "request"))
        said.append(helper.answer(two.raw, ROOT, two.folder / "request", two.folder / "answer"))
    return said, two.read("request"), two.read("answer"), two.finish()


@pytest.mark.parametrize(
    "address",
    ["", pytest.param("local:2", marks=[pytest.mark.slow, pytest.mark.xdist_group("cluster")])],
    ids=["threads of another engine", "processes"],
)
def test_a_cluster_checks_as_threads_do_to_the_byte(tmp_path, monkeypatch, address):
    monkeypatch.setattr("aggregator.collectors.leading.at_once", lambda _: 5)
    monkeypatch.setattr("aggregator.collectors.helping.at_once", lambda _: 4)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = Two(tmp_path / "a"), Two(tmp_path / "b")
    with open_cluster(address) if address else nullcontext(Engine()) as cluster:
        assert with_cluster(two, cluster, all_of(two)) == with_cluster(one, None, all_of(one))


def test_a_cluster_that_is_not_encrypted_or_that_ends_leaves_no_trace_in_a_collector(tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.collectors.leading.at_once", lambda _: 1)
    two, lost = Two(tmp_path), StorageError("cluster_lost", "gone")
    files = [two.honest(range(20))]
    for engine, expected in ((Engine(is_private=False), "cluster_open"), (Engine(lost), "cluster_lost")):
        with two.open("leader") as leader:
            leader.cluster = engine
            assert refusal(leader.check, two.raw, ROOT, PERIOD, files, tmp_path / "request") == expected
            assert leader.periods() == []
        assert not (tmp_path / "request").exists()
    assert two.total(*files).numbers == two.expected(range(20))
    assert refusal(checked_remotely, "0.0", 0, None, None, None) == "cluster_differs"


def test_progress_rises_to_all_reports_at_both_collectors(tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.collectors.leading.at_once", lambda _: 3)
    monkeypatch.setattr("aggregator.collectors.helping.at_once", lambda _: 4)
    two, told = Two(tmp_path), []
    request, said = tmp_path / "request", tmp_path / "answer"
    with two.open("leader") as leader, two.open("helper") as helper:
        leader.check(two.raw, ROOT, PERIOD, [two.honest(range(10))], request, lambda *done: told.append(done))
        assert told == [(1, 1), (3, 10), (6, 10), (9, 10), (10, 10)]
        told.clear()
        helper.answer(two.raw, ROOT, request, said, lambda *done: told.append(done))
        assert told == [(4, 10), (8, 10), (10, 10)]


def test_real_devices_share_their_records_and_only_of_the_period_asked_for(tmp_path):
    two, policy = Two(tmp_path), Policy.of(epsilon_per_period="2", collectors=ALLOWED)
    files = []
    for number, when in enumerate([NOW, NOW, NOW, NOW - DAY * 0, NOW + DAY]):
        with Device.open(None, trust=ROOT, policy=policy, clock=partial(int, when)) as device:
            enrolled = device.enrol(two.raw).id
            device.report(enrolled, {"odor": "n", "width": 3}, label="p")
            files.append(tmp_path / f"{number}.hsr")
            device.drain(files[-1])
    found = two.total(*files)
    assert (found.accepted, found.refused) == (4, {})
    noise = two.expected([])
    counts = [number - each for number, each in zip(found.numbers, noise, strict=True)]
    assert sorted(counts) == [0] * (len(counts) - 2) + [4, 4]
    assert sum(counts[:CELL]) == 4


def rewritten(two, name, change, head=None):
    """A file between collectors that the other collector itself wrote wrongly."""
    secret = common_secret(COLLECTOR_KEYS[0], COLLECTOR_KEYS[1].public)
    with (two.folder / name).open("rb") as file:
        reader = Reader(file, name)
        rows = b"".join(reader.contents(secret))
    write_file(two.folder / "bad", head or reader.head, secret, [change(rows)], force=True)


def row_length(two):
    return RequestRow.length(variant_of(two.campaign))


def on_rows(order):
    def change(two, rows):
        length = row_length(two)
        return b"".join(rows[at * length : (at + 1) * length] for at in order)

    return change


def damaged(two, name):
    """Files that somebody on the way damaged: cut, changed, parts exchanged, repeated or left out."""
    raw = two.read(name)
    first = 4 + int.from_bytes(raw[:4], "big")
    boxes, at = [], first
    while at < len(raw):
        size = 4 + int.from_bytes(raw[at : at + 4], "big")
        boxes.append(raw[at : at + size])
        at += size
    yield from (raw[:cut] for cut in {0, 3, first - 1, first, first + 2, len(raw) // 2, len(raw) - 1})
    yield from (raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(0, len(raw), len(raw) // 40))
    yield raw[:first] + b"".join([*boxes, boxes[0]])
    yield raw[:first] + b"".join([*boxes[:-1], boxes[-1], boxes[-1]])
    if len(boxes) > 1:
        yield raw[:first] + b"".join(reversed(boxes))
        yield raw[:first] + b"".join(boxes[:-1])


REQUESTS = {
    "an id twice": (on_rows([0, 1, 1, 2, 3]), {"reports": 5}, "collector_fault"),
    "another order": (on_rows([1, 0, 2, 3]), {}, "collector_fault"),
    "fewer rows than stated": (on_rows([0, 1]), {}, "malformed"),
    "more rows than stated": (on_rows([0, 1, 2, 3]), {"reports": 3}, "malformed"),
    "another campaign": (on_rows(range(4)), {"campaign": bytes(32)}, "unrecognized_campaign"),
    "a period that has not ended": (on_rows(range(4)), {"period": PERIOD + 5}, "period_refused"),
    "another period": (on_rows(range(4)), {"period": PERIOD - 1}, "batch_too_small"),
    "too few": (on_rows([0]), {"reports": 1}, "batch_too_small"),
}


def test_a_hostile_leader_gets_nothing_and_the_honest_request_is_answered_afterwards(tmp_path):
    two = Two(tmp_path)
    two.check(two.honest(range(4)))
    for raw in damaged(two, "request"):
        (tmp_path / "bad").write_bytes(raw)
        assert reason_of(DocumentError, two.answer, "bad") in {"malformed", "share_unreadable", "unrecognized_campaign"}
    for change, stated, reason in REQUESTS.values():
        head = Head(REQUEST, two.campaign.id, PERIOD, 4)._replace(**stated)
        rewritten(two, "request", partial(change, two), head)
        assert refusal(two.answer, "bad") == reason
    assert not (tmp_path / "answer").exists()
    with two.open("helper") as helper:
        assert helper.periods() == []
    two.answer()
    assert two.finish().numbers == two.expected(range(4))


def test_a_file_that_goes_on_for_ever_is_refused_when_it_has_one_byte_too_many():
    for count, tail in ((0, 0), (3, 0), (3, 40)):
        endless = repeat(bytes(25), 100)
        assert reason_of(DocumentError, deque, rows_of(endless, 10, count, tail), 0) == "malformed"
        assert next(endless)


def test_wrong_verifiers_cost_their_report_and_no_other_one(tmp_path):
    two = Two(tmp_path)
    two.check(two.honest(range(4)))
    rewritten(two, "request", lambda rows: rows[:-40] + bytes(40))
    assert (two.answer("bad").reports, two.answer("bad").refused) == (3, {"public_share": 1})


def test_a_leader_can_not_fill_the_batch_of_a_closed_fleet_with_devices_that_it_made_up(tmp_path):
    """The helper has the fleet's ids, too: others are in no sum, and too few of them are no batch."""
    two = Two(tmp_path)
    two.check(two.honest(range(5)))
    for known, accepted in (({3}, None), ({0, 3, 4}, 3)):
        enrolled = SimpleNamespace(has=lambda _, ids, known=known: np.isin(ids, list(known)))
        with two.open("helper") as helper:
            answer = partial(helper.answer, two.raw, ROOT, tmp_path / "request", tmp_path / "answer", enrolled=enrolled)
            if accepted is None:
                assert reason_of(PolicyError, answer) == "batch_too_small"
            else:
                assert (answer().reports, answer().refused) == (3, {"id_not_enrolled": 2})
    found = two.finish()
    assert (found.numbers, found.refused) == (two.expected([0, 3, 4]), {"id_not_enrolled": 2})


def verdict(at, value):
    return lambda _, rows: rows[: at * 33] + value + rows[at * 33 + len(value) :]


def tail(two):
    return variant_of(two.campaign).circuit.outputs * 16 + 36


ANSWERS = {
    "refuses what it added": (verdict(0, b"\5"), {}),
    "accepts what it did not add": (verdict(3, b"\0"), {}),
    "a verdict that is none": (verdict(0, b"\7"), {}),
    "another message": (verdict(0, b"\0" + bytes(32)), {}),
    "another number": (lambda _, rows: rows[:-36] + b"\0\0\0\2" + rows[-32:], {}),
    "other ids": (lambda _, rows: rows[:-32] + bytes(32), {}),
    "a sum that is p": (lambda two, rows: rows[: -tail(two)] + P + rows[-tail(two) + 16 :], {}),
    "another number of reports": (lambda _, rows: rows[33:], {"reports": 3}),
}


def one_misplaced(two):
    """Four reports, of which the helper refuses the last."""
    return [report_of(two.campaign, at, placed(2, bytes(8), (1,)) if at == 3 else None) for at in range(4)]


def test_a_hostile_helper_is_found_out_and_the_honest_answer_counts_afterwards(tmp_path):
    two = Two(tmp_path)
    two.check(two.batch(one_misplaced(two)))
    two.answer()
    for raw in damaged(two, "answer"):
        (tmp_path / "bad").write_bytes(raw)
        assert reason_of(DocumentError, two.finish, "bad") in {"malformed", "share_unreadable", "unrecognized_campaign"}
    for change, stated in ANSWERS.values():
        head = Head(ANSWER, two.campaign.id, PERIOD, 4)._replace(**stated)
        rewritten(two, "answer", partial(change, two), head)
        assert refusal(two.finish, "bad") == "collector_fault"
    assert refusal(two.finish, "request") == "malformed"
    assert not (tmp_path / "total").exists()
    found = two.finish()
    assert (found.numbers, found.refused) == (two.expected(range(3)), {"share_misplaced": 1})


FAR = {"far": 1 << 112, "farthest": FIELD128.modulus // 2, "below": FIELD128.modulus - (1 << 40)}


@pytest.mark.parametrize("far", FAR)
def test_a_helper_whose_sums_can_not_be_has_one_try_so_it_never_meets_other_noise(tmp_path, far):
    """Whether sums can be depends on the leader's noise: drawn anew for each answer, it tells more than ε covers."""
    two = Two(tmp_path)
    two.check(two.honest(range(4)))
    two.answer()
    rewritten(two, "answer", lambda rows: rows[: -tail(two)] + FIELD128.encode([FAR[far]]) + rows[-tail(two) + 16 :])
    assert reason_of(DocumentError, two.finish, "bad") == "collector_fault"
    with two.open("leader") as leader:
        (row,) = leader.periods()
    assert row.total
    for again in ("bad", "answer", "answer"):
        assert reason_of(DocumentError, two.finish, again, noise=5) == "collector_fault"
    with two.open("leader") as leader:
        assert leader.periods() == [row]
    assert not (tmp_path / "total").exists()
    assert not list((tmp_path / "leader" / "periods").glob("*.shares"))


def test_a_period_leaves_once_with_the_same_bytes_and_no_other_set_ever(tmp_path):
    two = Two(tmp_path)
    files = two.honest(range(4))
    two.check(files)
    two.answer()
    first = two.finish()
    more = two.honest(range(6), "more.hsr")
    late = two.check(more, out="again", noise=5)
    assert (late.again, late.reports, late.refused) == (True, 4, {"batch_released": 2})
    assert two.read("again") == two.read("request")
    assert two.answer(out="said again", noise=6).again
    assert two.read("said again") == two.read("answer")
    assert two.finish(out="total again", noise=7) == first
    assert two.read("total again") == two.read("total")
    # A leader that forgot what it sent gets no second sum: neither of other reports nor of fewer.
    shutil.rmtree(tmp_path / "leader")
    CollectorFolder.create(tmp_path / "leader", "hospital", "x", entropy=lambda size: bytes([SEEDS[0]]) * size).close()
    for numbers in (range(6), range(3)):
        two.check(two.honest(numbers), out="other", noise=SEEDS[0])
        (tmp_path / "no").unlink(missing_ok=True)
        assert reason_of(PolicyError, two.answer, "other", "no") == "period_released"
        assert not (tmp_path / "no").exists()
        shutil.rmtree(tmp_path / "leader")
        CollectorFolder.create(tmp_path / "leader", "hospital", "x", entropy=lambda size: bytes([80]) * size).close()


def test_too_few_reports_or_a_period_that_goes_on_are_refused_and_nothing_leaves(tmp_path):
    two = Two(tmp_path, smallest=4)
    few, enough = two.honest(range(3), "few"), two.honest(range(4))
    bad = two.batch(one_misplaced(two), "b")
    assert reason_of(PolicyError, two.check, few) == "batch_too_small"
    assert reason_of(PolicyError, two.check, enough, at=(PERIOD + 1) * DAY - 1) == "period_refused"
    assert not (tmp_path / "request").exists()
    assert sorted(path.name for path in (tmp_path / "leader" / "periods").iterdir()) == []
    two.check(bad)
    assert reason_of(PolicyError, two.answer) == "batch_too_small"
    assert not (tmp_path / "answer").exists()


@pytest.mark.parametrize("name", ["leader", "helper"])
def test_a_copy_or_a_restored_backup_releases_nothing_and_an_adopted_one_only_later_periods(tmp_path, name):
    two = Two(tmp_path)
    shutil.copytree(tmp_path / name, tmp_path / "backup")
    files = two.honest(range(4))
    two.check(files)
    two.answer()
    shutil.rmtree(tmp_path / name)
    shutil.move(tmp_path / "backup", tmp_path / name)
    act = partial(two.check, files) if name == "leader" else two.answer
    assert reason_of(StorageError, act) == "collector_copied"
    CollectorFolder.adopt(tmp_path / name, clock=lambda: LATER).close()
    assert reason_of(PolicyError, act) == "period_refused"


@pytest.mark.parametrize("earlier", [1, NOW - DAY, LATER - 1])
def test_a_copy_is_not_adopted_while_the_clock_is_behind_what_its_journal_knows(tmp_path, earlier):
    """It would take a period that the other copy released for one to come."""
    two = Two(tmp_path)
    two.check(two.honest(range(4)))
    adopt = partial(CollectorFolder.adopt, tmp_path / "leader")
    assert reason_of(StorageError, adopt, clock=lambda: earlier) == "clock_behind"
    adopt(clock=lambda: LATER).close()
    assert reason_of(StorageError, adopt, clock=lambda: earlier) == "clock_behind"
    two.answer()
    assert reason_of(PolicyError, two.finish) == "period_refused"


def test_a_backup_of_a_leader_that_waits_for_an_answer_makes_no_second_total_of_the_period(tmp_path):
    """The backup knows the request, and not the total that left since: its noise would be drawn again."""
    two = Two(tmp_path)
    two.check(two.honest(range(4)))
    shutil.copytree(tmp_path / "leader", tmp_path / "backup")
    two.answer()
    two.finish()
    shutil.rmtree(tmp_path / "leader")
    shutil.move(tmp_path / "backup", tmp_path / "leader")
    CollectorFolder.adopt(tmp_path / "leader", clock=lambda: LATER).close()
    assert reason_of(PolicyError, two.finish, out="second", noise=9) == "period_refused"
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("name", ["leader", "helper"])
def test_a_lost_or_changed_file_of_the_folder_is_damage_and_releases_nothing(tmp_path, name):
    two = Two(tmp_path)
    files = two.honest(range(4))
    two.check(files)
    two.answer()
    act = two.finish if name == "leader" else two.answer
    (kept,) = (tmp_path / name / "periods").glob("*.shares" if name == "leader" else "*.answer")
    for path in (*(tmp_path / name / each for each in ("collector.key", "collector.pub", "journal.sqlite")), kept):
        aside = tmp_path / "aside"
        path.rename(aside)
        wanted = {"collector_damaged", "collector_copied"}
        assert reason_of(StorageError, act) in wanted, path
        if path.name != "journal.sqlite":
            path.write_bytes(other(aside.read_bytes()))
            assert reason_of(StorageError, act) == "collector_damaged", path
            path.unlink()
        aside.rename(path)
    assert act()
    for path in (tmp_path / "leader" / "periods").glob("*.request"):
        path.write_bytes(other(path.read_bytes()))
    assert reason_of(StorageError, two.check, files) == "collector_damaged"


def test_two_processes_at_once_do_not_work_on_periods_of_one_folder(tmp_path):
    two = Two(tmp_path)
    files = two.honest(range(4))
    descriptor = os.open(tmp_path / "leader" / "periods", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert reason_of(StorageError, two.check, files) == "collector_busy"
    os.close(descriptor)
    assert two.check(files).reports == 4


def test_a_passphrase_opens_the_key_and_nothing_leaves_without_it(tmp_path):
    two = Two(tmp_path)
    shutil.rmtree(tmp_path / "helper")
    made = CollectorFolder.create(
        tmp_path / "helper", "h", "x", passphrase="right", entropy=lambda size: bytes([81]) * size
    )
    made.close()
    two.check(two.honest(range(4)))
    for passphrase, wanted in ((b"wrong", "passphrase_wrong"), (None, "passphrase_missing")):
        with CollectorFolder.open(tmp_path / "helper", passphrase, clock=lambda: LATER) as helper:
            assert refusal(helper.answer, two.raw, ROOT, tmp_path / "request", tmp_path / "answer") == wanted
    with CollectorFolder.open(tmp_path / "helper", "right", clock=lambda: LATER) as helper:
        assert helper.answer(two.raw, ROOT, tmp_path / "request", tmp_path / "answer").reports == 4
