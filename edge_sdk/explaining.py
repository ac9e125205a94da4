"""Explain a campaign or a model in words, for the owner who decides whether the device takes part.

In: a verified campaign, the owner's policy, what was spent; or a verified model. Out: facts, a list of texts; a list
inside it has details of the text before it. The publisher writes a model's card, and this device can not check it. So
an entry that is missing, or of an unknown form, is shown as "not stated", and long texts are cut.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import TYPE_CHECKING, NamedTuple

from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import RECORD
from protocol.documents.payload import quoted, sentence
from protocol.epsilon import MICRO, days_paid, format_micro, format_pico, paces
from protocol.errors import PolicyError
from protocol.features import Grouped
from protocol.questions import ADD_REMOVE, CELL, CHANGE, CHANGE_FEATURES, CLASS, MOMENT, MOMENTS, PRESENT, SQUARE
from protocol.schema import Component, refusing
from protocol.words import date, to_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_sdk.policy import Policy, Spent
    from protocol.documents.campaign import Campaign
    from protocol.documents.masked_terms import MaskedTerms
    from protocol.documents.model import Evaluated, Model
    from protocol.questions import Subject
    from protocol.schema import Schema

    Facts = list["str | Facts"]

HIGH_EPSILON_MICRO = 20 * MICRO
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def as_text(facts: Facts, indent: str = "") -> str:
    """Return ``facts`` as lines of text, each after ``indent``. The details of a fact begin two blanks further in."""
    return "\n".join(
        as_text(each, f"{indent}  ") if isinstance(each, list) else indent + each if each else "" for each in facts
    )


def shown_date(seconds: int) -> str:
    """Return the date and time, UTC, of a moment in seconds since 1970; after the year 9999, "the far future"."""
    year_10000 = 253_402_300_800
    return date(seconds, "%Y-%m-%d %H:%M UTC") if seconds < year_10000 else "the far future"


def period_in_words(seconds: int) -> str:
    """Return a period's length in seconds as text; with "(UTC)" for whole days, which begin at midnight UTC."""
    return f"{duration(seconds)}{'' if seconds % _UNITS[0][0] else ' (UTC)'}"


def duration(seconds: int) -> str:
    """Return a number of seconds as text, in the largest unit that divides it: ``day``, ``2 hours``, ``90 seconds``."""
    unit, name = next((unit, name) for unit, name in _UNITS if seconds % unit == 0)
    count = seconds // unit
    return name if count == 1 else f"{count} {name}s"


class Account(NamedTuple):
    """The facts about the device that the explanation of a campaign needs.

    Attributes:
        spent: the ε that the device has spent in the last day, in the last window and in all.
        disabled: the owner has opted out.
        paid_until: end of the last period that a campaign of this name was paid for, in seconds since 1970; 0 if none.
        refused: why the device answers no further period of the campaign's series; None if it may, or has no series.
        secret: the device's secret; None after an opt-out.
        booked: of a node, the adjacency (which data sets ε compares) whose ε is counted; None before a first summary.
        delta_spent: of a node, the δ that it has spent in all, in 10⁻¹².
        remembers: the device has paid for the campaign, which has memory.
    """

    policy: Policy
    spent: Spent
    disabled: bool = False
    paid_until: int = 0
    refused: PolicyError | None = None
    secret: bytes | None = None
    booked: str | None = None
    delta_spent: int = 0
    remembers: bool = False


def explain(campaign: Campaign, account: Account, now: int, evaluated: Sequence[Evaluated] = ()) -> Facts:
    """Return what a campaign asks, what it costs, and whether the owner's policy allows it.

    Args:
        campaign: a verified campaign. If it has ended, it has no costs.
        now: seconds since 1970.
        evaluated: the models that the campaign evaluates; empty if it evaluates none, or has ended.
    """
    header = campaign.header
    facts: Facts = [
        f"Campaign {quoted(header.name)}, version {header.version}",
        [
            f"id         {campaign.id.hex()}",
            f"in words   {to_words(campaign.id)}",
            f"purpose    {sentence(campaign.purpose)}",
            f"contact    {sentence(campaign.contact)}",
            f"from       {shown_date(header.not_before)} to {shown_date(header.expires)}",
        ],
        "",
    ]
    if campaign.ended:
        facts += ["It asks nothing: with this version the publisher ends the campaign."]
    else:
        first = max(campaign.period_at(now), -(-account.paid_until // campaign.time_precision))
        asked = _asked_in_words(campaign, evaluated)
        facts += [
            *asked,
            *_warnings(campaign),
            *_series(campaign, account),
            *_memory(campaign),
            "",
            *_cost(campaign, account, first),
        ]
    return [*facts, "", *_verdict(campaign, account, evaluated)]


def _asked_in_words(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Facts:
    if campaign.shared is not None:
        return shares_in_words(campaign, evaluated)
    return questions_in_words(campaign, evaluated) if campaign.nodes is None else sums_in_words(campaign)


def shares_in_words(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Facts:
    """Return in words what a device sends to the two collectors of a shared campaign, and what each of them sees."""
    from protocol.documents.shared_terms import GAUSSIAN

    terms = campaign.shared
    assert terms is not None
    names, subjects = Names(campaign.schema), [block for block in campaign.blocks if block.feature is not None]
    label = quoted(campaign.schema.label.name)
    kind = "Gaussian" if terms.noise == GAUSSIAN else "Laplace"
    below: Facts = [f"- {quoted(one.name)} ({quoted(one.contact)}), key {one.key.hex()}" for one in terms.collectors]
    below.append(f"The record says, exactly and without noise, {len(campaign.blocks)} pairs of a value and {label}:")
    below += [f"- {names.counted(subject.feature or 0)}, with {label}" for subject in subjects[:_MOST_LISTED]]
    if len(subjects) > _MOST_LISTED:
        below.append(f"- and {len(subjects) - _MOST_LISTED} more features")
    told = "what it predicts" if campaign.model is not None else "whether it is right"
    for model in evaluated:
        read = ", ".join(quoted(feature.name) for feature in model.schema.features)
        below.append(
            f"- {told}, with {label}: model {quoted(model.header.name)}, version {model.header.version}, from {read}"
        )
    fewest = f"{campaign.min_batch_size} device{'' if campaign.min_batch_size == 1 else 's'}"
    below += [
        f"One collector alone sees random bytes, and the total of at least {fewest} with the",
        f"other's {kind} noise: the cost below is against that. The two together see every record.",
    ]
    return [
        f"Once per {period_in_words(campaign.time_precision)} the device splits one record into two shares, for",
        [*below, *names.footnotes],
    ]


def _warnings(campaign: Campaign) -> Facts:
    """Return a warning if the campaign refuses unlisted values, and what its publisher learned from records."""
    names = ", ".join(quoted(name) for name in refusing(campaign.schema))
    facts: Facts = []
    if names:
        facts += [
            f"Warning: a record gets no report if a value is not listed ({names}), so whoever sees that there",
            "is one learns from it, whatever ε is. This is for development only.",
        ]
    if campaign.pilots:
        facts += [
            "Learned from records that somebody holds, at a cost to the people in them, not to this device:",
            [sentence(one.shown) for one in campaign.pilots],
        ]
    return [facts] if facts else []


def _series(campaign: Campaign, account: Account) -> Facts:
    series, refused = campaign.series, account.refused
    if series is None:
        return []
    below: Facts = ["campaigns, versions and periods the series has. Another series is another answer."]
    if refused is not None and refused.reason != "series_not_member":
        below.append(f"{refused}.")
    else:
        # Three significant digits: a share is never shown as 0 %.
        share = f"About {100 * series.part:.3g}% of all devices take part in this campaign, "
        device = "" if account.secret is None else f"; this device does{'' if refused is None else ' not'}"
        below.append(f"{share}picked by chance and not by the record{device}.")
    return [
        f"It is of the series {quoted(series.name)}: the device gives at most one answer in the whole series, whatever",
        below,
    ]


def _memory(campaign: Campaign) -> Facts:
    """Return what a campaign with memory keeps, what a change of the record reveals, and what links its reports."""
    terms = campaign.memory
    if terms is None:
        return []
    from protocol.documents.memory_terms import Remembered

    lasts, length = duration(terms.stretch * campaign.time_precision), period_in_words(campaign.time_precision)
    kinds = {question.mechanism for question in campaign.questions}
    guessed = max(kind.pairing for kind in kinds if isinstance(kind, Remembered))
    times = "once" if terms.renewals == 1 else f"{terms.renewals} times"
    renewed = f"After every {lasts} it draws another one, {times} in all, whether or not the record has changed."
    return [
        "It has memory: the device has one question for the whole campaign. It keeps a noisy answer about its record,",
        [
            f"and sends it once per {length} with fresh noise.",
            renewed if terms.renewals else "It keeps this answer to the end, also if the record changes.",
            "So the reports do not show when the record changes; the next kept answer is about the changed record.",
            "The ids of two reports do not show that they are of one device, but their contents may:",
            f"who has one report of it finds another of it among two with probability {guessed:.2f} (0.50 is blind).",
        ],
    ]


def _counted(campaign: Campaign, policy: Policy) -> int:
    """Return an answer's cost in millionths of ε by the owner's policy; the campaign's ε if the policy has none."""
    try:
        return policy.cost_micro(campaign)
    except PolicyError:
        return campaign.epsilon_micro


def _cost(campaign: Campaign, account: Account, first_period: int) -> Facts:
    """Return the ε per answer, per period from ``first_period`` on, and by how much a reader's odds may change."""
    policy, total = account.policy, _counted(campaign, account.policy)
    periods = max(0, -(-campaign.header.expires // campaign.time_precision) - first_period)
    odds = _odds(campaign.privacy_loss() if campaign.nodes is None else total / MICRO)
    per_answer = format_micro(campaign.epsilon_per_answer_micro)
    if campaign.series is None:
        often, seen = f" per {duration(campaign.time_precision)} (ε = {per_answer} per answer)", "reports of one period"
        whole = f"Answering in all {periods} remaining periods would cost ε = {format_micro(total * periods)}."
    else:
        often, seen = ", at most once", "report"
        whole = "A device that answers it answers no other campaign of the series, so the series then costs no more."
    if campaign.memory is not None:
        often = f" for the whole campaign, paid with the first answer (ε = {per_answer} per kept answer)"
        seen, whole = "report of one period", f"Whoever sees all reports can multiply them by {_odds(total / MICRO)}."
    cost: Facts = [f"Cost: ε = {format_micro(total)}{often}."]
    guess, below, delta = "any guess", [], policy.cost_delta(campaign)
    if campaign.nodes is not None:
        cost, seen, guess = cost_in_words(campaign, policy, account.booked), "summary", "any guess about one record"
        if campaign.masked is not None:
            unit = "one record" if campaign.masked.unit == RECORD else "the records of this node"
            seen, guess = "decrypted total", f"any guess about {unit}"
            odds += f", except with probability δ = {format_pico(delta)}" if delta else ""
    if campaign.shared is not None:
        seen = "published total, or is one of the two collectors,"
        odds += f", except with probability δ = {format_pico(delta)}" if delta else ""
    below = [f"Whoever sees the {seen} can multiply the odds of {guess} by at most {odds}."]
    if total > HIGH_EPSILON_MICRO:
        below.append("Warning: above ε = 20 an answer hides next to nothing.")
    lifetime, used = format_micro(policy.lifetime_micro), format_micro(account.spent.lifetime_micro)
    below += [whole, f"The owner allows ε = {lifetime} for the device's life; {used} of it is spent."]
    if delta:
        period, lifetime = format_pico(policy.most_delta(campaign)), format_pico(policy.lifetime_delta_pico)
        used, whose = format_pico(account.delta_spent), "the device's" if campaign.nodes is None else "the node's"
        below.append(f"The owner allows δ = {period} per period and {lifetime} for {whose} life; {used} is spent.")
    below += [
        f"The owner allows ε = {format_micro(most)} in any {what}; {format_micro(used_micro)} was spent in the last."
        for most, used_micro, what in policy.rates(account.spent)
    ]
    return [*cost, [*below, *_rhythm(campaign, policy)]]


def _rhythm(campaign: Campaign, policy: Policy) -> list[str]:
    """Return what the owner's limits on ε per time do to periods: those not answered, or a warning of little room."""
    micro, length = _counted(campaign, policy), campaign.time_precision
    once = campaign.series is not None or campaign.memory is not None
    if once or any(limit.micro < micro for limit in policy.limits):
        return []
    held = paces(micro, length, policy.limits)
    lines = [f"So the device answers in at most {pace}, and in no other." for pace in held]
    if not held and any(2 * (limit.micro // micro) * length < 3 * limit.seconds for limit in policy.limits):
        lines += [
            "The limit leaves no room for an answer that comes earlier in its period than the last one did: a device",
            "that is on for minutes at a time may miss periods. A limit for one answer more prevents that.",
        ]
    return lines


def _odds(loss: float) -> str:
    """Return e^loss as text, rounded up. Four digits of e^loss − 1 are shown; above 1000, four digits of e^loss.

    >>> _odds(0.001), _odds(1.0), _odds(900.0)
    ('1.001001', '2.719', '7.329e+390')
    """
    power = Context(prec=50).exp(Decimal(loss))
    up = Context(prec=4, rounding=ROUND_CEILING)
    return f"{up.plus(power):g}" if power > 1000 else f"{1 + up.plus(power - 1):f}"


def _verdict(campaign: Campaign, account: Account, evaluated: Sequence[Evaluated]) -> Facts:
    policy, spent = account.policy, account.spent
    refusals = [f"policy_refused: {words}" for words in policy.refusals(campaign, evaluated)]
    micro = _counted(campaign, policy)
    if not campaign.ended and not refusals:
        try:
            policy.check_adjacency(campaign, account.booked, spent.lifetime_micro)
            policy.check_budget(spent, 0 if account.remembers else micro)
            policy.check_delta(account.delta_spent, policy.cost_delta(campaign))
        except PolicyError as error:
            refusals.append(str(error))
    if account.disabled:
        return ["The device answers nothing: its owner has opted out (disabled).", *refusals]
    if refusals:
        first, *others = refusals
        refused: Facts = [f"The owner's policy refuses it. {first}"]
        return [*refused, [f"and {refusal}" for refusal in others]] if others else refused
    if campaign.ended or campaign.series is not None or campaign.memory is not None:
        return ["The owner's policy allows it."]
    left, delta = (policy.lifetime_micro - spent.lifetime_micro) // micro, policy.cost_delta(campaign)
    if delta:
        left = min(left, (policy.lifetime_delta_pico - account.delta_spent) // delta)
    days = days_paid(left, campaign.time_precision, paces(micro, campaign.time_precision, policy.limits))
    lasting = f"{days} day{'' if days == 1 else 's'}"
    return [f"The owner's policy allows it, for at most {left} more answers in this device's life, or {lasting}."]


_WORD = 1 << 32
_ALWAYS_LISTED = _WORD // 100
"""Chance (2^32 is certain) above which a subject of questions always has a line of its own: 1 %."""
_MAX_RARE_LISTED = 12
_SHORT_NAME = 40
"""Most characters of a name that is written in full each time."""
_LONG_GROUP = 8
"""Most values that a feature's largest group lists by name."""


class SubjectChance(NamedTuple):
    """What one answer of a period may be about, for example a feature in one class, with its chance.

    Attributes:
        width: chance that the answer is about this subject, summed over its questions; 2^32 is certain.
        noises: descriptions of the mechanisms that perturb these answers.
    """

    subject: Subject
    width: int
    noises: tuple[str, ...]

    def line(self, named: str) -> str:
        """Return one line with the chance, the subject under the name ``named``, and the noise."""
        return f"- {_percent(self.width)}  {named}: {'; or '.join(self.noises)}"


class Names:
    """Names of features, classes and labels in one explanation, shortened where they repeat.

    A long name is written in full at its first mention, and later by its number. So an explanation is at most as long
    as all names, plus a constant per question.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._parts, self._single, self._ungrouped = schema.parts, schema.single, schema.ungrouped
        self._mentioned: set[tuple[str, int]] = set()
        self.footnotes: list[str] = []
        """Lines for the end: lists of names that many subjects share."""

    def _name(self, kind: str, number: int, text: str) -> str:
        if len(text) <= _SHORT_NAME:
            return quoted(text)
        if (kind, number) in self._mentioned:
            return f"{kind} {number + 1}"
        self._mentioned.add((kind, number))
        return f"{quoted(text)} ({kind} {number + 1})"

    def _feature(self, number: int) -> str:
        """Return the name of a feature of ``Schema.ungrouped``. A footnote lists the inputs of a projection."""
        observed = self._ungrouped[number]
        name = self._name("feature", number, observed.name)
        if not isinstance(observed, Component):
            return name
        projection = self._schema.projection
        if projection is not None and ("computed", 0) not in self._mentioned:
            self._mentioned.add(("computed", 0))
            names = ", ".join(quoted(self._schema.features[place].name) for place in projection.inputs)
            self.footnotes.append(f"Each component is computed from {names}.")
        return f"{name} (a component)"

    def counted(self, number: int) -> str:
        """Return the names of the features that the observed feature with this index joins, with groups of values."""
        return " and ".join(f"{self._feature(index)}{self._groups(index)}" for index in self._parts[number])

    def _numbers(self) -> str:
        if ("numbers", 0) not in self._mentioned:
            self._mentioned.add(("numbers", 0))
            names = ", ".join(self._feature(number) for number in self._schema.numeric)
            self.footnotes.insert(0, f"All numbers are {names}.")
        return "all numbers"

    def subject(self, asked: Subject) -> str:
        """Return the subject of a question in words, together with the label, on which every answer depends."""
        kind, feature, _, power, of_class = asked[:5]
        label = self._name("label", 0, self._schema.label.name)
        square = "the squares of " if kind == MOMENTS else "the square of "
        square = square if power == SQUARE else ""
        if kind == MOMENTS:
            return f"{square}{self._numbers()}, together with its {label}"
        if feature is None:
            return f"its {label}"
        if len(self._parts[feature]) > 1:
            return f"the combination of {self.counted(feature)}, together with its {label}"
        [index] = self._parts[feature]
        name = self._feature(index)
        if isinstance(self._single[index], Grouped):
            return f"which group {name} is in{self._groups(index)}, together with its {label}"
        if kind == PRESENT:
            return f"whether {name} is known, together with its {label}"
        if kind == MOMENT and of_class is not None:
            return f"{square}{name} if its {label} is {self._class(of_class)}, else 0"
        return f"{square if kind == MOMENT else ''}{name} together with its {label}"

    def _groups(self, number: int) -> str:
        """Return a feature's groups of values in words; "" if it has none, or if they were named before."""
        grouped = self._single[number]
        if not isinstance(grouped, Grouped) or ("groups", number) in self._mentioned:
            return ""
        self._mentioned.add(("groups", number))
        members = grouped.members()
        longest = max(members, key=len)
        named = [
            "all other values" if each is longest and len(each) > _LONG_GROUP else ", ".join(map(quoted, each))
            for each in members
        ]
        return f" (one of {' / '.join(f'{{{each}}}' for each in named)})"

    def _class(self, number: int) -> str:
        return self._name("class", number, self._schema.label.classes[number])


def questions_in_words(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Facts:
    """Return what the questions ask about, the most likely first, and their noise; or the models ``evaluated``."""
    if evaluated:
        return _asked_of_models(campaign, evaluated) if campaign.models else _asked_of_model(campaign, evaluated[0])
    names, strata = Names(campaign.schema), _strata(campaign)
    often = f"Once per {period_in_words(campaign.time_precision)} the device answers"
    below: Facts = []
    if campaign.answers == len(campaign.questions):
        asked = "all of these questions:"
        below += [part.line(names.subject(part.subject)) for stratum in strata for part in stratum]
    elif campaign.answers == 1:
        asked = "one of these questions, picked by chance and not by the record:"
        below += _listed(strata[0], names)
    else:
        asked = f"{campaign.answers} questions, each picked by chance and not by the record:"
        for number, stratum in enumerate(strata, 1):
            below += [f"answer {number}, one of", *_listed(stratum, names)]
    read = {feature.name for feature in campaign.schema.features}
    rest = [quoted(feature.name) for feature in campaign.stated.features if feature.name not in read]
    not_asked = [f"It does not ask about {', '.join(rest)}."] if rest else []
    return [f"{often} {asked}", [*below, *names.footnotes, *not_asked]]


def _asked_of_models(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Facts:
    label, period = quoted(campaign.schema.label.name), period_in_words(campaign.time_precision)
    below: Facts = []
    for part in _strata(campaign)[0]:
        model = evaluated[part.subject.model or 0]
        count = len(model.schema.features)
        reads = f"reads {count} feature{'' if count == 1 else 's'}"
        below.append(part.line(f"{quoted(model.header.name)}, version {model.header.version}, which {reads}"))
    names = dict.fromkeys(feature.name for model in evaluated for feature in model.schema.features)
    return [
        f"Once per {period} the device answers with one bit whether a model is right about its own {label}.",
        "Which model is picked by chance and not by the record:",
        [*below, f"Together the models read {', '.join(map(quoted, names))}."],
    ]


def _asked_of_model(campaign: Campaign, evaluated: Evaluated) -> Facts:
    label, header = quoted(campaign.schema.label.name), evaluated.header
    read = ", ".join(quoted(feature.name) for feature in evaluated.schema.features)
    noises = dict.fromkeys(question.mechanism.describe() for question in campaign.questions)
    return [
        f"Once per {period_in_words(campaign.time_precision)} the device answers whether a model is right:",
        [
            f"- its {label} together with what the installed model predicts from {read}: {'; or '.join(noises)}",
            [f"The model is {quoted(header.name)}, version {header.version}."],
        ],
    ]


def _strata(campaign: Campaign) -> list[list[SubjectChance]]:
    """Return what each answer of a period may be about, with the summed chances of all questions about one subject."""
    found: list[dict[Subject, tuple[int, dict[str, None]]]] = [{} for _ in range(campaign.answers)]
    for number, question in enumerate(campaign.questions):
        low, high = campaign.assignment.interval(number, question.stratum)
        width, noises = found[question.stratum].get(question.subject, (0, {}))
        noises[question.mechanism.describe()] = None
        found[question.stratum][question.subject] = width + high - low, noises
    parts = [
        [SubjectChance(subject, width, tuple(noises)) for subject, (width, noises) in each.items()] for each in found
    ]
    return [sorted(stratum, key=lambda part: -_permille(part.width)) for stratum in parts]


def _listed(stratum: list[SubjectChance], names: Names) -> list[str]:
    likely = [part.width > _ALWAYS_LISTED or place < _MAX_RARE_LISTED for place, part in enumerate(stratum)]
    lines = [part.line(names.subject(part.subject)) for part, alone in zip(stratum, likely, strict=True) if alone]
    rest = [part for part, alone in zip(stratum, likely, strict=True) if not alone]
    if rest:
        together = _percent(sum(part.width for part in rest))
        subjects = ", ".join(names.subject(part.subject) for part in rest)
        lines.append(f"- {together}  together, {_percent(max(part.width for part in rest))} at most each: {subjects}")
    return lines


def _permille(width: int) -> int:
    return (2000 * width + _WORD) // (2 * _WORD)


def _percent(width: int) -> str:
    """Return a chance as text (2^32 is certain). A chance above 0 is never shown as 0 %.

    >>> _percent(1), _percent(1 << 31), _percent(1431655766)
    ('under 0.1%', '50%', '33.3%')
    """
    tenths = _permille(width)
    return f"{tenths / 10:g}%" if tenths else "under 0.1%"


_MOST_LISTED = 40
"""Most sums that an explanation lists one by one."""
_NEIGHBOURS = {
    ADD_REMOVE: "a record more or less",
    CHANGE: "a changed record",
    CHANGE_FEATURES: "a record with the same label and other features",
}
_NEIGHBOURS_OF_PARTY = {
    ADD_REMOVE: "this node with or without its records",
    CHANGE: "other records of this node",
    CHANGE_FEATURES: "records of this node with the same labels and other features",
}
"""Kind of adjacency → the data sets that ε compares, in words, if all records of a node are protected together."""
UNCOVERED = "not covered"
_SHARED_NOISE = "The noise of this node alone hides little. The noise of all protects the total"
_PERSON = "A person with several records in the node costs that many times ε."


def costs(campaign: Campaign, epsilon_micro: int | None = None) -> dict[str, str]:
    """Return kind of adjacency → ε as text of a summary made with ``epsilon_micro``; None for the campaign's ε."""
    from protocol.nodes.terms import cost_micro

    found = {}
    for kind in _NEIGHBOURS:
        try:
            found[kind] = format_micro(cost_micro(campaign, kind, epsilon_micro))
        except PolicyError:
            found[kind] = UNCOVERED
    return found


def sums_in_words(campaign: Campaign) -> Facts:
    """Return in words every sum that a node sends for a campaign for nodes."""
    from protocol.nodes.terms import released_vectors

    assert campaign.nodes is not None
    names, subjects = Names(campaign.schema), released_vectors(campaign)
    count = sum(subject.size for subject in subjects)
    often, listed = period_in_words(campaign.time_precision), quoted(campaign.nodes.list_name)
    sent, noise, masked = "signed summary of all its records", "random noise", campaign.masked
    if masked is not None:
        which = "all its" if masked.unit == RECORD else f"its first {campaign.nodes.max_records}"
        sent, noise = f"signed and encrypted message about {which} records", "a part of the noise of their total"
    below: Facts = [f"{count} numbers, each with {noise}, in {len(subjects)} groups that share ε equally:"]
    below += [f"- {_sum(subject, names, campaign)}" for subject in subjects[:_MOST_LISTED]]
    if len(subjects) > _MOST_LISTED:
        below.append(f"- and {len(subjects) - _MOST_LISTED} more groups of the same kinds about other features")
    if campaign.nodes.max_records and (masked is None or masked.unit == RECORD):
        below.append(f"The campaign is for nodes of at most {campaign.nodes.max_records} records.")
    return [
        f"Once per {often} a node that is on the list {listed} sends one {sent}:",
        [*below, *names.footnotes],
    ]


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


def cost_in_words(campaign: Campaign, policy: Policy, booked: str | None = None) -> Facts:
    """Return the ε of a summary for each kind of adjacency, and which of them the node's ledger counts.

    ``booked`` is the adjacency whose ε the ledger counts since the first summary; None if there was none yet.
    """
    from protocol.nodes.terms import GLOBAL

    assert campaign.nodes is not None
    counted = booked or policy.node_adjacency
    if campaign.masked is not None:
        return _masked_cost(campaign, campaign.masked, counted)
    found = costs(campaign)
    below: Facts = [
        f"ε = {shown} for {_NEIGHBOURS[kind]} ({kind})" for kind, shown in found.items() if shown != UNCOVERED
    ]
    below += [
        f"The noise does not cover {_NEIGHBOURS[kind]} ({kind})." for kind, shown in found.items() if shown == UNCOVERED
    ]
    below += [f"The owner's limits and the ledger count the ε of {counted} (node_adjacency).", _PERSON]
    least = campaign.nodes.least_epsilon_micro
    if least < campaign.epsilon_micro:
        most = format_micro(campaign.epsilon_micro)
        kind = ADD_REMOVE if campaign.nodes.sensitivity == GLOBAL else CHANGE_FEATURES
        below.append(f"A node may ask for more noise: an ε from {format_micro(least)} to {most} of {kind}.")
    return ["Cost of one summary, which bounds what the summary tells about one record:", below]


def _masked_cost(campaign: Campaign, terms: MaskedTerms, counted: str) -> Facts:
    from protocol.masked.costs import cost

    is_record = terms.unit == RECORD
    about = "one record" if is_record else "all records of this node together"
    below: Facts = []
    for kind, neighbours in (_NEIGHBOURS if is_record else _NEIGHBOURS_OF_PARTY).items():
        micro, delta = cost(campaign, kind)
        below.append(f"ε = {format_micro(micro)}, δ = {format_pico(delta)} for {neighbours} ({kind})")
    below.append(f"The owner's limits and the ledger count the cost of {counted} (node_adjacency).")
    if is_record:
        below.append(_PERSON)
    honest, colluding = (format_micro(100 * share) for share in (terms.honest_micro, terms.colluding_micro))
    return [
        f"Cost of one message, which bounds what the decrypted total of all nodes tells about {about}:",
        below,
        "Whom this rests on, beside this node:",
        [
            f"The dealer of the keys, {keyid(terms.dealer).hex()}. The dealer and the messages tell every node's sums.",
            "Allow the campaign only if you trust the dealer to keep the keys, away from the aggregator.",
            f"{_SHARED_NOISE}: the cost holds if at least",
            f"{honest} % of the nodes add theirs, and at most {colluding} % more tell the aggregator what they added.",
        ],
    ]


_MOST_TEXT = 400
_MOST_NAMES = 12
_MOST_NAME = 60
_MOST_COUNT = 10**15
_NOT_STATED, _NEVER = "not stated", "never predicted"
_UNKNOWN_ADVANTAGE = "It is not known whether it is right more often"
_SHARE = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?")
_KINDS = {
    "local": (
        "reports of devices",
        "each device added noise to its own answers, so nobody had to be trusted with a record",
        "whoever controls many devices, or invents reports",
    ),
    "federated": (
        "records of nodes (a noisy number)",
        "each node read its own records and added noise to their sums",
        "each node, by sums of records that it does not have; nobody sees that",
    ),
    "distributed": (
        "records of parties (a noisy number)",
        "the sums of the parties were opened only together; the dealer of the keys and the parties were trusted",
        "each party, by sums of records that it does not have; nobody sees that",
    ),
    "central": (
        "records",
        "a curator saw all records and added noise to what was published",
        "the curator, who chose the records",
    ),
    "pilot": (
        "records of a pilot",
        "whoever counted the pilot saw its records, whose people agreed to exact counts",
        "whoever counted the pilot",
    ),
}
"""Kind of trust → what was counted, on what the privacy rests, and who could have falsified the numbers."""


def model_in_words(model: Model, digest: bytes) -> Facts:
    """Return what the model with the id ``digest`` was learned from, its ε and accuracy, and who could falsify it."""
    header, schema, card = model.header, model.schema, model.card
    counted, rests, movers = _of_trust(_text(card, "trust"))
    threats, reach = _text(card, "threats"), _text(card, "reach_of_lies")
    beats, recall = card.get("beats_largest_class"), card.get("expected_recall")
    closing: Facts = []
    if beats != "yes":
        known = "By its own statistics it is right no more often" if beats == "no" else _UNKNOWN_ADVANTAGE
        closing.append(f"{known} than who always says the largest class.")
    never = [name for name in schema.label.classes if recall.get(name) == _NEVER] if isinstance(recall, dict) else []
    if never:
        closing.append(f"By its own statistics it never says {_names(never)}.")
    return [
        f"Model {quoted(header.name)}, version {header.version}",
        [
            f"id         {digest.hex()}",
            f"in words   {to_words(digest)}",
            f"from       {shown_date(header.not_before)} to {shown_date(header.expires)}",
            f"predicts   {_name(schema.label.name)}: {_names(schema.label.classes)}",
            f"reads      {_names([feature.name for feature in schema.features])}",
        ],
        "",
        "Its publisher says, which this device can not check:",
        [
            f"purpose             {_text(card, 'purpose') or _NOT_STATED}",
            f"learned from        {_text(card, 'reports') or 'an unknown number of'} {counted}",
            f"at a cost of        {_card_cost(card)}",
            f"privacy rests on    {rests}",
            f"expected right      {_accuracy(card)}",
            f"the largest class   {_share(card, 'largest_class')} of the records, right without any model",
            f"moved by            {movers}{'; ' if reach else ''}{reach}",
            *([f"it warns            {threats}"] if threats else []),
        ],
        *closing,
    ]


def _of_trust(text: str) -> tuple[str, str, str]:
    """Return what was counted, on what privacy rests, and who could falsify it, for one or several kinds of trust."""
    if not text:
        return "reports or records", _NOT_STATED, _NOT_STATED
    kinds = [
        _KINDS.get(kind, ("reports or records", f"in the words of its publisher: {quoted(kind)}", _NOT_STATED))
        for kind in text.split("; ")
    ]
    counted, rests, movers = ("; ".join(dict.fromkeys(texts)) for texts in zip(*kinds, strict=True))
    return counted, rests, movers


def _card_cost(card: Mapping[str, object]) -> str:
    total, answer = _text(card, "epsilon_total"), _text(card, "epsilon_per_answer")
    delta = _text(card, "delta_total") or _text(card, "delta")
    when = " in all" if _text(card, "trust") == "central" or "series" in card else " in a period"
    found = f"ε = {total}{when}" if total else _NOT_STATED
    found += f", {answer} per answer" if total and answer and answer != total else ""
    return found + (f", δ = {delta}" if delta not in ("", "0") else "")


def _accuracy(card: Mapping[str, object]) -> str:
    least, most = _share(card, "expected_accuracy_low"), _share(card, "expected_accuracy_high")
    found = _share(card, "expected_accuracy")
    if found.endswith("%"):
        between = f" ({least} to {most})" if least.endswith("%") and most.endswith("%") else ""
        found += f" of the records{between} {_text(card, 'expected_accuracy_assumes')}".rstrip()
    return found


def _share(card: Mapping[str, object], key: str) -> str:
    """Return a share of the card as per cent; a text of another form, such as "not known yet", unchanged."""
    text = _text(card, key)
    return f"{float(text):.1%}" if _SHARE.fullmatch(text) else text or _NOT_STATED


def _text(card: Mapping[str, object], key: str) -> str:
    """Return an entry of the card, cut and on one line, if it is text or a whole number; else ""."""
    value = card.get(key)
    if type(value) is int and abs(value) < _MOST_COUNT:
        return str(value)
    return _cut(value, _MOST_TEXT) if isinstance(value, str) else ""


def _cut(text: str, most: int) -> str:
    return sentence(text[:most]).strip() + ("…" if len(text) > most else "")


def _name(text: str) -> str:
    return quoted(text[:_MOST_NAME]) + ("…" if len(text) > _MOST_NAME else "")


def _names(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(map(_name, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
