"""Accuracy of published models, measured by private answers: a confusion matrix of one model, or the best of several.

A device answers with true·k + predicted (k classes), or whether one of several models predicts its class.
Sources: docs/math.md, sections 3 and 4; decision 64; Hsu, Annals of Statistics 12 (1984), 1136-1144 (the intervals);
Dunnett, JASA 50 (1955), 1096-1121 (the quantile); Zou, Donner, Statistics in Medicine 27 (2008), 1693-1702.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import erf, hypot, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.common.notebooks import facts, table
from aggregator.estimates.cells import NOT_DETERMINED, as_range, as_share
from aggregator.estimates.intervals import Interval, score_interval
from aggregator.estimates.joining import joined_question, of_one_series
from aggregator.estimates.question_estimate import QuestionEstimate, Right
from aggregator.estimates.ratios import cell_variance, ratio_interval
from aggregator.estimates.statistics import Statistics
from protocol.documents.campaign import EVALUATION
from protocol.documents.payload import quoted
from protocol.errors import InputError, PolicyError
from protocol.questions import OUTCOME

COLUMNS = ("true", "predicted", "share", "these devices", "population")
RECALL_COLUMNS = ("class", "predicted", "recall", "these devices", "population")


class Confusion(NamedTuple):
    """One entry of the confusion matrix: share of the records with one true and one predicted class.

    ``share`` is unbiased and may be negative. ``low`` and ``high`` are the 95 % interval for the population of the
    devices, ``devices_low`` and ``devices_high`` for the devices that answered, each weighted by its number of answers;
    none is clipped to [0, 1].
    """

    true: str
    predicted: str
    share: float
    low: float
    high: float
    devices_low: float
    devices_high: float


class ClassRecall(NamedTuple):
    """Share of the records of the class ``name`` to which the model gives this class, with 95 % intervals.

    ``share`` is the quotient of the unbiased estimates (None if the class's share is not positive), ``predicted`` the
    share of all records given this class, unbiased. The intervals are for the population, and for the devices that
    answered.
    """

    name: str
    share: float | None
    predicted: float
    low: float
    high: float
    devices_low: float
    devices_high: float


class Evaluation(NamedTuple):
    """Accuracy and confusion matrix of a model, from the ``reports`` answers to an outcome campaign.

    ``confusion``: k² entries, ordered by true class, then by predicted class. ``populations``: texts: who each of the
    two intervals is about, and what the second one assumes. ``recall``: one entry per class; the intervals are [0, 1]
    if the mechanism states no covariances.
    """

    reports: int
    accuracy: Accuracy
    confusion: tuple[Confusion, ...]
    populations: Mapping[str, Any]
    recall: tuple[ClassRecall, ...] = ()

    def _repr_html_(self) -> str:
        about = {"answers": self.reports, "accuracy": as_share(self.accuracy.estimate)}
        about["95 % interval, these devices"] = as_range(self.accuracy.devices_low, self.accuracy.devices_high)
        about["95 % interval, population"] = as_range(self.accuracy.low, self.accuracy.high)
        about["assumed"] = self.populations["assumes"]
        return facts("Evaluation", about) + table(RECALL_COLUMNS, self.recall_rows()) + table(COLUMNS, self.rows())

    def recall_rows(self) -> list[tuple[str, ...]]:
        """Return the recall of every class as a row of text, with the columns :data:`RECALL_COLUMNS`."""
        return [
            (
                one.name,
                as_share(one.predicted),
                "not determined" if one.share is None else as_share(one.share),
                _ends(one.devices_low, one.devices_high),
                _ends(one.low, one.high),
            )
            for one in self.recall
        ]

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of text per entry of the confusion matrix: columns :data:`COLUMNS`, shares clipped to [0, 1]."""
        return [
            (
                cell.true,
                cell.predicted,
                as_share(cell.share),
                as_range(cell.devices_low, cell.devices_high),
                as_range(cell.low, cell.high),
            )
            for cell in self.confusion
        ]


def _ends(low: float, high: float) -> str:
    return "not determined" if (low, high) == (0, 1) else as_range(low, high)


def recall_of(found: QuestionEstimate, names: Sequence[str]) -> tuple[ClassRecall, ...]:
    """Return the recall of every class of ``names``, from the estimate of an outcome question with an answer.

    It is the entry (c, c) of the confusion matrix over the sum of its row, with Fieller's intervals
    (:mod:`aggregator.estimates.ratios`).
    """
    size = len(names)
    cells = np.asarray(found.estimate / found.n).reshape(size, size)
    share, right, given = cells.sum(axis=1), np.diagonal(cells), cells.sum(axis=0)
    low, high = np.zeros((2, size)), np.ones((2, size))
    if found.law is not None and found.pairs is not None and found.has_interval:
        scatters = np.array([found.scatter, found.devices_scatter])[:, None]
        variance = cell_variance(share, found.n, found.law, found.pairs, size, scatters)
        ends = ratio_interval(right, share, variance)
        low, high = ends.low, ends.high
    return tuple(
        ClassRecall(
            name,
            float(right[place] / share[place]) if share[place] > 0 else None,
            float(given[place]),
            *(float(part[row, place]) for row in (0, 1) for part in (low, high)),
        )
        for place, name in enumerate(names)
    )


def evaluate(statistics: Statistics) -> Evaluation:
    """Return accuracy and confusion matrix from the statistics of an outcome campaign. Run by the aggregator.

    Raises InputError ``not_an_evaluation``: of no model, or of several; ``mechanism_unknown``: no estimator for groups
    of values. Raises PolicyError ``batch_too_small``: fewer reports than the minimum, or none.
    """
    if statistics.fit.family != EVALUATION:
        raise InputError("not_an_evaluation", "the store's campaign makes a model; it evaluates none")
    if statistics.questions[0].subject.kind != OUTCOME:
        raise InputError(
            "not_an_evaluation",
            "the campaign compares several models; aggregator.models.measured_accuracy.rank",
        )
    statistics.check_publishable()
    found = statistics.questions[0]
    if found.n == 0:
        raise PolicyError("batch_too_small", "there are no usable reports yet")
    names = statistics.schema.label.classes
    columns = np.array([found.estimate, *found.interval, *found.devices_interval]) / found.n
    cells = [
        Confusion(true, predicted, *columns[:, i * len(names) + j].tolist())
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    return Evaluation(found.n, accuracy_of(found), tuple(cells), statistics.populations, recall_of(found, names))


class Accuracy(NamedTuple):
    """Share of right predictions: an unbiased estimate and two 95 % intervals.

    ``low`` and ``high`` are for the population of the devices, the other two for the devices that answered.
    """

    estimate: float
    low: float
    high: float
    devices_low: float
    devices_high: float


def accuracy_of(found: QuestionEstimate) -> Accuracy:
    """Return a model's accuracy from an outcome question with an answer. Raises ``mechanism_unknown``."""
    if found.right is None:
        raise InputError("mechanism_unknown", "the answers' mechanism has no estimator of the right predictions' share")
    scatter = np.array([found.scatter, found.devices_scatter])
    ends = score_interval(
        np.full(2, found.right.share), found.n, found.right.law, scatter, is_binomial=found.is_binomial
    )
    (low, of_devices), (high, of_devices_high) = ends.low.tolist(), ends.high.tolist()
    return Accuracy(found.right.share, low, high, of_devices, of_devices_high)


RANKING_COLUMNS = ("model", "answers", "accuracy", "these devices", "population", "minus the best other")
LEAST_ANSWERS = 2
"""Smallest number of answers about a model from which its accuracy is determined."""


class ModelRank(NamedTuple):
    """One of the compared models, with its accuracy and its difference to the best other model.

    ``accuracy``: None with fewer than :data:`LEAST_ANSWERS` answers; ``standard_error``: of its estimate. ``low``,
    ``high``: interval of its accuracy minus that of the best other model; None if not determined. The intervals of all
    models hold together with 95 %.
    """

    name: str
    model: bytes
    answers: int
    accuracy: Accuracy | None
    standard_error: float | None
    low: float | None
    high: float | None

    @property
    def can_be_best(self) -> bool | None:
        """Whether the answers leave open that this model is the best; None if it was not compared."""
        return None if self.high is None else self.high > 0


class Ranking(NamedTuple):
    """Compared models by falling estimated accuracy; models whose accuracy is not determined are last."""

    reports: int
    models: tuple[ModelRank, ...]
    populations: Mapping[str, Any]

    @property
    def candidates(self) -> tuple[ModelRank, ...]:
        """The models that may be the best. The best is among them with 95 %, if all models are compared."""
        return tuple(one for one in self.models if one.can_be_best)

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row of text per model, with the columns :data:`RANKING_COLUMNS` and shares clipped to [0, 1]."""
        return [_row(one) for one in self.models]

    def sentences(self) -> list[str]:
        """Return sentences that say which models may be the best and which are not."""
        found = []
        unknown = [quoted(one.name) for one in self.models if one.accuracy is None]
        worse = [quoted(one.name) for one in self.models if one.can_be_best is False]
        best = [quoted(one.name) for one in self.candidates]
        if len(best) == 1:
            found.append(f"{best[0]} is right most often of the models that are compared.")
        elif best:
            found.append(f"These can not be told from the best: {', '.join(best)}.")
            found.append("The largest of their estimates is too large on average.")
        if worse and len(best) > 1:
            found.append(f"Not the best: {', '.join(worse)}.")
        if unknown:
            found.append(f"Not compared, with fewer than {LEAST_ANSWERS} answers: {', '.join(unknown)}.")
        found.append("All intervals of a column hold together with a probability of 95 %.")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the output of ``hearsay evaluate show --json``; null where nothing is determined."""
        return {
            "reports": self.reports,
            "models": [
                {
                    "name": one.name,
                    "model": one.model.hex(),
                    "answers": one.answers,
                    "accuracy": None if one.accuracy is None else one.accuracy._asdict(),
                    "standard_error": one.standard_error,
                    "minus_best_other": None if one.low is None else {"low": one.low, "high": one.high},
                    "can_be_best": one.can_be_best,
                }
                for one in self.models
            ],
            "sentences": self.sentences(),
            "populations": dict(self.populations),
        }

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"answers": self.reports}
        about |= {f"so {number}": each for number, each in enumerate(self.sentences(), 1)}
        about["assumed"] = self.populations["assumes"]
        return facts("Models compared", about) + table(RANKING_COLUMNS, self.rows())


def _row(one: ModelRank) -> tuple[str, ...]:
    if one.accuracy is None:
        return (one.name, str(one.answers), NOT_DETERMINED, "", "", "")
    accuracy = one.accuracy
    return (
        one.name,
        str(one.answers),
        as_share(accuracy.estimate),
        as_range(accuracy.devices_low, accuracy.devices_high),
        as_range(accuracy.low, accuracy.high),
        "" if one.low is None or one.high is None else f"{_points(one.low)} to {_points(one.high)}",
    )


def _points(difference: float) -> str:
    """Return a difference of two shares, clipped to [−1, 1], in percent with sign: ``-3.1%``, ``0.0%``, ``+1.2%``."""
    clipped = round(min(max(difference, -1.0), 1.0), 3) + 0.0
    return f"{clipped:+z.1%}" if clipped else "0.0%"


def rank(*parts: Statistics, one_population: bool = False, disjoint: bool = False) -> Ranking:
    """Compare the models of one evaluation campaign, or of several campaigns whose devices are of one population.

    Answers about one model, known by its digest, are pooled over the campaigns. Models with fewer than
    :data:`LEAST_ANSWERS` answers are not compared. The intervals assume that the number of answers about a model does
    not depend on any answer. ``parts``: statistics of campaigns that compare models, at least one. ``one_population``,
    ``disjoint``: the analyst's declarations, as those of :func:`aggregator.estimates.joining.join`. Raises InputError:
    ``not_an_evaluation``: a campaign does not compare models; ``argument_invalid``: there are no statistics;
    ``several_sources``: statistics are joined; ``mechanism_unknown``; and those of ``join``. Raises PolicyError
    ``batch_too_small``: fewer reports than a campaign's minimum batch size.
    """
    in_series = of_one_series(parts)
    _check(parts, one_population=one_population or in_series)
    found = _pooled(parts, disjoint=disjoint or in_series)
    known = {digest: question for digest, (_, question) in found.items() if question.n >= LEAST_ANSWERS}
    population = [_share(question, question.scatter) for question in known.values()]
    devices = [_share(question, question.devices_scatter) for question in known.values()]
    ends = zip(population, together(population), together(devices), strict=True)
    accuracies = {
        digest: Accuracy(one.share, *both, *own) for digest, (one, both, own) in zip(known, ends, strict=True)
    }
    errors = {digest: share.standard_error for digest, share in zip(known, population, strict=True)}
    differences: dict[bytes, tuple[float, float]] = {}
    if len(known) > 1:
        against = against_the_best(population)
        differences = dict(zip(known, zip(against.low.tolist(), against.high.tolist(), strict=True), strict=True))
    ranked = [
        ModelRank(
            name,
            digest,
            question.n,
            accuracies.get(digest),
            errors.get(digest),
            *differences.get(digest, (None, None)),
        )
        for digest, (name, question) in found.items()
    ]
    ranked.sort(key=lambda one: (one.accuracy is None, 0.0 if one.accuracy is None else -one.accuracy.estimate))
    return Ranking(sum(one.answers for one in ranked), tuple(ranked), _populations(parts))


def _check(parts: Sequence[Statistics], *, one_population: bool) -> None:
    """Raise an error if statistics can not be ranked together; :func:`rank` lists the errors."""
    if not parts:
        raise InputError("argument_invalid", "give the statistics of at least one evaluation")
    campaigns = [part.campaign for part in parts]
    if not all(campaign.models for campaign in campaigns):
        raise InputError("not_an_evaluation", "the store's campaign does not compare several models")
    for part in parts:
        part.check_publishable()
    if len({campaign.id for campaign in campaigns}) < len(campaigns):
        raise InputError(
            "source_repeated",
            "a campaign's reports are counted in one store, which takes none twice; ingest them there",
        )
    if any(campaign.schema.label.to_dict() != campaigns[0].schema.label.to_dict() for campaign in campaigns):
        raise InputError("schema_differs", "the campaigns are about different labels or classes")
    if len(parts) > 1 and not one_population:
        raise InputError(
            "population_undeclared",
            "evaluations are pooled where the analyst declares them samples of one population, or are of one series",
        )


def _pooled(parts: Sequence[Statistics], *, disjoint: bool) -> dict[bytes, tuple[str, QuestionEstimate]]:
    """Return each model's digest → its name (with digits of the digest if it is not unique) and its pooled estimate."""
    asked: dict[bytes, list[QuestionEstimate]] = {}
    names: dict[bytes, str] = {}
    for part in parts:
        campaign = part.campaign
        names.update(zip(campaign.models, campaign.model_names, strict=True))
        for question in part.questions:
            asked.setdefault(campaign.models[question.subject.model or 0], []).append(question)
    borne = Counter(names.values())
    return {
        digest: (
            names[digest] if borne[names[digest]] == 1 else f"{names[digest]} ({digest.hex()[:8]})",
            joined_question(each, disjoint=disjoint),
        )
        for digest, each in asked.items()
    }


def _share(question: QuestionEstimate, scatter: float) -> Share:
    if question.right is None:
        raise InputError("mechanism_unknown", "the answers' mechanism has no estimator of the right predictions' share")
    return Share(question.right, question.n, scatter, question.is_binomial)


def _populations(parts: Sequence[Statistics]) -> Mapping[str, Any]:
    """Return in words who the intervals are about, by the first campaign, and what pooling several ones assumes."""
    first: dict[str, Any] = dict(parts[0].populations)
    if len(parts) > 1:
        first["assumes"] = (
            "the campaigns' devices are of one population, and no answer decided which models were asked about again; "
            f"{first['assumes']}"
        )
    return first


LEVEL = 0.95
"""Probability with which all intervals of one call hold together."""
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
_REACH = 9.0
_STEPS_PER_UNIT = 512
_NODES = 6.0 * np.linspace(-1, 1, 81)
"""Points of the trapezoidal rule for an expectation over a standard normal variable; the error is below 1e-9."""
_ROUNDS, _TRIED = 4, 17
"""Rounds of the search for a quantile, and values per round: they find it to 1e-4 of a standard error."""


class Share(NamedTuple):
    """An estimated share of right predictions, with what its intervals need.

    ``right``: unbiased estimate, which may lie outside [0, 1], and the noise variance of one answer. ``scatter``:
    sampling variance, in multiples of that of n different devices. ``is_binomial``: the counts are binomial where that
    is 1.
    """

    right: Right
    n: int
    scatter: float = 1.0
    is_binomial: bool = True

    @property
    def share(self) -> float:
        """Estimated share of right predictions; it may lie outside [0, 1]."""
        return self.right.share

    @property
    def standard_error(self) -> float:
        """Standard error of the estimate for the population, computed at the estimated share clipped to [0, 1]."""
        share = min(max(self.share, 0.0), 1.0)
        noise = float(self.right.law.at(np.array(share)))
        return sqrt((noise + self.scatter * share * (1 - share)) / self.n)

    def interval(self, z: float) -> tuple[float, float]:
        """Return the score interval of the share at the normal quantile ``z``, not clipped to [0, 1]."""
        ends = score_interval(
            np.array([self.share]), self.n, self.right.law, self.scatter, is_binomial=self.is_binomial, z=z
        )
        return float(ends.low[0]), float(ends.high[0])


def together(shares: Sequence[Share]) -> list[tuple[float, float]]:
    """Return intervals of m shares that hold together with 95 %: each has the level 0.95^(1/m) (Šidák's inequality)."""
    if not shares:
        return []
    z = NormalDist().inv_cdf((1 + LEVEL ** (1 / len(shares))) / 2)
    return [one.interval(z) for one in shares]


def against_the_best(shares: Sequence[Share]) -> Interval:
    """Return intervals of each share minus the largest of the *other* shares, which all hold together with 95 %.

    For m ≥ 2 true shares f_j with estimates f̂_j and the best share i, this event has the probability 95 %:

        (f̂_j − f_j) − (f̂_i − f_i) ≤ U_ij − (f̂_i − f̂_j)      for all j at once

    U_ij: the upper end of f_i − f_j at Dunnett's one-sided quantile for the control i (:func:`dunnett`), from two score
    intervals. From it follow for every k, with G the shares whose upper end is above 0,

        upper end  max(0, min_{j≠k} U_kj)      lower end  min_{j≠k, j∈G} −U_jk, or 0 if G = {k}

    An upper end of 0 says that the share is not the largest. The estimates are taken as independent; errors of devices
    that answered about several models correlate positively, which makes the event more probable.
    """
    above = _upper_ends(shares)
    high = np.maximum(0.0, above.min(axis=1))
    candidates = high > 0
    low = np.empty(len(shares))
    for place in range(len(shares)):
        others = candidates.copy()
        others[place] = False
        low[place] = (-above[others, place]).min() if others.any() else 0.0
    return Interval(low, high)


def _upper_ends(shares: Sequence[Share]) -> Floats:
    """Return U, (m, m) float64: U_ij is the upper end of the difference of shares i and j; ∞ on the diagonal."""
    widths = [one.interval(_Z) for one in shares]
    sds = np.array([(high - low) / (2 * _Z) for low, high in widths])
    found = np.full((len(shares), len(shares)), np.inf)
    for i, one in enumerate(shares):
        z = dunnett(sds, i)
        up = one.interval(z)[1] - one.share
        for j, other in enumerate(shares):
            if i != j:
                found[i, j] = one.share - other.share + hypot(up, other.share - other.interval(z)[0])
    return found


def dunnett(sds: Floats, control: int) -> float:
    """Return the d with P(X_j − X_i ≤ d √(σ_j² + σ_i²) for all j ≠ i) = 0.95, for independent X_j ~ N(0, σ_j²).

        P = E ∏_j Φ((d √(σ_j² + σ_i²) + σ_i Z)/σ_j),   Z standard normal

    ``sds``: σ, shape (m,) float64, positive, m ≥ 2. ``control``: i.
    """
    own, others = float(sds[control]), np.delete(sds, control)
    differences = np.hypot(own, others)
    weights = np.exp(-(_NODES**2) / 2)
    weights /= weights.sum()
    tail = (1 - LEVEL) / len(others)  # By Bonferroni's inequality the quantile is at most that of this tail.
    low, high = NormalDist().inv_cdf(LEVEL) - 0.01, NormalDist().inv_cdf(1 - tail) + 0.01
    for _ in range(_ROUNDS):
        tried = np.linspace(low, high, _TRIED)
        limits = tried[:, None, None] * differences + own * _NODES[:, None]
        reached = _normal_cdf(limits / others).prod(axis=2) @ weights
        place = min(max(int(np.searchsorted(reached, LEVEL)), 1), _TRIED - 1)
        low, high = float(tried[place - 1]), float(tried[place])
    return high


def _normal_cdf(x: Floats) -> Floats:
    """Return Φ(x), float64 of the shape of ``x``, from a table; the error is below 2e-7."""
    grid, values = _table()
    return np.interp(x, grid, values)


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats]:
    grid = np.linspace(-_REACH, _REACH, int(2 * _REACH * _STEPS_PER_UNIT) + 1)
    return grid, np.array([(1 + erf(x / sqrt(2))) / 2 for x in grid.tolist()])
