"""The questions of a campaign, the input of a mechanism for a record, and the assignment of questions to report ids.

The questions are divided into *strata*. A device answers one question of each stratum; the report id decides which one.
Source: docs/formats.md, section 2 (strata, weights, assignment); docs/math.md, section 3 (coding).

The table :data:`SENSITIVITIES` says how much sums over the records of two neighbouring data sets differ at most, for
three meanings (:data:`ADJACENCIES`) of "neighbouring". u is a scaled number, |u| ≤ S = 65536.

    vector                                  add-remove   change   change-features
    counts of the classes                   1            2        0
    counts of value × class                 1            2        2
    counts of present/missing × class       1            2        2
    sums of u by class                      S            2S       2S
    sums of ⌊u²/S⌋ by class                 S            2S       S

Source: Dwork, McSherry, Nissim, Smith (TCC 2006); docs/math.md, sections 5 and 7.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import SCALE
from protocol.errors import InputError
from protocol.mechanisms import SINGLE, ValueMechanism
from protocol.schema import may_be_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.mechanisms import Mechanism
    from protocol.schema import Observation, Schema

MAX_QUESTIONS = 65535
_WORD = 1 << 32

CLASS, CELL, PRESENT, MOMENT, MOMENTS, OUTCOME = "class", "cell", "present", "moment", "moments", "outcome"
RIGHT = "right"

SQUARE = 2
"""The power of a second moment."""

SINGLE_NUMBER, ONE_PER_CLASS, ALL_AT_ONCE = "single", "vector", "joint"
"""Forms of moment questions: one feature in one class, one feature in all classes, or all features in all classes."""


class Subject(NamedTuple):
    """What a question is about: a property of a record.

    Attributes:
        kind: ``class`` (the record's class), ``cell`` (the pair of value code and class), ``present`` (whether the
            number is missing, and the class), ``moment`` (one feature's number or its square, in the record's class),
            ``moments`` (the numbers or squares of all numeric features), ``outcome`` (true and predicted class),
            ``right`` (whether one of several models predicts the true class).
        feature: index in ``Schema.observed``; None for ``class``, ``moments``, ``outcome`` and ``right``.
        size: number of coordinates of the input for ``moment`` and ``moments``, else number of possible inputs.
        power: 1 for the number, 2 for its square; None for other kinds than ``moment`` and ``moments``.
        of_class: class code of a moment about one feature in one class (:data:`SINGLE_NUMBER`), else None.
        model: index of the model that a ``right`` question is about, among the campaign's models; else None.
    """

    kind: str
    feature: int | None
    size: int
    power: int | None = None
    of_class: int | None = None
    model: int | None = None

    def input_of(self, observation: Observation, label_code: int, classes: int, predicted: int = 0) -> Any:
        """Return a mechanism's input, or a block's cell, for one record: an integer, or a tuple for moments of classes.

        For class c = ``label_code`` of k = ``classes``: ``class``: c. ``cell``: a·k + c for value code a. ``present``:
        k + c, or c if the number is missing. ``outcome``: c·k + predicted. ``right``: 1 if predicted = c, else 0. For
        moments let v be the scaled integer u of a number, or ⌊u²/S⌋ for power 2 (S = 65536), and 0 for a missing
        number. ``moment`` of one feature in all classes: a tuple of k integers with v at index c and 0 elsewhere.
        ``moments``: for numeric feature i the integer v at index i·k + c, and 0 elsewhere. ``moment`` in one class: w =
        v if ``of_class`` is c, else 0; for power 2 the input is 2w − S. The arguments are not checked.
        """
        kind, feature, size, power, of_class = self[:5]
        if kind == CLASS:
            return label_code
        if kind == OUTCOME:
            return label_code * classes + predicted
        if kind == RIGHT:
            return int(label_code == predicted)
        if kind == MOMENTS:
            vector = [0] * size
            numbers = observation.numeric
            for place, number in enumerate(numbers):
                vector[place * classes + label_code] = _moment(number, power)
            return tuple(vector)
        assert feature is not None
        if kind == CELL:
            return observation.codes[feature] * classes + label_code
        number = observation.numbers[feature]
        if kind == PRESENT:
            return (number is not None) * classes + label_code
        value = _moment(number, power)
        if of_class is None:
            return tuple(value if c == label_code else 0 for c in range(size))
        value = value if of_class == label_code else 0
        return 2 * value - SCALE if power == SQUARE else value


class Question(NamedTuple):
    """One question of a campaign.

    Attributes:
        subject: the property of a record that the question is about.
        stratum: number of the stratum (group of questions); a device gives one answer per stratum and period.
        bound: B_j of the stratum's question j. Report ids whose first four bytes, as an integer, are in [B_{j−1}, B_j)
            answer the question.
        mechanism: perturbs the answer.
    """

    subject: Subject
    stratum: int
    bound: int
    mechanism: Mechanism

    @property
    def kind(self) -> str:
        """Kind of the subject, for example ``cell``; see :class:`Subject`."""
        return self.subject.kind

    @property
    def feature(self) -> int | None:
        """Index in ``Schema.observed`` of the question's feature, or None if it is about no single feature."""
        return self.subject.feature

    @property
    def size(self) -> int:
        """Number of coordinates of the input of a moment question, else number of possible inputs."""
        return self.subject.size

    def input_of(self, observation: Observation, label_code: int, classes: int, predicted: int = 0) -> Any:
        """Return the mechanism's input for one record (:meth:`Subject.input_of`)."""
        return self.subject.input_of(observation, label_code, classes, predicted)

    def to_dict(self) -> dict[str, Any]:
        """Return the question as the dict that a campaign's payload contains. Keys with the value None are left out."""
        entry = {
            "kind": self.kind,
            "size": self.size,
            "stratum": self.stratum,
            "bound": self.bound,
            "mechanism": self.mechanism.to_dict(),
        }
        named = {"feature": self.feature, "power": self.subject.power, "class": self.subject.of_class}
        named["model"] = self.subject.model
        entry.update({key: value for key, value in named.items() if value is not None})
        return entry


def _moment(number: int | None, power: int | None) -> int:
    """Return the scaled integer u (``number``), or ⌊u²/65536⌋ for ``power`` 2; 0 for a missing number."""
    if number is None:
        return 0
    return number if power == 1 else number * number // SCALE


def unfit(subject: Subject, mechanism: Mechanism, numbers: int) -> str:
    """Return why a mechanism may not be used for a subject, as a sentence for people, or the empty text if it may.

    A mechanism must perturb every possible input of the subject: otherwise the mere existence of a report would depend
    on the record. ``outcome`` and ``right`` allow only ``direct``. ``numbers`` counts the numeric observed features.
    """
    if mechanism.size != subject.size:
        return "a mechanism is of another size than its question"
    takes_value = isinstance(mechanism, ValueMechanism)
    if subject.kind in (OUTCOME, RIGHT):
        return "" if mechanism.name == "direct" else "an evaluation is answered by direct alone"
    if subject.kind not in (MOMENT, MOMENTS):
        return "" if takes_value else "a mechanism of numbers is asked for a value"
    if subject.of_class is not None:
        fits = mechanism.layout == SINGLE
    else:
        fits = mechanism.layout != SINGLE
        fits = fits and mechanism.most_nonzero >= (numbers if subject.kind == MOMENTS else 1)
    return "" if fits and not takes_value else "a mechanism can not take every input of its question"


def discrete_subjects(schema: Schema) -> list[Subject]:
    """Return the subjects of a discrete campaign on ``schema``: the class, then one ``cell`` per observed feature."""
    classes = len(schema.label.classes)
    cells = [Subject(CELL, index, classes * feature.size) for index, feature in enumerate(schema.observed)]
    return [Subject(CLASS, None, classes), *cells]


def gaussian_subjects(schema: Schema, form: str) -> list[Subject]:
    """Return the subjects of a Gaussian campaign with k classes and n numeric observed features, in order.

    These are the class; the cells (value-class pairs) of categorical features; the presence of numeric features that
    may be missing; all first moments; all second moments. Moments have the ``form`` :data:`SINGLE_NUMBER` (n·k
    questions per power), :data:`ONE_PER_CLASS` (n per power) or :data:`ALL_AT_ONCE` (one per power).

    Raises:
        InputError: ``no_numbers``: the schema has no numeric feature.
    """
    classes = len(schema.label.classes)
    observed, ungrouped = schema.observed, schema.ungrouped
    numeric = schema.numeric
    if not numeric:
        raise InputError("no_numbers", "a Gaussian model needs a numeric feature; this schema has none")
    subjects = [Subject(CLASS, None, classes)]
    subjects += [
        Subject(CELL, index, classes * feature.size) for index, feature in enumerate(observed) if index not in numeric
    ]
    subjects += [Subject(PRESENT, index, 2 * classes) for index in numeric if may_be_missing(ungrouped[index])]
    for power in (1, 2):
        if form == ALL_AT_ONCE:
            subjects.append(Subject(MOMENTS, None, len(numeric) * classes, power))
        elif form == ONE_PER_CLASS:
            subjects += [Subject(MOMENT, index, classes, power) for index in numeric]
        else:
            subjects += [Subject(MOMENT, index, 1, power, c) for index in numeric for c in range(classes)]
    return subjects


def outcome_subjects(schema: Schema) -> list[Subject]:
    """Return the one subject of an evaluation: the pair of true and predicted class of ``schema``'s label."""
    return [Subject(OUTCOME, None, len(schema.label.classes) ** 2)]


def right_subjects(models: int) -> list[Subject]:
    """Return the subjects of an evaluation that compares ``models`` models: whether each of them is right."""
    return [Subject(RIGHT, None, 2, model=index) for index in range(models)]


def build_questions(
    subjects: Sequence[Subject],
    answers: int,
    mechanism_for: Callable[[Subject], Mechanism],
    weights: Sequence[int] | None = None,
) -> tuple[Question, ...]:
    """Divide subjects, in order, into ``answers`` strata of nearly equal size, and give each an interval of report ids.

    ``mechanism_for`` returns the mechanism of a subject, with the ε of one answer; its errors are passed on. A
    question's positive integer weight, chosen before any data is seen and equal by default, is its share of the ids of
    its stratum.

    Raises:
        InputError: ``answers_invalid``: ``answers`` is no integer from 1 to the number of subjects, or that is above
            65535; ``weights_invalid``: not one positive integer per subject, or a weight so small that its interval of
            ids would be empty.
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
            questions.append(Question(subject, stratum, bound, mechanism_for(subject)))
    return tuple(questions)


def interval_bounds(weights: Sequence[int]) -> list[int]:
    """Return the bounds B_j = ⌊2^32·(w₁ + … + w_j)/Σw⌋ of the questions of one stratum with the weights w₁, w₂, ….

    Raises:
        InputError: ``weights_invalid``: a question would get an empty interval.
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
    """The table of which question each report id answers, per stratum. Device and aggregator use it.

    The questions of a campaign must be in order of strata and bounds. This is not checked.
    """

    __slots__ = ("_bounds", "_first")

    def __init__(self, questions: Sequence[Question]) -> None:
        strata = questions[-1].stratum + 1 if questions else 0
        self._bounds: list[list[int]] = [[] for _ in range(strata)]
        self._first = [0] * strata
        for index, question in enumerate(questions):
            if not self._bounds[question.stratum]:
                self._first[question.stratum] = index
            self._bounds[question.stratum].append(question.bound)

    def question_for(self, report_id: bytes, stratum: int) -> int:
        """Return which question of ``stratum`` a report answers, as an index among all questions of the campaign.

        Only the first four bytes of ``report_id`` decide.
        """
        u = int.from_bytes(report_id[:4], "big")
        return self._first[stratum] + bisect_right(self._bounds[stratum], u)

    def interval(self, question: int, stratum: int) -> tuple[int, int]:
        """Return the bounds (low, high) of the report ids that answer a question, given by its index, in its stratum.

        Such an id's first four bytes, as an integer, are at least ``low`` and below ``high``.
        """
        bounds = self._bounds[stratum]
        place = question - self._first[stratum]
        return (bounds[place - 1] if place else 0), bounds[place]


ADD_REMOVE, CHANGE, CHANGE_FEATURES = "add-remove", "change", "change-features"
ADJACENCIES = (ADD_REMOVE, CHANGE, CHANGE_FEATURES)
"""Which data sets are neighbours. Differential privacy makes neighbours hard to tell apart.

``add-remove``: one data set has one record more; the number of records is not public. ``change``: one record is
replaced; the number of records is public. ``change-features``: the features of one record are replaced, its label
stays; the number of records of each class is public.
"""

_COUNTS = {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 2}
SENSITIVITIES: Mapping[tuple[str, int | None], Mapping[str, int]] = {
    (CLASS, None): {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 0},
    (CELL, None): _COUNTS,
    (PRESENT, None): _COUNTS,
    (MOMENT, 1): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: 2 * SCALE},
    (MOMENT, SQUARE): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: SCALE},
}
"""Kind and power of a subject → adjacency → L1 sensitivity of its sums over records, in counts or units of 1/S."""
