"""The whole text on a campaign: what it asks, what it costs, and whether the policy allows it."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from typing import TYPE_CHECKING

from edge_sdk.explaining.questions import duration, questions_in_words
from protocol.allowance import days_paid, paces
from protocol.dates import date
from protocol.epsilon import MICRO, format_micro, format_pico
from protocol.errors import PolicyError
from protocol.schema import refusing
from protocol.shown import quoted, sentence
from protocol.words import to_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_sdk.policy import Policy, Spent
    from protocol.documents.campaign import Campaign
    from protocol.documents.evaluation import Evaluated

HIGH_EPSILON_MICRO = 20 * MICRO


def explain(
    campaign: Campaign,
    policy: Policy,
    spent: Spent,
    now: int,
    evaluated: Sequence[Evaluated] = (),
    *,
    disabled: bool = False,
    paid_until: int = 0,
    series: Sequence[str] = (),
    booked: str | None = None,
    delta_spent: int = 0,
) -> str:
    """Describe what a campaign asks, what it costs now and over its life, and whether the owner's policy allows it.

    The text has several lines. A campaign that has ended has no costs.

    Args:
        campaign: a verified campaign, from ``parse_campaign``.
        policy: the owner's policy.
        spent: the ε that the device has spent in the last day, in the last window and in all.
        now: seconds since 1970.
        evaluated: the models that the campaign evaluates; empty if it evaluates none, or has ended.
        disabled: the owner has opted out.
        paid_until: end of the last period that a campaign of this name was paid for, in seconds since 1970; 0 if none.
        series: lines on its series, from :func:`edge_sdk.policy.in_words`; none if it is of no series.
        booked: of a node, the adjacency whose ε its ledger counts; None before its first summary.
        delta_spent: of a node, the δ that it has spent in all, in 10⁻¹².
    """
    header = campaign.header
    lines = [
        f"Campaign {quoted(header.name)}, version {header.version}",
        f"  id         {campaign.id.hex()}",
        f"  in words   {to_words(campaign.id)}",
        f"  purpose    {sentence(campaign.purpose)}",
        f"  contact    {sentence(campaign.contact)}",
        f"  from       {shown_date(header.not_before)} to {shown_date(header.expires)}",
        "",
    ]
    if campaign.ended:
        lines += [
            "It asks nothing: with this version the publisher ends the campaign.",
            "",
            *_verdict(campaign, policy, spent, evaluated, disabled=disabled, booked=booked, delta_spent=delta_spent),
        ]
    else:
        first = max(campaign.period_at(now), -(-paid_until // campaign.time_precision))
        lines += [
            *_asked(campaign, evaluated),
            *_refusals(campaign),
            *_pilots(campaign),
            *series,
            "",
            *_cost(campaign, policy, spent, first, booked, delta_spent),
            "",
            *_verdict(campaign, policy, spent, evaluated, disabled=disabled, booked=booked, delta_spent=delta_spent),
        ]
    return "\n".join(lines)


def _asked(campaign: Campaign, evaluated: Sequence[Evaluated]) -> list[str]:
    """What the campaign asks of a device, or of a node."""
    if campaign.nodes is None:
        return questions_in_words(campaign, evaluated)
    from edge_sdk.explaining.nodes import sums_in_words

    return sums_in_words(campaign)


def _counted(campaign: Campaign, policy: Policy) -> int:
    """What one answer costs by the owner's policy, in millionths of ε; the campaign's ε if the policy has no such ε."""
    try:
        return policy.cost_micro(campaign)
    except PolicyError:
        return campaign.epsilon_micro


def _refusals(campaign: Campaign) -> list[str]:
    """A warning for campaigns that refuse values: ε does not cover whether there is a report."""
    names = ", ".join(quoted(name) for name in refusing(campaign.schema))
    if not names:
        return []
    return [
        f"  Warning: a record gets no report if a value is not listed ({names}), so whoever sees that there",
        "  is one learns from it, whatever ε is. This is for development only.",
    ]


def _pilots(campaign: Campaign) -> list[str]:
    """Lines on what was learned from records of a curator, and what that cost the people in these records."""
    if not campaign.pilots:
        return []
    lines = [f"    {sentence(one.shown)}" for one in campaign.pilots]
    return ["  Learned from records that somebody holds, at a cost to the people in them, not to this device:", *lines]


def _cost(
    campaign: Campaign, policy: Policy, spent: Spent, first_period: int, booked: str | None, delta_spent: int
) -> list[str]:
    """Lines on ε per answer, per period and over the campaign's life, and on the odds that it allows.

    Remaining periods are counted from ``first_period``, the index of the first that may still be answered. ``booked``
    is the adjacency whose ε a node's ledger counts, ``delta_spent`` the δ that the node has spent, in 10⁻¹².
    """
    total = _counted(campaign, policy)
    periods = max(0, -(-campaign.header.expires // campaign.time_precision) - first_period)
    loss = campaign.privacy_loss() if campaign.nodes is None else total / MICRO
    odds = _odds(loss)
    per_answer, lifetime = format_micro(campaign.epsilon_per_answer_micro), format_micro(policy.lifetime_micro)
    used = format_micro(spent.lifetime_micro)
    warning = ["  Warning: above ε = 20 an answer hides next to nothing."] if total > HIGH_EPSILON_MICRO else []
    if campaign.series is None:
        often, seen = (
            f" per {duration(campaign.time_precision)} (ε = {per_answer} per answer)",
            "reports of one period",
        )
        whole = f"  Answering in all {periods} remaining periods would cost ε = {format_micro(total * periods)}."
    else:
        often, seen = ", at most once", "report"
        whole = "  A device that answers it answers no other campaign of the series, so the series then costs no more."
    cost = [f"Cost: ε = {format_micro(total)}{often}."]
    guess = "any guess"
    if campaign.nodes is not None:
        from edge_sdk.explaining.nodes import UNITS_OF_GUESSES, cost_in_words

        cost, seen, guess = cost_in_words(campaign, policy, booked), "summary", "any guess about one record"
        if campaign.masked is not None:
            seen, guess = "decrypted total", "any guess about " + UNITS_OF_GUESSES[campaign.masked.unit]
            odds += _delta(policy.cost_delta(campaign))
    return [
        *cost,
        f"  Whoever sees the {seen} can multiply the odds of {guess} by at most {odds}.",
        *warning,
        whole,
        f"  The owner allows ε = {lifetime} for the device's life; {used} of it is spent.",
        *_deltas(campaign, policy, delta_spent),
        *_rates(policy, spent),
        *_rhythm(campaign, policy),
    ]


def _delta(pico: int) -> str:
    return f", except with probability δ = {format_pico(pico)}" if pico else ""


def _deltas(campaign: Campaign, policy: Policy, spent_pico: int) -> list[str]:
    """A line on the owner's limits on δ, if the campaign is masked and has a δ."""
    if campaign.masked is None or not policy.cost_delta(campaign):
        return []
    period, lifetime = format_pico(policy.period_delta_pico), format_pico(policy.lifetime_delta_pico)
    spent = format_pico(spent_pico)
    return [f"  The owner allows δ = {period} per period and {lifetime} for the node's life; {spent} is spent."]


def _rhythm(campaign: Campaign, policy: Policy) -> list[str]:
    """A line for each limit per time that does not allow an answer in every period.

    If every period can be answered but a limit leaves little room, a warning. If a limit allows no answer, or if the
    campaign is of a series, no line.
    """
    micro, length = _counted(campaign, policy), campaign.time_precision
    if campaign.series is not None or any(limit.micro < micro for limit in policy.limits):
        return []
    held = paces(micro, length, policy.limits)
    lines = [f"  So the device answers in at most {pace}, and in no other." for pace in held]
    if not held and any(2 * (limit.micro // micro) * length < 3 * limit.seconds for limit in policy.limits):
        lines += [
            "  The limit leaves no room for an answer that comes earlier in its period than the last one did: a device",
            "  that is on for minutes at a time may miss periods. A limit for one answer more prevents that.",
        ]
    return lines


def _rates(policy: Policy, spent: Spent) -> list[str]:
    """A line for each of the owner's limits per time."""
    limits = (
        (policy.day_micro, spent.day_micro, "24 hours"),
        (policy.window_micro, spent.window_micro, policy.window_text),
    )
    return [
        f"  The owner allows ε = {format_micro(most)} in any {what}; {format_micro(used)} was spent in the last."
        for most, used, what in limits
        if most is not None
    ]


def _odds(loss: float) -> str:
    """e^loss as text, rounded up: e^loss − 1 to four digits, and above 1000 e^loss to four digits.

    >>> _odds(0.001), _odds(1.0), _odds(900.0)
    ('1.001001', '2.719', '7.329e+390')
    """
    power = Context(prec=50).exp(Decimal(loss))
    up = Context(prec=4, rounding=ROUND_CEILING)
    return f"{up.plus(power):g}" if power > 1000 else f"{1 + up.plus(power - 1):f}"


def _verdict(
    campaign: Campaign,
    policy: Policy,
    spent: Spent,
    evaluated: Sequence[Evaluated],
    *,
    disabled: bool,
    booked: str | None,
    delta_spent: int,
) -> list[str]:
    """Lines that tell whether the owner's policy allows the campaign, with every rule that refuses it."""
    refusals = [f"policy_refused: {words}" for words in policy.refusals(campaign, evaluated)]
    micro = _counted(campaign, policy)
    if not campaign.ended and not refusals:
        try:
            policy.check_adjacency(campaign, booked, spent.lifetime_micro)
            policy.check_budget(spent, micro)
            policy.check_delta(delta_spent, policy.cost_delta(campaign))
        except PolicyError as error:
            refusals.append(str(error))
    if disabled:
        return ["The device answers nothing: its owner has opted out (disabled).", *refusals]
    if refusals:
        first, *others = refusals
        return [f"The owner's policy refuses it. {first}", *(f"  and {refusal}" for refusal in others)]
    if campaign.ended or campaign.series is not None:
        return ["The owner's policy allows it."]
    left = (policy.lifetime_micro - spent.lifetime_micro) // micro
    held = paces(micro, campaign.time_precision, policy.limits)
    days = days_paid(left, campaign.time_precision, held)
    lasting = f"{days} day{'' if days == 1 else 's'}"
    return [f"The owner's policy allows it, for at most {left} more answers in this device's life, or {lasting}."]


def shown_date(seconds: int) -> str:
    """Date and time, UTC, of a moment in seconds since 1970; moments after the year 9999 are the far future."""
    year_10000 = 253_402_300_800
    return date(seconds, "%Y-%m-%d %H:%M UTC") if seconds < year_10000 else "the far future"
