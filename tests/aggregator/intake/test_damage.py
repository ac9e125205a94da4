"""Damage of every kind at every place of a batch, and the whole batch: together they are the whole batch."""

from __future__ import annotations

import pytest
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator.intake.store import create_store

RAW = Publisher().campaign()
CAMPAIGN = opened(RAW)
RECORDS = [report(CAMPAIGN, device, device) for device in range(4)]
WHOLE = batch(CAMPAIGN, RECORDS)
FOREIGN = b"\x00\xff\xd8not of here"


def flipped():
    """One bit of every byte changed, in turn each of its eight; the reader's own tests change them all."""
    for place in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


KINDS = {
    "a changed bit": list(flipped()),
    "cut": [WHOLE[:length] for length in range(1, len(WHOLE))],
    "foreign bytes": [WHOLE[:place] + FOREIGN + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "a foreign byte": [WHOLE[:place] + b"\xd8" + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "missing bytes": [WHOLE[:place] + WHOLE[place + 5 :] for place in range(len(WHOLE))],
}


def tallied(folder, *runs):
    """The tally bytes and the report after ingests of these contents."""
    folder.mkdir()
    made = create_store(folder / "store", RAW)
    for number, contents in enumerate(runs):
        for place, content in enumerate(contents):
            (folder / f"{number}-{place}.hsr").write_bytes(content)
        made.ingest([folder / f"{number}-{place}.hsr" for place in range(len(contents))], now=NOW)
    found = made.tally_report()
    return found.tally.to_bytes(), found


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_copies_change_nothing_once_the_whole_batch_is_there(tmp_path, kind):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    for name, runs in (("after", [KINDS[kind], [WHOLE]]), ("before", [[WHOLE], KINDS[kind]])):
        found, report_of_it = tallied(tmp_path / name, *runs)
        assert found == expected
        assert (report_of_it.reports, report_of_it.unproven) == (len(RECORDS), 0)


def test_all_damaged_copies_in_one_file_change_nothing_either(tmp_path):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    together = b"".join(content for contents in KINDS.values() for content in contents)
    for name, runs in (("after", [[together], [WHOLE]]), ("beside", [[together + WHOLE]])):
        assert tallied(tmp_path / name, *runs)[0] == expected


def test_a_changed_bit_changes_at_most_one_records_count(tmp_path):
    """Alone, without the whole batch; all that is counted is called unproven."""
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    assert expected
    for number, content in enumerate(KINDS["a changed bit"][::11]):
        _, found = tallied(tmp_path / str(number), [content])
        assert found.unproven == found.reports
        assert len(RECORDS) - 1 <= found.reports <= len(RECORDS)
        assert found.reports + sum(found.rejected.values()) >= len(RECORDS)
