"""The vectors agree with second implementations, which were written from docs/formats.md and docs/math.md only.

``from_text.py`` repeats every golden case of the mechanisms, 10,000 answers per accumulated digest among them;
``nodes_from_text.py`` judges and writes what nodes and dealers send; ``shared_from_text.py`` makes and checks shared
answers. Campaigns are parsed by the project.
"""

import ast
from hashlib import sha256

import pytest
from nacl import bindings
from nacl.public import PrivateKey, SealedBox
from support.masked import DEALER, MODULUS, P, masked_campaign
from support.mechanisms import kinds as mechanisms
from support.nodes import NODE_KEYS, PERIOD, node_campaign, summary_of
from support.publisher import CAMPAIGN_KEY, DAY, NOW, Publisher
from support.reports import digest, opened
from support.shared import COLLECTOR_KEYS, of_cells, shared_campaign, terms
from vectors import from_text, kinds, runner, shared_from_text
from vectors import nodes_from_text as text

from aggregator.nodes.statistics.totals import Totals
from protocol import canonical
from protocol.documents.envelope import read_envelope, seal
from protocol.documents.payload import Header
from protocol.masked.message import read_message
from protocol.mechanisms import ValueMechanism
from protocol.mechanisms.numeric import NumericMechanism
from protocol.nodes.summary import build_node_list, read_summary
from protocol.shared.report import make_field, variant_of

NUMERIC = mechanisms(NumericMechanism)
CASES = dict(runner.load_all())
REPEATED = {
    name: case
    for name, case in CASES.items()
    if case["kind"].startswith(("accumulated", "parameters", "perturb")) and "expect" in case
}
BY_TIER = [
    pytest.param(name, marks=pytest.mark.slow if case["kind"].startswith("accumulated") else ())
    for name, case in REPEATED.items()
]
"""Every case; digests of 10,000 answers are slow."""
KINDS = {"classes": "class", "cells": "cell", "presence": "present", "sums": "moment", "squares": "moment"}
THREE = [one.public for one in NODE_KEYS[:3]]
"""The nodes on the list of the vectors of summaries and messages."""
SHAPES = ("malformed", "unsupported_version", "wrong_role")
"""Reasons of files that are no envelope of the right kind. Only a reader of whole documents tells them apart."""


def repeated(case):
    """The result of the second implementation for a case; single numbers are vectors of one."""
    mechanism, epsilon, size, kind = case["mechanism"], case["epsilon"], case["size"], case["kind"]
    theta, delta = (case.get("options", {}).get(name, other) for name, other in (("theta", "0.25"), ("delta", None)))
    if kind.startswith("accumulated"):
        return from_text.accumulated(mechanism, epsilon, size, case["cases"], theta, delta)
    integers = from_text.parameters(mechanism, epsilon, size, theta, delta)
    if kind.startswith("parameters"):
        return integers | ({"theta_micro": round(float(theta) * 1_000_000)} if mechanism == "the" else {})
    value, answer = case["value"], from_text.perturbed
    single = mechanism in NUMERIC and not isinstance(value, list)
    if mechanism in NUMERIC:
        value, answer = [value] if single else value, from_text.numbers
    seeds = case["seeds"] if kind == "perturb_each" else [case["seed"]]
    answers = [answer(mechanism, integers, size, value, bytes.fromhex(seed)) for seed in seeds]
    answers = [answer[0] for answer in answers] if single else answers
    return answers if kind == "perturb_each" else answers[0]


@pytest.mark.parametrize("name", BY_TIER)
def test_the_second_implementation_agrees(name):
    assert repeated(CASES[name]) == CASES[name]["expect"]


def test_the_second_implementation_adds_up_and_estimates_alike():
    """Also sums and estimates: clipped means (``held``) term by term, where the project has a closed form."""
    seen = 0
    for case in CASES.values():
        if case["kind"] == "sums" and "expect" in case:
            fields = [bytes.fromhex(field) for field in case["fields"]]
            answers = [[int.from_bytes(f[k : k + 4], "big", signed=True) for k in range(0, len(f), 4)] for f in fields]
            assert from_text.sums(case["mechanism"], answers) == case["expect"]
            seen += 1
        if case["kind"] == "held" and "expect" in case:
            found = from_text.held(case["epsilon"], case["n"], case["sums"])
            assert [f"{float(value):.9g}" for value in found] == case["expect"]
            seen += 1
    assert seen == 11


@pytest.mark.parametrize(
    ("kind", "family"), [("accumulated", ValueMechanism), ("accumulated_numbers", NumericMechanism)]
)
def test_every_mechanism_has_digests_of_several_sizes_and_epsilons(kind, family):
    digests = [case for case in REPEATED.values() if case["kind"] == kind]
    assert all(case["cases"] == 10_000 for case in digests)
    for mechanism in mechanisms(family):
        own = [case for case in digests if case["mechanism"] == mechanism]
        assert len({case["epsilon"] for case in own}) >= 3
        assert family is NumericMechanism or len({case["size"] for case in own}) >= 3
    assert len({case["expect"] for case in digests}) == len(digests)


@pytest.mark.parametrize("name", ["from_text", "records_from_text", "nodes_from_text", "shared_from_text"])
def test_a_second_implementation_imports_nothing_of_the_project(name):
    nodes = [*ast.walk(ast.parse((runner.FOLDER / f"{name}.py").read_text(encoding="utf-8")))]
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    own = {
        "records_from_text": {"vectors.from_text", "msgpack"},
        "nodes_from_text": {"support.ed25519", "msgpack"},
        "shared_from_text": {"vectors.from_text", "nacl"},
    }.get(name, set())
    standard = {"decimal", "fractions", "functools", "hashlib", "hmac", "itertools", "math", "re", "struct"}
    assert imported <= standard | own


@pytest.mark.parametrize("name", ["direct_1.0_8", "oue_4_32", "sue_1.0_13", "the_1.0_64", "she_1.0_3"])
def test_one_wrong_answer_in_ten_thousand_changes_the_digest(name, monkeypatch):
    """The last case alone is changed, by one step or one bit."""
    case = CASES[f"accumulated/{name}"]
    plain, calls = kinds.encode_answer, []

    def spoilt(mechanism, answer, layout):
        calls.append(answer)
        field = plain(mechanism, answer, layout)
        return field[:-1] + bytes([field[-1] ^ 1]) if len(calls) == case["cases"] else field

    monkeypatch.setattr(kinds, "encode_answer", spoilt)
    with pytest.raises(AssertionError, match="got"):
        runner.run(case)


# What nodes and dealers send ---------------------------------------------------------------------------


def of_kind(kind, *, good=False):
    """A test of all vectors of a kind, or of those that are accepted."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=name)
            for name, case in CASES.items()
            if case["kind"] == kind and ("expect" in case or not good)
        ],
    )


def facts(campaign):
    """Kind of the text and length of every released vector of a campaign."""
    features = [
        (part.to_dict()["kind"], part.size, part.to_dict()["substitute"] is None) for part in campaign.stated.features
    ]
    return text.vectors(campaign.fit.family, len(campaign.stated.label.classes), features)


def count_of(campaign):
    return text.ciphertexts(sum(length for _, length in facts(campaign)), campaign.masked.slot_bits)


def times_of(campaign, case):
    return campaign.time_precision, campaign.header.not_before, campaign.header.expires, case["now"]


def document(case, kind, file="data"):
    """The fields of the payload in a file of a case."""
    return text.unpacked(text.envelope_parts(bytes.fromhex(case[file]), kind)[0])


@of_kind("released_ranges", good=True)
def test_ranges_of_summaries(case):
    campaign = opened(bytes.fromhex(case["campaign"]))
    vectors, epsilon, terms = facts(campaign), case["epsilon_micro"], campaign.nodes
    ends = [text.bounds(kind, epsilon, len(vectors), terms.max_records, terms.sensitivity) for kind, _ in vectors]
    share = epsilon // len(vectors)
    found = [[KINDS[kind], length, share, *pair] for (kind, length), pair in zip(vectors, ends, strict=True)]
    assert found == case["expect"]


@of_kind("summary")
def test_summaries_are_judged_alike(case):
    campaign, raw, expected = opened(bytes.fromhex(case["campaign"])), bytes.fromhex(case["data"]), case.get("reason")
    if text.parts_of(raw) is None:
        assert expected in SHAPES
        return
    vectors, most = facts(campaign), campaign.nodes.max_records

    def ranges_at(epsilon):
        return [(length, *text.bounds(kind, epsilon, len(vectors), most)) for kind, length in vectors]

    epsilons = campaign.nodes.least_epsilon_micro, campaign.epsilon_micro
    assert text.judged_summary(raw, campaign.id, epsilons, ranges_at, times_of(campaign, case), THREE) == expected


@of_kind("masked_message")
def test_messages_are_judged_alike(case):
    found, raw = opened(bytes.fromhex(case["campaign"])), bytes.fromhex(case["data"])
    if text.parts_of(raw, text.MASKED) is None:
        assert case.get("reason") in SHAPES
        return
    parties = document(case, text.KEYS, "keys")["parties"]
    serials = {bytes.fromhex(node): entry[0] for node, entry in parties.items()}
    modulus, times = found.masked.modulus, times_of(found, case)
    assert text.judged_message(raw, found.id, modulus, count_of(found), times, THREE, serials) == case.get("reason")


def written(kind, campaign, expect):
    """A document of the second implementation that says what a vector expects, and its identity."""
    key = next(one for one in NODE_KEYS if text.keyid(one.public).hex() == expect["node"])
    node = text.keyid(key.public)
    if kind == text.NODE:
        payload = text.summary_payload(campaign.id, expect["epsilon_micro"], node, expect["period"], expect["sums"])
    else:
        elements = b"".join(int(each, 16).to_bytes(512, "big") for each in expect["ciphertexts"])
        payload = text.message_payload(campaign.id, elements, node, expect["period"], expect["serial"])
    return text.envelope(kind, payload, key.public, key.sign).hex(), sha256(payload).hexdigest()


@of_kind("summary", good=True)
def test_summaries_are_written_alike(case):
    found = written(text.NODE, opened(bytes.fromhex(case["campaign"])), case["expect"])
    assert found == (case["data"], case["expect"]["identity"])


@of_kind("masked_message", good=True)
def test_messages_are_written_alike(case):
    found = written(text.MASKED, opened(bytes.fromhex(case["campaign"])), case["expect"])
    assert found == (case["data"], case["expect"]["identity"])


@pytest.mark.parametrize(("kind", "role"), [("summary_file", text.NODE), ("message_file", text.MASKED)])
def test_files_are_divided_alike(kind, role):
    for name, case in CASES.items():
        if case["kind"] == kind:
            raw = bytes.fromhex("".join(case["parts"]))
            assert [list(piece) for piece in text.file_pieces(raw, role)] == case["expect"], name


@of_kind("summary_union")
def test_sets_are_united_alike(case):
    envelopes = [
        raw[offset : offset + length]
        for raw in map(bytes.fromhex, case["files"])
        for offset, length, reason in text.file_pieces(raw)
        if reason is None
    ]
    found = text.set_file(envelopes)
    assert (len(found), sha256(found).hexdigest()) == (case["expect"]["bytes"], case["expect"]["sha256"])


@of_kind("masked_ranges", good=True)
def test_ranges_and_ciphertexts_of_messages(case):
    found = opened(bytes.fromhex(case["campaign"]))
    vectors, records, unit = facts(found), found.nodes.max_records, found.masked.unit
    expect = [
        [length, *text.exact_ends(kind, records), text.tail(kind, records, unit, found.epsilon_micro, len(vectors))]
        for kind, length in vectors
    ]
    assert [vector[1:] for vector in case["expect"]["vectors"]] == expect
    assert case["expect"]["ciphertexts"] == count_of(found)


JUDGED_TERMS = ("modulus_", "largest_total", "largest_party", "largest_sum", "larger_", "total_")
"""How names of campaigns begin whose only fault, if any, is the modulus or the size of a slot."""


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(tuple(f"masked/{one}" for one in JUDGED_TERMS))]
)
def test_moduli_and_slots_are_judged_alike(name):
    body = canonical.unpack(read_envelope(bytes.fromhex(CASES[name]["data"]), "campaign").payload)
    terms, records = body["masked"], body["nodes"]["max_records"]
    vectors = ["classes", "cells", *(["cells"] if body["fit"]["family"] == "discrete" else ["sums", "squares"])]
    slots = text.fits(vectors, records, terms["unit"], body["epsilon_micro"], terms["most_parties"], terms["slot_bits"])
    is_fit = type(terms["modulus"]) is bytes and text.modulus_fits(terms["modulus"])
    assert (slots and is_fit) == ("expect" in CASES[name])


@of_kind("key_book")
def test_key_books_are_judged_alike(case):
    found, expected = opened(bytes.fromhex(case["campaign"])), case.get("reason")
    if expected in ("campaign_not_masked", "wrong_role"):
        return
    faults = text.book_faults(bytes.fromhex(case["data"]), found.id, DEALER.public, found.masked.most_parties)
    assert expected in (faults or {None})


@of_kind("opened_key", good=True)
def test_boxes_are_libsodium_s_sealed_boxes(case):
    """Opened by another library call, and compared with what the text says is in them."""
    key = next(one for one in NODE_KEYS if one.seed.hex() == case["seed"])
    node, expect = text.keyid(key.public), case["expect"]
    box = SealedBox(PrivateKey(bindings.crypto_sign_ed25519_sk_to_curve25519(key.secret)))
    campaign = opened(bytes.fromhex(case["campaign"])).id
    content = text.box_content(campaign, node, expect["serial"], expect["u"], int(expect["secret"], 16))
    assert box.decrypt(document(case, text.KEYS)["parties"][node.hex()][2]) == content


@of_kind("masked_request")
def test_requests_are_judged_alike(case):
    assert text.request_fault(bytes.fromhex(case["data"])) == case.get("reason")


@of_kind("masked_release")
def test_releases_are_judged_alike(case):
    if case.get("reason") == "wrong_role":
        return
    found = opened(bytes.fromhex(case["campaign"]))
    sizes = found.masked.most_parties, count_of(found), found.masked.modulus
    files = bytes.fromhex(case["data"]), bytes.fromhex(case["request"])
    assert text.release_fault(*files, found.id, DEALER.public, *sizes) == case.get("reason")


@of_kind("encrypted", good=True)
def test_plaintexts_and_the_bases_of_ciphertexts(case):
    """A ciphertext without its plaintext is a power of H: raised to another power, it is the same from both sides."""
    found = opened(bytes.fromhex(case["campaign"]))
    plain = text.plaintexts(case["numbers"], found.masked.slot_bits)
    assert [f"{each:x}" for each in plain] == case["expect"]["plaintexts"]
    square, secret = MODULUS**2, int(case["secret"], 16)
    # The order of the group divides (p − 1)(q − 1)N, so exponents are reduced by it: a way that no party has.
    order = (P - 1) * (MODULUS // P - 1) * MODULUS
    for number, (x, stated) in enumerate(zip(plain, case["expect"]["ciphertexts"], strict=True)):
        hidden = pow(text.base(found.id, case["period"], number, MODULUS), secret % order, square)
        assert (1 + x % MODULUS * MODULUS) * hidden % square == int(stated, 16)


@of_kind("opened_totals")
def test_totals_are_opened_alike(case):
    found = opened(bytes.fromhex(case["campaign"]))
    raw = bytes.fromhex(case["messages"])
    products = [1] * count_of(found)
    for offset, length, _ in text.file_pieces(raw, text.MASKED):
        body = text.unpacked(text.parts_of(raw[offset : offset + length], text.MASKED)[0])
        sent = text.elements_of(body["ciphertexts"])
        products = [one * other % MODULUS**2 for one, other in zip(products, sent, strict=True)]
    elements = text.elements_of(document(case, text.RELEASE)["elements"])
    numbers = sum(length for _, length in facts(found))
    assert text.totals(products, elements, MODULUS, found.masked.slot_bits, numbers) == case.get("expect")


def test_lists_are_written_alike():
    publics = [one.public for one in NODE_KEYS]
    payload = build_node_list(Header("wards", 3, NOW, NOW, NOW + DAY * 9), publics)
    assert text.list_payload("wards", 3, NOW, NOW, NOW + DAY * 9, publics) == payload
    raw = text.envelope(text.NODES, payload, CAMPAIGN_KEY.public, CAMPAIGN_KEY.sign)
    assert raw == Publisher().sign("nodes", payload) == seal(text.NODES.decode(), payload, [CAMPAIGN_KEY])


def test_the_statistics_id_of_totals():
    """Written from docs/formats.md, section 5, against the aggregator's totals. The first vector has two classes."""
    campaign = node_campaign()
    second, later = summary_of(campaign, 1, 2, epsilon_micro=200_000), summary_of(campaign, 0, 5, PERIOD + 1)
    raws = [summary_of(campaign, 0, 1), second, later]
    bodies = [text.written_again(text.parts_of(raw)[0], text._summary)[1] for raw in raws]
    epsilons = sorted(body["epsilon_micro"] for body in bodies)
    records = {one: sum(sum(b["sums"][:2]) for b in bodies if b["period"] == one) for one in (PERIOD, PERIOD + 1)}
    said = [
        campaign.id,
        len({body["node"] for body in bodies}),
        [[one, epsilons.count(one)] for one in sorted(set(epsilons))],
        [[period, str(count)] for period, count in records.items()],
        [str(sum(numbers)) for numbers in zip(*(body["sums"] for body in bodies), strict=True)],
    ]
    total = Totals.of(campaign, [read_summary(raw)[1] for raw in raws]).total()
    assert total.statistics_id == sha256(b"hearsay total of nodes' summaries v1" + text.packed(said)).digest()


def test_the_vectors_of_the_page():
    page = (runner.FOLDER.parents[1] / "docs" / "formats.md").read_text("utf-8")
    campaign = sha256(b"campaign").digest()
    public, secret = bindings.crypto_sign_seed_keypair(
        bytes.fromhex("0145d7e6436ae43cbb0fa08acd98bb96d5e812b1128ce0a93717ea14a8e2cef3")
    )
    payload = text.summary_payload(campaign, 10**6, text.keyid(public), 7, (3, -1, 65536))
    raw = text.envelope(text.NODE, payload, public, lambda message: bindings.crypto_sign(message, secret)[:64])
    lengths = f"a payload of {len(payload)} bytes", f"an envelope of {len(raw)} bytes"
    modulus, base = MODULUS.to_bytes(256, "big"), text.base(campaign, 7, 0, MODULUS).to_bytes(512, "big")
    node = text.keyid(NODE_KEYS[0].public)
    message = text.message_payload(campaign, (2).to_bytes(512, "big"), node, 7, 1)
    asked = text.request_bytes(campaign, 7, 1, bytes(7) + b"\1" + bytes(7) + b"\2")
    digests = [sha256(each).hexdigest() for each in (payload, raw, modulus, base, message, asked)]
    for stated in (public.hex(), text.keyid(public).hex(), *lengths, *digests):
        assert stated in page


def test_a_message_of_the_code_is_one_of_the_text():
    raw = bytes.fromhex(CASES["masked_messages/message"]["data"])
    envelope, found = read_message(raw)
    assert (found.period, found.campaign) == (PERIOD, masked_campaign().id)
    assert text.parts_of(raw, text.MASKED)[0] == envelope.payload


# Shared answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "values", "classes", "chunk", "reports"),
    [(1, 1, 2, 1, 60), (1, 4, 2, 7, 40), (3, 2, 3, 5, 40), (2, 3, 4, 32, 40), (7, 2, 2, 6, 20)],
)
def test_shared_reports_are_made_and_accepted_alike(features, values, classes, chunk, reports):
    """200 reports: campaigns of 4 to 42 cells, one to 24 products per proof, ids, periods and cells by chance."""
    publisher = of_cells(features, values, classes)
    campaign = shared_campaign(publisher, shared=terms(publisher.schema, chunk=chunk))
    sizes, said = [classes * (values + 1)] * features, campaign.shared.to_dict()
    assert shared_from_text.record_length(sizes, chunk) == campaign.layout.record_length
    key = shared_from_text.verify_key(COLLECTOR_KEYS[1].seed, [one.public for one in COLLECTOR_KEYS], said["salt"])
    assert sha256(key).digest() == said["verify_key"]
    leader = 112 + 93 + 16 * (sum(sizes) + variant_of(campaign).circuit.proof_length) + 32
    for number in range(reports):
        drawn = digest("shared", features, values, number)
        cells = [drawn[place] % size for place, size in enumerate(sizes)]
        about = cells, drawn[8:16], int.from_bytes(drawn[16:20], "big"), digest("seed", features, number)
        field = shared_from_text.answer_field(campaign.id, said, sizes, *about)
        assert make_field(campaign, *about) == field
        if number % 10:
            continue
        places, seeds = [(112, leader), (leader, len(field))], [one.seed for one in COLLECTOR_KEYS]
        opened_boxes = shared_from_text.opened(campaign.id, field, places, *about[1:3], seeds)
        sums = shared_from_text.checked(campaign.id, said, sizes, key, *opened_boxes)[2]
        assert sums == shared_from_text.one_hot(sizes, cells)


@of_kind("shared_decision")
def test_shared_reports_are_judged_alike(case):
    if case.get("reason") == "malformed":
        return
    payload, *given = (bytes.fromhex(case[name]) for name in ("campaign", "key", "nonce", "public"))
    shares = [bytes.fromhex(one) for one in case["shares"]]
    said = canonical.unpack(payload)["shared"]
    verifiers, _, sums = shared_from_text.checked(sha256(payload).digest(), said, [8, 4], *given, shares)
    if "reason" in case:
        assert verifiers == case["reason"]
    else:
        assert ([one.hex() for one in verifiers], sums) == (case["expect"]["verifiers"], case["expect"]["vector"])
