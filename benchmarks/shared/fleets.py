"""Answers of a fleet in which every person answers each stratum once, as counts: no reports, files or signatures.

The counts have the distribution of those that a store counts from the reports of :mod:`simulation.fleet`. Sums of
answers are drawn at once where they have a known distribution, so that a trial takes milliseconds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.models.population import Population
from aggregator.planning.power_analysis.rehearsal import shares_of_questions
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import draw
from aggregator.publishing.mechanisms.inputs import inputs_of
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.mechanisms import INTEGERS, SINGLE, Mechanism
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.unary import UnaryMechanism
from protocol.schema import Schema

NOW = 1_780_000_000
"""The time of campaigns, in seconds since 1970; it is in their bytes, so it is constant."""


def campaign_of(schema: Schema, parameters: CampaignParameters) -> Campaign:
    """An unsigned campaign of a schema, version 1."""
    return parse_campaign(build_campaign(schema, parameters, 1, NOW))


def tally_of(campaign: Campaign, people: Population, rng: np.random.Generator) -> Tally:
    """The counts of one period in which every person answers one random question of each stratum.

    Args:
        campaign: the campaign.
        people: the records on the devices.
        rng: source of questions and noise.
    """
    shares, size = shares_of_questions(campaign), len(people.labels)
    n, counts = [0] * len(shares), [()] * len(shares)
    for stratum in range(campaign.answers):
        members = [place for place, (of, _) in enumerate(shares) if of == stratum]
        parts = [people]
        if len(members) > 1:
            chosen = rng.choice(len(members), size, p=_normalised([shares[place][1] for place in members]))
            parts = [people.take(np.flatnonzero(chosen == member)) for member in range(len(members))]
        for place, part in zip(members, parts, strict=True):
            question = campaign.questions[place]
            inputs = inputs_of(campaign.schema, question.subject, part.reported, part.labels)
            n[place] = len(part.labels)
            counts[place] = tuple(np.atleast_1d(counts_of(question.mechanism, inputs, rng)).tolist())
    return Tally(campaign.id, tuple(n), tuple(counts))


def counts_of(mechanism: Mechanism, inputs: Integers, rng: np.random.Generator) -> Integers:
    """The counts of the answers of N people, as a tally has them: (A,) int64, with A = ``mechanism.answers``.

    Args:
        mechanism: of the question.
        inputs: shape (N,) int64, or (N, size) int64 for vectors of numbers.
        rng: source of the noise.
    """
    if isinstance(mechanism, Direct):
        # With probability 1 − Kq an answer is the true value, else a uniform one of all K values.
        true = np.bincount(inputs, minlength=mechanism.size)
        kept = rng.binomial(true, 1 - mechanism.size * float(mechanism.q))
        return np.asarray(kept + rng.multinomial(len(inputs) - kept.sum(), _equal(mechanism.size)), np.int64)
    if isinstance(mechanism, UnaryMechanism):
        true = np.bincount(inputs, minlength=mechanism.size)
        ones = rng.binomial(true, float(mechanism.p)) + rng.binomial(len(inputs) - true, float(mechanism.q))
        return np.asarray(ones, np.int64)
    answers = draw(mechanism, inputs, rng)
    if mechanism.layout == SINGLE:
        return np.bincount(answers, minlength=mechanism.answers).astype(np.int64)
    if mechanism.layout == INTEGERS:
        answers = np.clip(answers, *mechanism.counted)
    return np.asarray(answers.sum(axis=0), np.int64)


def _normalised(shares: list[float]) -> NDArray[np.float64]:
    values = np.array(shares)
    return values / values.sum()


@lru_cache(maxsize=64)
def _equal(size: int) -> NDArray[np.float64]:
    return np.full(size, 1 / size)
