"""The fuzzer's properties hold for its seeds and for some mutations of them, and each of them can fail."""

from __future__ import annotations

import random
from collections import Counter
from hashlib import sha256

import pytest
from fuzz import masked_targets, node_targets, run, targets
from fuzz.mutate import mutated
from fuzz.seeds import seeds
from fuzz.targets import LARGEST, TARGETS

from protocol.documents.campaign import parse_campaign
from protocol.errors import HearsayError
from protocol.nodes.summary import parse_summary

pytestmark = pytest.mark.slow

MUTATIONS = 150
GOOD = {
    "envelope": {"root", "campaign", "model", "nodes", "node", "masked", "keys", "release"},
    "root": {"accepted"},
    "campaign": {"accepted", "ended", "for nodes", "masked"},
    "model": {"accepted"},
    "batch": {"proven"},
    "report": {"accepted"},
    "provisioning": {"accepted"},
    "nodes": {"accepted"},
    "node": {"accepted"},
    "summaries": {"some"},
    "masked": {"accepted"},
    "messages": {"some"},
    "keys": {"accepted"},
    "request": {"accepted"},
    "release": {"accepted"},
}


def blind(rng):
    """Some bytes changed, as the fuzzer does it where it knows nothing."""

    def change(data):
        place = rng.randrange(len(data) + 1)
        return data[:place] + rng.randbytes(rng.randrange(4)) + data[place + rng.randrange(4) :]

    return change


def test_every_target_can_be_run():
    assert set(run.NAMES) == set(TARGETS) == set(LARGEST) == set(GOOD)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_accepted_and_refused_as_they_should(name):
    found = Counter(map(TARGETS[name], seeds(name)))
    assert found.keys() >= GOOD[name]
    assert found.keys() - GOOD[name]


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_keep_every_property_and_some_are_accepted(name):
    rng = random.Random(name)
    found = Counter(
        TARGETS[name](mutated(name, rng.choice(seeds(name)), rng, blind(rng))[: LARGEST[name]])
        for _ in range(MUTATIONS)
    )
    assert found.keys() & GOOD[name]
    assert found.keys() - GOOD[name]


def first(name, outcome):
    return next(data for data in seeds(name) if TARGETS[name](data) == outcome)


def breaks(monkeypatch, name, outcome, broken, stand_in):
    """With a part of the code replaced by a faulty one, a good seed's property must not hold."""
    data = first(name, outcome)
    monkeypatch.setattr(targets, broken, stand_in)
    with pytest.raises((AssertionError, HearsayError)):
        TARGETS[name](data)


def test_the_envelope_target_sees_a_writer_that_loses_a_byte(monkeypatch):
    right = targets.write_envelope
    breaks(monkeypatch, "envelope", "campaign", "write_envelope", lambda envelope: right(envelope)[:-1])


def test_the_root_target_sees_a_threshold_of_zero(monkeypatch):
    right = targets.trust.pin

    def pin(raw, clock):
        state = right(raw, clock)
        roles = {name: role._replace(threshold=0) for name, role in state.root.roles.items()}
        return state._replace(root=state.root._replace(roles=roles))

    data = first("root", "accepted")
    monkeypatch.setattr(targets.trust, "pin", pin)
    with pytest.raises(AssertionError):
        TARGETS["root"](data)


@pytest.mark.parametrize("change", [{"epsilon_micro": 1000}, {"purpose": "another"}, {"min_batch_size": 77}])
def test_the_campaign_target_sees_what_is_read_wrongly(monkeypatch, change):
    breaks(
        monkeypatch,
        "campaign",
        "accepted",
        "parse_campaign",
        lambda data: parse_campaign(data)._replace(**change) if data else None,
    )


def test_the_model_target_sees_shares_that_do_not_sum_to_one(monkeypatch):
    class Classifier(targets.Classifier):
        def predict_proba(self, record):
            return {name: share / 2 for name, share in super().predict_proba(record).items()}

    breaks(monkeypatch, "model", "accepted", "Classifier", Classifier)


def reader(change):
    """A reader of batches with a fault."""
    right = targets.read_batches
    return lambda data, layouts: iter(change(list(right(data, layouts))))


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items[:-1],
        lambda items: [*items, *items],
        lambda items: [item._replace(spans=item.spans[:-1]) for item in items],
        lambda items: [item._replace(spans=[(start, count + 1) for start, count in item.spans]) for item in items],
    ],
)
def test_the_batch_target_sees_bytes_lost_or_read_twice(monkeypatch, change):
    breaks(monkeypatch, "batch", "proven", "read_batches", reader(change))


def test_the_batch_target_sees_work_that_grows_with_the_square(monkeypatch):
    right = targets.read_batches

    def slow(data, layouts):
        for position in range(len(data)):
            data.find(b"not there", position)
        return right(data, layouts)

    breaks(monkeypatch, "batch", "proven", "read_batches", slow)


def test_the_report_target_sees_an_answer_that_is_written_otherwise(monkeypatch):
    right = targets.encode_answer
    breaks(monkeypatch, "report", "accepted", "encode_answer", lambda *answer: right(*answer)[::-1] + b"x")


def test_the_provisioning_target_sees_another_spelling(monkeypatch):
    breaks(monkeypatch, "provisioning", "accepted", "build_provisioning", lambda found: b"")


def test_the_target_of_summaries_sees_a_reader_that_passes_over_bytes(monkeypatch):
    right = node_targets.read_summaries
    data = first("summaries", "some")
    monkeypatch.setattr(node_targets, "read_summaries", lambda *file: list(right(*file))[1:])
    with pytest.raises((AssertionError, IndexError)):
        TARGETS["summaries"](data)


def test_the_target_of_a_summary_sees_a_reader_that_takes_a_longer_form(monkeypatch):
    data = first("node", "accepted")
    monkeypatch.setattr(
        node_targets, "parse_summary", lambda raw: parse_summary(data)._replace(identity=sha256(raw).digest())
    )
    with pytest.raises(AssertionError):
        TARGETS["node"](data + b"\0")


@pytest.mark.parametrize(
    ("name", "parser"), [("masked", "parse_message"), ("keys", "parse_key_book"), ("release", "parse_release")]
)
def test_the_targets_of_masked_sums_see_a_reader_that_takes_another_period_or_version(monkeypatch, name, parser):
    right = getattr(masked_targets, parser)
    data = first(name, "accepted")
    field = "version" if name == "keys" else "period"

    def wrong(raw):
        found = right(raw)
        return found._replace(**{field: getattr(found, field) + 1})

    monkeypatch.setattr(masked_targets, parser, wrong)
    with pytest.raises(AssertionError):
        TARGETS[name](data)


def test_the_target_of_requests_sees_a_party_that_is_named_twice(monkeypatch):
    right = masked_targets.parse_request
    data = first("request", "accepted")
    monkeypatch.setattr(
        masked_targets, "parse_request", lambda raw: right(raw)._replace(parties=right(raw).parties[:1] * 2)
    )
    with pytest.raises(AssertionError):
        TARGETS["request"](data)


def test_the_target_of_messages_sees_a_set_that_loses_one(monkeypatch):
    data = first("messages", "some")
    monkeypatch.setattr(masked_targets.MessageSet, "to_bytes", lambda found: b"")
    with pytest.raises(AssertionError):
        TARGETS["messages"](data)
