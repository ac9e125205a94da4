"""Trials of ``distributed`` trust: records are dealt to parties, and only the total of their sums can be decrypted.

The campaign is a signed masked campaign. The engine ``device`` runs real parties and a dealer, and decrypts the total;
``vector`` draws the decrypted totals by numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import label_codes, observe
from aggregator.nodes.campaigns.campaigns import NodeParameters, masked_terms, publish_node_campaign
from aggregator.nodes.dealer.dealer import Dealer
from aggregator.publishing.workspace import Workspace
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.node_terms import NodeTerms
from protocol.epsilon import MICRO, PICO, micro_epsilon
from protocol.masked.costs import cost
from protocol.masked.terms import ciphertexts_of, masked_terms_of
from protocol.nodes.terms import released_vectors
from protocol.schema import Schema
from protocol.sums.adjacency import ADD_REMOVE, CHANGE
from simulation.design import Design
from simulation.experiment import Trial
from simulation.federation.trials import nodes_of, run_campaigns
from simulation.federation.vector import deal, exact_sums
from simulation.masked import parties, vector
from simulation.masked.terms import masking_of
from simulation.running import OfRecords, Randomness, accuracies, randomness_of, simulated_workspace
from simulation.settings import Settings

FEW_POWERS = 300
"""Up to this number of powers a trial of the engine ``device`` is not announced as slow."""
FAST_SECONDS, SLOW_SECONDS = 0.02, 0.18
"""About how long a processor takes for one power of a key of 4224 bits, with gmpy2 and without."""


class PreparedTotals(OfRecords):
    """A simulation of distributed trust that is ready to run. The settings have a number of parties."""

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation (:meth:`simulation.running.OfRecords.run`)."""
        with ExitStack() as stack:
            dealer = None
            if self.settings.engine == "device":
                dealer = stack.enter_context(parties.simulated_dealer(self.settings.seed))
            sign, gather = partial(_campaign_bytes, dealer), partial(_gather, dealer)
            trials, campaign = run_campaigns(self, sign, gather, split_seed, progress)
        return self._summary(trials, campaign), trials

    def _summary(self, trials: list[Trial], campaign: Campaign) -> dict[str, Any]:
        """Means of the accuracies, the cost of one message, the terms, and the settings.

        ``epsilon_total`` and ``delta_total`` are for adding or removing one unit, ``epsilon_change`` and
        ``delta_change`` for changing one. ``noise_copies`` is the expected number of whole copies of noise in a total.
        """
        terms = masked_terms_of(campaign)
        nodes = self.settings.nodes or 0
        (epsilon, delta), (changed, delta_changed) = cost(campaign, ADD_REMOVE), cost(campaign, CHANGE)
        subjects = released_vectors(campaign)
        return {
            "trust": "distributed",
            **accuracies(trials, self.settings.repeats),
            "epsilon_total": epsilon / MICRO,
            "delta_total": delta / PICO,
            "adjacency": ADD_REMOVE,
            "epsilon_change": changed / MICRO,
            "delta_change": delta_changed / PICO,
            "unit": terms.unit,
            "noise": terms.noise,
            "honest_share": terms.honest_micro / MICRO,
            "colluding_share": terms.colluding_micro / MICRO,
            "noise_copies": vector.noise_of_total(campaign, vector.numbers_of_setup(nodes))[0].copies,
            "queries": len(subjects),
            "ciphertexts": ciphertexts_of(campaign),
            **nodes_of(self.settings, trials, campaign),
            "messages": sum(trial.reports for trial in trials),
        }


def check_totals(settings: Settings, design: Design, tests: int) -> tuple[str, ...]:
    """Refuse settings that no masked campaign can have. Run before any record is read. Returns warnings.

    Args:
        settings: the settings.
        design: how to make the schema.
        tests: number of records that take part in a trial.

    Raises:
        InputError: ``setting_invalid``: fewer than two parties; ``terms_invalid``, ``delta_invalid``: no campaign can
            have these shares, this unit, noise or δ; ``epsilon_invalid``, ``family_unknown``, ``no_numbers``,
            ``postprocess_unknown``.
    """
    randomness = randomness_of(0)
    with simulated_workspace(randomness) as workspace:
        schema = design.template_schema()
        raw = _campaign_bytes(None, workspace, schema, settings, max(tests, 1), 0, randomness.now)
    if settings.engine == "vector":
        return ()
    powers = ((settings.nodes or 0) + 1) * ciphertexts_of(parse_campaign(read_envelope(raw, "campaign").payload))
    if powers <= FEW_POWERS:
        return ()
    slow = (
        f"the engine device computes {powers} powers of 4224 bits in every trial, about {powers * FAST_SECONDS:.0f} s, "
        f"or {powers * SLOW_SECONDS:.0f} s without gmpy2; the engine vector draws such totals at once"
    )
    return (slow,)


def _campaign_bytes(
    dealer: Dealer | None,
    workspace: Workspace,
    schema: Schema,
    settings: Settings,
    records: int,
    number: int,
    now: int,
) -> bytes:
    """Sign a masked campaign with a list of nodes of its own. A party has at most an equal share of the records.

    Args:
        dealer: makes the keys; None for a made-up key and modulus, which encrypt nothing.
        workspace: signs.
        schema: of the records.
        settings: the settings.
        records: number of records of all parties.
        number: number of the trial, which names the list.
        now: time of signing.
    """
    masking = masking_of(settings, None if dealer is None else dealer.public)
    micro, family = micro_epsilon(settings.epsilon), settings.family or (GAUSSIAN if schema.numeric else DISCRETE)
    nodes = NodeTerms(f"nodes {number}", -(-records // masking.most_parties), micro)
    masked = masked_terms(masking, nodes, schema, family, micro)
    parameters = NodeParameters("simulation", micro, nodes, family, postprocess=settings.postprocess, masked=masked)
    return publish_node_campaign(workspace, schema, parameters, now)


def _gather(
    dealer: Dealer | None,
    workspace: Workspace,
    campaign_bytes: bytes,
    campaign: Campaign,
    people: pd.DataFrame,
    settings: Settings,
    randomness: Randomness,
) -> Statistics:
    """Deal the learning part to parties. Returns statistics of their decrypted total, by the engine of the settings."""
    assert settings.nodes is not None
    if dealer is not None:
        dealt = deal(len(people), settings.nodes, randomness.noise)
        return parties.gather(workspace, dealer, campaign_bytes, campaign, people, dealt, settings.nodes, randomness)
    labels = label_codes(people, campaign.schema.label, substitute=True)
    owners = np.zeros(len(people), np.int64)
    exact = exact_sums(released_vectors(campaign), observe(people, campaign.schema), labels, owners, 1)[0]
    numbers = vector.numbers_of_setup(settings.nodes)
    values = vector.totals(exact, campaign, numbers, randomness.noise).tolist()
    return vector.statistics_of(values, campaign, numbers, campaign.period_at(randomness.now))
