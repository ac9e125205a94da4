"""A campaign in words, for the owner who decides whether the device takes part."""

from __future__ import annotations

from datetime import UTC, datetime
from math import exp
from typing import TYPE_CHECKING

from protocol.epsilon import MICRO, format_micro
from protocol.errors import PolicyError
from protocol.mechanisms import INTEGERS
from protocol.words import to_words

if TYPE_CHECKING:
    from edge_sdk.policy import Policy
    from protocol.campaign import Campaign
    from protocol.questions import Question

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_MAX_LISTED = 12
HIGH_EPSILON_MICRO = 20 * MICRO


def explain(campaign: Campaign, policy: Policy, spent_micro: int, now: int) -> str:
    """What a campaign asks, what it costs now and over its life, and whether the owner's policy allows it.

    Args:
        campaign: verified; its value limits hold.
        policy: the owner's.
        spent_micro: what the device has spent so far, in millionths of ε.
        now: seconds since 1970.
    """
    header = campaign.header
    lines = [
        f"Campaign '{header.name}', version {header.version}",
        f"  id         {campaign.id.hex()}",
        f"  in words   {to_words(campaign.id)}",
        f"  purpose    {campaign.purpose}",
        f"  contact    {campaign.contact}",
        f"  from       {_date(header.not_before)} to {_date(header.expires)}",
        "",
        *_asked(campaign),
        "",
        *_cost(campaign, policy, spent_micro, now),
        "",
        _verdict(campaign, policy, spent_micro),
    ]
    return "\n".join(lines)


def _asked(campaign: Campaign) -> list[str]:
    """The questions, and what an answer can reveal."""
    count = len(campaign.questions)
    often = f"Once per {_duration(campaign.time_precision)}"
    picked = ", picked by chance and not by the record" if campaign.answers < count else ""
    which = "all of" if campaign.answers == count else "one of" if campaign.answers == 1 else f"{campaign.answers} of"
    lines = [f"{often} the device answers {which} these questions{picked}:"]
    lines.extend(
        f"  - {_subject(campaign, question)}: {_noise(question)}" for question in campaign.questions[:_MAX_LISTED]
    )
    if count > _MAX_LISTED:
        lines.append(f"  - and {count - _MAX_LISTED} more like these")
    return lines


def _subject(campaign: Campaign, question: Question) -> str:
    label = campaign.schema.label.name
    if question.feature is None:
        return f"its '{label}'"
    return f"'{campaign.schema.features[question.feature].name}' together with its '{label}'"


def _noise(question: Question) -> str:
    mechanism = question.mechanism
    size = question.size
    if mechanism.name == "direct":
        truth = mechanism.distribution(0)[0]
        return f"one of {size} values, the true one {float(truth):.0%} of the time, else another at random"
    if mechanism.layout == INTEGERS:
        return f"{size} numbers, each buried in random noise ({mechanism.name})"
    return f"{size} yes/no bits, each flipped at random ({mechanism.name})"


def _cost(campaign: Campaign, policy: Policy, spent_micro: int, now: int) -> list[str]:
    """ε per answer, per period and over the campaign's life, and what the odds in it mean."""
    total = campaign.epsilon_micro
    periods = max(0, -(-campaign.header.expires // campaign.time_precision) - campaign.period_at(now))
    odds = exp(float(campaign.privacy_loss()))
    per_answer, lifetime = format_micro(campaign.epsilon_per_answer_micro), format_micro(policy.lifetime_micro)
    warning = ["  Warning: above ε = 20 an answer hides next to nothing."] if total > HIGH_EPSILON_MICRO else []
    return [
        f"Cost: ε = {format_micro(total)} per {_duration(campaign.time_precision)} (ε = {per_answer} per answer).",
        f"  Whoever sees the reports of one period can multiply the odds of any guess by at most {odds:.4g}.",
        *warning,
        f"  Answering in all {periods} remaining periods would cost ε = {format_micro(total * periods)}.",
        f"  The owner allows ε = {lifetime} for the device's life; {format_micro(spent_micro)} of it is spent.",
    ]


def _verdict(campaign: Campaign, policy: Policy, spent_micro: int) -> str:
    refusal = ""
    try:
        policy.check_campaign(campaign)
        policy.check_budget(spent_micro, campaign.epsilon_micro)
    except PolicyError as error:
        refusal = str(error)
    if refusal:
        return f"The owner's policy refuses it. {refusal}"
    left = (policy.lifetime_micro - spent_micro) // campaign.epsilon_micro
    return f"The owner's policy allows it, for at most {left} more answers in this device's life."


def _date(seconds: int) -> str:
    year_10000 = 253_402_300_800
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds < year_10000 else "the far future"


def _duration(seconds: int) -> str:
    for unit, name in _UNITS:
        if seconds % unit == 0:
            count = seconds // unit
            return name if count == 1 else f"{count} {name}s"
    return f"{seconds} seconds"
