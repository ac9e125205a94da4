"""The first section: what the page is about, for what purpose, under whose keys, and from how many reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.cards.card_words import REST
from aggregator.page.blocks import Block, Section, facts, paragraph
from aggregator.page.entries import rows_of, text_of
from protocol.documents.campaign import Campaign
from protocol.documents.payload import Header, quoted
from protocol.schema import Schema
from protocol.words import date, to_words

if TYPE_CHECKING:
    from aggregator.page.subject import ModelSubject, StoreSubject


ANCHOR = "about"
HEADING = "What this is"
_IN_CARD = "What it is"
LOCAL, SHARED, FEDERATED, DISTRIBUTED, CENTRAL = "local", "shared", "federated", "distributed", "central"
TRUST = {
    LOCAL: "local: each device adds noise to its own answer, so nobody has to be trusted with records",
    SHARED: "shared: each device splits its record for two collectors; one must be honest; both together see all",
    FEDERATED: "federated: each node reads its own records and adds noise to its sums",
    DISTRIBUTED: "distributed: the sums of the nodes are encrypted and open only together, with one joint noise",
    CENTRAL: "central: a curator sees the records, and adds noise to what leaves her hands",
    "pilot": "pilot: whoever counted the records saw them; their people agreed to exact counts",
}
"""Kinds of trust, in words."""


def trust_of(campaign: Campaign) -> str:
    """Return the kind of trust that a campaign needs: a key of :data:`TRUST`."""
    if campaign.nodes is None:
        return LOCAL if campaign.shared is None else SHARED
    return FEDERATED if campaign.masked is None else DISTRIBUTED


def of_stores(subject: StoreSubject) -> Section:
    """Return the section of a page about stores."""
    blocks: list[Block] = []
    if subject.obstacle:
        blocks.append(paragraph(f"No estimates are shown: {subject.obstacle}.", "warning"))
    for campaign in subject.campaigns:
        pairs: dict[str, object] = {
            "name": f"{quoted(campaign.header.name)}, version {campaign.header.version}",
            "purpose": campaign.purpose,
            "contact": campaign.contact,
            "predicts": _label(campaign.schema),
            **_dates(campaign.header),
            "trust": TRUST[trust_of(campaign)],
            "id in words": to_words(campaign.id),
            "id": campaign.id.hex(),
        }
        if campaign.series is not None:
            pairs["series"] = f"{quoted(campaign.series.name)}: a device answers once in all of it"
        if campaign.memory is not None:
            pairs["memory"] = campaign.memory.in_words(campaign.epsilon_micro)
        blocks.append(facts("The campaign", pairs))
    if subject.statistics is not None:
        which = "" if subject.periods is None else f" Only periods {subject.periods} are counted in the estimates."
        number = f"This page counts {subject.statistics.stated_reports} {counts_of(subject.campaigns[0])}."
        blocks.append(paragraph(number + which))
    return Section(ANCHOR, HEADING, tuple(blocks))


def of_model(subject: ModelSubject) -> Section:
    """Return the section of a page about a model."""
    document, header = subject.document, subject.document.header
    pairs: dict[str, object] = {
        "name": f"{quoted(header.name)}, version {header.version}",
        "predicts": _label(document.schema),
        "features": len(document.schema.observed),
        "purpose": text_of(subject.card, "purpose") or "not stated",
        **_dates(header),
        "trust": _trust(subject),
        "reports or records": text_of(subject.card, "reports") or "not stated",
        "id in words": to_words(subject.digest),
        "id": subject.digest.hex(),
        "campaign": document.campaign.hex(),
        "statistics": document.statistics_id.hex(),
        "replaces": document.previous.hex() if document.previous else "nothing",
    }
    blocks: list[Block] = [facts("The model", pairs)]
    told = rows_of(subject.card, _IN_CARD, ("purpose", "trust"))
    if told:
        blocks.append(facts("As its card says", told))
    rest = rows_of(subject.card, REST)
    if rest:
        blocks.append(facts("Other entries of its card", rest, "hearsay show MODEL --json"))
    return Section(ANCHOR, HEADING, tuple(blocks))


def _trust(subject: ModelSubject) -> str:
    """Return the kind of trust behind a model: that of its campaign if a workspace has it, else that of the card."""
    kinds = text_of(subject.card, "trust").split("; ")
    if subject.campaigns and len(kinds) == 1:
        return TRUST[trust_of(subject.campaigns[0][0])]
    return "; ".join(TRUST.get(kind, kind) for kind in kinds) or "not stated"


def counts_of(campaign: Campaign) -> str:
    """Return what a store of the campaign counts, in the plural."""
    return "reports of devices" if campaign.nodes is None else "records of nodes (a noisy number)"


def _label(schema: Schema) -> str:
    return f"{quoted(schema.label.name)}, one of {len(schema.label.classes)} classes: {', '.join(schema.label.classes)}"


def _dates(header: Header) -> dict[str, object]:
    return {"issued": date(header.issued_at), "valid": f"{date(header.not_before)} to {date(header.expires)}"}
