"""Expected accuracy of a model, computed from the statistics that the model is made from, without any records.

The model is tried on simulated records of many fleets that agree with the statistics. What these do not show, such as
dependent features, is the printed assumption :data:`ASSUMES`. Source: docs/math.md, section 4; decisions 42, 95.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import NORMAL_FAMILIES, NormalParameters, fit
from aggregator.models.postprocess.methods import simplex_prior
from aggregator.models.simulated_fleets import SimulatedFleet, cells_of_tables, fleets
from protocol.documents.model import TRUNCATED_GAUSSIAN, log_mass
from protocol.documents.payload import quoted

Term = Floats | NormalParameters


FLEETS = 150
RECORDS, FEWEST_RECORDS, WORK = 1500, 400, 100_000
"""Most and fewest records per fleet; between these limits, records × features × classes is at most ``WORK``."""
WIDEST_SHARE, WIDEST_ACCURACY = 0.2, 0.3
MOST_CELLS = 300_000
"""Fleets are simulated if all tables together have at most this number of entries; that takes about a minute."""
NOT_KNOWN = "not known yet"
UNDER_RULE = "not known under a robust rule"
ASSUMES = "if features are independent given the class, and no record lacks its label or a value that has a substitute"
ASSUMES_NORMAL = (
    "if features are independent given the class, numbers normal, and no record lacks its label or a value that has a "
    "substitute"
)


NEVER = "never predicted"
MOST_CLASSES, MOST_RECALL_BYTES = 64, 6000
"""Most classes, and most bytes, of the recall entries in a card. Classes that are never predicted come first."""
MOST_SHOWN = 12
"""Number of classes that a text for people names."""
_RECALL = re.compile(r"([01]\.\d{3}) \(([01]\.\d{3}) to ([01]\.\d{3})\)", re.ASCII)


class Recall(NamedTuple):
    """Expected share of class ``name`` that the model gives this class, and its range over the simulated fleets."""

    name: str
    expected: float | None
    least: float | None
    most: float | None

    @property
    def is_never(self) -> bool:
        """Whether the model gave no record of any simulated fleet this class."""
        return self.most == 0

    @property
    def shown(self) -> str:
        """The recall's interval as text for people."""
        if self.is_never:
            return NEVER
        if self.expected is None or self.least is None or self.most is None:
            return NOT_KNOWN
        return f"{self.least:.1%} to {self.most:.1%}"


class Foresight(NamedTuple):
    """Expected accuracy of a model, beside the share of the largest class and the recall of every class.

    ``accuracy``: mean over the simulated fleets, with ``least`` and ``most``. ``largest_class``: the accuracy of always
    predicting it, with its 95 % interval ``low`` to ``high`` (for all classes together, Bonferroni); ``beats``: whether
    the model is expected to be better. None is not known; ``not_known`` is the text in its place. ``assumes``: the
    assumption in words. ``recall``: one entry per class; empty if no fleet can be simulated.
    """

    accuracy: float | None
    largest_class: float
    low: float | None
    high: float | None
    beats: bool | None
    least: float | None = None
    most: float | None = None
    assumes: str = ASSUMES
    not_known: str = NOT_KNOWN
    recall: tuple[Recall, ...] = ()

    def to_card(self) -> dict[str, Any]:
        """Return the entries of a model's card. Numbers are text, because signed payloads carry no floats."""
        kept = _for_card(self.recall)
        recall = {one.name: _recall_text(one) for one in self.recall if one in kept}
        return {
            "expected_accuracy": self._said(self.accuracy),
            "expected_accuracy_low": self._said(self.least),
            "expected_accuracy_high": self._said(self.most),
            "expected_accuracy_assumes": self.assumes,
            "largest_class": f"{self.largest_class:.3f}",
            "largest_class_low": self._said(self.low),
            "largest_class_high": self._said(self.high),
            "beats_largest_class": self.not_known if self.beats is None else "yes" if self.beats else "no",
            **({"expected_recall": recall} if recall else {}),
        }

    def _said(self, share: float | None) -> str:
        return self.not_known if share is None else f"{share:.3f}"

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> Foresight:
        """Read the entries of :meth:`to_card` from a model's card; absent optional ones are not known."""
        beats = card["beats_largest_class"]
        return cls(
            _read(card["expected_accuracy"]),
            float(card["largest_class"]),
            _read(card["largest_class_low"]),
            _read(card["largest_class_high"]),
            beats=None if beats in (NOT_KNOWN, UNDER_RULE) else beats == "yes",
            least=_read(card.get("expected_accuracy_low", NOT_KNOWN)),
            most=_read(card.get("expected_accuracy_high", NOT_KNOWN)),
            assumes=card.get("expected_accuracy_assumes", ASSUMES),
            not_known=UNDER_RULE if card["expected_accuracy"] == UNDER_RULE else NOT_KNOWN,
            recall=tuple(_read_recall(*entry) for entry in dict(card.get("expected_recall", {})).items()),
        )

    @property
    def never(self) -> tuple[str, ...]:
        """The classes that the model never predicts."""
        return tuple(one.name for one in self.recall if one.is_never)

    @property
    def shown(self) -> str:
        """The expected accuracy as text for people: the smallest and largest value, and the assumption."""
        if self.accuracy is None:
            return self.not_known
        if self.least is None or self.most is None:
            return f"{self.accuracy:.1%}, {self.assumes}"
        return f"{self.least:.1%} to {self.most:.1%}, {self.assumes}"

    @property
    def largest_shown(self) -> str:
        """The largest class's share as text for people, with its interval."""
        if self.low is None or self.high is None:
            return f"{self.largest_class:.1%} (interval {self.not_known})"
        return f"{self.largest_class:.1%} ({self.low:.1%} to {self.high:.1%})"

    @property
    def warning(self) -> str | None:
        """A warning, or None if the model is expected to be better than always predicting the largest class."""
        if self.not_known == UNDER_RULE:
            return f"{self.doubt}; test the model on records with labels"
        return None if self.beats else f"{self.doubt}; gather more reports, or ask fewer questions"

    @property
    def recall_warning(self) -> str | None:
        """A warning if the model never predicts some class; None if it predicts all, or if that is not known."""
        if not self.never:
            return None
        return (
            f"the model never predicts {_listed(self.never)}, by all records of {FLEETS} simulated fleets: gather more "
            "reports, use a larger ε, or join rare classes into one"
        )

    @property
    def recall_shown(self) -> str:
        """The expected recall of every class as text for people, the first :data:`MOST_SHOWN` classes."""
        if not self.recall:
            return self.not_known
        shown = [f"{one.name} {one.shown}" for one in self.recall[:MOST_SHOWN]]
        more = len(self.recall) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)

    def reconciled(self, measured: float, low: float, high: float) -> str:
        """Return a sentence that compares the expected accuracy with ``measured``, and says why they may differ.

        ``low``, ``high``: the 95 % interval of the measured accuracy for the population.
        """
        found = f"{min(max(measured, 0.0), 1.0):.1%} ({max(low, 0.0):.1%} to {min(high, 1.0):.1%})"
        if self.accuracy is None or self.least is None or self.most is None:
            return f"The accuracy is {found}, as devices measured it; what was expected is {self.not_known}."
        said = f"{self.accuracy:.1%} ({self.least:.1%} to {self.most:.1%})"
        if self.least <= high and low <= self.most:
            return f"The accuracy is {found}, as devices measured it; it agrees with the {said} that was expected."
        side, why = (
            ("below", "so the assumptions do not hold, for example because features depend on each other")
            if high < self.least
            else ("above", "so the statistics, or what was assumed with them, told too little of it")
        )
        return f"The accuracy is {found}, as devices measured it; it is {side} the {said} that was expected, {why}."

    @property
    def doubt(self) -> str:
        """The warning about a model that is not expected to beat the largest class, without its advice."""
        found = "" if self.accuracy is None else f" (expected: {self.shown})"
        if self.beats is None:
            when = "under a robust rule" if self.not_known == UNDER_RULE else "yet"
            said = f"it can not be told {when} whether the model{found} is right more often than who"
        else:
            said = f"by its own statistics the model{found} is right no more often than who"
        return f"{said} always says the largest class: {self.largest_shown}"


def _listed(names: Sequence[str]) -> str:
    """Return names in quotes, the first :data:`MOST_SHOWN` of them, and the number of further ones."""
    more = [f"and {len(names) - MOST_SHOWN} more"] if len(names) > MOST_SHOWN else []
    return ", ".join([*map(quoted, names[:MOST_SHOWN]), *more])


def _read(text: str) -> float | None:
    return None if text in (NOT_KNOWN, UNDER_RULE) else float(text)


def _for_card(recall: Sequence[Recall]) -> list[Recall]:
    """Return the recalls that a card holds: first of classes never predicted, then others while there is room."""
    kept, left = list[Recall](), MOST_RECALL_BYTES
    for one in sorted(recall, key=lambda one: not one.is_never)[:MOST_CLASSES]:
        left -= len(one.name.encode()) + len(_recall_text(one)) + 8
        if left >= 0:
            kept.append(one)
    return kept


def _recall_text(found: Recall) -> str:
    if found.is_never or found.expected is None:
        return found.shown
    return f"{found.expected:.3f} ({found.least:.3f} to {found.most:.3f})"


def _read_recall(name: str, text: str) -> Recall:
    """Return the recall that a card's text states for a class; not known if the text is of another form."""
    if text == NEVER:
        return Recall(name, 0.0, 0.0, 0.0)
    found = _RECALL.fullmatch(text) if isinstance(text, str) else None
    return Recall(name, *((None,) * 3 if found is None else map(float, found.groups())))


class _Tried(NamedTuple):
    """How the model did in F simulated fleets.

    ``right``, ``more``: shape (F,) float64, accuracy, and accuracy minus the largest class's share. ``recall``: shape
    (F, k) float64, recall of every class. ``never``: shape (k,) bool, whether a class was never predicted in any fleet.
    """

    right: Floats
    more: Floats
    recall: Floats
    never: NDArray[np.bool_]


def foresee(statistics: Statistics, postprocess: str) -> Foresight:
    """Compute the expected accuracy of the model that these statistics give, and the largest class's share.

    The model *beats the largest class* if it is right more often than that class is frequent in all fleets. It does not
    if its largest accuracy is below the interval of the largest class's share; "better in no fleet" is no reason,
    because few reports hide the small gain of a model where one class is rare. Else the answer is not known.

    The accuracy is known if the interval of the largest class is at most :data:`WIDEST_SHARE` wide, and the interval of
    the accuracy at most :data:`WIDEST_ACCURACY`. Nothing is known if a curator's noise has no variance (Cauchy), or if
    the tables have more than :data:`MOST_CELLS` entries; under a robust rule, the interval of the largest class is not
    known either. The statistics' id seeds the simulation, so the same statistics give the same numbers. Raises
    InputError: ``postprocess_unknown``; ``not_fittable``: the campaign lacks a question that the model needs.
    """
    prior = simplex_prior(statistics)
    largest = int(prior.argmax())
    assumes = ASSUMES_NORMAL if statistics.fit.family in NORMAL_FAMILIES else ASSUMES
    if not all(one.has_interval for one in statistics.questions):
        fit(statistics, postprocess)  # It raises if no model can be made; the result is not needed.
        return Foresight(None, float(prior[largest]), None, None, None, assumes=assumes, not_known=UNDER_RULE)
    shares = class_shares(statistics)
    spread = np.sqrt(np.where(np.isfinite(shares.ratio_variance), shares.ratio_variance, 1.0))
    reach = NormalDist().inv_cdf(1 - 0.025 / len(prior)) * spread[largest]
    low, high = (float(np.clip(np.nan_to_num(shares.ratio[largest]) + side * reach, 0, 1)) for side in (-1, 1))
    low, high = min(low, float(prior[largest])), max(high, float(prior[largest]))
    share = (float(prior[largest]), low, high)
    too_large = cells_of_tables(statistics) > MOST_CELLS
    unbounded = too_large or any(one.n and np.isinf(one.noise_variance).any() for one in statistics.questions)
    if high - low > WIDEST_SHARE or unbounded:
        fit(statistics, postprocess)  # It raises if no model can be made; the result is not needed.
        return Foresight(None, *share, None, None, None, assumes)
    tried = _tried(statistics, postprocess)
    least, most = float(tried.right.min()), float(tried.right.max())
    beats = True if tried.more.min() > 0 else False if most < low else None
    recall = tuple(
        _recalled(name, of, is_never=bool(never))
        for name, of, never in zip(statistics.schema.label.classes, tried.recall.T, tried.never, strict=True)
    )
    if most - least > WIDEST_ACCURACY:
        return Foresight(None, *share, beats, None, None, assumes, recall=recall)
    return Foresight(float(tried.right.mean()), *share, beats, least, most, assumes, recall=recall)


def _recalled(name: str, found: Floats, *, is_never: bool) -> Recall:
    if is_never:
        return Recall(name, 0.0, 0.0, 0.0)
    return Recall(name, float(found.mean()), float(found.min()), max(float(found.max()), 0.001))


def _tried(statistics: Statistics, postprocess: str) -> _Tried:
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    log_prior, terms = fit(statistics, postprocess)
    number = min(RECORDS, max(FEWEST_RECORDS, WORK // (len(terms) * len(log_prior))))
    is_truncated = statistics.fit.family == TRUNCATED_GAUSSIAN
    drawn, found, errors = list(fleets(statistics, generator, FLEETS)), [], []
    for fleet in drawn:
        each = np.maximum(np.rint(number * fleet.prior), number // (4 * len(log_prior))).astype(np.int64)
        label = np.repeat(np.arange(len(each)), each)
        answers, chance = _answers(fleet, label, log_prior, terms, generator, is_truncated=is_truncated)
        right = chance[np.arange(len(label)), answers]
        ends = np.cumsum(each)[:-1]
        weight = fleet.prior / each
        told = np.zeros((len(each), len(each)))
        np.add.at(told, answers, chance * weight[label][:, None])
        found.append(told)
        errors.append(
            sum(w**2 * n * part.var() for w, n, part in zip(weight, each, np.split(right, ends), strict=True))
        )
    told = np.array(found)
    prior = np.array([fleet.prior for fleet in drawn])
    right = _without_error(np.trace(told, axis1=1, axis2=2), float(np.mean(errors)))
    recall = np.diagonal(told, axis1=1, axis2=2) / told.sum(axis=1)
    never = ~(told.sum(axis=2) > 0).any(axis=0)
    largest = np.take_along_axis(told.sum(axis=1), prior.argmax(axis=1)[:, None], 1)[:, 0]
    return _Tried(right, np.trace(told, axis1=1, axis2=2) - largest, recall, never)


def _without_error(found: Floats, error: float) -> Floats:
    """Return ``found`` pulled towards its mean, which takes off the variance ``error`` of the simulation itself."""
    middle, spread = found.mean(), found.var()
    return np.asarray(middle + (found - middle) * np.sqrt(max(0.0, 1 - error / max(spread, 1e-12))))


def _answers(
    fleet: SimulatedFleet,
    label: NDArray[np.int64],
    log_prior: Floats,
    terms: Sequence[Term],
    generator: np.random.Generator,
    *,
    is_truncated: bool,
) -> tuple[NDArray[np.int64], Floats]:
    """Return predictions for random records with the classes ``label``, and P(class | record), (records, k)."""
    score = np.tile(log_prior, (len(label), 1))
    true_score = np.tile(np.log(fleet.prior), (len(label), 1))
    at_end = np.zeros(len(label), bool)  # A clipped number has no density: P(own class | record) is then set to 1.
    for feature, term in zip(fleet.features, terms, strict=True):
        truth = feature.term
        if isinstance(truth, NormalParameters):
            assert isinstance(term, NormalParameters)
            x = np.clip(generator.normal(truth.mean[label], np.sqrt(truth.variance[label])), -1, 1)
            told, known = (
                -((x[:, None] - one.mean) ** 2) / (2 * one.variance) - np.log(one.variance) / 2 for one in (term, truth)
            )
            if is_truncated:
                told = told - np.array([log_mass(*pair) for pair in zip(term.mean, term.variance, strict=True)])
            is_there = generator.random(len(label)) < feature.there[label]
            at_end |= is_there & (np.abs(x) == 1)
            gone = np.log(np.maximum(1 - feature.there, 1e-12))
            true_score += np.where(is_there[:, None], known + np.log(np.maximum(feature.there, 1e-12)), gone)
        else:
            assert not isinstance(term, NormalParameters)
            ends = np.cumsum(truth, axis=0)[:, label]
            code = np.minimum((generator.random(len(label)) > ends).sum(axis=0), len(truth) - 1)
            told, is_there = term[code], code != feature.left_out
            true_score += np.log(truth)[code]
        score += np.where(is_there[:, None], told, 0.0)
    chance = np.exp(true_score - true_score.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    chance[at_end] = np.eye(len(log_prior))[label[at_end]]
    return np.asarray(score.argmax(axis=1), np.int64), chance
