"""Kinds for masked campaigns: what follows from their terms, messages, key books, requests, releases, opened totals."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from support.masked import fixed_entropy

from protocol.documents.envelope import SigningKey
from protocol.masked.cipher import Unmasking, mask_all
from protocol.masked.costs import ciphertexts_of, least_parties, masked_terms_of, ranges_of
from protocol.masked.fields import Slots
from protocol.masked.keys import check_successor, own_key, read_key_book, seal_key
from protocol.masked.message import MessageSet, judge_message, read_message
from protocol.masked.release import check_answers, parse_request, read_release
from protocol.nodes.summary import read_summaries
from protocol.nodes.terms import released_vectors
from vectors.kinds_nodes import campaign_of, listed_in, united
from vectors.runner import kind


@kind
def masked_ranges(campaign: str) -> dict[str, Any]:
    """J, and kind, length, least and largest exact number and H of every released vector of a campaign's file."""
    found = campaign_of(campaign)
    parts = zip(released_vectors(found), ranges_of(found), strict=True)
    return {
        "ciphertexts": ciphertexts_of(found),
        "vectors": [[subject.kind, subject.size, *ends] for subject, ends in parts],
    }


@kind
def least_set(campaign: str, parties: list[int]) -> list[int]:
    """For each number of parties in a book the least number of parties whose total is released."""
    return [least_parties(masked_terms_of(campaign_of(campaign)), each) for each in parties]


@kind
def masked_message(campaign: str, nodes: str, keys: str, data: str, now: int) -> dict[str, Any]:
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
def message_file(parts: list[str]) -> list[list[Any]]:
    """Offset, length and reason (nil of an intact envelope) of every stretch of a file of messages, given in parts."""
    raw = bytes.fromhex("".join(parts))
    return [[piece.offset, piece.length, piece.reason] for piece in read_summaries(raw, "masked")]


@kind
def message_union(files: list[str]) -> dict[str, Any]:
    """The union of the sets of several files of messages, without a check of signatures."""
    return united(MessageSet, files)[1]


@kind
def key_book(campaign: str, data: str) -> dict[str, Any]:
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
def key_books(campaign: str, before: str, data: str) -> int:
    """The version of a book at a reader that has accepted the book ``before``."""
    first, second = (read_key_book(bytes.fromhex(raw), campaign_of(campaign)) for raw in (before, data))
    check_successor(second, first.version, first.identity)
    return second.version


@kind
def opened_key(campaign: str, data: str, seed: str) -> dict[str, Any]:
    """The key in a book of the node whose key pair follows from ``seed``; the secret in hexadecimal."""
    found = own_key(
        read_key_book(bytes.fromhex(data), campaign_of(campaign)), SigningKey.from_seed(bytes.fromhex(seed))
    )
    return {"serial": found.serial, "u": found.u, "secret": f"{found.secret:x}"}


@kind
def sealed_key(
    public: str, campaign_id: str, node: str, serial: int, u: int, secret: str, entropy: int
) -> dict[str, Any]:
    """Length and digest of a box whose own key pair has the seed SHA-256(``hearsay test entropy N``)."""
    ids = bytes.fromhex(campaign_id), bytes.fromhex(node)
    box = seal_key(bytes.fromhex(public), *ids, serial, u, int(secret, 16), fixed_entropy(entropy))
    return {"bytes": len(box), "sha256": sha256(box).hexdigest()}


@kind
def masked_request(data: str) -> dict[str, Any]:
    """What a request asks for."""
    found = parse_request(bytes.fromhex(data))
    stated = {"campaign": found.campaign.hex(), "period": found.period, "version": found.version}
    return {**stated, "parties": [party.hex() for party in found.parties]}


@kind
def masked_release(campaign: str, request: str, data: str) -> dict[str, Any]:
    """Elements and identity of a release that answers a request."""
    found = read_release(bytes.fromhex(data), campaign_of(campaign))
    check_answers(found, parse_request(bytes.fromhex(request)))
    return {"elements": [f"{each:x}" for each in found.elements], "identity": found.identity.hex()}


@kind
def encrypted(campaign: str, secret: str, period: int, numbers: list[int]) -> dict[str, Any]:
    """Plaintexts and ciphertexts of numbers under a secret; the secret and the results in hexadecimal."""
    found = campaign_of(campaign)
    terms = masked_terms_of(found)
    plaintexts = Slots(terms.slot_bits).pack(numbers)
    ciphertexts = mask_all(plaintexts, int(secret, 16), found.id, period, terms.modulus)
    return {"plaintexts": [f"{each:x}" for each in plaintexts], "ciphertexts": [f"{each:x}" for each in ciphertexts]}


@kind
def opened_totals(campaign: str, messages: str, data: str) -> list[int]:
    """All totals of the messages of a file, by the release in ``data``."""
    found = campaign_of(campaign)
    terms = masked_terms_of(found)
    product = Unmasking(terms.modulus, ciphertexts_of(found))
    for envelope in MessageSet.from_bytes(bytes.fromhex(messages)).counting():
        product.add(read_message(envelope)[1].ciphertexts)
    opened = product.opened(read_release(bytes.fromhex(data), found).elements)
    return Slots(terms.slot_bits).unpack(opened, sum(subject.size for subject in released_vectors(found)))
