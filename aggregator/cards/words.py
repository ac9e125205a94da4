"""Guarantee sheets in words: the sentences that ``hearsay guarantee`` prints and that a page repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aggregator.nodes.campaigns.sheet import is_refused
from aggregator.nodes.campaigns.words import cost_text, in_words, noise_text
from aggregator.publishing.privacy import rounded_up
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import RECORD
from protocol.epsilon import format_micro
from protocol.masked.terms import masked_terms_of
from protocol.shown import quoted

if TYPE_CHECKING:
    from aggregator.cards.manipulation import Bound
    from aggregator.cards.masked import MaskedGuarantee
    from aggregator.cards.nodes import NodeGuarantee
    from aggregator.cards.sheet import Central, GuaranteeSheet


class Reach(NamedTuple):
    """A table of how far lies move estimates; all columns from ``first_number`` on hold numbers.

    Attributes:
        columns: names of the columns.
        rows: texts of the cells.
        first_number: position of the first column of numbers.
        meaning: what the numbers are, in a sentence.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_number: int
    meaning: str


class SheetWords(NamedTuple):
    """A guarantee sheet for people.

    Attributes:
        facts: names and values.
        notes: sentences about the last of the facts.
        reach: how far lies move estimates; None if the sheet states no bound.
        unseen_by: the tests that ``unseen`` is about, in words.
        unseen: what no test can see, in sentences.
    """

    facts: dict[str, str]
    notes: tuple[str, ...]
    reach: Reach | None
    unseen_by: str
    unseen: tuple[str, ...]


def of_devices(sheet: GuaranteeSheet) -> SheetWords:
    """The sheet of a campaign that asks devices."""
    header, spent, central = sheet.campaign.header, sheet.spending, sheet.central
    series = sheet.campaign.series
    found = {
        "campaign": f"{header.name}, version {header.version}",
        "ε per period": f"{format_micro(spent.period)} declared, {rounded_up(sheet.privacy.total)} exact",
        "ε per day": f"at most {format_micro(spent.day)}, under the default limits of a device's owner",
        "ε in its life": f"at most {format_micro(spent.life)}: {spent.answered} of {spent.periods} periods",
    }
    if series is not None:
        found["series"] = f"{quoted(series.name)}: a device answers once in all of it"
    found |= {f"private pilot {number}": cost.shown for number, cost in enumerate(sheet.campaign.pilots, 1)}
    reach = _reach_of_devices(sheet.lies, central.devices) if sheet.lies else None
    return SheetWords(found | _shuffled(central), _conditions(central), reach, "reports", sheet.unseen)


def of_nodes(sheet: NodeGuarantee, liars: Sequence[float], nodes: int | None) -> SheetWords:
    """The sheet of a campaign for nodes whose sums are not masked.

    Args:
        sheet: the sheet.
        liars: the shares of lying nodes that the sheet was computed for.
        nodes: number of nodes; None if it is not known.
    """
    found, spent = sheet.campaign, sheet.spending
    assert found.nodes is not None
    header = found.header
    limits = (
        "if the owner's policy allows it; under the default policy a node refuses the campaign"
        if is_refused(found)
        else "under the default limits of a node's owner"
    )
    facts = {
        "campaign": f"{header.name}, version {header.version}, for nodes of the list '{found.nodes.list_name}'",
        "ε per period": cost_text(sheet.privacy),
        "ε per day": f"at most {format_micro(spent.day)} booked, {limits}",
        "ε in its life": f"at most {format_micro(spent.life)} booked: {spent.answered} of "
        f"{_number(spent.periods, 'period')}",
        "covers": "each record of a node, against all who see summaries and models, the aggregator included",
        "noise": noise_text(sheet.privacy),
        "most claimed": f"{sheet.most_claimed} records for each count by one node, whatever it has; the share of a "
        f"class is pooled from {_number(sheet.tables, 'table')} of counts",
    }
    facts |= {f"private pilot {number}": cost.shown for number, cost in enumerate(found.pilots, 1)}
    heads = [f"{share:.12g} of the nodes lie" for share in liars]
    rows = tuple((f"{row.records:g}", *(f"{moved:.4f}" for moved in row.moved.values())) for row in sheet.reach)
    of = "many nodes" if nodes is None else _number(nodes, "node")
    meaning = (
        f"how far a share of lying nodes, of {of}, moves the share of a class at most, when sums are added as they "
        "come. The smaller max_records, the less"
    )
    return SheetWords(
        facts, (), Reach(("records of a node", *heads), rows, 0, meaning), "summaries", tuple(sheet.unseen)
    )


def of_parties(sheet: MaskedGuarantee) -> SheetWords:
    """The sheet of a masked campaign."""
    found, spent = sheet.campaign, sheet.spending
    assert found.nodes is not None
    terms, header, words = masked_terms_of(found), found.header, in_words(found)
    unit = "each record of a party" if terms.unit == RECORD else "all records of a party together"
    facts = {
        "campaign": f"{header.name}, version {header.version}, masked, for nodes of '{found.nodes.list_name}'",
        "ε per period": cost_text(sheet.privacy, words),
        "δ per period": "; ".join(f"{delta:g} for {words[name]}" for name, delta in sheet.deltas.items()),
        "ε in its life": f"at most {format_micro(spent.life)} booked, if the owner's policy allows masked "
        f"campaigns: {spent.answered} of {_number(spent.periods, 'period')}",
        "covers": f"{unit}, against all who see totals and models, the aggregator included",
        "rests on": f"the dealer {keyid(terms.dealer).hex()}, who keeps the keys, and on at most "
        f"{sheet.colluding} of {sheet.parties} parties colluding or adding no noise",
        "smallest set": f"{sheet.least} of {sheet.parties} parties; the dealer releases no sum of fewer",
        "noise": f"{terms.noise}; {noise_text(sheet.privacy, terms)}",
        "most claimed": f"{sheet.most_claimed} records more or less in each count, by one party, unnoticed",
    }
    facts |= {f"private pilot {number}": cost.shown for number, cost in enumerate(found.pilots, 1)}
    return SheetWords(facts, (), None, "messages", tuple(sheet.unseen))


def _number(number: int, what: str) -> str:
    """A number with its noun: ``1 period``, ``2 periods``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shuffled(central: Central) -> dict[str, str]:
    """The facts about shuffled reports."""
    if central.bounds is None:
        return {"central ε after shuffling": "not stated:"}
    bounds, name = central.bounds, f"central ε after shuffling, δ = {central.delta:g}"
    way = "numeric bound"
    if central.by_stratum:
        way = f"sum of the strata, each at δ/r; all answers of a device together: {bounds.numeric:.4g}"
    elif central.epsilon != bounds.numeric:
        way = "closed form"
    found = {name: f"{central.epsilon:.4g} ({way}), {central.devices} devices, local ε {central.local:.4g}"}
    if bounds.closed_form is not None and bounds.printed is not None:
        label = "closed form, all answers" if central.by_stratum else "closed form"
        found[label] = f"{bounds.closed_form:.4g} (Theorem 3.1 as printed: {bounds.printed:.4g})"
    return found


def _conditions(central: Central) -> tuple[str, ...]:
    """Why no central ε is stated; or what the stated one rests on."""
    if central.obstacles:
        return central.obstacles
    found = [
        "against readers of the shuffled reports: not the shuffler, not holders of the fleet's secrets",
        "the devices counted are honest, and their reports are mixed together in every period",
        "k periods of one device cost at most k times ε and k times δ",
    ]
    if central.devices is not None and central.delta * central.devices >= 1:
        found.append("δ is not below 1/N: so large a δ allows to publish one of the N reports as it is")
    return tuple(found)


def _reach_of_devices(lies: tuple[Bound, ...], devices: int | None) -> Reach:
    """How far lying devices move shares and means."""
    shares = list(lies[0].closed)
    heads = [f"{fleet} {share:.12g}" for fleet in ("closed", "open") for share in shares]
    rows = tuple(
        (
            bound.estimate,
            bound.mechanism,
            f"{bound.one_answer:.2f}",
            *(f"{moved:.4f}" for each in (bound.closed, bound.open) for moved in each.values()),
        )
        for bound in lies
    )
    fleet = "many devices" if devices is None else f"{devices} devices"
    meaning = (
        f"how far a share of lying devices, of {fleet}, moves an estimated share or mean at most, before estimates are "
        "cut to their range; one answer moves a count of devices. A published mean or P(value | class) is an estimate "
        "divided by the share of its class: of a class of 10 % it moves some ten times further, and the model's card "
        "says how far one and three invented reports move its numbers"
    )
    return Reach(("estimate", "mechanism", "one answer", *heads), rows, 2, meaning)
