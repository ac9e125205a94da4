"""A study tries ways to ask devices (designs) on one set of records, by simulated campaigns (rehearsals)."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.collectors.campaigns import shared_terms
from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.pair import made_up_pair
from aggregator.common.arrays import Integers
from aggregator.models.population import ASSUMED_RECORDS, Population, assumed, check_columns
from aggregator.models.reduction import fit_projection
from aggregator.planning.feature_selection.forward_selection import DRAWS
from aggregator.planning.feature_selection.from_pilot import design as choose
from aggregator.planning.power_analysis.rehearsal import Fleet, Fold, Rehearsal, plain_accuracy
from aggregator.publishing.ask_table import Ask
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.schemas.schema_file import SchemaFile, equal_width_edges
from protocol.documents.asked import plain
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.shared_terms import shared_subjects
from protocol.epsilon import format_pico
from protocol.errors import InputError
from protocol.features import Feature, Numeric
from protocol.schema import Schema, build_schema

_NOW = 1_900_000_000
"""Time in the header of a campaign that nobody signs."""
DEFAULT_BINS = 4
NO_SHARES: Ask = MappingProxyType({})
CHOSEN = "chosen"
FOLDS = 5
LEAST_RECORDS = 20
"""Fewest records with a class that a pilot must have."""
MOST_RECORDS = 5000
"""Most records of a pilot that are used; if a pilot is larger, a random part of it is used."""


class Design(NamedTuple):
    """One way to ask the devices of a fleet.

    ``mechanism``: ``auto`` means, for each question of a discrete design, ``direct`` or ``oue``; ``bins``: of equal
    width, None for those of the schema; ``reduction``: ``none``, ``pca:K``, ``dca:K``, or ``chosen:N``, the features
    and groups that ``hearsay design`` chooses for N answers; ``approach``: 1 asks for all moments at once (``laplace``,
    Gaussian); ``counted``: whether the pilot's records are counted with the answers.
    """

    family: str
    mechanism: str
    answers: int = 1
    bins: int | None = None
    reduction: str = "none"
    approach: int | None = None
    counted: bool = False

    @property
    def chosen_for(self) -> int | None:
        """Number of answers for which features are chosen from the pilot; None if they are not."""
        kind, _, answers = self.reduction.partition(":")
        return int(answers) if kind == CHOSEN else None

    @property
    def coding(self) -> tuple[str, int | None, str]:
        """Family, bins and reduction. Designs with the same coding ask for the same statistics."""
        return self.family, self.bins, self.reduction

    @property
    def name(self) -> str:
        """The design in a few words, for tables and plots."""
        parts = [self.family]
        parts += [] if self.bins is None else [f"{self.bins} bins"]
        parts += [] if self.reduction == "none" else [self.reduction if self.chosen_for is None else "chosen features"]
        parts.append(self.mechanism if self.approach is None else f"{self.mechanism} approach {self.approach}")
        parts += [] if self.answers == 1 else [f"{self.answers} answers"]
        parts += ["pilot counted"] if self.counted else []
        return ", ".join(parts)

    def schema_of(self, schema: Schema, pilot: pd.DataFrame | None) -> Schema:
        """Return the campaign's schema: ``schema`` with the design's bins, and a projection fitted on ``pilot``."""
        if self.reduction != "none":
            assert pilot is not None
            method, _, components = self.reduction.partition(":")
            return fit_projection(pilot, schema, method, int(components), bins=self.bins or DEFAULT_BINS).schema
        return schema if self.bins is None else with_bins(schema, self.bins)

    def campaign(
        self,
        schema: Schema,
        epsilon_micro: int,
        postprocess: str,
        *,
        class_question: bool = True,
        shares: Ask = NO_SHARES,
        noise: SharedNoise | None = None,
    ) -> Campaign:
        """Return the unsigned campaign of this design, made and checked by the code that makes real campaigns.

        ``noise``: of two collectors, whose ε counts; None for answers with noise of their own.
        ``schema``: from :meth:`schema_of`. ``shares``: all its features with groups and shares; empty for equal shares.
        Raises the errors of :func:`aggregator.publishing.campaigns.build_campaign`.
        """
        parameters = CampaignParameters(
            "plan",
            epsilon_micro,
            self.mechanism,
            answers=self.answers,
            family=self.family,
            approach=self.approach,
            postprocess=postprocess,
            class_question=class_question,
            ask=shares,
        )
        if noise is not None:
            blocks, delta = shared_subjects(schema), format_pico(noise.delta_pico)
            terms = shared_terms(made_up_pair(), blocks, epsilon_micro, delta=delta, noise=noise.noise)
            parameters = parameters._replace(shared=terms, ask=NO_SHARES)
            return parse_campaign(build_campaign(schema, parameters, 1, _NOW))
        stated = plain(schema) if shares else schema
        return parse_campaign(build_campaign(stated, parameters, 1, _NOW))


def with_bins(schema: Schema, bins: int) -> Schema:
    """Return the schema with ``bins`` bins of equal width in every numeric feature, without a projection."""
    features: list[Feature] = [
        Numeric(
            feature.name,
            feature.low,
            feature.high,
            equal_width_edges(feature.name, feature.low, feature.high, bins),
            feature.unlisted,
            feature.substitute,
        )
        if isinstance(feature, Numeric)
        else feature
        for feature in schema.features
    ]
    return build_schema(schema.label, features)


class Study:
    """Records of a pilot or invented ones, on which designs are tried.

    Raises InputError: ``columns_missing``: the pilot has no column for a feature; ``pilot_too_small``: fewer than
    :data:`LEAST_RECORDS` records with a class.

    Args:
        epsilon_micro: total ε of a device in one period, in millionths.
        pilot: typed records (:func:`aggregator.models.population.check_pilot`); None invents records.
        effect: d of the invented records (:func:`aggregator.models.population.assumed`).
        seed: seed of the division into folds, and of all simulated counts.
        class_question: whether the campaigns also ask for the class alone.
        shares: as in :meth:`Design.campaign`.
    """

    def __init__(
        self,
        schema: Schema,
        epsilon_micro: int,
        postprocess: str,
        *,
        pilot: pd.DataFrame | None,
        effect: float,
        seed: int,
        class_question: bool = True,
        shares: Ask = NO_SHARES,
        noise: SharedNoise | None = None,
    ) -> None:
        self.schema = schema
        self.class_question = class_question
        self.shares = shares
        self.noise = noise
        self.epsilon_micro = epsilon_micro
        self._postprocess = postprocess
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._effect = effect
        self.pilot = pilot
        if pilot is None:
            self.records, folds = ASSUMED_RECORDS, 2
        else:
            check_columns(pilot, schema)
            labelled = int(Population.of_frame(pilot, schema).known.sum())
            if labelled < LEAST_RECORDS:
                raise InputError(
                    "pilot_too_small", f"the pilot has {labelled} records with a class; a plan needs {LEAST_RECORDS}"
                )
            if len(pilot) > MOST_RECORDS:
                pilot = pilot.iloc[np.sort(rng.choice(len(pilot), MOST_RECORDS, replace=False))]
            self.pilot, self.records, folds = pilot, len(pilot), FOLDS
        known = self.population(schema).known
        # Records with a class come first, so that every fold has some to test on.
        order = np.concatenate([rng.permutation(np.flatnonzero(known)), rng.permutation(np.flatnonzero(~known))])
        self.divisions = [(np.sort(np.delete(order, np.s_[fold::folds])), order[fold::folds]) for fold in range(folds)]
        self._folds: dict[tuple[Design, int], list[Fold]] = {}
        self._campaigns: dict[tuple[Design, int], tuple[Campaign, Population]] = {}

    def population(self, schema: Schema) -> Population:
        """Return all records, read by a schema. Invented records are the same for every schema with these features."""
        if self.pilot is None:
            return assumed(schema, self._effect, np.random.default_rng([self._seed, self.records]), self.records)
        return Population.of_frame(self.pilot, schema)

    @property
    def largest_class(self) -> float:
        """Share of the largest class among the records with a known class."""
        truth = self.population(self.schema)
        return float(np.bincount(truth.truth[truth.known]).max() / truth.known.sum())

    def campaign(self, design: Design, epsilon_micro: int | None = None) -> tuple[Campaign, Population]:
        """Return a design's campaign from all records, and the records as the campaign's devices read them."""
        key = design._replace(counted=False), self.epsilon_micro if epsilon_micro is None else epsilon_micro
        if key not in self._campaigns:
            self._campaigns[key] = self._made(*key)
        return self._campaigns[key]

    def _made(self, design: Design, micro: int, learned: Integers | None = None) -> tuple[Campaign, Population]:
        """Return the campaign that is fitted on the records ``learned``, or on all, and all records for its schema."""
        pilot = self.pilot if self.pilot is None or learned is None else self.pilot.iloc[learned]
        if design.chosen_for is not None:
            assert pilot is not None
            # One model per fold for a part of the pilot, since the whole choice is repeated for each part.
            draws = DRAWS if learned is None else 1
            file, one = SchemaFile("", self.schema), micro // design.answers
            chosen = choose(pilot, file, one, design.chosen_for, seed=self._seed, judge=False, draws=draws).file
            made = design.campaign(chosen.schema, micro, self._postprocess, class_question=False, shares=chosen.ask)
            return made, self.population(made.schema)
        schema = design.schema_of(self.schema, pilot)
        made = design.campaign(
            schema, micro, self._postprocess, class_question=self.class_question, shares=self.shares, noise=self.noise
        )
        return made, self.population(schema)

    def folds(self, design: Design, epsilon_micro: int | None = None) -> list[Fold]:
        """Return the divisions of the records for a design, each with its campaign, perhaps with its own features."""
        micro = self.epsilon_micro if epsilon_micro is None else epsilon_micro
        key = design._replace(counted=False), micro
        if key not in self._folds:
            common = self.campaign(design, micro) if design.reduction == "none" else None
            self._folds[key] = [
                Fold(
                    campaign,
                    records.take(learned),
                    learned,
                    records.take(tested),
                    tested,
                    None if common else records,
                )
                for learned, tested in self.divisions
                for campaign, records in [common or self._made(design, micro, learned)]
            ]
        return self._folds[key]

    def rehearsal(self, design: Design, fleet: Fleet, epsilon_micro: int | None = None) -> Rehearsal:
        """Return a new rehearsal of a design, of independent randomness; with another ε than the study's if given."""
        key = [self._seed, *f"{design.name} {fleet} {epsilon_micro}".encode()]
        rng = np.random.default_rng(key)
        return Rehearsal(self.folds(design, epsilon_micro), self.records, fleet, rng, counted=design.counted)

    def plain(self, design: Design) -> float:
        """Return the expected accuracy of a design's model without privacy and with infinitely many devices."""
        return plain_accuracy(self.folds(design), self.records)
