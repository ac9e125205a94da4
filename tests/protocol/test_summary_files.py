"""Files and sets of summaries: nothing intact is lost, work follows the file's length, and union is a semilattice."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.hostile import every_bit
from support.nodes import NODE_KEYS, PERIOD, node_campaign, summary_of
from support.watched import Watched, peak

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import SIZE_LIMITS, Envelope, keyid, write_envelope
from protocol.errors import DocumentError
from protocol.nodes import summary as summary_files
from protocol.nodes.summary import (
    MARK,
    SUMMARY_PAYLOAD_TYPE,
    SummarySet,
    parse_summary,
    read_summaries,
    read_summary,
)

CAMPAIGNS = [node_campaign(), node_campaign(DISCRETE)]
POOL = [
    *(summary_of(CAMPAIGNS[0], node, number) for node in range(3) for number in (1, 2, 3, 4)),
    summary_of(CAMPAIGNS[0], 0, 1, PERIOD + 1),
    summary_of(CAMPAIGNS[1], 0),
    summary_of(CAMPAIGNS[1], 0, 2),
]
OTHER_SIGNATURES = [raw[:-1] + bytes([raw[-1] ^ change]) for raw in POOL[:4] for change in (1, 2)]
"""Envelopes of the same payloads with other bytes. These tests verify no signature."""
SUMMARIES = st.lists(st.sampled_from([*POOL, *OTHER_SIGNATURES]), max_size=8)
INSIDE = st.tuples(st.sampled_from(POOL[:3]), st.integers(1, len(POOL[0]) - 1))
JUNK = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([MARK, MARK[:4], MARK * 3, b"\xc4\x40", b"\x91\x92\xc4\x08", *(raw[:60] for raw in POOL[:2])]),
    INSIDE.map(lambda one: one[0][: one[1]]),
    INSIDE.map(lambda one: one[0][one[1] :]),
    st.sampled_from(list(every_bit(POOL[0], range(53)))),
)


def united(*files):
    found = SummarySet()
    for file in files:
        found = found.union(SummarySet.from_bytes(b"".join(file)))
    return found


@examples(60)
@given(SUMMARIES, SUMMARIES, SUMMARIES)
def test_union_is_associative_commutative_and_idempotent_and_equal_sets_have_equal_bytes(one, two, three):
    a, b, c = united(one), united(two), united(three)
    assert a.union(b).union(c) == a.union(b.union(c)) == united([*three, *two, *one])
    assert a.union(b) == b.union(a)
    assert a.union(a) == a == a.union(SummarySet())
    whole = a.union(b).union(c)
    assert whole.to_bytes() == united([*two, *three, *one, *one]).to_bytes()
    assert SummarySet.from_bytes(whole.to_bytes()) == whole
    assert (whole == a) == (whole.to_bytes() == a.to_bytes())


@examples(60)
@given(SUMMARIES)
def test_a_set_is_what_its_definition_says(raws):
    places = {}
    for raw in raws:
        summary = read_summary(raw)[1]
        held = places.setdefault(summary.place, {})
        held[summary.identity] = min(raw, held.get(summary.identity, raw))
    smallest = {place: [held[one] for one in sorted(held)[:2]] for place, held in places.items()}
    found = united(raws)
    assert found.to_bytes() == b"".join(raw for place in sorted(smallest) for raw in smallest[place])
    assert found.conflicts() == sorted(place for place, held in smallest.items() if len(held) == 2)
    assert found.counting() == [held[0] for _, held in sorted(smallest.items()) if len(held) == 1]
    assert len(found) == sum(map(len, smallest.values()))


@examples(150)
@given(st.lists(st.one_of(st.sampled_from(POOL), JUNK), max_size=7))
def test_no_intact_envelope_is_lost_and_every_byte_is_in_one_stretch(parts):
    raw = b"".join(parts)
    pieces = list(read_summaries(raw))
    assert [piece.offset for piece in pieces] == [sum(one.length for one in pieces[:at]) for at in range(len(pieces))]
    assert sum(piece.length for piece in pieces) == len(raw)
    found = {(piece.offset, piece.envelope) for piece in pieces if piece.reason is None}
    offset = 0
    for part in parts:
        if part in POOL:
            assert (offset, part) in found
        offset += len(part)
    for one, other in pairwise(pieces):
        assert one.reason is None or other.reason in (None, "truncated")
    assert all(piece.reason in (None, "invalid_message", "truncated") for piece in pieces)
    assert [piece.reason for piece in pieces[:-1]].count("truncated") == 0


def test_a_file_that_was_cut_says_so():
    raw = POOL[0]
    for end in range(1, len(raw) + 1):
        _, last = read_summaries(POOL[1] + raw[:end])
        assert (last.length, last.reason) == (end, "truncated" if end < len(raw) else None)


HOSTILE = {
    "marks": MARK * 2000,
    "starts": POOL[0][:49] * 400,
    "starts that say they are long": (POOL[0][:47] + b"\xc6\x00\x7f\x00\x00") * 400,
    "starts that say they are very long": (POOL[0][:47] + b"\xc6\xff\xff\xff\xff") * 400,
    "ends": POOL[0][-78:] * 300,
    "parts of marks": MARK[:5] * 4000,
    "first bytes": b"\x94" * 20_000,
    "small envelopes": write_envelope(Envelope(SUMMARY_PAYLOAD_TYPE, b"", ((bytes(8), bytes(64)),))) * 200,
    "damaged between good": (POOL[0][:-1] + POOL[1]) * 40,
}
inner = b""
for _ in range(60):
    inner = write_envelope(Envelope(SUMMARY_PAYLOAD_TYPE, inner, ((bytes(8), bytes(64)),)))
HOSTILE["envelopes in one another"] = inner


@pytest.mark.parametrize("name", HOSTILE)
def test_work_is_proportional_to_the_file(name):
    """Steps are searched and compared bytes. Four times the file takes at most about four times the steps."""
    steps = []
    for count in (1, 4):
        Watched.steps = 0
        pieces = list(read_summaries(Watched(HOSTILE[name] * count)))
        steps.append(Watched.steps)
        assert sum(piece.length for piece in pieces) == len(HOSTILE[name]) * count
    assert steps[1] <= 4.4 * steps[0] + 1000
    assert steps[1] <= 30 * len(HOSTILE[name]) * 4


def test_a_reader_that_looks_for_the_end_of_each_envelope_would_be_found(monkeypatch):
    right = summary_files._envelope_length

    def searching(raw, start, limit, role, **options):
        raw.find(b"no such bytes", start)
        return right(raw, start, limit, role, **options)

    monkeypatch.setattr(summary_files, "_envelope_length", searching)
    with pytest.raises(AssertionError):
        test_work_is_proportional_to_the_file("marks")


def test_many_fragments_take_no_more_memory_than_the_file():
    """One stretch, whatever is in it. A summary of each fragment would take a hundred times the file."""
    raw = b"\x94\xa4" * 100_000 + MARK * 10_000
    assert peak(lambda: (list(read_summaries(raw)), SummarySet.from_bytes(raw))) < 100_000
    assert [piece.reason for piece in read_summaries(raw)] == ["invalid_message", "truncated"]
    assert len(SummarySet.from_bytes(raw)) == 0


def signed(payload):
    pair = keyid(NODE_KEYS[0].public), bytes(64)
    return write_envelope(Envelope(SUMMARY_PAYLOAD_TYPE, payload, (pair,)))


PAYLOADS = {
    "nested arrays": b"\x91" * 100_000 + b"\x90",
    "nested maps": b"\x81\xa0" * 100_000 + b"\x80",
    "a map of many keys": b"\xdf\x00\x0f\xff\xff" + b"\xa0\xc0" * 100_000,
    "an array that says it is long": b"\xdd\xff\xff\xff\xff",
    "bytes that say they are long": b"\xc6\xff\xff\xff\xff",
    "many values": canonical.pack([0] * 100_000),
    "many empty maps": b"\xdd\x00\x01\x00\x00" + b"\x80" * 65_536,
    "extensions": b"\xc7\xff\x01" * 1000,
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_hostile_payloads_are_refused_in_little_memory(name):
    raw = signed(PAYLOADS[name])
    assert peak(lambda: refusal(read_summary, raw)) < 4 * len(raw) + 300_000  # msgpack's own buffer has 256 KiB
    assert refusal(read_summary, raw) == "malformed"


def test_an_envelope_above_the_limit_is_no_envelope():
    largest = SIZE_LIMITS["node"] - len(signed(bytes(1 << 17))) + (1 << 17)
    for size, reasons in ((largest, [None]), (largest + 1, ["invalid_message"])):
        assert [piece.reason for piece in read_summaries(signed(bytes(size)))] == reasons


def test_a_refused_envelope_does_not_change_a_set():
    def refuse(raw):
        raise DocumentError("bad_signature", "it is not signed by its node")

    found = SummarySet.from_bytes(POOL[0])
    before = found.to_bytes()
    assert found.add_file(b"".join(POOL[:3]) + b"?", refuse) == {"bad_signature": 3, "invalid_message": 1}
    assert refusal(found.add, POOL[1], refuse) == "bad_signature"
    assert found.to_bytes() == before
    assert not found.add(POOL[0], lambda raw: parse_summary(read_summary(raw)[0].payload))
