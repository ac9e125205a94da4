"""The numbers of a summary: exact sums as the curator's, plus the noise of the stream, clipped to public ranges."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from random import Random

import numpy as np
import pandas as pd
import pytest
from support.publisher import NOW, Publisher

from aggregator.curator.methods.sums import exact_sums
from aggregator.curator.records import read_records
from edge_sdk import Node, Policy
from edge_sdk.node.release import NOISE_TAG, noisy_sums
from edge_sdk.node.sums import ExactSums
from protocol.documents.campaign import parse_campaign
from protocol.features import Categorical, Numeric
from protocol.mechanisms.noise import discrete_laplace
from protocol.nodes.summary import read_summary
from protocol.nodes.terms import released_vectors, shares
from protocol.questions import MOMENT
from protocol.schema import Component, Label, Projection, build_schema
from protocol.stream import Stream

LABEL = Label("label", ["e", "p", "q"], substitute=1)
ODOR, CAP = Categorical("odor", ["a", "n", "f"]), Categorical("cap", ["1", "2"], "other", substitute=0)
WIDTH, MISS = Numeric("width", "0", "10", [0]), Numeric("miss", "-1", "1", [-100, 100], "missing", None)
HALF = 1 << 14
PROJECTION = Projection(
    [2, 3],
    [[HALF, HALF], [HALF, -HALF]],
    [0, 5],
    15,
    [Component(f"part {number}", -65536, 65536, [0], has_missing=True) for number in (1, 2)],
)
PLAIN = build_schema(LABEL, [ODOR, CAP, WIDTH, MISS])
SCHEMAS = {
    "categories": build_schema(LABEL, [ODOR, CAP]),
    "numbers": build_schema(LABEL, [WIDTH, Numeric("length", "0.5", "3", [7])]),
    "missing numbers": build_schema(LABEL, [MISS, CAP]),
    "mixed": PLAIN,
    "grouped": PLAIN._replace(groups=((0, 1, 0, 1), None, None, (0, 0, 1, 0))),
    "projected": build_schema(LABEL, [ODOR, CAP, WIDTH, MISS], PROJECTION),
}


def records(count=400):
    """Records with missing, unlisted, clipped and repeated values of several types."""
    draw = Random(7)
    for _ in range(count):
        yield {
            "label": draw.choice(["e", "p", "q", "r", None, ""]),
            "odor": draw.choice(["a", "n", "f", "", "x", None]),
            "cap": draw.choice(["1", "2", "3", None, ""]),
            "width": draw.choice([3.25, 11.0, -2.0, float("nan"), None, round(draw.random() * 10, 2)]),
            "length": draw.uniform(0, 4),
            "miss": draw.choice([0.25, None, -0.5, 0.123456789, 1.0]),
        }


@pytest.mark.parametrize("family", ["discrete", "gaussian"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_exact_sums_are_the_curators(name, family):
    schema = SCHEMAS[name]
    if family == "gaussian" and not schema.numeric:
        pytest.skip("a Gaussian family needs a number")
    if family == "gaussian" and name == "grouped":
        schema = schema._replace(groups=((0, 1, 0, 1), None, None, None))
    payload = Publisher(schema=schema).node_payload(family=family)
    campaign = parse_campaign(payload)
    subjects = released_vectors(campaign)
    found = ExactSums(campaign.schema, subjects)
    found.add_all(records())
    frame = pd.DataFrame(list(records())).astype({"length": np.float64})
    expected = exact_sums(read_records(frame, campaign.schema), subjects)
    assert found.totals.tolist() == [number for vector in expected for number in vector]
    assert any(found.totals)


def test_the_released_numbers_are_exact_sums_and_the_noise_of_the_stream():
    publisher = Publisher(schema=PLAIN)
    seeds = iter([b"s" * 32, b"t" * 32])
    with Node.open(None, publisher.root(), clock=lambda: NOW, entropy=lambda _: next(seeds)) as node:
        campaign = node.enrol(publisher.node_campaign(family="gaussian", least_epsilon_micro=1000))
        raw = node.summarise(campaign.id, records(), epsilon="0.5").raw
    subjects = released_vectors(campaign)
    exact = ExactSums(PLAIN, subjects)
    exact.add_all(records())
    stream, expected, place = Stream(b"t" * 32, NOISE_TAG), [], 0
    vectors = 1 + 2 + 3 * 1 + 2 * 1  # classes; two categories; a number that may be missing; a number
    assert len(subjects) == vectors
    for subject in subjects:
        delta = 65536 if subject.kind == MOMENT else 1
        micro = 500_000 // vectors
        for _ in range(subject.size):
            expected.append(
                exact.totals[place] + discrete_laplace(stream, *Fraction(micro, 1_000_000 * delta).as_integer_ratio())
            )
            place += 1
    assert list(read_summary(raw)[1].sums) == expected
    assert shares(campaign, 500_000) == (micro,) * vectors


def test_numbers_outside_the_public_range_are_clipped():
    publisher = Publisher()
    campaign = parse_campaign(publisher.node_payload(max_records=10))
    exact = [10**9] * sum(subject.size for subject in released_vectors(campaign))
    assert len(set(noisy_sums(campaign, exact, campaign.epsilon_micro, bytes(32)))) == 1
    exact = [-number for number in exact]
    assert len(set(noisy_sums(campaign, exact, campaign.epsilon_micro, bytes(32)))) == 1


def test_memory_does_not_grow_with_the_number_of_records(monkeypatch):
    """Each of the 2,000 values of a number differs, and so does each label. Records are read in eight blocks."""
    monkeypatch.setattr("edge_sdk.node.sums.BLOCK", 250)

    def many(count):
        for number in range(count):
            yield {"label": f"label {number}", "width": number / 7, "odor": f"odor {number}", "miss": str(number / 3)}

    def peak(count):
        found = nothing_yet()
        for reader in found._readers:
            reader._most = 100
        tracemalloc.start()
        found.add_all(many(count))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2_000)  # what a process makes once: compiled patterns, caches with a bound
    assert peak(2_000) - peak(500) < 1_500 * 12  # bytes; to keep a record takes 400


def nothing_yet():
    return ExactSums(PLAIN, released_vectors(parse_campaign(Publisher(schema=PLAIN).node_payload())))


def test_a_label_for_all_records_and_values_of_every_type():
    found = nothing_yet()
    found.add_all([{"cap": 1}, {"cap": 1.0}, {"cap": True}, {"cap": "1"}, {"cap": 1 << 70}], "q")
    assert found.totals.tolist()[:3] == [0, 0, 5]
    cap = found.totals.tolist()[3 + 12 :][:9]
    assert cap == [0, 0, 3, 0, 0, 0, 0, 0, 2]


def test_what_has_no_meaning_is_counted_and_hinted_at():
    found = nothing_yet()
    found.add_all([{"label": "e", "odor": "n", "cap": "1", "width": "3,5", "miss": 0}] * 3 + [{"label": "z"}])
    unread = found.unread()
    assert unread.records == 4
    assert unread.missing == {"odor": 1, "cap": 1, "width": 1, "miss": 1}
    assert unread.unlisted == {"label": 1, "width": 3}
    assert unread.hints == ("'width': a decimal comma is not read; write a point",)


def test_a_record_with_a_refused_value_is_left_out():
    """A missing summary would tell of one record; its absence from the sums is what ε covers."""
    schema = build_schema(LABEL, [Categorical("odor", ["a", "n"], "refuse"), CAP])
    publisher = Publisher(schema=schema)
    with Node.open(None, publisher.root(), policy=Policy.of(allow_refuse=True), clock=lambda: NOW) as node:
        campaign = node.enrol(publisher.node_campaign())
        assert node.summarise(campaign.id, [{"odor": "x"}]).unread.refused == 1
    found, expected = (ExactSums(schema, released_vectors(campaign)) for _ in range(2))
    records = [{"odor": "a", "label": "e"}, {"odor": "n", "cap": "x", "label": "p"}]
    found.add_all([records[0], {"odor": "x", "label": "p"}, {"odor": ["a"], "label": "e"}, records[1]])
    expected.add_all(records)
    assert found.totals == expected.totals
    assert (found.unread().records, found.unread().refused) == (4, 2)
