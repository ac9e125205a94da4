"""The questions of a campaign in words: every subject that an answer may be about, with its chance and the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.features import Grouped
from protocol.projection import Component
from protocol.questions import MOMENT, MOMENTS, PRESENT, SQUARE
from protocol.shown import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.evaluation import Evaluated
    from protocol.questions import Subject
    from protocol.schema import Schema

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_WORD = 1 << 32
_ALWAYS_LISTED = _WORD // 100
"""Chance, out of 2^32, above which a subject always has a line of its own: 1 %."""
_MAX_RARE_LISTED = 12
_SHORT_NAME = 40
"""Most characters of a name that is written in full each time."""
_LONG_GROUP = 8
"""Most values that a feature's largest group lists by name."""


class Asked(NamedTuple):
    """A subject that one answer of a period may be about.

    Attributes:
        subject: what the questions ask about.
        width: chance, out of 2^32, that the answer is about this subject, summed over its questions.
        noises: descriptions of the mechanisms that perturb these answers.
    """

    subject: Subject
    width: int
    noises: tuple[str, ...]

    def line(self, names: Names) -> str:
        """One line with chance, subject and noise. ``names`` writes the names of features and classes."""
        return f"{_percent(self.width)}  {names.subject(self.subject)}: {'; or '.join(self.noises)}"


class Names:
    """Names of features, classes and labels for one explanation.

    A long name is written in full at its first mention, and later by its number. Lists of names that many subjects
    share are written once, at the end. So the length of an explanation is bounded by the length of the names plus a
    constant per question.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._observed, self._ungrouped = schema.observed, schema.ungrouped
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
        """Name an observed feature. A component of a projection is marked as one; a footnote lists its inputs."""
        observed = self._ungrouped[number]
        name = self._name("feature", number, observed.name)
        if not isinstance(observed, Component):
            return name
        projection = self._schema.projection
        if projection is not None and ("computed", 0) not in self._mentioned:
            self._mentioned.add(("computed", 0))
            names = ", ".join(quoted(self._schema.features[place].name) for place in projection.inputs)
            self.footnotes.append(f"  Each component is computed from {names}.")
        return f"{name} (a component)"

    def counted(self, number: int) -> str:
        """Name the observed feature with this index, with its groups if it has groups."""
        observed = self._observed[number]
        groups = self._groups(number, observed) if isinstance(observed, Grouped) else ""
        return f"{self._feature(number)}{groups}"

    def _numbers(self) -> str:
        if ("numbers", 0) not in self._mentioned:
            self._mentioned.add(("numbers", 0))
            names = ", ".join(self._feature(number) for number in self._schema.numeric)
            self.footnotes.insert(0, f"  All numbers are {names}.")
        return "all numbers"

    def subject(self, asked: Subject) -> str:
        """Name the subject of a question, together with the label, which every answer involves."""
        kind, feature, _, power, of_class = asked[:5]
        label = self._name("label", 0, self._schema.label.name)
        square = "the squares of " if kind == MOMENTS else "the square of "
        square = square if power == SQUARE else ""
        if kind == MOMENTS:
            return f"{square}{self._numbers()}, together with its {label}"
        if feature is None:
            return f"its {label}"
        name = self._feature(feature)
        observed = self._observed[feature]
        if isinstance(observed, Grouped):
            return f"which group {name} is in{self._groups(feature, observed)}, together with its {label}"
        if kind == PRESENT:
            return f"whether {name} is known, together with its {label}"
        if kind == MOMENT and of_class is not None:
            return f"{square}{name} if its {label} is {self._class(of_class)}, else 0"
        return f"{square if kind == MOMENT else ''}{name} together with its {label}"

    def _groups(self, number: int, grouped: Grouped) -> str:
        """The groups of a feature in words, at its first mention. The largest group, if it is long, is the rest."""
        if ("groups", number) in self._mentioned:
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


def questions_in_words(campaign: Campaign, evaluated: Sequence[Evaluated]) -> list[str]:
    """Lines that name every subject of the questions, the most likely first, and the noise of the answers.

    Args:
        campaign: a verified campaign that has not ended.
        evaluated: the models that the campaign evaluates; empty if it evaluates none.
    """
    if evaluated:
        return _asked_of_models(campaign, evaluated) if campaign.models else _asked_of_model(campaign, evaluated[0])
    names, strata = Names(campaign.schema), _strata(campaign)
    often = f"Once per {period_in_words(campaign.time_precision)} the device answers"
    if campaign.answers == len(campaign.questions):
        lines = [f"{often} all of these questions:"]
        lines += [f"  - {part.line(names)}" for stratum in strata for part in stratum]
    elif campaign.answers == 1:
        lines = [f"{often} one of these questions, picked by chance and not by the record:"]
        lines += _listed(strata[0], names)
    else:
        lines = [f"{often} {campaign.answers} questions, each picked by chance and not by the record:"]
        for number, stratum in enumerate(strata, 1):
            lines += [f"  answer {number}, one of", *_listed(stratum, names)]
    return lines + names.footnotes + _not_asked(campaign)


def _not_asked(campaign: Campaign) -> list[str]:
    """A line that names the features that no answer depends on, though the campaign states them."""
    read = {feature.name for feature in campaign.schema.features}
    rest = [quoted(feature.name) for feature in campaign.stated.features if feature.name not in read]
    return [f"  It does not ask about {', '.join(rest)}."] if rest else []


def _asked_of_models(campaign: Campaign, evaluated: Sequence[Evaluated]) -> list[str]:
    """Lines for an evaluation of several models. Every feature that one of the models reads is named once."""
    label, period = quoted(campaign.schema.label.name), period_in_words(campaign.time_precision)
    lines = [
        f"Once per {period} the device answers with one bit whether a model is right about its own {label}.",
        "Which model is picked by chance and not by the record:",
    ]
    for part in _strata(campaign)[0]:
        model = evaluated[part.subject.model or 0]
        count = len(model.schema.features)
        reads = f"reads {count} feature{'' if count == 1 else 's'}"
        name = f"{quoted(model.header.name)}, version {model.header.version}, which {reads}"
        lines.append(f"  - {_percent(part.width)}  {name}: {'; or '.join(part.noises)}")
    names = dict.fromkeys(feature.name for model in evaluated for feature in model.schema.features)
    lines.append(f"  Together the models read {', '.join(map(quoted, names))}.")
    return lines


def _asked_of_model(campaign: Campaign, evaluated: Evaluated) -> list[str]:
    """Lines for an evaluation. Its answers depend on every feature that the model reads, so these are named."""
    label, header = quoted(campaign.schema.label.name), evaluated.header
    read = ", ".join(quoted(feature.name) for feature in evaluated.schema.features)
    noises = dict.fromkeys(question.mechanism.describe() for question in campaign.questions)
    return [
        f"Once per {period_in_words(campaign.time_precision)} the device answers whether a model is right:",
        f"  - its {label} together with what the installed model predicts from {read}: {'; or '.join(noises)}",
        f"    The model is {quoted(header.name)}, version {header.version}.",
    ]


def _strata(campaign: Campaign) -> list[list[Asked]]:
    """The subjects of each stratum, the most likely first.

    The chances of all questions about one subject are added. So a publisher can not make a subject look rare by
    splitting it into many questions.
    """
    found: list[dict[Subject, tuple[int, dict[str, None]]]] = [{} for _ in range(campaign.answers)]
    for number, question in enumerate(campaign.questions):
        low, high = campaign.assignment.interval(number, question.stratum)
        width, noises = found[question.stratum].get(question.subject, (0, {}))
        noises[question.mechanism.describe()] = None
        found[question.stratum][question.subject] = width + high - low, noises
    parts = [[Asked(subject, width, tuple(noises)) for subject, (width, noises) in each.items()] for each in found]
    return [sorted(stratum, key=lambda part: -_permille(part.width)) for stratum in parts]


def _listed(stratum: list[Asked], names: Names) -> list[str]:
    """One line for each of the first 12 subjects and of those above 1 %; one line that names all others."""
    likely = [part.width > _ALWAYS_LISTED or place < _MAX_RARE_LISTED for place, part in enumerate(stratum)]
    lines = [f"  - {part.line(names)}" for part, alone in zip(stratum, likely, strict=True) if alone]
    rest = [part for part, alone in zip(stratum, likely, strict=True) if not alone]
    if rest:
        together = _percent(sum(part.width for part in rest))
        subjects = ", ".join(names.subject(part.subject) for part in rest)
        lines.append(f"  - {together}  together, {_percent(max(part.width for part in rest))} at most each: {subjects}")
    return lines


def _permille(width: int) -> int:
    return (2000 * width + _WORD) // (2 * _WORD)


def _percent(width: int) -> str:
    """A chance out of 2^32 as text. A chance above 0 is never shown as 0 %.

    >>> _percent(1), _percent(1 << 31), _percent(1431655766)
    ('under 0.1%', '50%', '33.3%')
    """
    tenths = _permille(width)
    return f"{tenths / 10:g}%" if tenths else "under 0.1%"


def period_in_words(seconds: int) -> str:
    """The length of a period, as :func:`duration` says it. Periods of whole days begin at midnight UTC."""
    return f"{duration(seconds)}{'' if seconds % _UNITS[0][0] else ' (UTC)'}"


def duration(seconds: int) -> str:
    """A length of time as text, in the largest unit that divides it: ``day``, ``2 hours``, ``90 seconds``."""
    for unit, name in _UNITS:
        if seconds % unit == 0:
            count = seconds // unit
            return name if count == 1 else f"{count} {name}s"
    return f"{seconds} seconds"
