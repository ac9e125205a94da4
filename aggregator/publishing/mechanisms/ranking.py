"""Which of several published models is right most often, from private answers of one bit each. Run by the analyst.

A device answers about one model: 1 if that model predicts the device's class, else 0, perturbed by ``direct``.
Source: docs/math.md, section 3; decision 64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aggregator.common.notebooks import facts, table
from aggregator.estimates.cells import NOT_DETERMINED, as_range, as_share
from aggregator.estimates.joining import joined_question, of_one_series
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.statistics import Statistics
from aggregator.publishing.mechanisms.best import Share, against_the_best, together
from aggregator.publishing.mechanisms.evaluation import Accuracy
from protocol.errors import InputError
from protocol.shown import quoted

COLUMNS = ("model", "answers", "accuracy", "these devices", "population", "minus the best other")
LEAST_ANSWERS = 2
"""Smallest number of answers about a model from which its accuracy is determined."""


class Ranked(NamedTuple):
    """One of the compared models.

    Attributes:
        name: its name.
        model: its digest.
        answers: number of answers about this model.
        accuracy: share of right predictions with two intervals. The intervals of all models hold together with 95 %.
            None with fewer than :data:`LEAST_ANSWERS` answers.
        standard_error: of the accuracy's estimate, for the population; None if the accuracy is not determined.
        low, high: ends of the interval of its accuracy minus that of the best other model; the intervals of all models
            hold together with 95 %. None if the accuracy is not determined, or no other is.
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
        """Whether the model can not be told from the best; None if it was not compared."""
        return None if self.high is None else self.high > 0


class Ranking(NamedTuple):
    """Compared models, the one with the largest estimated accuracy first, models that are not determined last.

    Attributes:
        reports: number of answers about all models.
        models: the models.
        populations: the populations of the two intervals of each accuracy, and the assumption of the second one.
    """

    reports: int
    models: tuple[Ranked, ...]
    populations: Mapping[str, Any]

    @property
    def candidates(self) -> tuple[Ranked, ...]:
        """The models that can not be told from the best: the best is among them with 95 %, if all are compared."""
        return tuple(one for one in self.models if one.can_be_best)

    def rows(self) -> list[tuple[str, ...]]:
        """One row of text per model with the columns :data:`COLUMNS`. Shares are clipped to [0, 1]."""
        return [_row(one) for one in self.models]

    def sentences(self) -> list[str]:
        """What follows from the intervals, in words."""
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
        """Output of ``hearsay evaluate show --json``; null where nothing is determined."""
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
        return facts("Models compared", about) + table(COLUMNS, self.rows())


def _row(one: Ranked) -> tuple[str, ...]:
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
    """A difference of two shares in percent, with its sign, clipped to [−1, 1]: ``-3.1%``, ``0.0%``, ``+1.2%``."""
    clipped = round(min(max(difference, -1.0), 1.0), 3) + 0.0
    return f"{clipped:+z.1%}" if clipped else "0.0%"


def rank(*parts: Statistics, one_population: bool = False, disjoint: bool = False) -> Ranking:
    """Compare the models of one evaluation campaign, or of several campaigns whose devices are of one population.

    Answers about one model, by digest, are pooled over the campaigns. Which models are compared is decided by the
    numbers of answers. The intervals assume that these depend on no answer.

    Args:
        parts: statistics of campaigns that compare models, at least one.
        one_population: the analyst's declaration that several campaigns are about samples of one population; not needed
            if they are of one series.
        disjoint: True if no device answered in two of the campaigns; not needed if they are of one series.

    Raises:
        InputError: ``not_an_evaluation``: a campaign does not compare models; ``argument_invalid``: there are no
            statistics; ``source_repeated``: two of them are of one campaign; ``schema_differs``: their labels differ;
            ``population_undeclared``; ``several_sources``: one of them is joined; ``not_joinable``,
            ``mechanism_unknown``: a mechanism without estimator of a group's share.
        PolicyError: ``batch_too_small``: fewer reports than a campaign's minimum batch size.
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
        Ranked(
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
    """Refuse statistics that can not be ranked together, with the reasons of :func:`rank`."""
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
    """Digest of each model → its name, and its estimate from all campaigns that ask about it.

    Where two models have one name, the first digits of the digest follow the name.
    """
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
    """Of one campaign its own; of several the first one's texts, and what pooling assumes."""
    first: dict[str, Any] = dict(parts[0].populations)
    if len(parts) > 1:
        first["assumes"] = (
            "the campaigns' devices are of one population, and no answer decided which models were asked about again; "
            f"{first['assumes']}"
        )
    return first
