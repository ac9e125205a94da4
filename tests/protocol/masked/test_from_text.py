"""The vectors of masked sums agree with a second implementation from the text of docs/formats.md."""

from __future__ import annotations

import ast
from hashlib import sha256

import pytest
from nacl import bindings
from nacl.public import PrivateKey, SealedBox
from support.ed25519 import is_signed
from support.masked import DEALER, MODULUS, P, masked_campaign, secret_of
from support.nodes import NODE_KEYS, PERIOD
from vectors import masked_from_text as text
from vectors import nodes_from_text as nodes
from vectors import runner

from protocol import canonical
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.masked.message import read_message
from protocol.nodes.terms import released_vectors

CASES = {name: case for name, case in runner.load_all() if name.startswith("masked")}
LISTED = [one.public for one in NODE_KEYS[:3]]
SHAPES = ("malformed", "unsupported_version", "wrong_role")
"""Reasons of files that are no envelope of the right kind. Only a reader of whole documents tells them apart."""


def named(kind):
    return [pytest.param(case, id=name.replace("/", " ")) for name, case in CASES.items() if case["kind"] == kind]


def campaign_of(raw):
    """The parser of campaigns is the project's; campaigns are not the subject of these tests."""
    return parse_campaign(read_envelope(bytes.fromhex(raw), "campaign").payload)


def vectors_of(found):
    """Kind of the text and length of every vector."""
    features = [
        (part.to_dict()["kind"], part.size, part.to_dict()["substitute"] is None) for part in found.stated.features
    ]
    return nodes.vectors(found.fit.family, len(found.stated.label.classes), features)


def count_of(found):
    return text.ciphertexts(sum(length for _, length in vectors_of(found)), found.masked.slot_bits)


@pytest.mark.parametrize("case", [each for each in named("masked_ranges") if "expect" in each.values[0]])
def test_ranges_and_ciphertexts(case):
    found = campaign_of(case["campaign"])
    vectors, records, unit = vectors_of(found), found.nodes.max_records, found.masked.unit
    expect = []
    for kind, length in vectors:
        reach = text.tail(kind, records, unit, found.epsilon_micro, len(vectors))
        expect.append([length, *text.exact_ends(kind, records), reach])
    assert [vector[1:] for vector in case["expect"]["vectors"]] == expect
    assert case["expect"]["ciphertexts"] == count_of(found)


def terms_cases():
    """Campaigns whose only fault, if any, is the modulus or the size of a slot."""
    for name, case in CASES.items():
        if case["kind"] == "document" and name.split("/")[1].startswith(("modulus_", "largest_", "larger_", "total_")):
            yield pytest.param(case, id=name)


@pytest.mark.parametrize("case", [*terms_cases()])
def test_moduli_and_slots_are_judged_alike(case):
    body = canonical.unpack(read_envelope(bytes.fromhex(case["data"]), "campaign").payload)
    terms, records = body["masked"], body["nodes"]["max_records"]
    discrete = ["classes", "cells", "cells"]
    kinds = discrete if body["fit"]["family"] == "discrete" else ["classes", "cells", "sums", "squares"]
    slots = text.fits(kinds, records, terms["unit"], body["epsilon_micro"], terms["most_parties"], terms["slot_bits"])
    is_fit = type(terms["modulus"]) is bytes and text.modulus_fits(terms["modulus"])
    assert (slots and is_fit) == ("expect" in case)


@pytest.mark.parametrize("case", named("masked_message"))
def test_messages_are_judged_alike(case):
    found, raw, expected = campaign_of(case["campaign"]), bytes.fromhex(case["data"]), case.get("reason")
    parts = nodes.parts_of(raw, nodes.MASKED)
    if parts is None:
        assert expected in SHAPES
        return
    book = nodes.Reader(text.envelope_parts(bytes.fromhex(case["keys"]), text.KEYS)[0]).value()
    serials = {bytes.fromhex(node): entry[0] for node, entry in book["parties"].items()}
    times = found.time_precision, found.header.not_before, found.header.expires, case["now"]
    judged = text.judged(raw, found.id, found.masked.modulus, count_of(found), times, LISTED, serials, is_signed)
    assert judged == expected


@pytest.mark.parametrize("case", [each for each in named("masked_message") if "expect" in each.values[0]])
def test_messages_are_written_alike(case):
    expect = case["expect"]
    node = bytes.fromhex(expect["node"])
    key = next(one for one in NODE_KEYS if nodes.keyid(one.public) == node)
    elements = b"".join(int(each, 16).to_bytes(512, "big") for each in expect["ciphertexts"])
    payload = text.message_payload(campaign_of(case["campaign"]).id, elements, node, expect["period"], expect["serial"])
    assert sha256(payload).hexdigest() == expect["identity"]
    assert nodes.envelope(nodes.MASKED, payload, key.public, key.sign).hex() == case["data"]


@pytest.mark.parametrize("case", named("message_file"))
def test_files_are_divided_alike(case):
    raw = bytes.fromhex("".join(case["parts"]))
    assert [list(piece) for piece in nodes.file_pieces(raw, nodes.MASKED)] == case["expect"]


@pytest.mark.parametrize("case", [each for each in named("key_book") if each.values[0].get("reason") not in SHAPES[2:]])
def test_key_books_are_judged_alike(case):
    found = campaign_of(case["campaign"])
    if found.masked is None:
        assert case["reason"] == "campaign_not_masked"
        return
    fault = text.book_fault(bytes.fromhex(case["data"]), found.id, DEALER.public, found.masked.most_parties, is_signed)
    assert case.get("reason") in fault or (fault == set() and "expect" in case)


@pytest.mark.parametrize("case", [each for each in named("opened_key") if "expect" in each.values[0]])
def test_boxes_are_libsodium_s_sealed_boxes(case):
    """Opened by another library call, and compared with what the text says is in them."""
    found = campaign_of(case["campaign"])
    key = next(one for one in NODE_KEYS if one.seed.hex() == case["seed"])
    book = nodes.Reader(text.envelope_parts(bytes.fromhex(case["data"]), text.KEYS)[0]).value()
    node = nodes.keyid(key.public)
    box = SealedBox(PrivateKey(bindings.crypto_sign_ed25519_sk_to_curve25519(key.secret)))
    expect = case["expect"]
    content = text.box_content(found.id, node, expect["serial"], expect["u"], int(expect["secret"], 16))
    assert box.decrypt(book["parties"][node.hex()][2]) == content


@pytest.mark.parametrize("case", named("masked_request"))
def test_requests_are_judged_alike(case):
    assert text.request_fault(bytes.fromhex(case["data"])) == case.get("reason")


@pytest.mark.parametrize("case", named("masked_release"))
def test_releases_are_judged_alike(case):
    found = campaign_of(case["campaign"])
    if case.get("reason") == "wrong_role":
        return
    sizes = found.masked.most_parties, count_of(found), found.masked.modulus
    asked = bytes.fromhex(case["request"])
    fault = text.release_fault(bytes.fromhex(case["data"]), asked, found.id, DEALER.public, sizes, is_signed)
    assert fault == case.get("reason")


@pytest.mark.parametrize("case", [each for each in named("encrypted") if "expect" in each.values[0]])
def test_plaintexts_and_the_bases_of_ciphertexts(case):
    """A ciphertext without its plaintext is a power of H: raised to another power, it is the same from both sides."""
    found = campaign_of(case["campaign"])
    plain = text.plaintexts(case["numbers"], found.masked.slot_bits)
    assert [f"{each:x}" for each in plain] == case["expect"]["plaintexts"]
    square, secret = MODULUS**2, int(case["secret"], 16)
    # The order of the group divides (p − 1)(q − 1)N, so exponents are reduced by it: a way that no party has.
    order = (P - 1) * (MODULUS // P - 1) * MODULUS
    for number, (x, stated) in enumerate(zip(plain, case["expect"]["ciphertexts"], strict=True)):
        hidden = pow(text.base(found.id, case["period"], number, MODULUS), secret % order, square)
        assert (1 + x % MODULUS * MODULUS) * hidden % square == int(stated, 16)


@pytest.mark.parametrize("case", named("opened_totals"))
def test_totals_are_opened_alike(case):
    found = campaign_of(case["campaign"])
    raw = bytes.fromhex(case["messages"])
    products = [1] * count_of(found)
    for offset, length, _ in nodes.file_pieces(raw, nodes.MASKED):
        payload = nodes.parts_of(raw[offset : offset + length], nodes.MASKED)[0]
        numbers = text.elements_of(nodes.Reader(payload).value()["ciphertexts"])
        products = [one * other % MODULUS**2 for one, other in zip(products, numbers, strict=True)]
    released = nodes.Reader(text.envelope_parts(bytes.fromhex(case["data"]), text.RELEASE)[0]).value()
    numbers = sum(subject.size for subject in released_vectors(found))
    elements = text.elements_of(released["elements"])
    opened = text.totals(products, elements, MODULUS, found.masked.slot_bits, numbers)
    assert opened == case.get("expect")


def test_the_vectors_of_the_page():
    campaign = sha256(b"campaign").digest()
    base = text.base(campaign, 7, 0, MODULUS).to_bytes(512, "big")
    node = nodes.keyid(NODE_KEYS[0].public)
    payload = text.message_payload(campaign, (2).to_bytes(512, "big"), node, 7, 1)
    asked = text.request_bytes(campaign, 7, 1, bytes(7) + b"\1" + bytes(7) + b"\2")
    modulus = MODULUS.to_bytes(256, "big")
    page = (runner.FOLDER.parents[1] / "docs" / "formats.md").read_text("utf-8")
    for stated in (modulus, base, payload, asked):
        assert sha256(stated).hexdigest() in page


def test_a_message_of_the_code_is_one_of_the_text():
    raw = bytes.fromhex(CASES["masked_messages/message"]["data"])
    envelope, found = read_message(raw)
    assert found.period == PERIOD
    assert nodes.parts_of(raw, nodes.MASKED)[0] == envelope.payload
    assert masked_campaign().id == found.campaign
    assert secret_of(1) < 1 << 4224


def test_the_second_implementation_imports_nothing_of_the_project():
    tree = ast.parse((runner.FOLDER / "masked_from_text.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {
        "__future__",
        "functools",
        "hashlib",
        "math",
        "typing",
        "collections.abc",
        "vectors.nodes_from_text",
    }
