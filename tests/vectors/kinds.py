"""What each kind of vector does: one function per kind, whose parameters are the inputs of its cases."""

from decimal import Decimal
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
from support.masked import fixed_entropy

from aggregator.collectors.pair import private_box_key, role_in
from aggregator.estimates.debias import debias
from aggregator.reports.tally.tally import TallyBuilder
from edge_sdk import Device, Policy
from edge_sdk.answering import remembering
from edge_sdk.answering.answer import answer
from edge_sdk.classifier import Classifier
from protocol import SCALE, canonical, mechanisms
from protocol.batches.batch import Batch, Header, read_batches, write_batch
from protocol.batches.report import (
    Layout,
    decode_answer,
    decode_report,
    encode_answer,
    encode_report,
    layout_for,
    report_id,
)
from protocol.documents import campaign as campaigns
from protocol.documents import model as models
from protocol.documents import trust
from protocol.documents.campaign import Series, parse_campaign, place
from protocol.documents.counts import parse_counts
from protocol.documents.envelope import SigningKey, keyid, pae, read_envelope, seal
from protocol.documents.model import parse_model
from protocol.documents.provisioning import Provisioning, build_provisioning, parse_provisioning
from protocol.epsilon import micro_epsilon
from protocol.errors import HearsayError, InputError, PolicyError
from protocol.features import Categorical, Numeric, as_text
from protocol.masked.cipher import Unmasking, mask_all
from protocol.masked.costs import ciphertexts_of, least_parties, masked_terms_of, ranges_of
from protocol.masked.fields import Slots
from protocol.masked.keys import check_successor, own_key, read_key_book, seal_key
from protocol.masked.message import MessageSet, judge_message, read_message
from protocol.masked.release import check_answers, parse_request, read_release
from protocol.mechanisms import SINGLE
from protocol.nodes import summary as node_list
from protocol.nodes.summary import SummarySet, judge_summary, parse_node_list, read_summaries
from protocol.nodes.terms import ranges, released_vectors, shares
from protocol.questions import Assignment, build_questions, discrete_subjects, interval_bounds
from protocol.schema import Label, build_schema
from protocol.shared import report as shared_reports
from protocol.shared.prio3 import confirmed
from protocol.stream import Stream
from protocol.words import to_words
from research.averaging import AveragingPeer, Session
from vectors.runner import UnfitVectorError, kind

# Kinds for values: streams, ε, mechanisms, features, ids, assignment, reports.


def _tuples(value):
    """A JSON value as the mechanisms take it."""
    return tuple(value) if isinstance(value, list) else value


def _lists(value):
    return list(value) if isinstance(value, tuple) else value


@kind
def stream_bytes(seed, tag, reads):
    """What successive reads of some lengths return."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [stream.read(count).hex() for count in reads]


@kind
def stream_below(seed, tag, bounds):
    """Successive uniform integers."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [stream.below(bound) for bound in bounds]


@kind
def stream_coin(seed, tag, thresholds):
    """Successive coins, 0 or 1."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [int(stream.coin(threshold)) for threshold in thresholds]


@kind
def epsilon(value):
    """ε as text or JSON number, in millionths."""
    return micro_epsilon(value)


@kind
def parameters(mechanism, epsilon, size):
    """The integers that follow from ε, by the names a campaign carries them under."""
    return parameters_with(mechanism, epsilon, size, {})


@kind
def parameters_with(mechanism, epsilon, size, options):
    """As ``parameters``, of a mechanism that takes options."""
    stated = mechanisms.from_epsilon(mechanism, epsilon, size, **options).to_dict()
    return {key: value for key, value in stated.items() if key not in ("name", "size", "epsilon_micro")}


@kind
def perturb_with(mechanism, epsilon, size, options, value, seed):
    """One answer of a mechanism that takes options."""
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    return _lists(chosen.perturb(_tuples(value), bytes.fromhex(seed)))


@kind
def accumulated(mechanism, epsilon, size, options, cases):
    """Many cases in a digest: the first 16 bytes of SHA-256 over their answer fields, one after another.

    Values and seeds come from one stream (seed 32 × 41, tag ``hearsay/1/accumulated``): per case the value
    is below(size) and the seed the next 32 bytes. Fields are in the layout of the mechanism alone.
    """
    return _digest(mechanism, epsilon, size, options, cases, lambda inputs, _: inputs.below(size))


def _digest(mechanism, epsilon, size, options, cases, drawn):
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    own = layout_for([chosen])
    inputs = Stream(b"\x41" * 32, b"hearsay/1/accumulated")
    digest = sha256()
    for _ in range(cases):
        value = drawn(inputs, own)
        digest.update(encode_answer(chosen, chosen.perturb(value, inputs.read(32)), own))
    return digest.hexdigest()[:32]


@kind
def accumulated_numbers(mechanism, epsilon, size, options, cases):
    """As ``accumulated``, of a numeric mechanism.

    Per case and coordinate x = below(2S + 1) − S; where one entry at most may differ from 0 (``bits``, and
    ``laplace`` with Δ = 2) the place is below(size) and then comes its x.
    """

    def drawn(inputs, own):
        places = [inputs.below(size)] if mechanism == "bits" or options.get("delta") == 2 else range(size)
        entries = {place: inputs.below(2 * SCALE + 1) - SCALE for place in places}
        vector = tuple(entries.get(place, 0) for place in range(size))
        return vector[0] if own.kind == SINGLE else vector

    return _digest(mechanism, epsilon, size, options, cases, drawn)


@kind
def perturb(mechanism, epsilon, size, value, seed):
    """One answer."""
    return perturb_with(mechanism, epsilon, size, {}, value, seed)


@kind
def perturb_each(mechanism, epsilon, size, value, seeds):
    """Answers to one value under several seeds."""
    return [perturb(mechanism, epsilon, size, value, seed) for seed in seeds]


@kind
def stated(parameters):
    """A mechanism read from a document's integers; its size comes out."""
    return mechanisms.from_dict(parameters).size


@kind
def numeric_code(low, high, edges, values):
    """U and bin of each value."""
    feature = Numeric("x", low, high, edges)
    return [[feature.scaled(value), feature.code(value)] for value in values]


@kind
def numeric_code_or_refusal(low, high, edges, values):
    """As ``numeric_code``, of a feature whose unlisted values are refused."""
    feature = Numeric("x", low, high, edges, "refuse")
    return [[feature.scaled(value), feature.code(value)] for value in values]


@kind
def value_text(type, spelled):  # noqa: A002
    """The listed text that a value of some type matches; null where there is none.

    Args:
        type: ``text``, ``integer``, ``float`` (its nearest binary value of 64 bits) or ``decimal``.
        spelled: the value.
    """
    return as_text({"text": str, "integer": int, "float": float, "decimal": Decimal}[type](spelled))


@kind
def categorical_code(listed, unlisted, substitute, values):
    """The code of each value."""
    feature = Categorical("x", listed, unlisted, substitute)
    return [feature.code(value) for value in values]


@kind
def id_of(secret, campaign, period, index):
    """A report's id."""
    return report_id(bytes.fromhex(secret), bytes.fromhex(campaign), period, index).hex()


@kind
def place_in_series(secret, series):
    """A device's place in a series."""
    return place(bytes.fromhex(secret), series)


@kind
def takes_part(secret, series, low, high):
    """Whether a device takes part in a campaign with the share [low, high) of a series."""
    return Series(series, 0, low, high).has(bytes.fromhex(secret))


@kind
def words(identifier):
    """An id as pronounceable words."""
    return to_words(bytes.fromhex(identifier))


@kind
def bounds(weights):
    """The interval bounds of weighted questions."""
    return interval_bounds(weights)


@kind
def strata(questions, answers):
    """The stratum of each question when they are divided."""
    return [question.stratum for question in _questions(questions, answers)]


@kind
def assigned(questions, answers, ids, stratum):
    """The question that each id is asked in a stratum, under equal weights."""
    assignment = Assignment(_questions(questions, answers))
    return [assignment.question_for(bytes.fromhex(identifier), stratum) for identifier in ids]


def _questions(count, answers):
    features = [Categorical(f"f{index}", ["0"]) for index in range(count - 1)]
    subjects = discrete_subjects(build_schema(Label("y", ["0", "1"]), features))
    return build_questions(subjects, answers, lambda subject: mechanisms.from_epsilon("direct", 1, subject.size))


@kind
def layout(questions):
    """The layout of a campaign whose questions have these (mechanism, ε, size)."""
    chosen = layout_for([mechanisms.from_epsilon(*question) for question in questions])
    return {"layout": chosen.kind, "record_length": chosen.record_length, "prefix": chosen.prefix.hex()}


@kind
def report(mechanism, layout, identifier, period, question, answer):
    """The bytes of a report; checked both ways."""
    chosen, shape = mechanisms.from_epsilon(*mechanism), Layout(*layout)
    field = encode_answer(chosen, _tuples(answer), shape)
    record = encode_report(shape, bytes.fromhex(identifier), period, question, field)
    assert len(record) == shape.record_length
    assert decode_report(shape, record) == (bytes.fromhex(identifier), period, question, field)
    assert decode_answer(chosen, field, shape) == _tuples(answer)
    return record.hex()


@kind
def answer_of(mechanism, layout, field):
    """The answer in an answer field; null where it is out of the domain."""
    return _lists(decode_answer(mechanisms.from_epsilon(*mechanism), bytes.fromhex(field), Layout(*layout)))


# Kinds for counts: what answers add up to, and what is estimated of the sums.


@kind
def sums(mechanism, epsilon, size, options, fields):
    """The counts of one question in the tally bytes, from answer fields in the layout of the mechanism alone.

    ``value_out_of_domain`` if one of the fields is no answer.
    """
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    layout = layout_for([chosen])
    if any(decode_answer(chosen, bytes.fromhex(field), layout) is None for field in fields):
        raise InputError("value_out_of_domain", "an answer field holds no answer")
    counting = TallyBuilder(SimpleNamespace(questions=[SimpleNamespace(mechanism=chosen)], layout=layout))
    answers = np.array([list(bytes.fromhex(field)) for field in fields], np.uint8)
    counting.add_answers(np.zeros(len(fields), np.uint16), answers)
    answered, *counts = counting.drain()[0]
    assert answered == len(fields)
    return counts


@kind
def held(epsilon, size, n, sums):
    """How many of n devices hold each value, from the sums of ``she``; nine significant digits."""
    mechanism = mechanisms.from_epsilon("she", epsilon, size)
    return [f"{value:.9g}" for value in debias(mechanism, n, sums).estimate.tolist()]


# Kinds that go the whole way of a record: to the bytes of its reports, and to a class.


@kind
def reports_of_record(campaign, models, secret, period, seeds, record, label):
    """What a device with this secret answers about a record.

    ``campaign`` is a campaign's payload, ``models`` are the payloads of the models that it evaluates, in its order.
    ``seeds`` are those of the answers, in order; with memory those of a new kept answer and of its report. Values of
    the record are JSON's own; a key that is not there is missing. What comes out: code and number (nil without one) of
    every observed feature, the class, and for every answer its question, the mechanism's input, and the report's bytes.
    """
    found, key = parse_campaign(bytes.fromhex(campaign)), bytes.fromhex(secret)
    if found.series is not None and not found.series.has(key):
        raise PolicyError("series_not_member", "the device is not in the share")
    read = found.schema.observe(record)
    code = found.schema.label.code(label)
    classes = found.schema.label.classes
    predicted = [classes.index(class_of_record(model, record)) for model in models]
    drawn = [bytes.fromhex(seed) for seed in seeds]
    if found.memory is None:
        reports = answer(found, read, code, key, period, drawn, predicted.__getitem__ if models else None)
    else:
        empty = SimpleNamespace(meta=lambda _: None, write_meta=lambda *_: None)
        reports = [
            remembering.report(
                empty,
                found,
                key,
                period,
                lambda asked: asked.input_of(read, code, len(classes)),
                lambda _: drawn.pop(0),
            )
        ]
    given = []
    for stratum, report in enumerate(reports):
        number = found.identify(key, period, stratum)[1]
        question = found.questions[number]
        which = predicted[question.subject.model or 0] if models else 0
        value = question.input_of(read, code, len(classes), which)
        given.append({"question": number, "input": _lists(value), "report": report.hex()})
    return {"codes": list(read.codes), "numbers": list(read.numbers), "class": code, "answers": given}


@kind
def class_of_record(model, record):
    """The class that a model, the payload of its document, predicts for a record."""
    return Classifier(parse_model(bytes.fromhex(model)), lambda: 0).predict(record)


# A kind for whole devices: what a device does after some documents and reports, under its owner's policy.


@kind
def device(root, policy, before, step):
    """One step of a device, after other steps; each is [what, argument, wall clock].

    ``policy`` is as policy.toml. ``enrol`` and ``install`` take a document's bytes: what comes out is its name and
    version. ``report`` takes the name of an enrolled campaign and answers about an empty record: what comes out is the
    period, and whether its bytes are those of an earlier answer. The expected reason is that of the last step.
    """
    clock = [before[0][2] if before else step[2]]
    with Device.open(
        None, trust=bytes.fromhex(root), policy=Policy.of(**policy), clock=lambda: clock[0], entropy=_seeds
    ) as opened:
        try:
            for what, argument, clock[0] in before:
                _step(opened, what, argument)
        except HearsayError as error:
            raise UnfitVectorError(f"a step before the tested one is refused: {error}") from error
        what, argument, clock[0] = step
        return _step(opened, what, argument)


def _seeds(count):
    """No vector depends on the noise."""
    return bytes(count)


def _step(opened, what, argument):
    if what == "enrol":
        header = opened.enrol(bytes.fromhex(argument)).header
        return {"name": header.name, "version": header.version}
    if what == "install":
        model = opened.install(bytes.fromhex(argument))
        return {"name": model.name, "version": model.version}
    if what != "report":
        raise UnfitVectorError(f"a device has no step {what!r}")
    said = opened.answer(argument, {})
    return {"period": said.period, "repeated": said.repeated}


# Kinds for files: batches, canonical msgpack, envelopes, signed documents.


@kind
def batch_write(campaign, layout, record_length, records):
    """A whole batch: its header, its trailer, its length and the digest of the whole."""
    header = Header(bytes.fromhex(campaign), layout, record_length)
    data = write_batch(header, [bytes.fromhex(record) for record in records])
    return {
        "header": header.to_bytes().hex(),
        "trailer": data[-44:].hex(),
        "bytes": len(data),
        "sha256": sha256(data).hexdigest(),
    }


@kind
def batch_read(parts):
    """What a reader finds in a file, given in parts for the reader's eye."""
    data = bytes.fromhex("".join(parts))
    return [_found(data, item) for item in read_batches(data)]


@kind
def batch_read_known(parts, known):
    """The same by a reader that knows campaigns: ``campaign``, ``layout`` and ``answer_bytes`` of each.

    Of a batch also ``stated``: how the digest begins that its trailer states.
    """
    data = bytes.fromhex("".join(parts))
    layouts = {bytes.fromhex(each["campaign"]): Layout(each["layout"], each["answer_bytes"]) for each in known}
    return [
        _found(data, item) | ({"stated": item.digest.hex()[:8]} if isinstance(item, Batch) else {})
        for item in read_batches(data, layouts)
    ]


def _found(data, item):
    if not isinstance(item, Batch):
        return {"damage": item.reason, "position": item.position, "length": item.length}
    length = item.header.record_length
    records = [
        data[start + number * length : start + (number + 1) * length].hex()
        for start, count in item.spans
        for number in range(count)
    ]
    return {
        "campaign": item.header.campaign.hex()[:8],
        "layout": item.header.layout,
        "records": records,
        "proven": item.proven,
        "truncated": item.truncated,
    }


@kind
def provisioning_write(fleet, device, secret):
    """The bytes of a provisioning file."""
    return build_provisioning(Provisioning(fleet, device, bytes.fromhex(secret))).hex()


@kind
def provisioning_read(data):
    """What a provisioning file says."""
    found = parse_provisioning(bytes.fromhex(data))
    return {**found._asdict(), "secret": found.secret.hex()}


@kind
def pack(value):
    """Canonical bytes of a JSON value."""
    return canonical.pack(value).hex()


@kind
def unpack(data):
    """The bytes are canonical: they come out as they went in."""
    return canonical.pack(canonical.unpack(bytes.fromhex(data))).hex()


@kind
def pre_authentication(payload_type, payload):
    """The bytes that a signature covers."""
    return pae(payload_type, bytes.fromhex(payload)).hex()


@kind
def signature(seed, payload_type, payload):
    """Keys and envelope of a seed and a payload."""
    key = SigningKey.from_seed(bytes.fromhex(seed))
    envelope = seal(payload_type, bytes.fromhex(payload), [key])
    return {
        "public": key.public.hex(),
        "keyid": keyid(key.public).hex(),
        "signature": key.sign(pae(payload_type, bytes.fromhex(payload))).hex(),
        "envelope_bytes": len(envelope),
        "envelope": envelope.hex(),
    }


@kind
def pinned(root, wall_clock):
    """A first root, put on the device by its owner."""
    return _state(trust.pin(bytes.fromhex(root), wall_clock))


@kind
def document(root, before, role, data, wall_clock):
    """A document that arrives after the root was pinned and others were accepted, each [role, data, clock].

    The expected reason is that of the last document: a failure before it is a fault of the case.
    """
    try:
        state = trust.pin(bytes.fromhex(root), 0)
        for earlier_role, earlier, clock in before:
            state = _accept(state, earlier_role, bytes.fromhex(earlier), clock)
    except HearsayError as error:
        raise UnfitVectorError(f"a document before the tested one is refused: {error}") from error
    return _state(_accept(state, role, bytes.fromhex(data), wall_clock))


@kind
def campaign_of_older_reader(root, data, wall_clock, unknown):
    """The name of a campaign that a reader accepts which does not know the payload keys ``unknown``."""
    state = trust.pin(bytes.fromhex(root), 0)
    understood = campaigns.UNDERSTOOD - set(unknown)
    return trust.verify(state, bytes.fromhex(data), "campaign", wall_clock, understood).header.name


def _accept(state, role, data, wall_clock):
    """What a reader does with a document: a device up to its owner's policy; of a list of nodes also an aggregator."""
    if role == "root":
        return trust.install_roots(state, [data], wall_clock)
    understood = {"campaign": campaigns.UNDERSTOOD, "model": models.UNDERSTOOD, "nodes": node_list.UNDERSTOOD}[role]
    verdict = trust.verify(state, data, role, wall_clock, understood)
    if role == "campaign":
        assert campaigns.parse_campaign(verdict.payload).id == verdict.digest
    elif role == "nodes":
        node_list.parse_node_list(verdict.payload)
    else:
        models.parse_model(verdict.payload)
    return verdict.state


def _state(state):
    """The parts of a trust state that a vector states."""
    return {
        "root_version": state.root.header.version,
        "time_floor": state.time_floor,
        "floors": {
            f"{role} {name}": [version, digest.hex()] for (role, name), (version, digest) in state.floors.items()
        },
    }


@kind
def counts_of_records(data):
    """What signed counts of records (``.hsu``) say. Who signed, and whether they fit a campaign, is not checked."""
    found = parse_counts(read_envelope(bytes.fromhex(data), "counts").payload)
    return {
        "campaign": found.campaign.hex(),
        "records": found.records,
        "vectors": [list(vector) for vector in found.vectors],
        "people": found.people.hex(),
        "consent": found.consent,
        "noise": None if found.noise is None else list(found.noise),
    }


# Kinds for campaigns of nodes: ranges of released numbers, summaries, files of summaries, sets of summaries.


def campaign_of(data):
    """The campaign in a file."""
    return parse_campaign(read_envelope(bytes.fromhex(data), "campaign").payload)


def listed_in(data):
    """The nodes in a file of a list."""
    return parse_node_list(read_envelope(bytes.fromhex(data), "nodes").payload)


def united(kind_of_set, files):
    """The union of the sets of several files, and what a case says of the bytes and of conflicts."""
    found = kind_of_set()
    for file in files:
        found = found.union(kind_of_set.from_bytes(bytes.fromhex(file)))
    raw = found.to_bytes()
    conflicts = [[campaign.hex(), period, node.hex()] for campaign, period, node in found.conflicts()]
    return found, {"bytes": len(raw), "sha256": sha256(raw).hexdigest(), "conflicts": conflicts}


@kind
def released_ranges(campaign, epsilon_micro):
    """Kind, length, ε in millionths, least and largest number of every released vector of a campaign's file."""
    found = campaign_of(campaign)
    parts = zip(released_vectors(found), shares(found, epsilon_micro), ranges(found, epsilon_micro), strict=True)
    return [[subject.kind, subject.size, share, low, high] for subject, share, (low, high) in parts]


@kind
def summary(campaign, nodes, data, now):
    """What the envelope of a summary says that counts at the time ``now``, by the files of a campaign and a list."""
    found = judge_summary(bytes.fromhex(data), campaign_of(campaign), listed_in(nodes), now)
    return {
        "node": found.node.hex(),
        "period": found.period,
        "epsilon_micro": found.epsilon_micro,
        "sums": list(found.sums),
        "identity": found.identity.hex(),
    }


@kind
def summary_file(parts):
    """Offset, length and reason (nil of an intact envelope) of every stretch of a file, given in parts."""
    raw = bytes.fromhex("".join(parts))
    pieces = list(read_summaries(raw))
    assert all(piece.envelope == (b"" if piece.reason else raw[piece.offset :][: piece.length]) for piece in pieces)
    return [[piece.offset, piece.length, piece.reason] for piece in pieces]


@kind
def summary_union(files):
    """The union of the sets of several files, without a check of signatures."""
    found, said = united(SummarySet, files)
    return {**said, "counting": [sha256(envelope).hexdigest()[:16] for envelope in found.counting()]}


# Kinds for masked campaigns: what follows from their terms, messages, key books, requests, releases, opened totals.


@kind
def masked_ranges(campaign):
    """J, and kind, length, least and largest exact number and H of every released vector of a campaign's file."""
    found = campaign_of(campaign)
    parts = zip(released_vectors(found), ranges_of(found), strict=True)
    return {
        "ciphertexts": ciphertexts_of(found),
        "vectors": [[subject.kind, subject.size, *ends] for subject, ends in parts],
    }


@kind
def least_set(campaign, parties):
    """For each number of parties in a book the least number of parties whose total is released."""
    return [least_parties(masked_terms_of(campaign_of(campaign)), each) for each in parties]


@kind
def masked_message(campaign, nodes, keys, data, now):
    """What the envelope of a message says that counts at the time ``now``, by files of campaign, list and key book."""
    terms = campaign_of(campaign)
    found = judge_message(bytes.fromhex(data), terms, listed_in(nodes), read_key_book(bytes.fromhex(keys), terms), now)
    return {
        "node": found.node.hex(),
        "period": found.period,
        "serial": found.serial,
        "ciphertexts": [f"{each:x}" for each in found.ciphertexts],
        "identity": found.identity.hex(),
    }


@kind
def message_file(parts):
    """Offset, length and reason (nil of an intact envelope) of every stretch of a file of messages, given in parts."""
    raw = bytes.fromhex("".join(parts))
    return [[piece.offset, piece.length, piece.reason] for piece in read_summaries(raw, "masked")]


@kind
def message_union(files):
    """The union of the sets of several files of messages, without a check of signatures."""
    return united(MessageSet, files)[1]


@kind
def key_book(campaign, data):
    """Version, version of the list, and for every party serial number, u and SHA-256 of the box."""
    found = read_key_book(bytes.fromhex(data), campaign_of(campaign))
    return {
        "version": found.version,
        "list": found.list_version,
        "parties": {
            node.hex(): [party.serial, party.u, sha256(party.sealed).hexdigest()]
            for node, party in found.parties.items()
        },
        "identity": found.identity.hex(),
    }


@kind
def key_books(campaign, before, data):
    """The version of a book at a reader that has accepted the book ``before``."""
    first, second = (read_key_book(bytes.fromhex(raw), campaign_of(campaign)) for raw in (before, data))
    check_successor(second, first.version, first.identity)
    return second.version


@kind
def opened_key(campaign, data, seed):
    """The key in a book of the node whose key pair follows from ``seed``; the secret in hexadecimal."""
    found = own_key(
        read_key_book(bytes.fromhex(data), campaign_of(campaign)), SigningKey.from_seed(bytes.fromhex(seed))
    )
    return {"serial": found.serial, "u": found.u, "secret": f"{found.secret:x}"}


@kind
def sealed_key(public, campaign_id, node, serial, u, secret, entropy):
    """Length and digest of a box whose own key pair has the seed SHA-256(``hearsay test entropy N``)."""
    ids = bytes.fromhex(campaign_id), bytes.fromhex(node)
    box = seal_key(bytes.fromhex(public), *ids, serial, u, int(secret, 16), fixed_entropy(entropy))
    return {"bytes": len(box), "sha256": sha256(box).hexdigest()}


@kind
def masked_request(data):
    """What a request asks for."""
    found = parse_request(bytes.fromhex(data))
    stated = {"campaign": found.campaign.hex(), "period": found.period, "version": found.version}
    return {**stated, "parties": [party.hex() for party in found.parties]}


@kind
def masked_release(campaign, request, data):
    """Elements and identity of a release that answers a request."""
    found = read_release(bytes.fromhex(data), campaign_of(campaign))
    check_answers(found, parse_request(bytes.fromhex(request)))
    return {"elements": [f"{each:x}" for each in found.elements], "identity": found.identity.hex()}


@kind
def encrypted(campaign, secret, period, numbers):
    """Plaintexts and ciphertexts of numbers under a secret; the secret and the results in hexadecimal."""
    found = campaign_of(campaign)
    terms = masked_terms_of(found)
    plaintexts = Slots(terms.slot_bits).pack(numbers)
    ciphertexts = mask_all(plaintexts, int(secret, 16), found.id, period, terms.modulus)
    return {"plaintexts": [f"{each:x}" for each in plaintexts], "ciphertexts": [f"{each:x}" for each in ciphertexts]}


@kind
def opened_totals(campaign, messages, data):
    """All totals of the messages of a file, by the release in ``data``."""
    found = campaign_of(campaign)
    terms = masked_terms_of(found)
    product = Unmasking(terms.modulus, ciphertexts_of(found))
    for envelope in MessageSet.from_bytes(bytes.fromhex(messages)).counting():
        product.add(read_message(envelope)[1].ciphertexts)
    opened = product.opened(read_release(bytes.fromhex(data), found).elements)
    return Slots(terms.slot_bits).unpack(opened, sum(subject.size for subject in released_vectors(found)))


# Kinds for averaging gossip: a peer's offer, its answer to an offer, and the end of its exchange by a reply.


def _peer(session, peer, members, sums, *, weight):
    campaign, period, holders, entries = session
    known = [bytes.fromhex(one) for one in members]
    agreed = Session(bytes.fromhex(campaign), period, holders, entries)
    return AveragingPeer(agreed, bytes.fromhex(peer), known, sums, holds_weight=weight)


def _units(peer):
    """The vector in units of 2^−64, the weight last, as decimal texts."""
    return [str(unit) for unit in peer.units]


@kind
def averaging_offer(session, peer, members, sums, weight, partner):
    """The first offer of a peer with these sums to the partner."""
    return _peer(session, peer, members, sums, weight=weight).offer(bytes.fromhex(partner)).hex()


@kind
def averaging_answer(session, peer, members, sums, weight, offers):
    """A peer's replies to offers that come in this order (nil: no reply), and its vector afterwards."""
    found = _peer(session, peer, members, sums, weight=weight)
    replies = [found.answer(bytes.fromhex(offer)) for offer in offers]
    return {"replies": [None if reply is None else reply.hex() for reply in replies], "units": _units(found)}


@kind
def averaging_taken(session, peer, members, sums, weight, partner, replies):
    """Whether each reply to a peer's first offer was averaged, and the peer's vector afterwards."""
    found = _peer(session, peer, members, sums, weight=weight)
    found.offer(bytes.fromhex(partner))
    return {"averaged": [found.take(bytes.fromhex(reply)) for reply in replies], "units": _units(found)}


# Kinds for shared answers: reports of devices, and what collectors make of them.


def _terms_of(campaign):
    """A campaign's payload, parsed, and its variant of Prio3."""
    found = parse_campaign(bytes.fromhex(campaign))
    return found, shared_reports.variant_of(found)


@kind
def shared_report(campaign, cells, identifier, period, seed):
    """The answer field of a shared report about one cell of each block, from its seed."""
    found = parse_campaign(bytes.fromhex(campaign))
    return shared_reports.make_field(found, cells, bytes.fromhex(identifier), period, bytes.fromhex(seed)).hex()


@kind
def shared_boxes(campaign, field, identifier, period, seeds):
    """The input shares of leader and helper from an answer field. ``seeds``: those of their Ed25519 key pairs."""
    found, prio3 = _terms_of(campaign)
    parts, shares = shared_reports.read_field(prio3, bytes.fromhex(field)), []
    for role, seed in enumerate(seeds):
        private = private_box_key(SigningKey.from_seed(bytes.fromhex(seed)))
        bound = found.id, period, bytes.fromhex(identifier), role, parts.digest
        shares.append(shared_reports.open_box(parts.boxes[role], parts.sender, private, bound).hex())
    return shares


@kind
def shared_verify_key(campaign, seed):
    """The verify key of a shared campaign, by a collector. ``seed``: that of its Ed25519 key pair."""
    found = parse_campaign(bytes.fromhex(campaign))
    return role_in(shared_reports.terms_of(found), SigningKey.from_seed(bytes.fromhex(seed)))[1].hex()


@kind
def shared_decision(campaign, key, nonce, public, shares):
    """What both collectors send of one report, the verifier message, and the vector that both shares add up to."""
    found, prio3 = _terms_of(campaign)
    context, nonce, public = shared_reports.context_of(found.id), bytes.fromhex(nonce), bytes.fromhex(public)
    prepared = []
    for role, encoded in enumerate(shares):
        share = prio3.share(context, role, bytes.fromhex(encoded))
        prepared.append(prio3.prepared(bytes.fromhex(key), context, role, nonce, public, share))
    message = prio3.message(context, [one.verifier for one in prepared])
    outputs = [confirmed(one, message) for one in prepared]
    return {
        "verifiers": [prio3.encode_verifier(one.verifier).hex() for one in prepared],
        "message": message.hex(),
        "vector": [sum(each) % prio3.circuit.field.modulus for each in zip(*outputs, strict=True)],
    }
