"""How often a model made of these statistics is expected to be right, from the statistics themselves.

Nobody's records are seen, so the answer is that of a rehearsal:

1. a stand-in for the fleet: the estimated tables, with the differences between the classes drawn together to
   what is left of them without noise. With x_i the sum of a feature's squared differences over what their
   noise is expected to give, of d_i degrees of freedom, E = Σd_i(x_i − 1) is the excess over noise of all
   features, √(2Σd_i) its standard deviation if there is nothing but noise. A feature keeps the part
   √(g(1 − 1/x_i)⁺), g = (E − √(2Σd_i))⁺/Σd_i(x_i − 1)⁺: single features that stand out by chance add up to no more
   than all together do, and of pure noise nothing is left five times of six;
2. estimates as this campaign would give them of the stand-in, with the noise and sampling that they have;
3. a model fitted to these as the real one is, and records of the stand-in, features independent given the class;
4. the share of records that it gets right, over many estimates and records.

The rehearsal is held three times: with E less 1.645, less 1 and plus 1.645 standard deviations. The accuracy is said
where the three differ by at most 0.1 and the largest class's interval spans at most 0.2, else it is "not known yet".
That the model beats the largest class, or does not, is said where all three agree.

The largest class's share is the stand-in's. Features of real fleets depend on each other within a class, so a
real model may be some points worse; where even the rehearsal stays below the largest class it is of no use.

Source: docs/math.md, section 4; docs/decisions/0042.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import Estimated, moments
from aggregator.models.discrete import fit
from aggregator.models.gaussian import NormalParameters
from aggregator.models.gaussian import fit as fit_gaussian
from aggregator.models.postprocess import POSTPROCESSES, project_to_simplex
from protocol.documents.campaign import GAUSSIAN
from protocol.epsilon import MICRO
from protocol.questions import CELL, CLASS, MOMENT, MOMENTS, PRESENT, SQUARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]
    Term = Floats | NormalParameters

REHEARSALS, RECORDS = 10, 1000
SURE = 1.645
WIDEST_SHARE, WIDEST_ACCURACY = 0.2, 0.1
NOT_KNOWN = "not known yet"
_LEAST = 1e-6


class Foresight(NamedTuple):
    """Shares of records that are expected to be right, as far as they are known.

    Attributes:
        accuracy: by the model; None if the reports are too few to tell.
        largest_class: by always saying the largest class, as it is estimated.
        low, high: a 95 % interval for the largest class's share, wide enough for every class (Bonferroni), since it
            is the largest of noisy ones.
        beats: whether the model is expected to do better than that; None if it can not be told.
    """

    accuracy: float | None
    largest_class: float
    low: float
    high: float
    beats: bool | None

    def to_card(self) -> dict[str, str]:
        """As a model's card says it: text, since payloads carry no floats."""
        return {
            "expected_accuracy": NOT_KNOWN if self.accuracy is None else f"{self.accuracy:.3f}",
            "largest_class": f"{self.largest_class:.3f}",
            "largest_class_low": f"{self.low:.3f}",
            "largest_class_high": f"{self.high:.3f}",
            "beats_largest_class": NOT_KNOWN if self.beats is None else "yes" if self.beats else "no",
        }

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> Foresight:
        """What :meth:`to_card` wrote."""
        accuracy, beats = card["expected_accuracy"], card["beats_largest_class"]
        largest, low, high = (
            float(card[name]) for name in ("largest_class", "largest_class_low", "largest_class_high")
        )
        known = None if accuracy == NOT_KNOWN else float(accuracy)
        return cls(known, largest, low, high, None if beats == NOT_KNOWN else beats == "yes")

    @property
    def shown(self) -> str:
        """The accuracy for people."""
        return NOT_KNOWN if self.accuracy is None else f"{self.accuracy:.1%}"

    @property
    def largest_shown(self) -> str:
        """The largest class's share for people, with its interval."""
        return f"{self.largest_class:.1%} ({self.low:.1%} to {self.high:.1%})"

    @property
    def warning(self) -> str | None:
        """What to say if the model is of no use, or may be; None if it is better than the largest class."""
        if self.beats:
            return None
        found = "" if self.accuracy is None else f" (expected: {self.accuracy:.1%})"
        if self.beats is None:
            said = f"it can not be told yet whether the model{found} is right more often than who"
        else:
            said = f"by its own statistics the model{found} is expected to be right less often than who"
        return (
            f"{said} always says the largest class: {self.largest_shown}; gather more reports, or ask fewer questions"
        )


def foresee(statistics: Statistics, postprocess: str) -> Foresight:
    """Expected accuracy of the model that is made of these statistics, and the largest class's share.

    The same statistics give the same numbers: the randomness is seeded by their id. The rehearsal is held with as
    much of the features' excess as there is for certain, as is likely, and as there may be at most
    (:func:`_kept`). The accuracy is known if the largest class's interval spans at most
    :data:`WIDEST_SHARE`, and the rehearsals differ by at most :data:`WIDEST_ACCURACY`.

    Raises:
        InputError: ``postprocess_unknown``, ``not_fittable``.
    """
    shares = class_shares(statistics)
    spread = np.sqrt(np.where(np.isfinite(shares.variance), shares.variance, 1.0))
    prior = POSTPROCESSES["simplex"].prior(statistics)
    largest = int(prior.argmax())
    reach = NormalDist().inv_cdf(1 - 0.025 / len(prior)) * spread[largest]
    low, high = (float(np.clip(shares.share[largest] + side * reach, 0, 1)) for side in (-1, 1))
    low, high = min(low, float(prior[largest])), max(high, float(prior[largest]))
    least, likely, most = (_rehearsed(statistics, postprocess, spread, doubt) for doubt in (-SURE, -1.0, SURE))
    is_share_known = high - low <= WIDEST_SHARE
    beats = None
    if is_share_known and (min(least, likely) > prior[largest] or max(likely, most) < prior[largest]):
        beats = bool(likely > prior[largest])
    is_known = is_share_known and most - least <= WIDEST_ACCURACY
    return Foresight(likely if is_known else None, float(prior[largest]), low, high, beats)


def _rehearsed(statistics: Statistics, postprocess: str, spread: Floats, doubt: float) -> float:
    """The share of records that models of a stand-in get right, over many estimates and records."""
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    stand_in = _StandIn(statistics, doubt)
    right = 0.0
    for _ in range(REHEARSALS):
        prior = _possible(generator.normal(stand_in.prior, spread))
        right += _right(stand_in, np.log(prior), _fitted(stand_in.heard(generator), postprocess), generator)
    return right / REHEARSALS


class _Contrast(NamedTuple):
    """Shape (values, k) each: what all classes have in common, how far each is from that, and that of noise alone."""

    middle: Floats
    away: Floats
    noise: Floats

    @property
    def freedom(self) -> int:
        values, classes = self.away.shape
        return int(values * (classes - 1))

    @property
    def ratio(self) -> float:
        """Squared differences over what noise is expected to give."""
        expected = float(self.noise.sum())
        return float((self.away**2).sum()) / expected if expected > 0 else 1.0


class _StandIn:
    """A fleet that the statistics could be of: shares of classes, and of every feature within a class."""

    def __init__(self, statistics: Statistics, doubt: float) -> None:
        self.statistics = statistics
        self.prior = POSTPROCESSES["simplex"].prior(statistics)
        schema = statistics.schema
        numbers = schema.numeric if statistics.fit.family == GAUSSIAN else ()
        seen = [self._means(i) if i in numbers else self._table(i) for i in range(len(schema.observed))]
        kept = _kept([contrast for contrasts in seen for contrast in contrasts], doubt)
        self.terms: list[Term] = []
        for index, contrasts in enumerate(seen):
            drawn = [contrast.middle + next(kept) * contrast.away for contrast in contrasts]
            self.terms.append(self._normal(*drawn) if index in numbers else _possible_table(drawn[0]))

    def _table(self, feature: int) -> list[_Contrast]:
        """Of the joint table, shape (values, k)."""
        asked = [one for one in self.statistics.questions if _is_about(one, CELL, feature) and one.n]
        if not asked:
            size = self.statistics.schema.observed[feature].size
            alike = np.outer(np.full(size, 1 / size), self.prior)
            return [_Contrast(alike, np.zeros_like(alike), np.ones_like(alike))]
        n = sum(one.n for one in asked)
        joint = sum((one.estimate for one in asked), np.zeros(asked[0].subject.size)) / n
        noise = sum((one.variance for one in asked), np.zeros(asked[0].subject.size)) / n**2
        shape = (-1, len(self.prior))
        joint, noise = joint.reshape(shape), noise.reshape(shape)
        margin = joint.sum(axis=1)
        # Of k cells with variance v each, x_c − π_c Σx has Σ_c Var = v(k − 2 + kΣπ²).
        expected = len(self.prior) - 2 + len(self.prior) * float((self.prior**2).sum())
        if all(one.adds_up for one in asked):
            expected *= joint.size / (joint.size - 1)  # the cells' sum is known, and no noise
        alike = np.outer(_possible(margin), self.prior)
        return [_Contrast(alike, joint - np.outer(margin, self.prior), noise * expected / len(self.prior))]

    def _means(self, feature: int) -> list[_Contrast]:
        """Of a number's first and second moments within the classes, shape (1, k) each."""
        schema, found = self.statistics.schema, self.statistics.questions
        row = schema.numeric.index(feature)
        noise = [Estimated(one.subject, one.n, one.variance / max(one.n, 1)) for one in found]
        contrasts = []
        for power in (1, SQUARE):
            moment = np.nan_to_num(moments(found, schema, power)[row]) / self.prior
            error = np.nan_to_num(moments(noise, schema, power)[row], nan=1.0) / self.prior**2
            middle = np.full((1, len(moment)), moment @ self.prior)
            # Of x_c with variances v_c, x_c − Σπx has Var = v_c(1 − 2π_c) + Σπ²v.
            expected = error * (1 - 2 * self.prior) + self.prior**2 @ error
            contrasts.append(_Contrast(middle, moment - middle, expected[None]))
        return contrasts

    def _normal(self, first: Floats, second: Floats) -> NormalParameters:
        floor = self.statistics.fit.variance_floor_micro / MICRO
        mean = np.clip(first[0], -1, 1)
        return NormalParameters(mean, np.clip(second[0] - mean**2, floor, 1))

    def heard(self, generator: np.random.Generator) -> Statistics:
        """Statistics as the campaign would give them of this fleet."""
        heard = []
        for one in self.statistics.questions:
            truth = self._truth(one)
            if truth is not None and one.n:
                one = replace(one, estimate=one.n * truth + generator.normal(0, 1, len(truth)) * one.sd)  # noqa: PLW2901
            heard.append(one)
        return replace(self.statistics, questions=tuple(heard))

    def _truth(self, found: QuestionEstimate) -> Floats | None:
        """What a question's shares or means are in this fleet; None where a model does not use it."""
        kind, feature, _, power, of_class = found.subject
        schema = self.statistics.schema
        if kind == CLASS:
            return self.prior
        if kind == CELL and feature is not None and not isinstance(self.terms[feature], NormalParameters):
            return np.ravel(np.asarray(self.terms[feature]) * self.prior)
        if kind == PRESENT:
            there = found.estimate.reshape(2, -1)[1].sum() / max(found.n, 1)
            there = min(max(there, 0.0), 1.0)
            return np.concatenate([(1 - there) * self.prior, there * self.prior])
        if kind not in (MOMENT, MOMENTS):
            return None
        numbers = schema.numeric if kind == MOMENTS else [feature]
        means = []
        for index in numbers:
            term = self.terms[index]  # type: ignore[index]
            assert isinstance(term, NormalParameters)
            value = term.mean if power == 1 else term.variance + term.mean**2
            means.append(value * self.prior)
        table = np.array(means).ravel()
        return table if of_class is None else table[of_class : of_class + 1]


def _is_about(found: QuestionEstimate, kind: str, feature: int) -> bool:
    return (found.subject.kind, found.subject.feature) == (kind, feature)


def _kept(contrasts: Sequence[_Contrast], doubt: float) -> Iterator[float]:
    """How much of every contrast is left without noise; the formula is the module's, with E + doubt·√(2Σd)."""
    free = np.array([one.freedom for one in contrasts], np.float64)
    ratio = np.array([one.ratio for one in contrasts])
    excess = float((free * (ratio - 1)).sum() + doubt * np.sqrt(2 * free.sum()))
    positive = float((free * np.maximum(ratio - 1, 0)).sum())
    part = min(max(excess, 0.0) / positive, 1.0) if positive else 0.0
    return iter(np.sqrt(part * np.maximum(1 - 1 / np.maximum(ratio, 1), 0)).tolist())


def _possible_table(joint: Floats) -> Floats:
    """Shape (values, k): P(value | class) of the nearest possible joint table."""
    possible = project_to_simplex(joint.ravel(), 1.0).reshape(joint.shape) + _LEAST
    return np.asarray(possible / possible.sum(axis=0), np.float64)


def _possible(shares: Floats) -> Floats:
    found = project_to_simplex(shares, 1.0) + _LEAST
    return np.asarray(found / found.sum(), np.float64)


def _fitted(statistics: Statistics, postprocess: str) -> Sequence[Term]:
    if statistics.fit.family == GAUSSIAN:
        return fit_gaussian(statistics, postprocess).terms
    return fit(statistics, postprocess).log_likelihood


def _right(stand_in: _StandIn, log_prior: Floats, model: Sequence[Term], generator: np.random.Generator) -> float:
    """The share of drawn records whose class the model says."""
    label = generator.choice(len(log_prior), RECORDS, p=stand_in.prior)
    score = np.tile(log_prior, (RECORDS, 1))
    for truth, term in zip(stand_in.terms, model, strict=True):
        if isinstance(truth, NormalParameters):
            assert isinstance(term, NormalParameters)
            x = np.clip(generator.normal(truth.mean[label], np.sqrt(truth.variance[label])), -1, 1)
            score -= (x[:, None] - term.mean) ** 2 / (2 * term.variance) + np.log(term.variance) / 2
        else:
            assert not isinstance(term, NormalParameters)
            ends = np.cumsum(truth, axis=0)[:, label]
            code = np.minimum((generator.random(RECORDS) > ends).sum(axis=0), len(truth) - 1)
            score += term[code]
    return float((score.argmax(axis=1) == label).mean())
