"""What must hold for any bytes at all: one function per parser, each a property and not only "no crash".

    TARGETS[name](data)        returns what became of the bytes, or raises AssertionError

The targets know nothing of the fuzzer: ``run.py`` drives them with atheris, ``test_fuzz.py`` with their seeds. A
payload is handed to its parser as if it had been signed: no fuzzer guesses a signature.
"""

from hashlib import sha256

from fuzz import collector_targets
from fuzz.node_targets import book, masked, messages, node, nodes, release, request, summaries
from fuzz.refusing import PAYLOAD_REASONS, refused, taken_by
from support.batches import account
from support.publisher import NOW, ROOT_KEY, Publisher
from support.watched import Watched

from edge_sdk.answering.answer import answer
from edge_sdk.classifier import Classifier
from protocol import canonical
from protocol.batches.batch import Batch, Header, read_batches, write_batch
from protocol.batches.report import Layout, decode_answer, decode_report, encode_answer, encode_report
from protocol.documents import trust
from protocol.documents.asked import with_joins
from protocol.documents.campaign import build_payload as build_campaign
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import (
    MAX_SIGNATURES,
    PAYLOAD_TYPES,
    read_envelope,
    role_of,
    seal,
    verified_by,
    write_envelope,
)
from protocol.documents.masked_terms import MAX_CIPHERTEXTS
from protocol.documents.model import build_payload as build_model
from protocol.documents.model import parse_model
from protocol.documents.payload import read_payload
from protocol.documents.provisioning import build_provisioning, parse_provisioning
from protocol.documents.trust import parse_root
from protocol.masked.costs import ciphertexts_of, ranges_of
from protocol.mechanisms import BITS, INTEGERS, SINGLE, from_micro
from protocol.nodes.terms import MAX_NUMBERS, ranges, released_vectors, shares

ENVELOPE_REASONS = PAYLOAD_REASONS | {"too_large", "wrong_role"}
ROOT_REASONS = PAYLOAD_REASONS | {"bad_signature", "unknown_crit", "expired", "not_yet_valid"}
NEXT_ROOT_REASONS = ROOT_REASONS | {"rollback", "equivocation"}
STEPS_PER_BYTE = 12
STEPS_AT_LEAST = 2_000
REPEATED = 8
"""A reader of batches may take so many steps for each byte of a file, and these for any. Where it takes more, a file
of so many copies must not take more for each of its bytes."""

ROOT = Publisher().root()
PINNED = trust.pin(ROOT, NOW)


def envelope(data):
    """At most one role takes a file; what is taken apart and put together again is the file."""
    verdicts = {role: refused(read_envelope, data, role, reasons=ENVELOPE_REASONS) for role in PAYLOAD_TYPES}
    taken = [role for role, reason in verdicts.items() if reason is None]
    if not taken:
        return "refused"
    (role,) = taken
    assert all(reason in ("wrong_role", "too_large") for other, reason in verdicts.items() if other != role)
    found = read_envelope(data, role)
    assert role_of(data) == role
    assert 1 <= len(found.signatures) <= MAX_SIGNATURES
    assert write_envelope(found) == data
    verified_by(found, [ROOT_KEY.public])
    return role


def root(data):
    """A root is trusted only if keys of its own root role, as many as it says, have signed it."""
    raw = seal(PAYLOAD_TYPES["root"], data, [ROOT_KEY])
    reason = refused(trust.pin, raw, NOW, reasons=ROOT_REASONS)
    following = refused(trust.install_roots, PINNED, [raw], NOW, reasons=NEXT_ROOT_REASONS)
    if following is None:
        after = trust.install_roots(PINNED, [raw], NOW)
        assert after.root.header.version in (1, 2)
        assert after.root.header.name == PINNED.root.header.name
        assert reason is None or data == canonical.pack(PINNED.root.to_payload())
    if reason is not None:
        return reason
    pinned = trust.pin(raw, NOW).root
    for name, role in pinned.roles.items():
        assert 1 <= role.threshold <= len(role.keys) <= MAX_SIGNATURES, name
    assert pinned.roles["root"].threshold == 1
    assert ROOT_KEY.public in pinned.roles["root"].keys
    body, header = read_payload(canonical.pack(pinned.to_payload()))
    assert parse_root(body, header) == pinned
    return "accepted"


@taken_by(parse_campaign, {"malformed", "invalid_campaign", "epsilon_understated"})
def campaign(found, data):
    """An accepted campaign spends no more than it says, and asks nothing that a record has no answer for."""
    assert found.id == sha256(data).digest()
    again = _built_again(found, data)
    assert _built_again(parse_campaign(again), again) == again
    read, stated = canonical.unpack(again), canonical.unpack(data)
    assert set(read.pop("crit")) == set(stated.pop("crit"))
    assert _says_no_more(read, stated)
    if found.ended:
        assert (found.answers, found.epsilon_micro) == (0, 0)
        return "ended"
    assert not found.privacy_loss().exceeds(found.epsilon_micro)
    if found.nodes is not None:
        _sums_every_record(found)
        return "for nodes" if found.masked is None else "masked"
    if found.shared is not None:
        _splits_every_record(found)
        return "shared"
    _answers_every_record(found)
    return "accepted"


def _built_again(found, data):
    """The payload that says what a parsed campaign says. ``data`` tells which features are asked about, and how."""
    stated = canonical.unpack(data)
    groups = {entry["feature"]: tuple(entry["group_of"]) for entry in stated.get("groups", [])}
    schema = found.stated._replace(groups=tuple(map(groups.get, range(len(found.stated.observed)))) if groups else ())
    questions = [
        question._replace(
            subject=question.subject._replace(feature=entry.get("feature")),
            mechanism=question.mechanism if found.memory is None else question.mechanism.permanent,
        )
        for question, entry in zip(found.questions, stated["questions"], strict=True)
    ]
    known = {"groups", "joins", "masked", "memory", "models", "nodes", "series", "shared"}
    return build_campaign(
        found.header._replace(crit=tuple(key for key in found.header.crit if key not in known)),
        with_joins(schema, map(tuple, stated.get("joins", []))),
        tuple(questions),
        epsilon_micro=found.epsilon_micro,
        purpose=found.purpose,
        contact=found.contact,
        time_precision=found.time_precision,
        min_batch_size=found.min_batch_size,
        fit=found.fit,
        model=found.model,
        series=found.series,
        models=dict(zip(found.model_names, found.models, strict=True)),
        nodes=found.nodes,
        masked=found.masked,
        shared=found.shared,
        memory=found.memory,
    )


def _says_no_more(read, stated):
    """Whether all that was read stands in the document, which may hold unknown keys besides; nil may be left out."""
    if isinstance(read, dict):
        return isinstance(stated, dict) and all(_says_no_more(value, stated.get(key)) for key, value in read.items())
    if isinstance(read, list):
        return isinstance(stated, list) and len(read) == len(stated) and all(map(_says_no_more, read, stated))
    return type(read) is type(stated) and read == stated


def _answers_every_record(found):
    """Whatever the record, each question has an input, each input an answer, each answer its bytes."""
    classes = len(found.schema.label.classes)
    names = [feature.name for feature in found.schema.features]
    for number, record in enumerate(({}, dict.fromkeys(names, 10**400), dict.fromkeys(names, "no such value"))):
        if any(part.unlisted == "refuse" for part in (found.schema.label, *found.schema.features)) and record:
            continue
        observation = found.schema.observe(record)
        label = found.schema.label.code(None)
        assert 0 <= label < classes
        for index in {0, len(found.questions) // 2, len(found.questions) - 1}:
            question = found.questions[index]
            value = question.input_of(observation, label, classes)
            said = question.mechanism.perturb(value, bytes([number]) * 32)
            field = encode_answer(question.mechanism, said, found.layout)
            assert decode_answer(question.mechanism, field, found.layout) == said
            raw = encode_report(found.layout, bytes(8), 0, index, field)
            assert len(raw) == found.layout.record_length
            assert decode_report(found.layout, raw) == (bytes(8), 0, index, field)
    for stratum in range(min(found.answers, 50)):
        for identifier in (bytes(8), b"\xff" * 8, b"\x80" + bytes(7)):
            index = found.assignment.question_for(identifier, stratum)
            assert found.questions[index].stratum == stratum
            first, beyond = found.assignment.interval(index, stratum)
            assert first <= int.from_bytes(identifier[:4], "big") < beyond


def _splits_every_record(found):
    """Whatever the record, it has one cell in each block, and a report of the stated length, which is not too long."""
    names = [feature.name for feature in found.schema.features]
    refuses = any(part.unlisted == "refuse" for part in (found.schema.label, *found.schema.features))
    for record in ({}, *(() if refuses else (dict.fromkeys(names, 10**400), dict.fromkeys(names, "no such value")))):
        about = found.schema.observe(record), found.schema.label.code(None)
        (raw,) = answer(found, *about, bytes(32), 0, [bytes(32)])
        assert len(raw) == found.layout.record_length <= (1 << 16) + 3
        assert decode_report(found.layout, raw)[1:3] == (0, 0)


def _sums_every_record(found):
    """The vectors of a campaign for nodes share ε, are not too long, and have ranges of 64 bits."""
    spent = shares(found)
    assert len(spent) <= sum(spent) <= found.epsilon_micro
    assert sum(subject.size for subject in released_vectors(found)) <= MAX_NUMBERS
    assert all(-(1 << 63) < low < 0 < high < 1 << 63 for low, high in ranges(found, found.nodes.least_epsilon_micro))
    if found.masked is not None:
        half = 1 << found.masked.slot_bits - 1
        ends = [end for one in ranges_of(found) for end in one.total(found.masked.most_parties)]
        assert -half < min(ends) < 0 < max(ends) < half
        assert 1 <= ciphertexts_of(found) <= MAX_CIPHERTEXTS


@taken_by(parse_model, {"malformed", "invalid_model"})
def model(found, data):
    """An accepted model classifies every record, with probabilities that sum to one."""
    again = build_model(found)
    assert build_model(parse_model(again)) == again
    assert _says_no_more(canonical.unpack(again), canonical.unpack(data))
    classifier = Classifier(found, lambda: NOW)
    names = [feature.name for feature in found.schema.features]
    for record in ({}, *(dict.fromkeys(names, value) for value in (0, -(10**400), "no such value"))):
        shares = classifier.predict_proba(record)
        assert abs(sum(shares.values()) - 1) < 1e-9
        assert shares[classifier.predict(record)] == max(shares.values())


KNOWN = Header(sha256(b"campaign").digest(), SINGLE, 18)
LAYOUTS = {KNOWN.campaign: Layout(SINGLE, 2)}
"""A campaign that the reader may know. The seeds are of the same one."""


def batch(data):
    """Every byte is accounted for once, in work proportional to the file, and a good batch after it is found."""
    records = [b"\xd8\x01" + bytes([number]) * 16 for number in range(3)]
    longer = data + write_batch(KNOWN, records)
    for layouts in ({}, LAYOUTS):
        _accounts_for_all(data, layouts)
        items = _accounts_for_all(longer, layouts)
        found = [
            longer[start + number * 18 : start + (number + 1) * 18]
            for item in items
            if isinstance(item, Batch) and item.header == KNOWN
            for start, count in item.spans
            for number in range(count)
        ]
        whole = _overlaps_a_proven_batch(items, len(data))
        assert whole or found[-3:] == records, "a good batch was lost after damage"
    return "proven" if any(isinstance(item, Batch) and item.proven for item in items[:-1]) else "nothing proven"


def _accounts_for_all(data, layouts):
    """What the reader found, after checking that it adds up to the file."""
    items, steps = _read(data, layouts)
    if steps > STEPS_AT_LEAST + STEPS_PER_BYTE * len(data):
        assert _read(data * REPEATED, layouts)[1] < 1.2 * REPEATED * steps, "work grows faster than the file"
    account(data, items, layouts)
    return items


def _read(data, layouts):
    Watched.steps = 0
    items = list(read_batches(Watched(data), layouts))
    return items, Watched.steps


def _overlaps_a_proven_batch(items, border):
    """Whether the file's own last batch goes on into what was appended, by a digest that is right."""
    last = [item for item in items if isinstance(item, Batch) and item.proven and item.spans]
    return any(
        start < border < start + count * item.header.record_length for item in last for start, count in item.spans
    )


_REPORTS = [
    (from_micro(name, 1_000_000, size), Layout(kind, width))
    for name, size, kind, width in (
        ("direct", 6, SINGLE, 2),
        ("direct", 65_536, BITS, 3),
        ("piecewise", 1, INTEGERS, 8),
        ("oue", 9, BITS, 2),
        ("bits", 3, BITS, 4),
        ("she", 2, INTEGERS, 12),
        ("laplace", 3, INTEGERS, 12),
    )
]


def report(data):
    """A report that decodes is spelled in just one way."""
    if not data:
        return "empty"
    mechanism, layout = _REPORTS[data[0] % len(_REPORTS)]
    record = (layout.prefix + data[1:]).ljust(layout.record_length, b"\0")[: layout.record_length]
    identifier, period, question, field = decode_report(layout, record)
    assert encode_report(layout, identifier, period, question, field) == record
    answer = decode_answer(mechanism, field, layout)
    if answer is None:
        return "out of domain"
    assert encode_answer(mechanism, answer, layout) == field
    return "accepted"


@taken_by(parse_provisioning, PAYLOAD_REASONS | {"too_large"})
def provisioning(found, data):
    """A provisioning file that is taken is spelled in just one way, and shows its secret to nobody."""
    assert build_provisioning(found) == data
    assert repr(found.secret) not in repr(found)


TARGETS = {
    "envelope": envelope,
    "root": root,
    "campaign": campaign,
    "model": model,
    "batch": batch,
    "report": report,
    "provisioning": provisioning,
    "nodes": nodes,
    "node": node,
    "summaries": summaries,
    "masked": masked,
    "messages": messages,
    "keys": book,
    "request": request,
    "release": release,
    **collector_targets.TARGETS,
}
LARGEST = dict.fromkeys(TARGETS, 4096)
LARGEST |= {"report": 64, "provisioning": 4200, "campaign": 32_768, "model": 32_768}
LARGEST |= dict.fromkeys(("envelope", "root", "nodes", "keys"), 8192)
"""Longest input that the fuzzer makes: more is checked by tests of its own and only slows it down."""
