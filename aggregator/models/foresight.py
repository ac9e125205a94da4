"""Expected accuracy of a model, computed from the statistics that the model is made from, without any records.

The model is tested on simulated records of many fleets that agree with the statistics
(:mod:`aggregator.models.simulated_fleets`). In a simulated fleet, features are independent given the class, and missing
values are left out of the score as on a device. The expected accuracy is the interval from the smallest to the largest
accuracy over all fleets. The model beats the largest class if it is better in all fleets. It does not if its largest
accuracy is below the lower end of the 95 % interval of the largest class's share. Otherwise, or if that share is too
uncertain, the answer is not known. "Better in no fleet" is no reason to say that it does not: few reports hide the
small gain that a model has where one class is rare.

In real fleets features depend on each other within a class, numbers are not normal, a record without a label counts as
the label's substitute, and a value with a substitute may be missing. The statistics do not show these effects, so every
printed accuracy includes the assumption :data:`ASSUMES`. An evaluation campaign measures the accuracy
(``aggregator.planning.evaluation``).

Source: docs/math.md, section 4; docs/decisions/0042.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import class_shares
from aggregator.models.gaussian import NORMAL_FAMILIES, NormalParameters
from aggregator.models.postprocess import simplex_prior
from aggregator.models.published import fitted_parameters
from aggregator.models.simulated_fleets import Fleet, fleets
from protocol.documents.model import TRUNCATED_GAUSSIAN, log_mass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]
    Term = Floats | NormalParameters

FLEETS = 100
RECORDS, FEWEST_RECORDS, WORK = 2500, 500, 100_000
"""Largest and smallest number of records per fleet; in between, records × features × classes ≤ ``WORK``."""
WIDEST_SHARE, WIDEST_ACCURACY = 0.2, 0.3
NOT_KNOWN = "not known yet"
UNDER_RULE = "not known under a robust rule"
ASSUMES = "if features are independent given the class, and no record lacks its label or a value that has a substitute"
ASSUMES_NORMAL = (
    "if features are independent given the class, numbers normal, and no record lacks its label or a value that has a "
    "substitute"
)


class Foresight(NamedTuple):
    """Expected shares of right predictions.

    Attributes:
        accuracy: expected accuracy of the model, the mean over the simulated fleets; None if an interval is too wide
            (:func:`foresee`).
        largest_class: estimated share of the largest class, the accuracy of always predicting it.
        low, high: 95 % interval for the largest class's share, wide enough for every class (Bonferroni), because the
            class was selected as the largest of noisy shares. The interval contains ``largest_class``. None if the
            statistics state no interval.
        beats: whether the model is expected to be better than always predicting the largest class; None if not known.
        least, most: smallest and largest accuracy over :data:`FLEETS` simulated fleets; None if not known, and for
            models of older releases.
        assumes: assumption of ``accuracy`` and ``beats``, in words.
        not_known: text in place of every number that is not known: :data:`NOT_KNOWN` or :data:`UNDER_RULE`.
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

    def to_card(self) -> dict[str, str]:
        """Entries of a model's card. The numbers are text, because payloads carry no floats."""
        return {
            "expected_accuracy": self._said(self.accuracy),
            "expected_accuracy_low": self._said(self.least),
            "expected_accuracy_high": self._said(self.most),
            "expected_accuracy_assumes": self.assumes,
            "largest_class": f"{self.largest_class:.3f}",
            "largest_class_low": self._said(self.low),
            "largest_class_high": self._said(self.high),
            "beats_largest_class": self.not_known if self.beats is None else "yes" if self.beats else "no",
        }

    def _said(self, share: float | None) -> str:
        return self.not_known if share is None else f"{share:.3f}"

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> Foresight:
        """Read the card entries of :meth:`to_card`, from this release or an older one.

        Raises:
            KeyError: the card has no such entries.
        """
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
        )

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
        """A warning unless the model is expected to beat always predicting the largest class; None if it is."""
        if self.not_known == UNDER_RULE:
            return f"{self.doubt}; test the model on records with labels"
        return None if self.beats else f"{self.doubt}; gather more reports, or ask fewer questions"

    @property
    def doubt(self) -> str:
        """What the warning says of a model that is not expected to beat the largest class, without any advice."""
        found = "" if self.accuracy is None else f" (expected: {self.shown})"
        if self.beats is None:
            when = "under a robust rule" if self.not_known == UNDER_RULE else "yet"
            said = f"it can not be told {when} whether the model{found} is right more often than who"
        else:
            said = f"by its own statistics the model{found} is right no more often than who"
        return f"{said} always says the largest class: {self.largest_shown}"


def _read(text: str) -> float | None:
    return None if text in (NOT_KNOWN, UNDER_RULE) else float(text)


def foresee(statistics: Statistics, postprocess: str) -> Foresight:
    """Compute the expected accuracy of the model that these statistics give, and the largest class's share.

    The same statistics give the same numbers, because the statistics' id seeds the random generator. The accuracy is
    known if the interval of the largest class is at most :data:`WIDEST_SHARE` wide, and the interval of the accuracy at
    most :data:`WIDEST_ACCURACY`. Whether the model beats the largest class needs only the first of these conditions.
    Neither is known if a curator's noise has no variance (Cauchy), since no fleet can be drawn. Under a robust rule the
    interval of the largest class is not known either: what lying nodes did is not known.

    Args:
        statistics: statistics of a discrete or Gaussian campaign.
        postprocess: name of the model's post-processing.

    Raises:
        InputError: ``postprocess_unknown``; ``not_fittable``: the campaign lacks a question that the model needs.
    """
    prior = simplex_prior(statistics)
    largest = int(prior.argmax())
    assumes = ASSUMES_NORMAL if statistics.fit.family in NORMAL_FAMILIES else ASSUMES
    if not all(one.has_interval for one in statistics.questions):
        fitted_parameters(statistics, postprocess)  # It raises if no model can be made; the result is not needed.
        return Foresight(None, float(prior[largest]), None, None, None, assumes=assumes, not_known=UNDER_RULE)
    shares = class_shares(statistics)
    spread = np.sqrt(np.where(np.isfinite(shares.ratio_variance), shares.ratio_variance, 1.0))
    reach = NormalDist().inv_cdf(1 - 0.025 / len(prior)) * spread[largest]
    low, high = (float(np.clip(np.nan_to_num(shares.ratio[largest]) + side * reach, 0, 1)) for side in (-1, 1))
    low, high = min(low, float(prior[largest])), max(high, float(prior[largest]))
    share = (float(prior[largest]), low, high)
    unbounded = any(one.n and np.isinf(one.noise_variance).any() for one in statistics.questions)
    if high - low > WIDEST_SHARE or unbounded:
        fitted_parameters(statistics, postprocess)  # It raises if no model can be made; the result is not needed.
        return Foresight(None, *share, None, None, None, assumes)
    right, more = _tried(statistics, postprocess)
    least, most = float(right.min()), float(right.max())
    beats = True if more.min() > 0 else False if most < low else None
    if most - least > WIDEST_ACCURACY:
        return Foresight(None, *share, beats, None, None, assumes)
    return Foresight(float(right.mean()), *share, beats, least, most, assumes)


def _tried(statistics: Statistics, postprocess: str) -> tuple[Floats, Floats]:
    """Accuracy of the model in every simulated fleet, and accuracy minus the largest class's share.

    Returns:
        Two arrays of shape (fleets,) float64.
    """
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    log_prior, terms = fitted_parameters(statistics, postprocess)
    number = min(RECORDS, max(FEWEST_RECORDS, WORK // (len(terms) * len(log_prior))))
    is_truncated = statistics.fit.family == TRUNCATED_GAUSSIAN
    right, more = [], []
    for fleet in fleets(statistics, generator, FLEETS):
        label = generator.choice(len(log_prior), number, p=fleet.prior)
        answers = _answers(fleet, label, log_prior, terms, generator, is_truncated=is_truncated)
        right.append(float((answers == label).mean()))
        more.append(right[-1] - float((label == fleet.prior.argmax()).mean()))
    return np.array(right), np.array(more)


def _answers(
    fleet: Fleet,
    label: NDArray[np.int64],
    log_prior: Floats,
    terms: Sequence[Term],
    generator: np.random.Generator,
    *,
    is_truncated: bool,
) -> NDArray[np.int64]:
    """Predictions of the model for random records of a fleet: shape (records,) int64.

    ``label``: shape (records,) int64, the true classes of the records. ``is_truncated``: whether the model's normal
    distributions are cut to [−1, 1].
    """
    score = np.tile(log_prior, (len(label), 1))
    for feature, term in zip(fleet.features, terms, strict=True):
        truth = feature.term
        if isinstance(truth, NormalParameters):
            assert isinstance(term, NormalParameters)
            x = np.clip(generator.normal(truth.mean[label], np.sqrt(truth.variance[label])), -1, 1)
            told = -((x[:, None] - term.mean) ** 2) / (2 * term.variance) - np.log(term.variance) / 2
            if is_truncated:
                told = told - np.array([log_mass(*pair) for pair in zip(term.mean, term.variance, strict=True)])
            is_there = generator.random(len(label)) < feature.there[label]
        else:
            assert not isinstance(term, NormalParameters)
            ends = np.cumsum(truth, axis=0)[:, label]
            code = np.minimum((generator.random(len(label)) > ends).sum(axis=0), len(truth) - 1)
            told, is_there = term[code], code != feature.left_out
        score += np.where(is_there[:, None], told, 0.0)
    return np.asarray(score.argmax(axis=1), np.int64)
