"""Trials of ``distributed`` trust: records are dealt to parties, and only the total of their noisy sums can be decrypted.

The campaign is a signed masked campaign. The engine ``device`` runs real parties, a dealer and a store in memory;
``vector`` draws the decrypted totals by numpy.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.models.encoding import label_codes, observe
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.masked_terms import DILUTED, DIVIDED, NOISES, PARTY, UNITS, ciphertexts_needed
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.masked.costs import PICO, cost, masked_terms
from protocol.masked.noise import noise_of
from protocol.nodes.terms import released_vectors
from protocol.sums.adjacency import ADD_REMOVE, CHANGE
from simulation.federation.trials import nodes_of, run_campaigns
from simulation.federation.vector import exact_sums
from simulation.masked import vector
from simulation.running import accuracies

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from aggregator.estimates.statistics import Statistics
    from aggregator.publishing.workspace import Workspace
    from protocol.documents.campaign import Campaign
    from protocol.schema import Schema
    from simulation.design import Design
    from simulation.experiment import Trial
    from simulation.running import Randomness
    from simulation.settings import Settings
    from simulation.splits import Division


class PreparedTotals(NamedTuple):
    """A simulation of distributed trust that is ready to run.

    Attributes:
        settings: the settings, with a number of parties.
        frame: the records, with the value types of the schema.
        design: how to make the schema.
        division: how to choose the test people.
        notes, warnings: texts for the analyst, to be read before the results.
    """

    settings: Settings
    frame: pd.DataFrame
    design: Design
    division: Division
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation. Returns the summary and all trials, which do not keep their models.

        With equal seeds the test people and pilots are those of the other kinds of trust.

        Args:
            split_seed: seed of the random choice of test people and pilots, if the settings have no seed; None for
                entropy of the operating system.
            progress: called with (repetitions done, repetitions).

        Raises:
            InputError, PolicyError: the records can not be divided, or no model can be made.
        """
        trials, campaign = run_campaigns(self, _campaign_bytes, _gather, split_seed, progress)
        return self._summary(trials, campaign), trials

    def _summary(self, trials: list[Trial], campaign: Campaign) -> dict[str, Any]:
        """Means of the accuracies, the cost of one message, the terms, and the settings.

        ``epsilon_total`` and ``delta_total`` are for adding or removing one unit, ``epsilon_change`` and
        ``delta_change`` for changing one. ``noise_copies`` is the expected number of whole copies of noise in a total.
        """
        terms = masked_terms(campaign)
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
            "noise_copies": float(nodes * noise_of(campaign, nodes)[0].copies),
            "queries": len(subjects),
            "ciphertexts": ciphertexts_needed(sum(subject.size for subject in subjects), terms.slot_bits),
            **nodes_of(self.settings, trials, campaign),
            "messages": sum(trial.reports for trial in trials),
        }


class Terms(NamedTuple):
    """The terms of the simulated campaigns that the settings choose.

    Attributes:
        noise: ``divided`` or ``diluted``.
        delta_pico: δ of a whole total in 10^−12; 0 with ``divided`` noise.
        honest_micro, colluding_micro: γ and κ in millionths.
        unit: ``record`` or ``party``.
    """

    noise: str
    delta_pico: int
    honest_micro: int
    colluding_micro: int
    unit: str


def check_totals(settings: Settings, design: Design, tests: int) -> tuple[str, ...]:
    """Refuse settings that no masked campaign can have. Run before any record is read. Returns warnings.

    Args:
        settings: the settings.
        design: how to make the schema.
        tests: number of records that take part in a trial.

    Raises:
        InputError: ``setting_invalid``: fewer than two parties, or terms that are no terms (:func:`terms_of`);
            ``epsilon_invalid``, ``family_unknown``, ``no_numbers``, ``postprocess_unknown``.
    """


def terms_of(settings: Settings) -> Terms:
    """The terms of the simulated campaigns.

    Raises:
        InputError: ``setting_invalid``: the noise, its δ, a share or the unit is not one that a campaign can have.
    """
    noise = settings.noise or DIVIDED
    if noise not in NOISES:
        raise InputError("setting_invalid", f"noise is one of {', '.join(NOISES)} with distributed trust")
    if settings.unit not in UNITS:
        raise InputError("setting_invalid", f"unit is one of {', '.join(UNITS)}")
    delta = _whole(settings.delta, PICO, "delta")
    if (delta > 0) != (noise == DILUTED):
        raise InputError(
            "setting_invalid", f"{DILUTED} noise needs a delta above 0, and {DIVIDED} noise has none: its δ is 0"
        )
    honest, colluding = (_whole(getattr(settings, name), MICRO, name) for name in ("honest_share", "colluding_share"))
    if not 1 <= honest <= MICRO - colluding:
        raise InputError("setting_invalid", "honest_share is above 0, and with colluding_share at most 1")
    return Terms(noise, delta, honest, colluding, settings.unit)


def _whole(value: str | float, parts: int, name: str) -> int:
    """A decimal number from 0 to 1 as a whole number of 1/parts.

    Raises:
        InputError: ``setting_invalid``: it is no such number.
    """
    try:
        number = Decimal(str(value)) * parts
    except InvalidOperation:
        number = Decimal(-1)
    if not 0 <= number <= parts or number != int(number):
        raise InputError("setting_invalid", f"{name} is a number from 0 to 1 with at most {len(str(parts)) - 1} digits")
    return int(number)
