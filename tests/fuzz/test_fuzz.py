"""The fuzzer's properties hold for its seeds and for some mutations of them, and each of them can fail."""

import random
from collections import Counter
from hashlib import sha256

import pytest
from fuzz import collector_targets, node_targets, run, targets
from fuzz.mutate import mutated
from fuzz.seeds import seeds
from fuzz.targets import LARGEST, TARGETS

from protocol.errors import HearsayError
from protocol.nodes.summary import parse_summary

pytestmark = pytest.mark.slow

MUTATIONS = 150
GOOD = {name: {"accepted"} for name in TARGETS} | {
    "envelope": {"root", "campaign", "model", "nodes", "node", "masked", "keys", "release"},
    "campaign": {"accepted", "ended", "for nodes", "masked", "shared"},
    "batch": {"proven"},
    "summaries": {"some"},
    "messages": {"some"},
}


def blind(rng):
    def change(data):
        place = rng.randrange(len(data) + 1)
        return data[:place] + rng.randbytes(rng.randrange(4)) + data[place + rng.randrange(4) :]

    return change


def test_every_target_can_be_run():
    assert set(run.NAMES) == set(TARGETS) == set(LARGEST)


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


def with_a_threshold_of_zero(state):
    roles = {name: role._replace(threshold=0) for name, role in state.root.roles.items()}
    return state._replace(root=state.root._replace(roles=roles))


class Halved(targets.Classifier):
    """Its shares do not sum to one."""

    def predict_proba(self, record):
        return {name: share / 2 for name, share in super().predict_proba(record).items()}


def changed(**changes):
    """A parser that reads something wrongly: each field is what a function makes of the right value."""

    def parser(right):
        def parse(*given):
            found = right(*given)
            return found._replace(**{name: change(getattr(found, name)) for name, change in changes.items()})

        return parse

    return parser


def reader(change):
    """A reader of a file whose items are what a function makes of the right ones."""
    return lambda right: lambda *file: iter(change(list(right(*file))))


def quadratic(right):
    def slow(data, layouts):
        for position in range(len(data)):
            data.find(b"not there", position)
        return right(data, layouts)

    return slow


def shorter(items):
    return [item._replace(spans=item.spans[1:]) for item in items]


def longer(items):
    return [item._replace(spans=[(start, count + 1) for start, count in item.spans]) for item in items]


@pytest.mark.parametrize(
    ("name", "outcome", "owner", "part", "wrong"),
    [
        ("envelope", "campaign", targets, "write_envelope", lambda right: lambda each: right(each)[:-1]),
        ("root", "accepted", targets.trust, "pin", lambda right: lambda *raw: with_a_threshold_of_zero(right(*raw))),
        ("campaign", "accepted", TARGETS["campaign"], "parse", changed(epsilon_micro=lambda _: 1000)),
        ("campaign", "accepted", TARGETS["campaign"], "parse", changed(purpose=lambda _: "another")),
        ("campaign", "accepted", TARGETS["campaign"], "parse", changed(min_batch_size=lambda _: 77)),
        ("model", "accepted", targets, "Classifier", lambda _: Halved),
        ("batch", "proven", targets, "read_batches", reader(lambda items: items[:-1])),
        ("batch", "proven", targets, "read_batches", reader(lambda items: [*items, *items])),
        (
            "batch",
            "proven",
            targets,
            "read_batches",
            reader(shorter),
        ),
        ("batch", "proven", targets, "read_batches", reader(longer)),
        ("batch", "proven", targets, "read_batches", quadratic),
        ("report", "accepted", targets, "encode_answer", lambda right: lambda *answer: right(*answer)[::-1] + b"x"),
        ("provisioning", "accepted", targets, "build_provisioning", lambda _: lambda found: b""),
        ("summaries", "some", node_targets, "read_summaries", reader(lambda items: items[1:])),
        ("masked", "accepted", TARGETS["masked"], "parse", changed(period=lambda period: period + 1)),
        ("keys", "accepted", TARGETS["keys"], "parse", changed(version=lambda version: version + 1)),
        ("release", "accepted", TARGETS["release"], "parse", changed(period=lambda period: period + 1)),
        ("request", "accepted", TARGETS["request"], "parse", changed(parties=lambda parties: parties[:1] * 2)),
        ("messages", "some", node_targets.MessageSet, "to_bytes", lambda _: lambda found: b""),
        ("asked", "accepted", collector_targets, "honest", lambda right: lambda: ([], *right()[1:])),
        ("said", "accepted", collector_targets, "noisy", lambda right: lambda _, sums, __: sums),
        ("total", "accepted", TARGETS["total"], "parse", changed(accepted=lambda accepted: accepted + 1)),
        ("total", "accepted", collector_targets, "TAIL", lambda _: -100),
        ("pair", "accepted", TARGETS["pair"], "parse", changed(salt=lambda salt: salt[::-1])),
        ("collector", "accepted", TARGETS["collector"], "parse", changed(name=lambda name: name + "x")),
    ],
)
def test_with_a_faulty_part_a_good_seed_does_not_keep_its_property(monkeypatch, name, outcome, owner, part, wrong):
    data = first(name, outcome)
    monkeypatch.setattr(owner, part, wrong(getattr(owner, part)))
    with pytest.raises((AssertionError, HearsayError, IndexError)):
        TARGETS[name](data)


def test_the_target_of_a_summary_sees_a_reader_that_takes_a_longer_form(monkeypatch):
    data = first("node", "accepted")
    found = parse_summary(data)
    monkeypatch.setattr(TARGETS["node"], "parse", lambda raw: found._replace(identity=sha256(raw).digest()))
    with pytest.raises(AssertionError):
        TARGETS["node"](data + b"\0")
