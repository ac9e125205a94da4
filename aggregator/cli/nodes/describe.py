"""Campaigns and files of nodes and dealers in words and as plain data, for ``show``, ``verify`` and their makers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import click

from aggregator.cli.output import KINDS, as_json, counted, lasting, print_facts, print_json, print_table
from aggregator.common.facts import Fact, Facts, Table, said, stated
from aggregator.common.files import read_file
from aggregator.nodes.campaigns.dealer_file import parse_public_file
from aggregator.nodes.campaigns.sheet import IN_WORDS, NodeSheet, cost_text, in_words, noise_text
from protocol.documents import campaign, trust
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import SIZE_LIMITS, keyid, read_envelope
from protocol.documents.masked_terms import RECORD
from protocol.epsilon import MICRO, format_micro
from protocol.errors import DocumentError, InputError
from protocol.masked.costs import ciphertexts_of, cost, least_parties
from protocol.masked.keys import KeyBook, parse_key_book, read_key_book
from protocol.masked.message import Message, read_message
from protocol.masked.release import MAX_REQUEST_BYTES, Release, Request, parse_release, parse_request, read_release
from protocol.nodes.summary import (
    UNDERSTOOD,
    NodeList,
    Summary,
    judge_summary,
    parse_node_list,
    read_summaries,
    read_summary,
)
from protocol.questions import ADD_REMOVE, CHANGE

MOST_ROWS = 1000
"""Most summaries, messages, damaged byte ranges and parties that are listed for one file. All of them are counted."""
COLUMNS = {
    "node": ("campaign", "node", "period", "ε", "numbers", "least", "largest"),
    "masked": ("campaign", "node", "period", "serial", "ciphertexts"),
}
"""Role of the envelopes of a file → columns of its table."""
_NUMBERS = {
    "node": "sums over a node's records, each with noise; nothing shows whether they are true",
    "masked": "encrypted: only the total of a set of nodes can be decrypted, with the dealer's release",
}


class Entry(NamedTuple):
    """One summary or masked message in a file, or a byte range that holds neither.

    ``found`` is None for a byte range without one, or if it can not be read; ``reason`` then says why. ``raw``: the
    bytes of its envelope; ``position``, ``length``: where it is in the file, in bytes.
    """

    found: Summary | Message | None
    raw: bytes
    reason: str
    position: int
    length: int

    @property
    def row(self) -> list[object]:
        """Return the cells of the entry's row under :data:`COLUMNS`."""
        if self.found is None:
            return ["damage", self.reason, f"{counted(self.length, 'byte')} at {self.position}"]
        about = self.found
        first = [about.campaign.hex(), about.node.hex(), about.period]
        if isinstance(about, Message):
            return [*first, about.serial, len(about.ciphertexts)]
        return [*first, format_micro(about.epsilon_micro), len(about.sums), min(about.sums), max(about.sums)]

    @property
    def content(self) -> dict[str, Any]:
        """Return the entry in the types of JSON."""
        if self.found is None:
            return {"damage": self.reason, "position": self.position, "length": self.length}
        if isinstance(self.found, Message):
            return {**self.found._asdict(), "ciphertexts": len(self.found.ciphertexts)}
        first = {"campaign": self.found.campaign, "node": self.found.node, "period": self.found.period}
        return first | dict(zip(("epsilon", "numbers", "least", "largest"), self.row[3:], strict=True))


def entries(raw: bytes, role: str = "node") -> Iterator[Entry]:
    """Yield the summaries (role ``masked``: messages) of a file and its damage, in order. No signature is checked."""
    read = read_message if role == "masked" else read_summary
    for piece in read_summaries(raw, role):
        reason, found = piece.reason, None
        if reason is None:
            try:
                found = read(piece.envelope)[1]
            except DocumentError as error:
                reason = error.reason
        yield Entry(found, piece.envelope if found else b"", reason or "", piece.offset, piece.length)


def pieces_shown(raw: bytes, role: str = "node") -> Facts | None:
    """Return what a file of summaries or masked messages says, with its damage; None if it has no summary."""
    rows: list[list[object]] = []
    listed: list[dict[str, Any]] = []
    count = damaged = 0
    for entry in entries(raw, role):
        count, damaged = count + (entry.found is not None), damaged + (entry.length if entry.found is None else 0)
        if len(rows) < MOST_ROWS:
            rows.append(entry.row)
            listed.append(entry.content)
    if not count and role == "node":
        return None
    facts = [
        Fact("messages" if role == "masked" else "summaries", count),
        Fact("bytes", len(raw)),
        Fact("damaged_bytes", damaged),
        said("numbers", _NUMBERS[role]),
        stated("entries", listed),
    ]
    if count > MOST_ROWS:
        facts.append(said("listed", f"the first {MOST_ROWS}"))
    return Facts(KINDS[role], tuple(facts), table=Table(COLUMNS[role], rows))


def dealer_shown(raw: bytes, role: str | None) -> Facts | None:
    """Return what a file of a masked campaign says, without a check of its signature; None for other files.

    Such files are messages, a key book, a release, a request, and a dealer's public file. A key book or release that
    can not be read raises DocumentError.
    """
    if role == "masked":
        return pieces_shown(raw, role)
    if role == "keys":
        return _book(parse_key_book(read_envelope(raw, role).payload))
    if role == "release":
        return _release(parse_release(read_envelope(raw, role).payload))
    return _unsigned(raw) if role is None else None


def _unsigned(raw: bytes) -> Facts | None:
    """Return what a request for a masked sum, or a dealer's public file, says, or None for other bytes."""
    if len(raw) <= MAX_REQUEST_BYTES:
        try:
            return _request("request for a masked sum", parse_request(raw))
        except DocumentError:
            pass
    try:
        found = parse_public_file(raw)
    except InputError:
        return None
    facts = (Fact("key", found.key, found.key.hex()), said("key id", found.id), Fact("modulus", f"{found.modulus:x}"))
    return Facts("dealer's public file", facts)


def _book(found: KeyBook) -> Facts:
    parties = sorted(found.parties.items())
    listed = [{"node": node, "serial": key.serial, "u": key.u} for node, key in parties]
    facts = [
        Fact("campaign", found.campaign, found.campaign.hex()),
        Fact("version", found.version),
        Fact("list_version", found.list_version, f"version {found.list_version}", "node list"),
        said("parties", len(parties)),
        Fact("id", found.identity, found.identity.hex()),
        said("same for all", "parties that compare version and id see whether the dealer gave them one book"),
        said("keys", "each is sealed: only its own node can open it"),
        stated("parties", listed),
    ]
    if len(parties) > MOST_ROWS:
        facts.append(said("listed", f"the first {MOST_ROWS}; --json lists all"))
    rows = [(node.hex(), key.serial, key.u) for node, key in parties[:MOST_ROWS]]
    return Facts(KINDS["keys"], tuple(facts), table=Table(("node", "serial", "u"), rows))


def _release(found: Release) -> Facts:
    elements = len(found.elements)
    decrypts = f"the total of exactly these parties, {counted(elements, 'ciphertext')}"
    return _request(KINDS["release"], found.request, [Fact("elements", elements, decrypts, "decrypts")])


def _request(title: str, found: Request, more: Iterable[Fact] = ()) -> Facts:
    facts = (
        Fact("campaign", found.campaign, found.campaign.hex()),
        Fact("period", found.period),
        Fact("version", found.version, f"version {found.version}", "key book"),
        Fact("parties", found.parties, len(found.parties)),
        *more,
    )
    return Facts(title, facts, table=Table(("node",), [(node.hex(),) for node in found.parties]))


def verify_of_dealer(raw: bytes, role: str, state: trust.TrustState, campaign_file: Path, now: int) -> dict[str, Any]:
    """Check that the dealer of a campaign has signed a key book or release, and that its values fit the campaign.

    ``role``: ``keys`` or ``release``. Returns facts about the file, in the types of JSON. Raises InputError,
    DocumentError: the campaign can not be read or is refused, is not masked, or the file is refused.
    """
    asked = campaign.parse_campaign(_accepted(state, campaign_file, "campaign", campaign.UNDERSTOOD, now))
    facts: dict[str, Any] = {"kind": KINDS[role], "verified": True, "campaign": asked.header.name}
    if role == "keys":
        book = read_key_book(raw, asked)
        facts |= {"version": book.version, "list_version": book.list_version, "parties": len(book.parties)}
        return facts | {"id": book.identity.hex()}
    release = read_release(raw, asked)
    return facts | {"period": release.period, "key_book": release.version, "parties": len(release.parties)}


def verify_summaries(raw: bytes, state: trust.TrustState, campaign_file: Path, list_file: Path, now: int) -> None:
    """Check all summaries of a file against their campaign and node list, as an aggregator does, and print the result.

    Raises InputError: ``not_a_campaign``: the campaign is for devices; ``other_name``: it names another list;
    ``summaries_refused``: a summary is refused, or the file is damaged. Raises DocumentError: campaign or list lack
    signatures or are out of date.
    """
    asked = campaign.parse_campaign(_accepted(state, campaign_file, "campaign", campaign.UNDERSTOOD, now))
    if asked.nodes is None:
        raise InputError(
            "not_a_campaign", f"'{campaign_file}' is a campaign for devices; summaries answer one for nodes"
        )
    nodes = parse_node_list(_accepted(state, list_file, "nodes", UNDERSTOOD, now))
    if nodes.header.name != asked.nodes.list_name:
        raise InputError(
            "other_name", f"the campaign asks nodes of the list '{asked.nodes.list_name}', not of this one"
        )
    found = [(entry, _verdict(entry, asked, nodes)) for entry in entries(raw)]
    refused = sum(reason != "" for _, reason in found)
    if as_json():
        listed = [{**entry.content, "verified": not reason, "reason": reason or None} for entry, reason in found]
        print_json({"kind": "node summaries", "verified": not refused, "entries": listed})
    else:
        columns = COLUMNS["node"]
        rows = [[*entry.row, *[""] * (len(columns) - len(entry.row)), reason or "verified"] for entry, reason in found]
        print_table((*columns, "verdict"), rows)
    if refused or not found:
        raise InputError("summaries_refused", f"{refused} of {counted(len(found), 'piece')} of the file are refused")


def _accepted(state: trust.TrustState, path: Path, role: str, known: frozenset[str], now: int) -> bytes:
    return trust.verify(state, read_file(path, SIZE_LIMITS[role]), role, now, known).payload


def _verdict(entry: Entry, asked: Campaign, nodes: NodeList) -> str:
    """Return why an aggregator refuses a summary, or an empty text. The period is not compared with a clock."""
    if entry.found is None:
        return entry.reason
    try:
        judge_summary(entry.raw, asked, nodes)
    except DocumentError as error:
        return error.reason
    return ""


def print_node_sheet(sheet: NodeSheet) -> None:
    """Print the exact privacy loss of every released vector, and whether a summary spends more than it books."""
    shown = [name for name in (ADD_REMOVE, CHANGE) if name in sheet.booked_micro] or list(sheet.booked_micro)
    rows: list[list[object]] = [
        [vector.name, vector.size, str(vector.sensitivity), f"{vector.deviation:.4g}"]
        + [f"{float(vector.losses[name]):.9g}" for name in shown]
        for vector in sheet.vectors
    ]
    rows.append(["total", sheet.numbers, "", "", *(f"{float(sheet.total(name)):.9g}" for name in shown)])
    columns = ["released vector", "numbers", "Δ", "noise SD", *(f"ε, {IN_WORDS[name]}" for name in shown)]
    print_table(columns, rows, columns[1:])
    print_facts({"declared": f"ε = {format_micro(sheet.declared_micro)}", "a node books": cost_text(sheet)})
    click.echo("a summary spends no more than a node books" if sheet.holds else "A SUMMARY SPENDS MORE THAN IT BOOKS")


def cost_facts(found: Campaign, sheet: NodeSheet) -> list[Fact]:
    """Return what a summary of a campaign for nodes costs."""
    assert found.nodes is not None
    least = format_micro(found.nodes.least_epsilon_micro)
    is_fixed = found.nodes.least_epsilon_micro == found.epsilon_micro
    return [
        said("epsilon", cost_text(sheet, in_words(found))),
        stated("epsilon_total", format_micro(found.epsilon_micro)),
        stated("epsilon_booked", {name: format_micro(micro) for name, micro in sheet.booked_micro.items()}),
        stated("least_epsilon", least) if is_fixed else Fact("least_epsilon", least),
        stated("sensitivity", found.nodes.sensitivity),
    ]


def masked_facts(found: Campaign) -> list[Fact]:
    """Return the terms of a masked campaign as facts; empty for other campaigns."""
    terms = found.masked
    if terms is None:
        return []
    needed, least = ciphertexts_of(found), least_parties(terms, terms.most_parties)
    delta = float(Fraction(cost(found, ADD_REMOVE)[1], 10**12))
    honest, colluding = (f"{micro / MICRO:g}" for micro in (terms.honest_micro, terms.colluding_micro))
    content = {**terms._asdict(), "modulus": f"{terms.modulus:x}", "ciphertexts": needed, "delta": delta}
    return [
        Fact(
            "masked",
            content | {"least_parties_of_most": least},
            f"dealer {keyid(terms.dealer).hex()}, modulus of {terms.modulus.bit_length()} bits",
            "masked by",
        ),
        said("hidden", "one record" if terms.unit == RECORD else "all records of one party"),
        said("kind of noise", f"{terms.noise}, δ = {delta:g} for one more or less"),
        said(
            "needed parties",
            f"honest share {honest}, colluding {colluding}: of {terms.most_parties} parties, the most, {least}",
        ),
        said("message", f"{counted(needed, 'ciphertext')} of 512 bytes, {2000 // terms.slot_bits} numbers in each"),
    ]


def node_facts(found: Campaign, sheet: NodeSheet, periods: int) -> dict[str, object]:
    """Return the facts about a campaign for nodes that ``hearsay show`` prints."""
    assert found.nodes is not None
    terms = found.nodes
    with_noise, sent = "each with noise of its own", "summary"
    if found.masked is not None:
        with_noise, sent = "encrypted: only the total of a set of nodes is decrypted", "message"
    life = sheet._replace(booked_micro={name: micro * periods for name, micro in sheet.booked_micro.items()})
    words = in_words(found)
    return {
        "asks": f"nodes of the list '{terms.list_name}' for sums over their records, {with_noise}",
        "period": f"{lasting(found.time_precision)}: a node sends one {sent} in it",
        "ε": cost_text(sheet, words),
        "ε over its life": f"{cost_text(life, words)}, in {counted(periods, 'period')}",
        "least ε": f"{format_micro(terms.least_epsilon_micro)}, if a node's owner wants more noise",
        "sensitivity": terms.sensitivity,
        "sums": f"{len(sheet.vectors)} vectors with {sheet.numbers} numbers; each vector has an equal part of ε",
        "noise": noise_text(sheet, found.masked),
        **dict(fact.pair for fact in masked_facts(found)),
        "most records": f"{terms.max_records} of one node; numbers beyond that are cut by the node, or refused",
        "least nodes": found.min_batch_size,
        "fit": ", ".join(f"{key} {value}" for key, value in sorted(found.fit.to_dict().items())),
    }
