"""One record per id is counted, for every order and repetition of input; tally bytes follow docs/formats.md."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reports import made, report

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.tally.tally import Tally, count, settle
from protocol import canonical
from protocol.batches.report import decode_answer, decode_report
from protocol.errors import InputError

CAMPAIGN = made()
UNARY = made(mechanism="oue")

row = st.tuples(
    st.integers(0, 3).map(lambda i: i * ((1 << 64) - 1) // 3),  # few ids, including the smallest and the largest
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from([b"\0\0", b"\0\1", b"\1\0"]),
    st.booleans(),
)


def columns(rows) -> Columns:
    return Columns(
        np.array([r[0] for r in rows], np.uint64),
        np.array([r[1] for r in rows], np.uint32),
        np.array([r[2] for r in rows], np.uint16),
        np.frombuffer(b"".join(r[3] for r in rows), np.uint8).reshape(-1, 2),
        np.array([r[4] for r in rows], np.bool_),
    )


def slow_settle(rows):
    """The rule of docs/formats.md, section 4, with dictionaries: kept records, replays, conflicts, superseded."""
    by_id = defaultdict(list)
    for r in rows:
        by_id[r[0]].append(r)
    kept, replayed, conflicting, superseded = set(), 0, 0, 0
    for group in by_id.values():
        best = [r for r in group if r[4]] or group
        superseded += len(group) - len(best)
        distinct = {r[:4] for r in best}
        if len(distinct) == 1:
            kept.add(best[0])
            replayed += len(best) - 1
        else:
            conflicting += len(best)
    return kept, replayed, conflicting, superseded


def as_rows(records: Columns) -> list[tuple]:
    return [
        (int(i), int(p), int(q), a.tobytes(), bool(s))
        for i, p, q, a, s in zip(
            records.id, records.period, records.question, records.answer, records.proven, strict=True
        )
    ]


@examples(500)
@given(st.lists(row, max_size=14))
def test_settling_is_the_rule_and_loses_no_record_unaccounted(rows):
    found = settle(columns(rows))
    kept = as_rows(found.records)
    assert (set(kept), found.replayed, found.conflicting, found.superseded) == slow_settle(rows)
    assert len(kept) == len(set(kept))
    assert len(kept) + found.replayed + found.conflicting + found.superseded == len(rows)


@pytest.mark.parametrize(
    ("rows", "kept", "counts"),
    [
        ([(1, 0, 0, b"\0\0", True)] * 3, 1, (2, 0, 0)),
        ([(1, 0, 0, b"\0\0", True), (1, 0, 0, b"\0\1", True)], 0, (0, 2, 0)),
        ([(1, 0, 0, b"\0\0", True), (1, 1, 0, b"\0\0", True)], 0, (0, 2, 0)),
        ([(1, 0, 0, b"\0\0", True), (1, 0, 1, b"\0\0", True)], 0, (0, 2, 0)),
        ([(1, 0, 0, b"\0\0", True), (1, 0, 0, b"\0\1", False)], 1, (0, 0, 1)),
        ([(1, 0, 0, b"\0\0", False), (1, 0, 0, b"\0\1", False)], 0, (0, 2, 0)),
        ([(1, 0, 0, b"\0\0", True), (2, 0, 0, b"\0\0", True)], 2, (0, 0, 0)),
        ([(1, 0, 0, b"\0\0", True)] * 2 + [(1, 0, 0, b"\0\1", True)], 0, (0, 3, 0)),
        ([], 0, (0, 0, 0)),
    ],
)
def test_settling_case_by_case(rows, kept, counts):
    found = settle(columns(rows))
    assert found.records.size == kept
    assert (found.replayed, found.conflicting, found.superseded) == counts


def real(campaign, devices) -> Columns:
    """Columns decoded from reports of devices."""
    layout = campaign.layout
    parts = [decode_report(layout, report(campaign, device, device)) for device in devices]
    return Columns(
        np.array([int.from_bytes(part[0], "big") for part in parts], np.uint64),
        np.array([part[1] for part in parts], np.uint32),
        np.array([part[2] for part in parts], np.uint16),
        np.frombuffer(b"".join(part[3] for part in parts), np.uint8).reshape(-1, layout.answer_bytes),
        np.ones(len(parts), np.bool_),
    )


@pytest.mark.parametrize("campaign", [CAMPAIGN, UNARY])
def test_counts_are_those_of_the_scalar_decoder(campaign):
    devices = range(400)
    n = [0] * 3
    sums = [[0] * question.mechanism.answers for question in campaign.questions]
    for device in devices:
        _, _, question, field = decode_report(campaign.layout, report(campaign, device, device))
        answer = decode_answer(campaign.questions[question].mechanism, field, campaign.layout)
        n[question] += 1
        for index in [answer] if isinstance(answer, int) else [i for i, bit in enumerate(answer) if bit]:
            sums[question][index] += 1
    tally = count(campaign, real(campaign, devices))
    assert tally == Tally(campaign.id, tuple(n), tuple(map(tuple, sums)))
    assert {type(number) for number in (*tally.n, *(c for cs in tally.counts for c in cs))} == {int}


@examples(50)
@given(st.lists(st.integers(0, 50), unique=True, max_size=20), st.data())
def test_tallies_of_disjoint_reports_add_up_in_any_grouping(devices, data):
    cuts = sorted(data.draw(st.tuples(st.integers(0, len(devices)), st.integers(0, len(devices)))))
    a, b, c = (
        count(CAMPAIGN, real(CAMPAIGN, part))
        for part in (devices[: cuts[0]], devices[cuts[0] : cuts[1]], devices[cuts[1] :])
    )
    whole = count(CAMPAIGN, real(CAMPAIGN, devices))
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(a).merge(b) == whole
    assert Tally.zero(CAMPAIGN).merge(whole) == whole


def test_tallies_of_two_campaigns_do_not_add_up():
    with pytest.raises(InputError, match=r"^other_campaign"):
        Tally.zero(CAMPAIGN).merge(Tally.zero(UNARY))


def test_a_question_that_the_campaign_does_not_have_is_refused():
    with pytest.raises(InputError, match=r"^question_unknown"):
        count(CAMPAIGN, columns([(1, 0, 3, b"\0\0", True)]))


def test_tally_bytes_are_the_canonical_map_of_the_format():
    tally = Tally(bytes(range(32)), (3, 0), ((1, 2), (0, 0, 0)))
    expected = (
        b"\x84"
         b"\xa8campaign\xc4\x20" + bytes(range(32))
        + b"\xa6counts\x92\x92\x01\x02\x93\x00\x00\x00"
        + b"\xa1n\x92\x03\x00"
        + b"\xa4spec\xa31.0"
    )  # fmt: skip
    assert tally.to_bytes() == expected
    assert tally.statistics_id == sha256(expected).digest()
    assert canonical.unpack(expected)["counts"] == [[1, 2], [0, 0, 0]]
