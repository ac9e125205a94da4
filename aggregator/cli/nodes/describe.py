"""Campaigns and files of nodes in words and as plain data, for commands that print them."""

from __future__ import annotations

from fractions import Fraction

from aggregator.cli.output import counted, lasting
from aggregator.nodes.campaigns.sheet import NodeSheet
from aggregator.nodes.campaigns.words import cost_text, in_words, noise_text
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import RECORD
from protocol.epsilon import format_micro
from protocol.nodes.node_list import NodeList
from protocol.sums.adjacency import ADD_REMOVE

NAMES = {
    "nodes": "node list",
    "node": "node summaries",
    "masked": "masked messages",
    "keys": "key book",
    "release": "release of a masked sum",
}
"""Role of an envelope → kind of file, where people call it otherwise."""


def cost_facts(found: Campaign, sheet: NodeSheet, *, as_json: bool) -> dict[str, object]:
    """What a summary of a campaign for nodes costs, as facts that commands print; with ``as_json`` for programs."""
    assert found.nodes is not None
    booked = {name: format_micro(micro) for name, micro in sheet.booked_micro.items()}
    least = format_micro(found.nodes.least_epsilon_micro)
    if as_json:
        facts: dict[str, object] = {"epsilon_total": format_micro(found.epsilon_micro), "epsilon_booked": booked}
        return facts | {"least_epsilon": least, "sensitivity": found.nodes.sensitivity}
    facts = {"epsilon": cost_text(sheet, in_words(found))}
    return facts if found.nodes.least_epsilon_micro == found.epsilon_micro else {**facts, "least_epsilon": least}


def masked_facts(found: Campaign, *, as_json: bool) -> dict[str, object]:
    """The facts about a masked campaign's terms that commands print; none if it is not masked."""
    from protocol.masked.costs import cost
    from protocol.masked.terms import ciphertexts_of, least_parties

    terms = found.masked
    if terms is None:
        return {}
    needed, least = ciphertexts_of(found), least_parties(terms, terms.most_parties)
    delta = Fraction(cost(found, ADD_REMOVE)[1], 10**12)
    if as_json:
        facts: dict[str, object] = {**terms._asdict(), "modulus": f"{terms.modulus:x}", "ciphertexts": needed}
        return {"masked": {**facts, "delta": float(delta), "least_parties_of_most": least}}
    return {
        "masked by": f"dealer {keyid(terms.dealer).hex()}, modulus of {terms.modulus.bit_length()} bits",
        "hidden": "one record" if terms.unit == RECORD else "all records of one party",
        "kind of noise": f"{terms.noise}, δ = {float(delta):g} for one more or less",
        "needed parties": f"honest share {_share(terms.honest_micro)}, colluding {_share(terms.colluding_micro)}: of "
        f"{terms.most_parties} parties, the most, {least}",
        "message": f"{counted(needed, 'ciphertext')} of 512 bytes, {2000 // terms.slot_bits} numbers in each",
    }


def _share(micro: int) -> str:
    return f"{micro / 1_000_000:g}"


def node_campaign(found: Campaign, sheet: NodeSheet, periods: int) -> dict[str, object]:
    """The facts about a campaign for nodes that ``hearsay show`` prints."""
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
        **masked_facts(found, as_json=False),
        "most records": f"{terms.max_records} of one node; numbers beyond that are cut by the node, or refused",
        "least nodes": found.min_batch_size,
        "fit": ", ".join(f"{key} {value}" for key, value in sorted(found.fit.to_dict().items())),
    }


def node_list(found: NodeList) -> tuple[dict[str, object], list[list[object]]]:
    """The facts about a node list, and a row for each node: id and public key."""
    rows: list[list[object]] = [[hint.hex(), public.hex()] for hint, public in sorted(found.nodes.items())]
    return {"nodes": len(rows)}, rows
