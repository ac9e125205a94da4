"""What a device can be asked, how a record becomes one input, and which question an id is given.

Source: docs/formats.md, section 2 (strata, weights, assignment); docs/math.md, section 3 (coding).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.mechanisms import Mechanism
    from protocol.schema import Schema

MAX_QUESTIONS = 65535
_WORD = 1 << 32

CLASS, CELL = "class", "cell"


class Question(NamedTuple):
    """One thing that a device can be asked.

    Attributes:
        kind: ``class`` (which class am I?) or ``cell`` (which pair of class and value?).
        feature: index of the feature, None for ``class``.
        size: number of possible inputs, K.
        stratum: which answer of a period this question belongs to.
        bound: B_j: ids with B_{j−1} ≤ first four bytes < B_j are asked this, within the stratum.
        mechanism: how the answer is perturbed.
    """

    kind: str
    feature: int | None
    size: int
    stratum: int
    bound: int
    mechanism: Mechanism

    def input_of(self, codes: Sequence[int], label_code: int, classes: int) -> int:
        """The input for one record: the class c, or a·k + c for value code a and k classes."""
        if self.feature is None:
            return label_code
        return codes[self.feature] * classes + label_code

    def to_dict(self) -> dict[str, Any]:
        """As a campaign carries it."""
        entry = {
            "kind": self.kind,
            "size": self.size,
            "stratum": self.stratum,
            "bound": self.bound,
            "mechanism": self.mechanism.to_dict(),
        }
        if self.feature is not None:
            entry["feature"] = self.feature
        return entry


class Subject(NamedTuple):
    """What a question is about, before it has a mechanism and a place: kind, feature index, size."""

    kind: str
    feature: int | None
    size: int


def discrete_subjects(schema: Schema) -> list[Subject]:
    """The questions of a discrete campaign: the class, then class × value of every feature."""
    classes = len(schema.label.classes)
    cells = [Subject(CELL, index, classes * feature.size) for index, feature in enumerate(schema.features)]
    return [Subject(CLASS, None, classes), *cells]


def build_questions(
    subjects: Sequence[Subject],
    answers: int,
    mechanism_for: Callable[[Subject], Mechanism],
    weights: Sequence[int] | None = None,
) -> tuple[Question, ...]:
    """Divide subjects, in order, into ``answers`` strata of nearly equal size, and give ids intervals.

    Args:
        subjects: what is asked, Q of them.
        answers: r, 1 … Q: 1 asks each device one question, Q asks every question.
        mechanism_for: the mechanism of a subject, at the ε of one answer.
        weights: positive integers, one per subject, chosen before any data is seen; equal by default.

    Raises:
        InputError: ``answers_invalid``, ``weights_invalid``.
    """
    count = len(subjects)
    if type(answers) is not int or not 1 <= answers <= count <= MAX_QUESTIONS:
        raise InputError("answers_invalid", f"a device gives 1 to {count} answers, one per question at most")
    weights = [1] * count if weights is None else list(weights)
    if len(weights) != count or not all(type(weight) is int and weight > 0 for weight in weights):
        raise InputError("weights_invalid", "weights are positive integers, one per question")
    questions = []
    for stratum in range(answers):
        members = range(-(-stratum * count // answers), -(-(stratum + 1) * count // answers))
        bounds = interval_bounds([weights[index] for index in members])
        for index, bound in zip(members, bounds, strict=True):
            subject = subjects[index]
            questions.append(Question(*subject, stratum, bound, mechanism_for(subject)))
    return tuple(questions)


def interval_bounds(weights: Sequence[int]) -> list[int]:
    """B_j = ⌊2^32·(w₁ + … + w_j)/Σw⌋.

    Raises:
        InputError: ``weights_invalid`` if a question would get an empty interval.
    """
    total = sum(weights)
    bounds, running, previous = [], 0, 0
    for weight in weights:
        running += weight
        bound = _WORD * running // total
        if bound <= previous:
            raise InputError("weights_invalid", "a weight is so small that its question would never be asked")
        bounds.append(bound)
        previous = bound
    return bounds


class Assignment:
    """Which question each id is asked, per stratum. Built once per campaign; used by both sides."""

    __slots__ = ("_bounds", "_first")

    def __init__(self, questions: Sequence[Question]) -> None:
        strata = questions[-1].stratum + 1
        self._bounds: list[list[int]] = [[] for _ in range(strata)]
        self._first = [0] * strata
        for index, question in enumerate(questions):
            if not self._bounds[question.stratum]:
                self._first[question.stratum] = index
            self._bounds[question.stratum].append(question.bound)

    def question_for(self, report_id: bytes, stratum: int) -> int:
        """Index in the campaign's questions of what this id is asked for this answer."""
        u = int.from_bytes(report_id[:4], "big")
        return self._first[stratum] + bisect_right(self._bounds[stratum], u)

    def interval(self, question: int, stratum: int) -> tuple[int, int]:
        """The half-open interval of first four bytes that are asked a question."""
        bounds = self._bounds[stratum]
        place = question - self._first[stratum]
        return (bounds[place - 1] if place else 0), bounds[place]
