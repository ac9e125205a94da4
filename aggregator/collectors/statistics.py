"""Statistics of a shared campaign: the total of both collectors' noisy sums in the common form of all statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from aggregator.collectors.noise import kurtosis_of, variance_of
from aggregator.estimates.source import Source
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import NoisySum, of_sums
from protocol import canonical
from protocol.documents.campaign import EVALUATION, Campaign, Fit
from protocol.documents.shared_terms import GAUSSIAN
from protocol.epsilon import format_micro, format_pico
from protocol.errors import PolicyError
from protocol.questions import CHANGE
from protocol.shared.report import terms_of

ESTIMATOR = "sums of the devices' cells, with the noise of both collectors"
INTERVALS = "95 % intervals of the population that the devices are drawn from, which cover noise and sampling"
THREATS = (
    "Nobody sees a record unless both collectors work together: {leader} and {helper}. Then they see every record. One "
    "of them alone sees the total with the other's noise. It can shift the total unseen, and choose whose reports "
    "count; made-up devices can fill a batch, and then only the other collector's noise protects. A device that lies "
    "moves one cell of each feature by one. A device that was reset has a new id and may answer twice, at twice the ε."
)
_ID = b"hearsay/1/shared-statistics"


@dataclass(frozen=True, eq=False)
class Shared(Source):
    """Source of statistics: the noisy totals of two collectors.

    Attributes:
        totals: period → the noisy count of every cell, block after block.
        accepted: period → number of accepted reports.
        rejected: reason → number of reports that were not counted.
        of_models: whether the statistics are about the evaluated models of a campaign that asks about features too.
    """

    batch_of: ClassVar[str] = "reports"
    campaign: Campaign
    totals: Mapping[int, tuple[int, ...]]
    accepted: Mapping[int, int]
    rejected: Mapping[str, int] = field(default_factory=dict)
    of_models: bool = False

    @property
    def places(self) -> list[int]:
        """Indices of the campaign's blocks that the statistics are about: features, or else evaluated models."""
        features = [block.feature is not None for block in self.campaign.blocks]
        wanted = any(features) and not self.of_models
        return [place for place, is_feature in enumerate(features) if is_feature == wanted]

    @property
    def reports(self) -> int:
        """Number of accepted reports of all periods. It is public."""
        return sum(self.accepted.values())

    @property
    def stated_reports(self) -> int:
        """Number of accepted reports of all periods."""
        return self.reports

    @property
    def numbers(self) -> tuple[int, ...]:
        """The noisy count of every cell over all periods."""
        return tuple(sum(each) for each in zip(*self.totals.values(), strict=True))

    @property
    def statistics_id(self) -> bytes:
        """32 bytes, a digest of campaign, periods, numbers of reports and totals."""
        periods = [
            [period, self.accepted[period], [str(number) for number in self.totals[period]]]
            for period in sorted(self.totals)
        ]
        return sha256(_ID + canonical.pack([self.campaign.id, periods])).digest()

    def counts(self, question: int) -> list[int]:
        """Return the noisy counts of the question with this index."""
        return list(divided(self.campaign, self.numbers)[self.places[question]])

    def populations(self) -> dict[str, Any]:
        """Return in words what the two kinds of intervals are about, and what the second kind assumes."""
        return {
            "devices": "the devices that answered, one in several periods counted as often",
            "population": "the population that these devices are drawn from",
            "assumes": "the devices answer independently",
        }

    def facts(self) -> dict[str, int]:
        """Return counts for people: refused reports by reason."""
        return {f"set aside: {reason}": count for reason, count in self.rejected.items()}

    def card(self) -> dict[str, Any]:
        """Return entries for a model's card: trust, ε, δ, collectors, noise, estimator, intervals, threats."""
        campaign, terms = self.campaign, terms_of(self.campaign)
        leader, helper = (one.name for one in terms.collectors)
        return {
            "trust": "shared",
            "adjacency": CHANGE,
            "epsilon_total": format_micro(campaign.epsilon_micro),
            "delta": format_pico(terms.delta_pico),
            "collectors": [f"{one.name} ({one.contact})" for one in terms.collectors],
            "noise": "discrete Gaussian" if terms.noise == GAUSSIAN else "discrete Laplace",
            "periods": ", ".join(map(str, sorted(self.totals))),
            "estimator": ESTIMATOR,
            "intervals": INTERVALS,
            "rejected": {reason: int(count) for reason, count in sorted(self.rejected.items()) if count},
            "threats": THREATS.format(leader=leader, helper=helper),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the part of the output of ``hearsay estimate --json`` that is about the collectors."""
        return {
            "campaign": self.campaign.id.hex(),
            "reports": self.reports,
            "adjacency": CHANGE,
            "epsilon_total": format_micro(self.campaign.epsilon_micro),
            "rejected": dict(self.rejected),
            "periods": sorted(self.totals),
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations(),
        }


def divided(campaign: Campaign, numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the numbers of each block."""
    found, start = [], 0
    for subject in campaign.blocks:
        found.append(tuple(numbers[start : start + subject.size]))
        start += subject.size
    return found


def shared_statistics(source: Shared) -> Statistics:
    """Return the statistics of the noisy totals of two collectors. Run by whoever publishes the model.

    Raises:
        PolicyError: ``batch_too_small``: a period has fewer accepted reports than the campaign's smallest batch.
    """
    campaign = source.campaign
    smallest = campaign.min_batch_size
    if not source.totals or min(source.accepted.values()) < smallest:
        raise PolicyError("batch_too_small", f"no total of at least {smallest} reports; wait for more devices")
    periods = len(source.totals)
    noise, kurtosis = periods * variance_of(campaign), kurtosis_of(campaign) / periods
    parts, sums = divided(campaign, source.numbers), []
    for place in source.places:
        subject, part = campaign.blocks[place], parts[place]
        sums.append(
            NoisySum(subject, np.array(part, np.float64), np.full(subject.size, noise), part, kurtosis=kurtosis)
        )
    # A device may answer in every period: with n_t reports in period t, c = (Σ √n_t)²/n² bounds the concentration.
    n = source.reports
    concentration = sum(count**0.5 for count in source.accepted.values()) ** 2 / n**2
    fit = Fit(EVALUATION, "none") if source.of_models else campaign.fit
    return of_sums(sums, campaign.schema, fit, source, concentration, is_counted=True)


def of_models(statistics: Statistics) -> Statistics:
    """Return what the same totals say about evaluated models, if devices also answered about features; else the same.

    Raises PolicyError as :func:`shared_statistics`.
    """
    first = statistics.sources[0]
    if len(statistics.sources) > 1 or not isinstance(first, Shared) or not first.campaign.evaluated:
        return statistics
    return statistics if statistics.fit.family == EVALUATION else shared_statistics(replace(first, of_models=True))
