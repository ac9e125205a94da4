"""Counts of a fleet in which every person answers once per stratum (question group), without report files.

The counts have the distribution of those that a store counts from the reports of :mod:`simulation.fleet`.
"""

from __future__ import annotations

import numpy as np

from aggregator.models.population import Population
from aggregator.planning.power_analysis.rehearsal import shares_of_questions
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import counts_of, inputs_of
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.schema import Schema

NOW = 1_780_000_000
"""The time of campaigns, in seconds since 1970; it is in their bytes, so it is constant."""


def campaign_of(schema: Schema, parameters: CampaignParameters) -> Campaign:
    """Return an unsigned campaign of a schema, version 1."""
    return parse_campaign(build_campaign(schema, parameters, 1, NOW))


def tally_of(campaign: Campaign, people: Population, rng: np.random.Generator) -> Tally:
    """Draw the counts of one period in which every person answers one random question of each stratum."""
    shares, size = shares_of_questions(campaign), len(people.labels)
    n, counts = [0] * len(shares), [()] * len(shares)
    for stratum in range(campaign.answers):
        members = [place for place, (of, _) in enumerate(shares) if of == stratum]
        parts = [people]
        if len(members) > 1:
            weights = np.array([shares[place][1] for place in members])
            chosen = rng.choice(len(members), size, p=weights / weights.sum())
            parts = [people.take(np.flatnonzero(chosen == member)) for member in range(len(members))]
        for place, part in zip(members, parts, strict=True):
            question = campaign.questions[place]
            inputs = inputs_of(campaign.schema, question.subject, part.reported, part.labels)
            n[place] = len(part.labels)
            counts[place] = tuple(np.atleast_1d(counts_of(question.mechanism, inputs, rng)).tolist())
    return Tally(campaign.id, tuple(n), tuple(counts))
