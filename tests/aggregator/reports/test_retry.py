"""Retry judges reports in quarantine again: each report once, with its former standing, through any crash."""

from __future__ import annotations

import contextlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW
from support.reports import CAMPAIGN, RAW, batch, report
from support.stores import files_of, kept_pieces, roster

from aggregator.operations import report_store as store
from aggregator.operations import retry
from aggregator.operations.report_store import create_store
from aggregator.operations.retry import retry as judge_again
from aggregator.reports.decoding import decode, rules
from aggregator.reports.fleet import IdReader, fleet_ids, write_ids
from aggregator.reports.intake import reader
from aggregator.reports.intake.enrolment import enrolled_from_file, enrolled_from_rosters
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.storage.input_index import Inputs, unpack_places
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.storage.quarantine import Quarantine

PRESENT = CAMPAIGN.period_at(NOW)


def early(devices, ahead=3):
    """Reports of the present period and of future periods."""
    return [report(CAMPAIGN, device, device, period=PRESENT + device % (ahead + 1)) for device in devices]


def rejected(made):
    """Refused records by reason. The manifest and the index of input files must agree."""
    manifest = read_manifest(made.path)
    totals: dict[str, int] = {}
    for entry in Inputs(made.path, manifest.inputs).entries():
        for reason, count in entry.rejected.items():
            totals[reason] = totals.get(reason, 0) + count
    assert totals == dict(manifest.rejected)
    return totals


def late(folder, paths, **options):
    """A store that ingests all files after the last period has begun."""
    made = create_store(folder / "t", RAW)
    made.ingest(paths, now=NOW + 9 * DAY, **options)
    return made


def judge_and_crash(made, patch, **options):
    """Let a retry end after its commit and before the quarantine is cleared."""
    patch.setattr(retry._Retry, "clear", _crash)
    with pytest.raises(KeyboardInterrupt):
        judge_again(made, **options)


def test_reports_that_were_too_early_are_added_when_their_period_has_begun(tmp_path):
    made = create_store(tmp_path / "s", RAW)
    made.ingest(files_of(tmp_path, batch(CAMPAIGN, early(range(40)))), now=NOW)
    assert judge_again(made, now=NOW) == (30, 0, 0, 0, {retry.STILL: 30})
    assert judge_again(made, now=NOW + DAY) == (30, 10, 0, 0, {retry.STILL: 20})
    assert rejected(made) == {"report_too_early": 20}
    assert len(kept_pieces(made)) == 20
    assert judge_again(made, now=NOW + 9 * DAY)[:4] == (20, 20, 0, 0)
    assert (rejected(made), kept_pieces(made)) == ({}, [])
    assert judge_again(made, now=NOW + 9 * DAY) == (0, 0, 0, 0, {})
    assert made.tally_report() == late(tmp_path, [tmp_path / "0.hsr"]).tally_report()


def _cut(data, cut):
    return data[: len(data) - cut]


def _crash(*_):
    raise KeyboardInterrupt


def test_a_crash_at_any_step_leaves_the_old_store_or_the_new_one(tmp_path, monkeypatch):
    made = create_store(tmp_path / "s", RAW)
    made.ingest(files_of(tmp_path, batch(CAMPAIGN, early(range(40)))), now=NOW)
    before = made.tally().to_bytes()
    steps = (retry._Retry, "judge"), (IngestTransaction, "commit"), (store, "write_manifest"), (retry._Retry, "clear")
    for where, what in steps:
        with monkeypatch.context() as patch:
            patch.setattr(where, what, _crash)
            with pytest.raises(KeyboardInterrupt):
                judge_again(made, now=NOW + 9 * DAY)
        assert (made.tally().to_bytes() == before) is (what != "clear")
        assert len(kept_pieces(made)) == 30
    after = made.tally_report()
    assert judge_again(made, now=NOW + 9 * DAY) == (30, 0, 0, 30, {})
    assert (made.tally_report(), kept_pieces(made), rejected(made)) == (after, [], {})


def test_reports_of_damaged_files_stay_unproven_and_a_whole_copy_replaces_them(tmp_path):
    data = batch(CAMPAIGN, early(range(8)))
    damaged = bytearray(data)
    damaged[44 + 18 * 3 + 9] ^= 1  # an id's last byte: another report to a reader without the claimed digest
    made = create_store(tmp_path / "s", RAW)
    paths = files_of(tmp_path, bytes(damaged), data)
    made.ingest(paths[:1], now=NOW)
    found = judge_again(made, now=NOW + 9 * DAY)
    assert (found.proven, found.unproven) == (0, 6)
    assert made.tally_report().unproven == 8
    made.ingest(paths[1:], now=NOW + 9 * DAY)
    assert made.tally().to_bytes() == late(tmp_path, paths[1:]).tally().to_bytes()


def test_what_can_not_be_judged_again_is_said(tmp_path, monkeypatch):
    bad = report(CAMPAIGN, 1)[:14] + b"\xff\xff\0\0"
    made = create_store(tmp_path / "s", RAW)
    content = batch(CAMPAIGN, [*early(range(4)), bad]) + b"foreign"
    made.ingest(files_of(tmp_path, content), now=NOW)
    found = judge_again(made, now=NOW + 9 * DAY)
    assert (found.tried, found.proven, found.left) == (5, 3, {retry.NO_RECORD: 1, retry.STILL: 1})
    assert {piece.reason for piece in kept_pieces(made)} == {"invalid_message", "question_unknown"}
    monkeypatch.setattr(decode, "MAX_PIECES", 5)
    other = create_store(tmp_path / "t", RAW)
    other.ingest(files_of(tmp_path, batch(CAMPAIGN, early(range(40)))), now=NOW)
    assert judge_again(other, now=NOW + 9 * DAY).left == {retry.NOT_ALL: 5}
    assert other.ingest([tmp_path / "0.hsr"], now=NOW + 9 * DAY).proven == 30


def test_pieces_of_a_file_whose_ingest_was_never_committed_are_left(tmp_path):
    made = create_store(tmp_path / "s", RAW)
    quarantine = Quarantine(made.path / "quarantine")
    quarantine.keep("ab" * 32, "x.hsr", [decode.Rejected("report_too_early", 44, 18, report(CAMPAIGN, 1), True)])
    quarantine.keep("cd" * 32, "y.hsr", [decode.Rejected("report_too_early", 44, 18, b"\xd8", True)])
    quarantine.flush()
    assert judge_again(made, now=NOW).left == {retry.NO_FILE: 1, retry.NOT_WHOLE: 1}
    assert made.tally_report().reports == 0


@contextlib.contextmanager
def a_wrong_rule():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules.Rules, "is_sound", lambda *_: False)
        patch.setattr(rules.Rules, "faults", lambda _, fields, now: (fields.question + 1) * 0 + 3)
        yield


def test_a_file_of_one_report_that_a_mended_rule_lets_in_is_added_once(tmp_path, monkeypatch):
    """The batch that retry makes equals the known input file, of which no record was added."""
    made = create_store(tmp_path / "s", RAW)
    records = early(range(0, 12, 4))
    with a_wrong_rule():
        contents = [batch(CAMPAIGN, records), *(batch(CAMPAIGN, [each]) for each in records)]
        made.ingest(files_of(tmp_path, *contents), now=NOW)
    assert rejected(made) == {"value_out_of_domain": 6}
    assert judge_again(made, now=NOW, reason="report_too_early").tried == 0
    with monkeypatch.context() as patch:
        judge_and_crash(made, patch, now=NOW)
    assert (made.tally_report().reports, rejected(made)) == (3, {})
    judge_again(made, now=NOW)
    assert made.tally().to_bytes() == late(tmp_path, files_of(tmp_path, batch(CAMPAIGN, records))).tally().to_bytes()
    assert (rejected(made), kept_pieces(made)) == ({}, [])


def test_a_foreign_report_of_a_period_that_is_forgotten_is_counted_as_forgotten(tmp_path):
    narrow, wide = (enrolled_from_rosters(CAMPAIGN, [roster(range(n))]) for n in (4, 8))
    paths = files_of(tmp_path, batch(CAMPAIGN, early(range(8))))
    made = create_store(tmp_path / "s", RAW)
    made.ingest(paths, now=NOW + 9 * DAY, enrolled=narrow)
    made.forget(PRESENT + 2, now=NOW + 9 * DAY)
    again = create_store(tmp_path / "t", RAW)
    shutil.copytree(made.path, again.path, dirs_exist_ok=True)
    made.ingest(paths, now=NOW + 9 * DAY, enrolled=wide)
    judge_again(again, now=NOW + 9 * DAY, enrolled=wide)
    for each in (made, again):
        assert (foreign(each), rejected(each), kept_pieces(each)) == (0, {"period_forgotten": 2}, [])
        assert each.tally_report().reports == 6


def test_a_closed_fleet_takes_its_own_and_more_when_more_are_enrolled(tmp_path):
    small, large = (enrolled_from_rosters(CAMPAIGN, [roster(range(n))]) for n in (5, 8))
    records = [report(CAMPAIGN, device, device) for device in range(10)]
    paths = files_of(
        tmp_path, batch(CAMPAIGN, records[:4]), batch(CAMPAIGN, records[4:]), batch(CAMPAIGN, [records[0]])
    )
    made = create_store(tmp_path / "s", RAW)
    summary = made.ingest(paths, now=NOW, enrolled=small)
    assert (summary.proven, summary.rejected) == (6, {"id_not_enrolled": 5})
    assert made.tally_report().rejected == {"id_not_enrolled": 5, "report_replayed": 1}
    assert [piece.data for piece in kept_pieces(made)] == records[5:]
    for action in (lambda: made.ingest(paths, now=NOW), lambda: judge_again(made, now=NOW)):
        assert refusal(action) == "enrolment_needed"
    assert judge_again(made, now=NOW, enrolled=small).left == {retry.STILL: 5}
    assert judge_again(made, now=NOW, enrolled=large)[1:] == (3, 0, 0, {retry.STILL: 2})
    assert made.tally_report().reports == 8
    assert rejected(made) == {"id_not_enrolled": 2}
    assert made.ingest(paths, now=NOW, enrolled=large).files_repeated == 3


def ids_for(path, devices, periods):
    with path.open("wb") as sink:
        write_ids(sink, CAMPAIGN, periods, fleet_ids([roster(devices)], CAMPAIGN, periods), lambda _: None)
    return enrolled_from_file(CAMPAIGN, IdReader(path))


def foreign(made):
    """Number of foreign records by the index of input files; the index's kept places must agree."""
    entries = list(Inputs(made.path, read_manifest(made.path).inputs).entries())
    for entry in entries:
        assert len(unpack_places(entry.refused)) == entry.rejected.get("id_not_enrolled", 0)
    return rejected(made).get("id_not_enrolled", 0)


def test_ids_that_were_too_narrow_lose_nothing(tmp_path, monkeypatch):
    """If the quarantine could not keep all refused records, retry reads the file again and adds only these records."""
    monkeypatch.setattr(reader, "MAX_PIECES", 5)
    narrow = ids_for(tmp_path / "n", range(40), range(PRESENT, PRESENT + 1))
    wide = ids_for(tmp_path / "w", range(40), range(PRESENT, PRESENT + 4))
    paths = files_of(tmp_path, batch(CAMPAIGN, early(range(50))), batch(CAMPAIGN, early(range(5))))
    made = create_store(tmp_path / "s", RAW)
    later = NOW + 9 * DAY
    made.ingest(paths, now=later, enrolled=narrow)
    assert foreign(made) == 50 + 5 - 12
    assert made.ingest(paths, now=later, enrolled=narrow).files_repeated == 2
    assert made.ingest(paths, now=later, enrolled=wide).proven == 30 + 3
    assert foreign(made) == 10
    assert made.ingest(paths, now=later, enrolled=wide).files_repeated == 2
    assert made.tally_report() == late(tmp_path, paths, enrolled=wide).tally_report()


def test_a_clock_that_was_put_back_takes_nothing_twice(tmp_path):
    narrow, wide = (enrolled_from_rosters(CAMPAIGN, [roster(range(n))]) for n in (10, 40))
    paths = files_of(tmp_path, batch(CAMPAIGN, early(range(50))))
    made = create_store(tmp_path / "s", RAW)
    made.ingest(paths, now=NOW + 2 * DAY, enrolled=narrow)
    made.ingest(paths, now=NOW, enrolled=wide)
    made.ingest(paths, now=NOW + 9 * DAY, enrolled=wide)
    assert made.tally_report() == late(tmp_path, paths, enrolled=wide).tally_report()


def test_what_was_too_early_and_is_not_enrolled_once_its_period_begins_is_counted_as_that(tmp_path):
    small, large = (enrolled_from_rosters(CAMPAIGN, [roster(range(n))]) for n in (20, 30))
    paths = files_of(tmp_path, batch(CAMPAIGN, early(range(40))))
    made = create_store(tmp_path / "s", RAW)
    made.ingest(paths, now=NOW, enrolled=large)
    assert judge_again(made, now=NOW + DAY, enrolled=small) == (32, 5, 0, 0, {retry.STILL: 27})
    assert (foreign(made), rejected(made)) == (7, {"report_too_early": 20, "id_not_enrolled": 7})
    assert sorted(piece.reason for piece in kept_pieces(made)) == ["id_not_enrolled"] * 7 + ["report_too_early"] * 20
    assert judge_again(made, now=NOW + 9 * DAY, enrolled=large).proven == 3 + 7 + 7
    assert made.tally_report() == late(tmp_path, paths, enrolled=large).tally_report()


EVERY = {0, 1, 2, 3}
STEP = st.tuples(
    st.sampled_from(["ingest", "ingest", "retry", "early", "crash", "cut short"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sets(st.integers(0, 3), min_size=1),
)


@pytest.mark.parametrize("is_closed", [False, pytest.param(True, marks=pytest.mark.slow)])
@examples(40)
@given(
    files=st.lists(
        st.tuples(st.lists(st.integers(0, 15), max_size=8), st.sampled_from([0, 0, 1, 44, 50])), min_size=1, max_size=4
    ),
    steps=st.lists(STEP, max_size=6),
)
def test_any_mixture_of_retries_ingests_and_crashes_ends_in_the_tally_of_one_late_ingest(
    tmp_path_factory, is_closed, files, steps
):
    """Files are (devices, bytes cut off the end). Crashes are before the manifest, or before the quarantine is cleared.

    In a closed fleet each step has the ids of one of four fleets, or a file of the ids of some devices and periods.
    """
    folder = tmp_path_factory.mktemp("retry")
    paths = files_of(folder, *(_cut(batch(CAMPAIGN, early(devices)), cut) for devices, cut in files))
    fleets = [None] * 4
    if is_closed:
        fleets = [enrolled_from_rosters(CAMPAIGN, [roster(range(number))]) for number in (12, 6)]
        fleets += [ids_for(folder / "i", range(9), range(PRESENT + 1, PRESENT + 3))]
        fleets += [ids_for(folder / "j", range(3, 12), range(PRESENT, PRESENT + 2))]
    made, direct = create_store(folder / "s", RAW), create_store(folder / "t", RAW)
    now, last = NOW, ("ingest" if is_closed else "retry", 5, 0, EVERY)
    for what, days, which, chosen in [("ingest", 0, 0, EVERY)] * (not is_closed) + [*steps, last]:
        now += days * DAY
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            if what == "crash":
                patch.setattr(retry._Retry, "clear", _crash)
            elif what == "cut short":
                patch.setattr(store, "write_manifest", _crash)
            if what == "ingest" or (what == "cut short" and which % 2):
                given_files = [path for number, path in enumerate(paths) if number in chosen]
                made.ingest(given_files, now=now, enrolled=fleets[which])
            else:
                only = "report_too_early" if what == "early" else None
                judge_again(made, now=now, enrolled=fleets[which], reason=only)
        foreign(made)
    direct.ingest(paths, now=now, enrolled=fleets[0])
    wanted, retried = direct.tally_report(), {what for what, *_ in [*steps, last]} - {"ingest"}
    differs = {"report_replayed"} if retried else set()
    for _ in range(2):
        found = made.tally_report()
        assert found.tally.to_bytes() == wanted.tally.to_bytes()
        assert (found.reports, found.unproven) == (wanted.reports, wanted.unproven)
        assert _but(found.rejected, differs) == _but(wanted.rejected, differs)
        judge_again(made, now=now, enrolled=fleets[0])
    assert all(piece.reason != "report_too_early" for piece in kept_pieces(made))


def _but(counts, without):
    return {reason: count for reason, count in counts.items() if reason not in without}


def test_a_store_that_took_reports_of_anybody_is_not_closed_afterwards(tmp_path):
    made = create_store(tmp_path / "s", RAW)
    enrolled = enrolled_from_rosters(CAMPAIGN, [roster(range(5))])
    made.ingest(files_of(tmp_path, batch(CAMPAIGN, [report(CAMPAIGN, 1)])), now=NOW)
    assert refusal(made.ingest, [], now=NOW, enrolled=enrolled) == "store_open"


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"reason": 1}', '{"reason":"a","file":"b","offset":0,"length":1,"bytes":"x"}']
)
def test_a_quarantine_that_was_tampered_with_is_said(tmp_path, line):
    made = create_store(tmp_path / "s", RAW)
    (made.path / "quarantine").mkdir()
    (made.path / "quarantine" / f"{'ab' * 32}.jsonl").write_text(line + "\n")
    assert refusal(judge_again, made, now=NOW) == "store_damaged"
