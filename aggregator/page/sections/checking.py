"""The section on how a reader verifies the page: commands, and the digests that they must print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggregator.page.blocks import Commands, Section, clipped, facts, paragraph
from protocol.documents.payload import Header
from protocol.words import to_words

if TYPE_CHECKING:
    from aggregator.page.subject import ModelSubject, StoreSubject


ANCHOR = "verify"
HEADING = "How to verify this page"


def of_stores(subject: StoreSubject) -> Section:
    """Return the section of a page about stores."""
    digests: dict[str, object] = {}
    for campaign in subject.campaigns:
        _add(digests, "campaign", campaign.header, campaign.id)
    if subject.statistics is not None:
        digests["statistics"] = subject.statistics.statistics_id.hex()
    lines = [
        ("hearsay verify CAMPAIGN --trust ROOT", "checks the signatures of the campaign, and prints its id"),
        ("hearsay show CAMPAIGN", "prints the id in words, which two people can compare over the telephone"),
        ("hearsay guarantee CAMPAIGN", "computes the guarantee again, from the campaign's file alone"),
        ("hearsay estimate --store STORE --json", "counts again, and prints the digest of the statistics"),
    ]
    return _section(digests, lines)


def of_model(subject: ModelSubject) -> Section:
    """Return the section of a page about a model."""
    digests: dict[str, object] = {}
    _add(digests, "model", subject.document.header, subject.digest)
    for campaign, _ in subject.campaigns:
        _add(digests, "campaign", campaign.header, campaign.id)
    digests["statistics"] = subject.document.statistics_id.hex()
    lines = [
        ("hearsay verify MODEL --trust ROOT", "checks the signatures of the model, and prints its id"),
        ("hearsay show MODEL", "prints the card; the same facts as on this page"),
        ("hearsay estimate --store STORE --json", "where the reports are: prints the digest of the statistics"),
        ("hearsay verify CAMPAIGN --trust ROOT --privacy", "computes the ε of every question from its integers"),
    ]
    return _section(digests, lines)


def _add(digests: dict[str, object], what: str, header: Header, digest: bytes) -> None:
    """Add a document's digest to ``digests``, in figures and in words. Two documents may have one name and version."""
    named = f"{what} {header.name}, version {header.version}"
    if digests.get(named, digest.hex()) != digest.hex():
        named += f" ({digest.hex()[:8]})"
    digests[named] = digest.hex()
    digests[f"{named}, in words"] = to_words(digest)


def _section(digests: dict[str, object], lines: Sequence[tuple[str, str]]) -> Section:
    text = paragraph(
        "Whoever can change this file can change every number in it. The numbers hold if these commands print the "
        "same digests, with a trust root that reached you another way."
    )
    told = Commands(tuple((clipped(line), clipped(meaning)) for line, meaning in lines))
    return Section(ANCHOR, HEADING, (text, facts("Digests (SHA-256)", digests), told))
