"""A campaign for nodes in words: which sums a node sends, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.explaining.questions import Names, period_in_words
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import PARTY, RECORD
from protocol.epsilon import format_micro, format_pico
from protocol.errors import PolicyError
from protocol.nodes.terms import GLOBAL, cost_micro, released_vectors
from protocol.questions import CELL, CLASS, PRESENT, SQUARE
from protocol.shown import quoted
from protocol.sums.adjacency import ADD_REMOVE, CHANGE, CHANGE_FEATURES

if TYPE_CHECKING:
    from edge_sdk.policy import Policy
    from protocol.documents.campaign import Campaign
    from protocol.documents.masked_terms import MaskedTerms
    from protocol.questions import Subject

_MOST_LISTED = 40
"""Most sums that an explanation lists one by one."""
_NEIGHBOURS = {
    ADD_REMOVE: "a record more or less",
    CHANGE: "a changed record",
    CHANGE_FEATURES: "a record with the same label and other features",
}
_UNITS = {
    ADD_REMOVE: "this node with or without its records",
    CHANGE: "other records of this node",
    CHANGE_FEATURES: "records of this node with the same labels and other features",
}
"""Neighbours if all records of a node are protected together."""
UNITS_OF_GUESSES = {RECORD: "one record", PARTY: "the records of this node"}
UNCOVERED = "not covered"


def costs(campaign: Campaign, epsilon_micro: int | None = None) -> dict[str, str]:
    """What a summary costs, for each kind of neighbours: ε as text, or ``not covered``.

    Args:
        campaign: a campaign for nodes.
        epsilon_micro: ε of the summary in millionths; None for the campaign's.
    """
    found = {}
    for kind in _NEIGHBOURS:
        try:
            found[kind] = format_micro(cost_micro(campaign, kind, epsilon_micro))
        except PolicyError:
            found[kind] = UNCOVERED
    return found


def sums_in_words(campaign: Campaign) -> list[str]:
    """Lines that name every sum that a node sends.

    Args:
        campaign: a campaign for nodes.
    """
    assert campaign.nodes is not None
    names, subjects = Names(campaign.schema), released_vectors(campaign)
    count = sum(subject.size for subject in subjects)
    often, listed = period_in_words(campaign.time_precision), quoted(campaign.nodes.list_name)
    sent, noise, masked = "signed summary of all its records", "random noise", campaign.masked
    if masked is not None:
        which = "all its" if masked.unit == RECORD else f"its first {campaign.nodes.max_records}"
        sent, noise = f"signed and encrypted message about {which} records", "a part of the noise of their total"
    lines = [
        f"Once per {often} a node that is on the list {listed} sends one {sent}:",
        f"  {count} numbers, each with {noise}, in {len(subjects)} groups that share ε equally:",
    ]
    lines += [f"  - {_sum(subject, names, campaign)}" for subject in subjects[:_MOST_LISTED]]
    if len(subjects) > _MOST_LISTED:
        lines.append(f"  - and {len(subjects) - _MOST_LISTED} more groups of the same kinds about other features")
    if campaign.nodes.max_records and (masked is None or masked.unit == RECORD):
        lines.append(f"  The campaign is for nodes of at most {campaign.nodes.max_records} records.")
    return lines + names.footnotes


def _sum(subject: Subject, names: Names, campaign: Campaign) -> str:
    label = quoted(campaign.schema.label.name)
    if subject.kind == CLASS:
        return f"how many records have each {label}"
    assert subject.feature is not None
    named = names.counted(subject.feature)
    if subject.kind == CELL:
        return f"how many records have each value of {named}, by {label}"
    if subject.kind == PRESENT:
        return f"how many records have a value of {named}, by {label}"
    return f"the sum of {'the squares of ' if subject.power == SQUARE else ''}{named}, by {label}"


def cost_in_words(campaign: Campaign, policy: Policy, booked: str | None = None) -> list[str]:
    """Lines on the ε of a summary, for each kind of neighbours, and on the ε that the node's ledger counts.

    Args:
        campaign: a campaign for nodes.
        policy: the owner's policy.
        booked: the adjacency whose ε the ledger counts since the first summary; None if there was none yet.
    """
    assert campaign.nodes is not None
    if campaign.masked is not None:
        return _masked_cost(campaign, campaign.masked, policy, booked)
    found = costs(campaign)
    lines = ["Cost of one summary, which bounds what the summary tells about one record:"]
    lines += [f"  ε = {shown} for {_NEIGHBOURS[kind]} ({kind})" for kind, shown in found.items() if shown != UNCOVERED]
    lines += [
        f"  The noise does not cover {_NEIGHBOURS[kind]} ({kind})."
        for kind, shown in found.items()
        if shown == UNCOVERED
    ]
    lines.append(
        f"  The owner's limits and the ledger count the ε of {booked or policy.node_adjacency} (node_adjacency)."
    )
    lines.append("  A person with several records in the node costs that many times ε.")
    least = campaign.nodes.least_epsilon_micro
    if least < campaign.epsilon_micro:
        most = format_micro(campaign.epsilon_micro)
        kind = ADD_REMOVE if campaign.nodes.sensitivity == GLOBAL else CHANGE_FEATURES
        lines.append(f"  A node may ask for more noise: an ε from {format_micro(least)} to {most} of {kind}.")
    return lines


def _masked_cost(campaign: Campaign, terms: MaskedTerms, policy: Policy, booked: str | None) -> list[str]:
    """Lines on ε and δ of a masked message, and on whom the protection rests."""
    from protocol.masked.costs import cost

    is_record = terms.unit == RECORD
    about = "one record" if is_record else "all records of this node together"
    lines = [f"Cost of one message, which bounds what the decrypted total of all nodes tells about {about}:"]
    for kind, neighbours in (_NEIGHBOURS if is_record else _UNITS).items():
        micro, delta = cost(campaign, kind)
        lines.append(f"  ε = {format_micro(micro)}, δ = {format_pico(delta)} for {neighbours} ({kind})")
    lines.append(
        f"  The owner's limits and the ledger count the cost of {booked or policy.node_adjacency} (node_adjacency)."
    )
    if is_record:
        lines.append("  A person with several records in the node costs that many times ε.")
    honest, colluding = (format_micro(100 * share) for share in (terms.honest_micro, terms.colluding_micro))
    return [
        *lines,
        "Whom this rests on, beside this node:",
        f"  The dealer of the keys, {keyid(terms.dealer).hex()}. The dealer and the messages tell every node's sums.",
        "  Allow the campaign only if you trust the dealer to keep the keys, away from the aggregator.",
        "  The noise of this node alone hides little. The noise of all protects the total: the cost holds if at least",
        f"  {honest} % of the nodes add theirs, and at most {colluding} % more tell the aggregator what they added.",
    ]
