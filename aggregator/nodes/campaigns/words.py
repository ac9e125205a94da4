"""What a summary of a node costs, and how noisy it is, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import PARTY, MaskedTerms
from protocol.epsilon import format_micro
from protocol.sums.adjacency import ADD_REMOVE, CHANGE, CHANGE_FEATURES

if TYPE_CHECKING:
    from aggregator.nodes.campaigns.sheet import NodeSheet


IN_WORDS = {
    ADD_REMOVE: "one record more or less",
    CHANGE: "one record changed",
    CHANGE_FEATURES: "one record's features changed",
}
OF_PARTIES = {
    ADD_REMOVE: "all records of one party more or less",
    CHANGE: "all records of one party changed",
    CHANGE_FEATURES: "the features of all records of one party changed",
}
"""Adjacency → what differs, in masked campaigns whose unit is the party."""


def in_words(found: Campaign) -> dict[str, str]:
    """Adjacency → what differs between neighbouring data sets of a campaign for nodes, in words."""
    return OF_PARTIES if found.masked is not None and found.masked.unit == PARTY else IN_WORDS


def cost_text(sheet: NodeSheet, words: Mapping[str, str] = IN_WORDS) -> str:
    """ε of one summary under the adjacencies of one record more or less and of a changed record, on one line.

    An adjacency that the campaign's noise does not cover is left out. Changed features are named only where changed
    records are not covered. ``words``: what differs under each adjacency (:func:`in_words`).
    """
    booked = dict(sheet.booked_micro)
    if CHANGE in booked:
        booked.pop(CHANGE_FEATURES, None)
    return "; ".join(f"{format_micro(micro)} for {words[name]}" for name, micro in booked.items())


def noise_text(sheet: NodeSheet, masked: MaskedTerms | None = None) -> str:
    """The standard deviations of the noise of one number of a node, or of the total of a masked campaign.

    The smallest to the largest; ``masked`` are the terms of a masked campaign, None of another one.
    """
    deviations = [vector.deviation for vector in sheet.vectors]
    ends = dict.fromkeys(f"{end:.4g}" for end in (min(deviations), max(deviations)))
    of = "a node" if masked is None else f"the total of {masked.most_parties} parties"
    return f"standard deviation {' to '.join(ends)} records in each number of {of}"
