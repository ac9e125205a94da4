"""Statistics without reports: from given sums, from expected or drawn counts, or from the counts of one question."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.estimates.debias import Law
from aggregator.estimates.intervals import normal_interval
from aggregator.estimates.question_estimate import QuestionEstimate, Sample, Vote, is_share
from aggregator.estimates.recurrence import ONCE, Recurrence
from aggregator.estimates.reports import estimate
from aggregator.estimates.source import Source
from aggregator.estimates.statistics import Statistics
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import parse_campaign
from protocol.features import Categorical
from protocol.questions import CELL, CLASS, OUTCOME, PRESENT, Subject
from protocol.schema import Label, build_schema
from support.publisher import NOW
from support.reports import made

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.questions import Question
    from protocol.schema import Schema


@dataclass(frozen=True, eq=False)
class Sums(Source):
    """A source of statistics: sums over the records of a node, each with noise of the same variance."""

    campaign: Campaign
    sums: tuple[tuple[float, ...], ...]
    records: int
    rejected: Mapping[str, int] = field(default_factory=dict)

    @property
    def reports(self) -> int:
        return self.records

    @property
    def statistics_id(self) -> bytes:
        return sha256(self.campaign.id + repr(self.sums).encode()).digest()

    def counts(self, question: int) -> list[int]:
        return [round(number) for number in self.sums[question]]

    def populations(self) -> dict[str, Any]:
        return {"devices": "these records", "population": "whom the records are drawn from", "assumes": "nothing"}

    def facts(self) -> dict[str, int]:
        return {"nodes": 1}

    def card(self) -> dict[str, Any]:
        return {"estimator": "noisy sums"}

    def to_json(self) -> dict[str, Any]:
        return {"campaign": self.campaign.id.hex(), "reports": self.reports, "nodes": 1}


def summed(campaign: Campaign, sums: Sequence[Sequence[float]], n: int, noise_variance: float = 0.0) -> Statistics:
    """Statistics from sums over n records; every record answers every question."""
    classes = len(campaign.schema.label.classes)
    found = tuple(
        question_estimate(question.subject, n, np.array(cells, float), classes, noise_variance, place)
        for place, (question, cells) in enumerate(zip(campaign.questions, sums, strict=True))
    )
    source = Sums(campaign, tuple(map(tuple, sums)), n)
    return Statistics(campaign.schema, campaign.fit, found, (source,))


def question_estimate(
    subject: Subject, n: int, sums: np.ndarray, classes: int, noise_variance: float = 0.0, place: int = 0
) -> QuestionEstimate:
    """The estimate of one question from its sums over n records, each with noise of the same variance."""
    noise = np.full(len(sums), noise_variance)
    share = np.clip(sums / max(n, 1), 0, 1)
    spread = share * (1 - share) if is_share(subject) else np.full(len(sums), 0.1)
    votes: tuple[Vote, ...] = ()
    if n and subject.kind in (CLASS, CELL, PRESENT):
        members = subject.size // classes
        law = Law(members * noise_variance / n, members * noise_variance / n)
        votes = (Vote(Sample(0, place, n, 1 / n), n, sums.reshape(-1, classes).sum(axis=0) / n, law),)
    sd = np.sqrt(noise + n * spread)
    ends, own = normal_interval(sums, sd), normal_interval(sums, np.sqrt(noise))
    planned = (noise_variance / max(n, 1) + 0.1) / max(n, 1)
    law = Law(noise_variance / n, noise_variance / n) if n and is_share(subject) else None
    return QuestionEstimate(subject, n, sums, noise, spread, 0.0, 1.0, ends, own, planned, law, classes=votes)


def outcome(mechanism, classes: int, counts: Sequence[int], concentration: float | None = None) -> QuestionEstimate:
    """The estimate of one outcome question over k classes, from its counts."""
    schema = build_schema(Label("y", [f"c{i}" for i in range(classes)]), [Categorical("x", ["a", "b"], substitute=0)])
    campaign = made()
    question = campaign.questions[0]._replace(mechanism=mechanism, subject=Subject(OUTCOME, None, classes**2))
    campaign = campaign._replace(schema=schema, questions=(question,))
    n = sum(counts)
    recurrence = Recurrence(ONCE, (n,), (1 / n if concentration is None else concentration,))
    tally = Tally(campaign.id, (n,), (tuple(counts),))
    return estimate(campaign, tally, recurrence=recurrence).questions[0]


def campaign_about(schema: Schema, mechanism: str, epsilon: float = 1, *, version: int = 1, **terms: Any) -> Campaign:
    """A campaign that asks about a schema; ``terms`` are those of :class:`CampaignParameters`."""
    parameters = CampaignParameters("x", round(epsilon * 1e6), mechanism, **terms)
    return parse_campaign(build_campaign(schema, parameters, version, NOW))


def tallied(campaign: Campaign, counts: Sequence[Sequence[int]], n: Sequence[int] | None = None, **options):
    """Estimates from the counts of all questions; without ``n``, every answer is in one count."""
    whole = tuple(tuple(map(int, one)) for one in counts)
    return estimate(campaign, Tally(campaign.id, tuple(map(sum, whole)) if n is None else tuple(n), whole), **options)


def nobody(campaign: Campaign) -> Statistics:
    """Estimates of a campaign that nobody answered."""
    return estimate(campaign, Tally.zero(campaign))


def answered(
    campaign: Campaign,
    n: int | Sequence[int],
    shares_of: Callable[[Question], Any],
    generator: np.random.Generator | None = None,
) -> Statistics:
    """Estimates from n answers to each question, or from as many as ``n`` lists.

    Args:
        shares_of: from a question to the true share of each of its values.
        generator: draws the people and their answers; without it, the counts are the expected ones.
    """
    asked = [n] * len(campaign.questions) if isinstance(n, int) else list(n)
    counts = []
    for question, number in zip(campaign.questions, asked, strict=True):
        shares = np.asarray(shares_of(question), float).ravel()
        p, q = float(question.mechanism.p), float(question.mechanism.q)
        chances = q + (p - q) * shares
        if generator is None:
            counts.append(np.rint(number * chances))
        elif question.mechanism.name == "direct":
            counts.append(generator.multinomial(number, chances / chances.sum()))
        else:
            held = generator.multinomial(number, shares / shares.sum())
            counts.append(generator.binomial(held, p) + generator.binomial(number - held, q))
    return tallied(campaign, counts, asked)


def split(campaign: Campaign, answers: int, generator: np.random.Generator) -> list[int]:
    """How many of ``answers`` each question gets at random."""
    return generator.multinomial(answers, [1 / len(campaign.questions)] * len(campaign.questions)).tolist()
