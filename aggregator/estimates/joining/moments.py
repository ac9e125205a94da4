"""One form of the moments that several sources asked for, so that their estimates of one number can be combined.

Campaigns ask about a number in one class, in all classes, or about all numbers at once; nodes sum every number in all
classes. Where two sources differ in the form, estimates of several numbers are divided into estimates of single ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.statistics import Statistics
from protocol.questions import MOMENT, MOMENTS, Subject


def of_one_form(parts: Sequence[Statistics]) -> list[Statistics]:
    """The statistics with moments in one form: unchanged if all sources have the same, else single numbers.

    Args:
        parts: statistics about one schema.
    """
    forms = {
        (one.subject.kind, one.subject.of_class is None)
        for part in parts
        for one in part.questions
        if one.subject.kind in (MOMENT, MOMENTS)
    }
    if len(forms) < 2:
        return list(parts)
    return [
        replace(part, questions=tuple(each for one in part.questions for each in _divided(one, part))) for part in parts
    ]


def _divided(one: QuestionEstimate, part: Statistics) -> list[QuestionEstimate]:
    """One estimate per number if the question is about the moments of several, else the question itself."""
    subject = one.subject
    if subject.kind not in (MOMENT, MOMENTS) or subject.of_class is not None:
        return [one]
    classes = len(part.schema.label.classes)
    return [_single(one, place, part.schema.numeric[place // classes] if subject.feature is None else subject.feature,
                    place % classes) for place in range(len(one.estimate))]  # fmt: skip


def _single(one: QuestionEstimate, place: int, feature: int, of_class: int) -> QuestionEstimate:
    """The estimate of the number at ``place``. It has no linear law: the law of the question is about all numbers."""
    cell = slice(place, place + 1)
    return replace(
        one,
        subject=Subject(MOMENT, feature, 1, one.subject.power, of_class),
        estimate=one.estimate[cell],
        noise_variance=one.noise_variance[cell],
        spread=one.spread[cell],
        interval=Interval(one.interval.low[cell], one.interval.high[cell]),
        devices_interval=Interval(one.devices_interval.low[cell], one.devices_interval.high[cell]),
        law=None,
        pairs=None,
        is_binomial=False,
        adds_up=False,
    )
