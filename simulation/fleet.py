"""Reports of a fleet in memory: made by the device code (enrol, answer once), or drawn with numpy for large fleets.

Drawn reports have the format and distribution of the devices' reports; a test compares the distributions. They are not
private: the randomness comes from numpy and a seed, and ids are random numbers instead of HMACs of secrets. Reports for
two collectors are those of the devices' code, byte for byte, since its formulas compute on arrays as on integers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.collectors.elements import LIMBS, Elements, decoded, encoded
from aggregator.collectors.verification import (
    at_once,
    expanded,
    hashed,
    joint_part,
    joint_randomness,
    repeated,
)
from aggregator.common.arrays import Integers
from aggregator.models.encoding import EncodedFrame
from aggregator.publishing.mechanisms.draws import Bools, draw, draw_again, inputs_of
from edge_sdk import Device, Policy
from edge_sdk.arguments import system_entropy
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import ID_BYTES, Layout, encode_report, report_id
from protocol.documents.campaign import Campaign
from protocol.documents.memory_terms import Remembered
from protocol.documents.shared_terms import HELPER, LEADER
from protocol.mechanisms import BITS, INTEGERS, SINGLE, Mechanism
from protocol.questions import Question, Subject
from protocol.schema import Schema
from protocol.shared.circuits import Blocks
from protocol.shared.prio3 import PROOFS, PROVER, Shards
from protocol.shared.proofs import prove
from protocol.shared.report import context_of, drawn_of, sealed_field, variant_of
from protocol.stream import SEED_BYTES

PERMISSIVE = Policy.of(epsilon_per_period="100000", epsilon_lifetime="100000")
"""The policy of simulated owners: limits on ε of 100000, else the default rules."""


def device_reports(
    root: bytes,
    campaign: bytes,
    people: Iterable[tuple[Mapping[str, object], object]],
    *,
    now: int,
    entropy: Callable[[int], bytes] = system_entropy,
    models: Sequence[bytes] = (),
    policy: Policy = PERMISSIVE,
) -> Iterator[bytes]:
    """Yield for each person the bytes of all answers of one new device.

    Args:
        now: the time on the devices' clocks, in seconds since 1970.
        entropy: the devices' randomness; by default from the operating system.
        models: signed models that every device installs first, for campaigns that evaluate them.
        policy: of every owner.

    Raises:
        DocumentError, PolicyError, InputError: a device refuses root, campaign, model or record.
    """
    for record, label in people:
        with Device.open(None, trust=root, policy=policy, clock=lambda: now, entropy=entropy) as device:
            for model in models:
                device.install(model)
            yield device.report(device.enrol(campaign).id, record, label=label)


def write_batches(folder: Path, campaign: Campaign, reports: Iterable[bytes], per_file: int = 1000) -> list[Path]:
    """Write the reports of devices into batch files, as a gateway does. Return the paths ``0000.hsr``, ``0001.hsr``, ….

    Args:
        folder: exists already; files of the same name are replaced.
        reports: for each device the bytes of all its answers, one after another.

    Raises InputError ``batch_invalid``: a report has a wrong length.
    """
    length = campaign.layout.record_length
    header = Header(campaign.id, campaign.layout.kind, length)
    waiting = iter(reports)
    files: list[Path] = []
    while chunk := list(islice(waiting, per_file)):
        path = folder / f"{len(files):04d}.hsr"
        records = [answers[start : start + length] for answers in chunk for start in range(0, len(answers), length)]
        path.write_bytes(write_batch(header, records))
        files.append(path)
    return files


Predictor = Callable[[Integers], Integers]


def vector_reports(
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: Integers,
    period: int,
    rng: np.random.Generator,
    predicted: Sequence[Predictor] = (),
    kept: KeptAnswers | None = None,
) -> NDArray[np.uint8]:
    """Draw all reports of a fleet of N people in one period.

    Args:
        campaign: the campaign, with r answers per person and reports of L bytes.
        encoded: codes and numbers of the records, (N, observed features) int64 each, from
            :func:`aggregator.models.encoding.observe`.
        labels: (N,) int64, class code of every person.
        predicted: for each model that the campaign evaluates, in the campaign's order, a function from indices of M
            people, (M,) int64, to the class codes that the model predicts for these people, (M,) int64. Empty for
            campaigns that evaluate none. A function is only called for people who are asked about its model.
        kept: of a campaign with memory, what the devices keep, which changes; None for devices that keep nothing yet.

    Returns:
        (N·r, L) uint8, one report per row; the answers of person i are rows i·r … i·r + r − 1.
    """
    people = len(labels)
    fleet = _Fleet(encoded, labels, tuple(predicted))
    if kept is None and campaign.memory is not None:
        kept = KeptAnswers(people, rng)
    records = np.empty((people, campaign.answers, campaign.layout.record_length), np.uint8)
    for stratum in range(campaign.answers):
        records[:, stratum] = _stratum(campaign, stratum, fleet, period, rng, kept)
    return records.reshape(people * campaign.answers, campaign.layout.record_length)


def shared_reports(
    campaign: Campaign, cells: Integers, period: int, entropy: Callable[[int], bytes] = system_entropy
) -> Iterator[bytes]:
    """Yield the report of each of N new devices for a shared campaign.

    Args:
        campaign: a shared campaign.
        cells: shape (N, blocks) int64, for each device its cell in every block.
        period: number of the period.
        entropy: the devices' randomness: for each a secret, and the seed of its report.
    """
    some = at_once(variant_of(campaign))
    for start in range(0, len(cells), some):
        part = cells[start : start + some]
        ids = [report_id(entropy(SEED_BYTES), campaign.id, period, 0) for _ in part]
        fields = shared_fields(campaign, part, ids, period, [entropy(SEED_BYTES) for _ in part])
        for identifier, field in zip(ids, fields, strict=True):
            yield encode_report(campaign.layout, identifier, period, 0, field)


def shared_fields(
    campaign: Campaign, cells: Integers, identifiers: Sequence[bytes], period: int, seeds: Sequence[bytes]
) -> Iterator[bytes]:
    """Yield for each of N devices what :func:`protocol.shared.report.make_field` returns.

    A hash that gives an element above the modulus, of which devices take the next one, has a probability below 2^−50
    for each device.

    Args:
        campaign: a shared campaign.
        cells: shape (N, blocks) int64.
        identifiers: for each device its report's id, 8 bytes.
        period: number of the period.
        seeds: for each device 32 random bytes.
    """
    prio3, context = variant_of(campaign), context_of(campaign.id)
    circuit, n = prio3.circuit, len(cells)
    assert isinstance(circuit, Blocks)
    drawn = [drawn_of(prio3, seed) for seed in seeds]
    nonces, random, keys = (np.frombuffer(b"".join(each), np.uint8).reshape(n, -1) for each in zip(*drawn, strict=True))
    secrets, blinds, own, provers = np.split(random, 4, axis=1)
    ones = np.zeros((circuit.length, LIMBS[circuit.field], n), np.int64)
    ones[cells.T + np.cumsum([0, *circuit.sizes[:-1]])[:, None], 0, np.arange(n)] = 1
    vectors = [Elements(circuit.field, limbs) for limbs in ones]
    helpers, proofs = expanded(prio3, context, HELPER, secrets)
    leaders = encoded(_less(vectors, decoded(circuit.field, helpers)[0]))
    parts = [
        joint_part(prio3, context, role, blind, nonces, share)
        for role, blind, share in ((LEADER, own, leaders), (HELPER, blinds, helpers))
    ]
    public = np.hstack(parts)
    _, joint, _ = joint_randomness(prio3, context, public)
    inputs = hashed(provers, prio3.tag(PROVER, context), repeated(PROOFS, n), circuit.arity * circuit.field.size)
    proof = prove(circuit, vectors, decoded(circuit.field, inputs)[0], joint)
    leaders = np.hstack([leaders, encoded(_less(proof, decoded(circuit.field, proofs)[0])), own])
    helpers = np.hstack([secrets, blinds])
    for identifier, *row in zip(identifiers, nonces, public, leaders, helpers, keys, strict=True):
        nonce, parts, leader, helper, key = (each.tobytes() for each in row)
        yield sealed_field(campaign, identifier, period, (nonce, Shards(parts, (leader, helper)), key))


def _less(elements: Sequence[Elements], others: Sequence[Elements]) -> list[Elements]:
    return [one - other for one, other in zip(elements, others, strict=True)]


class _Fleet(NamedTuple):
    """Codes and numbers (N, observed features) and labels (N,) of N people, int64, and functions to predict classes."""

    encoded: EncodedFrame
    labels: Integers
    predicted: tuple[Predictor, ...]

    def inputs(self, schema: Schema, subject: Subject, rows: Integers) -> Integers:
        """Return the inputs of a question's mechanism for the people with the indices ``rows``, (M,) int64.

        The shape is that of :func:`aggregator.publishing.mechanisms.draws.inputs_of`.
        """
        encoded = EncodedFrame(self.encoded.codes[rows], self.encoded.numbers[rows])
        predicted = self.predicted[subject.model or 0](rows) if self.predicted else None
        return inputs_of(schema, subject, encoded, self.labels[rows], predicted)


class KeptAnswers:
    """What N simulated devices of a campaign with memory keep: each its question, and its noisy answer of a stretch."""

    def __init__(self, people: int, rng: np.random.Generator) -> None:
        """Draw for each of N = ``people`` devices the number that assigns its question."""
        self.places = rng.integers(0, 1 << 32, people, np.uint64)
        self._answers: dict[int, tuple[int, Integers | Bools]] = {}

    def again(
        self, campaign: Campaign, number: int, period: int, inputs_of: Callable[[], Integers], rng: np.random.Generator
    ) -> Integers | Bools:
        """Draw a period's answers to question ``number``, and before that, in a new stretch, the kept answers."""
        mechanism, memory = campaign.questions[number].mechanism, campaign.memory
        assert isinstance(mechanism, Remembered)
        assert memory is not None
        stretch = memory.number(period)
        found = self._answers.get(number)
        if found is None or found[0] < stretch:
            found = self._answers[number] = stretch, draw(mechanism.permanent, inputs_of(), rng)
        return draw_again(mechanism, found[1], rng)


def _stratum(
    campaign: Campaign,
    stratum: int,
    fleet: _Fleet,
    period: int,
    rng: np.random.Generator,
    kept: KeptAnswers | None,
) -> NDArray[np.uint8]:
    """Draw one report per person for one stratum (group of questions): (N, L) uint8."""
    layout, people = campaign.layout, len(fleet.labels)
    prefix = len(layout.prefix)
    rows = np.zeros((people, layout.record_length), np.uint8)
    rows[:, :prefix] = np.frombuffer(layout.prefix, np.uint8)
    identifiers = rng.integers(0, 256, (people, ID_BYTES), np.uint8)
    rows[:, prefix : prefix + 8] = identifiers
    rows[:, prefix + 8 : prefix + 12] = np.frombuffer(period.to_bytes(4, "big"), np.uint8)
    drawn = identifiers[:, :4].copy().view(">u4").ravel()
    places = drawn if kept is None else kept.places
    for number, question in enumerate(campaign.questions):
        if question.stratum != stratum:
            continue
        low, high = campaign.assignment.interval(number, stratum)
        asked = np.flatnonzero((places >= low) & (places < high))
        if not asked.size:
            continue
        rows[asked, prefix + 12 : prefix + 14] = np.frombuffer(number.to_bytes(2, "big"), np.uint8)

        def inputs(question: Question = question, asked: Integers = asked) -> Integers:
            return fleet.inputs(campaign.schema, question.subject, asked)

        if kept is None:
            given = draw(question.mechanism, inputs(), rng)
        else:
            given = kept.again(campaign, number, period, inputs, rng)
            within = low + (drawn[asked].astype(np.uint64) * np.uint64(high - low) >> np.uint64(32))
            rows[asked, prefix : prefix + 4] = within.astype(">u4").view(np.uint8).reshape(-1, 4)
        answers = _answer_bytes(question.mechanism, given, layout)
        rows[asked, prefix + 14 : prefix + 14 + answers.shape[1]] = answers
    return rows


def _answer_bytes(mechanism: Mechanism, answers: Integers | Bools, layout: Layout) -> NDArray[np.uint8]:
    """Encode the answers of N people to one question: (N, bytes of the mechanism's answer) uint8."""
    if mechanism.layout == BITS:
        return np.packbits(answers, axis=1)
    width = ">i4" if mechanism.layout == INTEGERS else _single(layout)
    return np.ascontiguousarray(answers.astype(width)).view(np.uint8).reshape(len(answers), -1)


def _single(layout: Layout) -> str:
    """Return the numpy dtype of one value in a report layout: u2, or u4 in the layout of integers."""
    return ">u2" if layout.kind in (SINGLE, BITS) else ">u4"


def seeded_entropy(seed: bytes) -> Callable[[int], bytes]:
    """Make a repeatable source of randomness for simulated devices: a function that returns a given number of bytes.

    The bytes are SHA-256(seed ‖ counter) for counter 0, 1, …; every call begins with a new counter. Never use it on
    real devices: whoever knows the seed can remove the noise.
    """
    counter = 0

    def entropy(count: int) -> bytes:
        nonlocal counter
        out = b""
        while len(out) < count:
            out += hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()
            counter += 1
        return out[:count]

    return entropy
