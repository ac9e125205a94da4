"""The whole card of a model: what was asked, at which cost, what was counted, what it rests on. Run by the aggregator.

Numbers that are no integers are text, since payloads hold no floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from math import ceil
from typing import Any

from aggregator.cards.guarantee import masked_guarantee, node_guarantee, spending
from aggregator.cards.influence import IN_HALF_RANGES, INVENTED, influences, reach_of_reports
from aggregator.cards.manipulation import manipulation
from aggregator.estimates.statistics import Statistics
from aggregator.models.published import MOST_FEATURES
from aggregator.nodes.campaigns.sheet import IN_WORDS, cost_text, in_words, node_sheet, usual_cost
from aggregator.publishing.models import model_card
from protocol import canonical
from protocol.documents.campaign import Campaign
from protocol.epsilon import format_micro
from protocol.features import Feature, Grouped, Joined, Numeric
from protocol.questions import CELL, CLASS, MOMENT, MOMENTS, PRESENT
from protocol.schema import Component, Schema

MOST_BYTES = 57 << 10
"""Size of the largest card in its canonical form; with the expected accuracy and recall a card has at most 64 KiB."""
_LYING = 0.01
TO_ONE = ", for readers and for one of the two collectors; both together see every record"
"""Of a shared campaign: for whom its cost is."""
_KINDS = {
    CLASS: "the class alone",
    CELL: "a feature's value with the class",
    PRESENT: "whether a number is there, with the class",
    MOMENT: "a number within a class",
    MOMENTS: "all numbers within a class",
}


def full_card(statistics: Statistics, postprocess: str, *, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the card of a model, apart from the expected accuracy. ``statistics``: those that were fitted.

    ``chosen``: what ``hearsay design`` or ``refine`` decided; None without. Raises InputError ``postprocess_unknown``,
    ``not_fittable``.
    """
    card = model_card(statistics, postprocess)
    campaigns = [(source.campaign, source.reports) for source in statistics.sources if source.campaign is not None]
    card |= _promised(campaigns) if campaigns else {}
    card |= _asked(statistics)
    card["answers"] = dict(sorted(_answers(statistics).items()))
    card |= _influence(statistics, postprocess)
    if invented := _reach_of_reports(statistics, postprocess):
        card["reach_of_lies"] = "; ".join([*([card["reach_of_lies"]] if "reach_of_lies" in card else []), invented])
    return shortened(card | ({"chosen": dict(chosen)} if chosen else {}))


def shortened(card: Mapping[str, Any], most: int = MOST_BYTES) -> dict[str, Any]:
    """Return a card of at most ``most`` bytes: its largest entries lose halves, or go; ``shortened`` counts them."""
    found, lost = dict(card), dict[str, int]()
    while len(canonical.pack(found)) > most:
        sizes = {key: len(canonical.pack(value)) for key, value in found.items() if key != "shortened"}
        key = max(sizes, key=lambda name: (sizes[name], name))
        value = found[key]
        kept = len(value) // 2 if isinstance(value, dict | list) else 0
        lost[key] = lost.get(key, 0) + (len(value) - kept if isinstance(value, dict | list) else 1)
        if kept:
            found[key] = dict(list(value.items())[:kept]) if isinstance(value, dict) else value[:kept]
        else:
            del found[key]
        found["shortened"] = lost
    return found


def _promised(campaigns: Sequence[tuple[Campaign, int]]) -> dict[str, Any]:
    devices = [each for each in campaigns if each[0].nodes is None]
    nodes = [campaign for campaign, _ in campaigns if campaign.nodes is not None]
    parts = [*([_of_devices(devices)] if devices else []), *([_of_nodes(nodes)] if nodes else [])]
    reach = "; ".join(part["reach_of_lies"] for part in parts if "reach_of_lies" in part)
    found: dict[str, Any] = {"costs": [line for part in parts for line in part["costs"]][:MOST_FEATURES]}
    found["shuffling"] = "not assumed: nothing here rests on reports being mixed before they are read"
    return found | ({"reach_of_lies": reach} if reach else {})


def _of_nodes(campaigns: Sequence[Campaign]) -> dict[str, Any]:
    costs, claims = [], []
    for campaign in campaigns:
        spent = spending(campaign, usual_cost(campaign))
        words = IN_WORDS if campaign.masked is None else in_words(campaign)
        costs.append(
            f"{campaign.header.name}@{campaign.header.version}: ε = {cost_text(node_sheet(campaign), words)} in a "
            f"period; in its life at most {format_micro(spent.life)}, {spent.answered} of {spent.periods} periods"
        )
        if campaign.masked is None:
            claims.append(node_guarantee(campaign, liars=(_LYING,)).most_claimed)
        else:
            claims.append(masked_guarantee(campaign).most_claimed)
    reach = f"one lying node can state {max(claims)} records in each count, whatever it has, and nobody sees that"
    return {"costs": costs, "reach_of_lies": reach}


def _of_devices(campaigns: Sequence[tuple[Campaign, int]]) -> dict[str, Any]:
    """Return what a device pays for campaigns, and how far lying devices, of as many as reported, move class shares."""
    costs, reaches = [], []
    for campaign, reports in campaigns:
        spent = spending(campaign)
        odds = _odds(float(campaign.privacy_loss()))
        costs.append(
            f"{campaign.header.name}@{campaign.header.version}: "
            f"ε at most {format_micro(spent.period)} in a period, {format_micro(spent.day)} in a day and "
            f"{format_micro(spent.life)} in its life, {spent.answered} of {spent.periods} periods, under the default "
            f"limits of a device's owner; the odds of any guess grow by at most a factor of {odds} in a period"
            f"{'' if campaign.shared is None else TO_ONE}"
        )
        fleet = max(1, reports // max(1, campaign.answers))
        reaches += [bound.closed[_LYING] for bound in manipulation(campaign, (_LYING,), fleet) if not bound.mechanism]
    found: dict[str, Any] = {"costs": costs[:MOST_FEATURES]}
    if reaches:
        found["reach_of_lies"] = (
            f"1 % of the devices of an enrolled fleet, if they lie, move the share of a class by at most "
            f"{100 * max(reaches):.1f} points"
        )
    return found


def _odds(loss: float) -> str:
    """Return the text of e^loss, rounded up to four digits.

    >>> _odds(1.0), _odds(900.0)
    ('2.719', '7.329E+390')
    """
    return str(Context(prec=4, rounding=ROUND_CEILING).plus(Context(prec=50).exp(Decimal(loss))))


def _asked(statistics: Statistics) -> dict[str, Any]:
    schema = statistics.schema
    asked = {feature.name: _in_words(feature, index in schema.numeric) for index, feature in enumerate(schema.observed)}
    found: dict[str, Any] = {"asked": _first(asked)}
    stated = [source.campaign.stated for source in statistics.sources if source.campaign is not None]
    if len(asked) > MOST_FEATURES:
        found["asked_besides"] = len(asked) - MOST_FEATURES
    rest = _unasked(stated, schema)
    if rest:
        found["not_asked"] = rest[:MOST_FEATURES]
        found["not_asked_count"] = len(rest)
    return found


def _unasked(stated: Sequence[Schema], schema: Schema) -> list[str]:
    asked = {feature.name for feature in schema.features}
    names = dict.fromkeys(feature.name for each in stated for feature in each.features)
    return [name for name in names if name not in asked]


def _in_words(feature: Feature | Component | Grouped | Joined, is_number: bool) -> str:  # noqa: FBT001 - private
    if is_number:
        return "a number"
    if isinstance(feature, Joined):
        return f"{feature.size} combinations"
    if isinstance(feature, Grouped):
        return f"{feature.size} groups of values"
    return f"{feature.size} bins" if isinstance(feature, Numeric) else f"{feature.size} values"


def _answers(statistics: Statistics) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in statistics.questions:
        found[_KINDS.get(one.subject.kind, one.subject.kind)] += int(one.n)
    return found


def _influence(statistics: Statistics, postprocess: str) -> dict[str, Any]:
    found = influences(statistics, postprocess)[:MOST_FEATURES]
    return {
        "influence": {one.name: f"{one.bits:.4f}" for one in found},
        "influence_noise": {one.name: f"{one.noise:.4f}" for one in found if one.noise is not None},
    }


def _reach_of_reports(statistics: Statistics, postprocess: str) -> str:
    """Return in words how far invented reports move the published numbers; empty for other data than one store's."""
    kinds = reach_of_reports(statistics, postprocess)
    if not kinds:
        return ""
    said = [
        f"{number} invented report{'s move' if number > 1 else ' moves'} "
        + ", ".join(f"{one.kind} by at most {_rounded_up(one.by[number])}" for one in kinds)
        for number in INVENTED
    ]
    units = " (numbers in half ranges)" if any(one.kind in IN_HALF_RANGES for one in kinds) else ""
    return f"added to an open fleet, {'; '.join(said)}{units}"


def _rounded_up(number: float) -> str:
    """Return the text of a number with three digits after the point, rounded up."""
    return f"{ceil(number * 1000 - 1e-9) / 1000:.3f}"


def _first(entries: Mapping[str, str]) -> dict[str, str]:
    return dict(list(entries.items())[:MOST_FEATURES])
