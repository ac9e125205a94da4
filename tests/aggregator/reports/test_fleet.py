"""Closed fleets: enrolled ids equal the protocol's, and secrets are written all or none, unreadable for others."""

from __future__ import annotations

import errno
import pickle
import stat
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.pwhash import argon2id
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW
from support.reports import batch, digest, made, moved, report
from support.stores import roster

from aggregator.common.sealing import Cost, seal_secret
from aggregator.reports import fleet as rosters
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.fleet import (
    FleetIds,
    IdMaker,
    IdReader,
    fleet_ids,
    kept_bounds,
    marks,
    new_roster,
    read_roster,
    write_ids,
    write_roster,
)
from aggregator.reports.intake.enrolment import Enrolled, enrolled_from_file, enrolled_from_rosters
from protocol import canonical
from protocol.batches.report import report_id
from protocol.documents.memory_terms import Memory
from protocol.documents.provisioning import parse_provisioning
from protocol.errors import InputError

CAMPAIGN = made(answers=3, epsilon_micro=3_000_000)
LATER = NOW + 3 * DAY
PERIOD = CAMPAIGN.period_at(LATER)


def saved(path, fleet, periods, campaign=CAMPAIGN):
    with path.open("wb") as sink:
        write_ids(sink, campaign, periods, fleet_ids([fleet], campaign, periods), lambda _: None)
    return path


def columns(records, campaign=CAMPAIGN) -> Columns:
    found = decode_batches(batch(campaign, records), campaign, now=LATER)
    assert found.rejected == {}
    return found.records


@examples(50)
@given(
    st.lists(st.binary(min_size=32, max_size=32), max_size=5),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
    st.integers(0, 65534),
)
def test_ids_are_those_of_the_protocol(secrets, campaign_id, period, index):
    found = IdMaker(secrets, campaign_id).ids(period, index)
    expected = [int.from_bytes(report_id(secret, campaign_id, period, index), "big") for secret in secrets]
    assert found.tolist() == expected
    kept = made(memory=Memory(1, 10, 500_000))
    found = IdMaker(secrets, kept.id, kept_bounds(kept)).ids(period, 0)
    assert found.tolist() == [int.from_bytes(kept.identify(secret, period, 0)[0], "big") for secret in secrets]


def test_two_fleets_are_computed_in_turns_and_by_several_processes(monkeypatch):
    periods = range(20_000, 20_003)
    fleets = [roster(range(4)), roster(range(4, 9))]
    apart = [list(fleet_ids([fleet], CAMPAIGN, periods)) for fleet in fleets]
    in_turns = zip(*(fleet_ids([fleet], CAMPAIGN, periods) for fleet in fleets), strict=True)
    for number, pair in enumerate(in_turns):
        for found, expected in zip(pair, apart, strict=True):
            assert [ids.tolist() for ids in found.by_index] == [ids.tolist() for ids in expected[number].by_index]
    monkeypatch.setattr("aggregator.reports.fleet._WORTH_A_PROCESS", 1)
    periods = range(PERIOD, PERIOD + 7)
    alone = list(fleet_ids([roster(range(9))], CAMPAIGN, periods))
    together = list(fleet_ids([roster(range(4)), roster(range(2, 9))], CAMPAIGN, periods, processes=2))
    for one, other in zip(alone, together, strict=True):
        assert one.period == other.period
        assert all(np.array_equal(a, b) for a, b in zip(one.by_index, other.by_index, strict=True))


def test_a_file_of_ids_reads_back_by_period_and_says_what_it_is_for(tmp_path):
    periods = range(PERIOD - 2, PERIOD + 1)
    path = saved(tmp_path / "ids.parquet", roster(range(50)), periods)
    reader = IdReader(path)
    assert reader.about == (CAMPAIGN.id, periods, 3, 50)
    for period, by_index in fleet_ids([roster(range(50))], CAMPAIGN, periods):
        expected = [np.sort(reader.known_as(period, index, ids)) for index, ids in enumerate(by_index)]
        assert all(np.array_equal(a, b) for a, b in zip(reader.known(period), expected, strict=True))
    assert [len(found) for found in reader.known(PERIOD + 1)] == [0, 0, 0]


def test_a_file_of_ids_holds_no_id_that_could_be_sent(tmp_path):
    """A reader of the file must not be able to send reports in the name of the fleet's devices."""
    periods = range(PERIOD, PERIOD + 3)
    path = saved(tmp_path / "ids.hsi", roster(range(50)), periods)
    raw = path.read_bytes()
    found = list(fleet_ids([roster(range(50))], CAMPAIGN, periods))
    held = [ids.astype(">u8").tobytes() for _, by_index in found for ids in by_index]
    assert not any(ids[at : at + 8] in raw for ids in held for at in range(0, len(ids), 8))
    # The file holds digests. A digest sent as an id is refused.
    enrolled = enrolled_from_file(CAMPAIGN, IdReader(path))
    head = len(CAMPAIGN.layout.prefix)
    honest = report(CAMPAIGN, 3, period=PERIOD)
    marked = IdReader(path).known(PERIOD)[0].astype(">u8").tobytes()
    forged = []
    for at in range(0, len(marked), 8):
        question = CAMPAIGN.assignment.question_for(marked[at : at + 8], 0)
        forged.append(
            honest[:head] + marked[at : at + 8] + honest[head + 8 : head + 12] + question.to_bytes(2, "big") + bytes(2)
        )
    assert enrolled.accepts(columns([honest])).tolist() == [True]
    assert not enrolled.accepts(columns(forged)).any()


def test_the_bytes_of_a_file_of_ids_are_those_of_the_document(tmp_path):
    periods = range(PERIOD, PERIOD + 2)
    raw = saved(tmp_path / "ids.hsi", roster(range(4)), periods).read_bytes()
    head = b"hsyi\x02" + CAMPAIGN.id + PERIOD.to_bytes(4) + (PERIOD + 1).to_bytes(4) + b"\0\3" + (4).to_bytes(8)
    expected, check = head, sha256(head).digest()
    for period in periods:
        ids = b""
        for index in range(3):
            about = b"hearsay/1/enrolled-id-mark" + CAMPAIGN.id + period.to_bytes(4) + index.to_bytes(2)
            given = [report_id(digest("secret", device), CAMPAIGN.id, period, index) for device in range(4)]
            ids += b"".join(sorted(sha256(about + identifier).digest()[:8] for identifier in given))
        check = sha256(check + ids).digest()
        expected += ids + check
    assert raw == expected
    found = marks(sha256(b"campaign").digest(), 7, 0, np.array([0x17DF4F0AFF11E354], np.uint64))
    assert found.tolist() == [0x85D84A8A045371E1]


@pytest.mark.parametrize("from_file", [True, False])
def test_an_enrolled_devices_report_is_accepted_and_a_strangers_is_not(tmp_path, from_file):
    fleet = roster(range(20))
    source = (
        enrolled_from_file(CAMPAIGN, IdReader(saved(tmp_path / "ids", fleet, range(PERIOD - 1, PERIOD + 1))))
        if from_file
        else enrolled_from_rosters(CAMPAIGN, [fleet])
    )
    source = pickle.loads(pickle.dumps(source))  # as a remote worker receives the list
    whose = [(device, index, period) for device in range(40) for index in range(3) for period in (PERIOD - 1, PERIOD)]
    records = [report(CAMPAIGN, device, device, index=index, period=period) for device, index, period in whose]
    assert source.accepts(columns(records)).tolist() == [device < 20 for device, _, _ in whose]
    assert source.accepts(Columns.empty(2)).tolist() == []
    honest, head = report(CAMPAIGN, 3, period=PERIOD), len(CAMPAIGN.layout.prefix)
    # The id of index 0 for a question of stratum 1, the id in another period, and a period before those of the file.
    other = CAMPAIGN.assignment.question_for(honest[head : head + 8], 1)
    wrong = honest[: head + 12] + other.to_bytes(2, "big") + bytes(2), moved(CAMPAIGN, honest, -1)
    assert source.accepts(columns([honest, *wrong])).tolist() == [True, False, False]
    assert source.accepts(columns([report(CAMPAIGN, 3, period=PERIOD - 2)])).tolist() == [not from_file]


def test_few_periods_are_kept_in_memory(tmp_path):
    enrolled = enrolled_from_rosters(CAMPAIGN, [roster(range(5))])
    records = columns([report(CAMPAIGN, 1, period=PERIOD - back) for back in (0, 1, 0, 1)])
    assert enrolled.accepts(records).all()
    assert len(enrolled._cache) == 2
    small = Enrolled(CAMPAIGN, FleetIds([roster(range(5))], CAMPAIGN), cache_bytes=1)
    assert small.accepts(records).all()
    assert len(small._cache) == 1


def test_a_file_that_is_not_of_marks_or_of_another_campaign_is_refused(tmp_path):
    path = saved(tmp_path / "ids", roster(range(5)), range(PERIOD, PERIOD + 2))
    assert refusal(enrolled_from_file, made(), IdReader(path)) == "other_campaign"
    assert refusal(saved, tmp_path / "none", roster(range(3)), range(PERIOD, PERIOD)) == "periods_absent"
    raw = path.read_bytes()
    for content in (raw[:-20], raw + b"\0", b"id\n1\n", b""):
        (tmp_path / "other").write_bytes(content)
        assert refusal(IdReader, tmp_path / "other") == "ids_invalid"
    (tmp_path / "other").write_bytes(raw[:4] + b"\1" + raw[5:])
    with pytest.raises(InputError, match=r"^ids_invalid: .*delete it"):
        IdReader(tmp_path / "other")
    assert (refusal(IdReader, tmp_path / "absent"), refusal(IdReader, tmp_path)) == ("file_not_found", "ids_invalid")
    reader = pickle.loads(pickle.dumps(IdReader(path)))
    saved(path, roster(range(1, 6)), range(PERIOD, PERIOD + 2))
    assert refusal(reader.known, PERIOD + 1) == "ids_invalid"


@pytest.mark.slow
def test_one_changed_bit_anywhere_is_noticed_before_an_id_is_used(tmp_path):
    raw = saved(tmp_path / "ids", roster(range(3)), range(PERIOD, PERIOD + 2)).read_bytes()
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            (tmp_path / "changed").write_bytes(changed)
            assert refusal(IdReader, tmp_path / "changed") == "ids_invalid"


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
    assert refusal(write_roster, tmp_path / "out", new_roster("f", ["a", "b"]), b"horse", cost=CHEAP) == "disk_full"
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
    assert refusal(read_roster, path, b"p") == "fleet_damaged"


@examples(20)
@given(st.binary(max_size=100))
def test_sealed_noise_is_no_fleet(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("list") / "list"
    path.write_bytes(seal_secret(noise, b"p", cost=CHEAP))
    assert refusal(read_roster, path, b"p") == "fleet_damaged"
