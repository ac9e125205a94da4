"""Designs: the alternatives that a forecast compares, each a family, coding, mechanism and number of answers."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from aggregator.models.reduction import fit_projection
from aggregator.publishing.ask_table import Ask
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.choice import AUTO
from aggregator.publishing.schemas.schema_file import equal_width_edges
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.features import Feature, Numeric
from protocol.schema import Schema, build_schema

_NOW = 1_900_000_000
"""Time in the header of a campaign that nobody signs."""
DEFAULT_BINS = 4
NO_SHARES: Ask = MappingProxyType({})


class Design(NamedTuple):
    """One way to ask the devices of a fleet.

    Attributes:
        family: ``discrete`` or ``gaussian``.
        mechanism: name of the mechanism. In a discrete design ``auto`` means, for each question, ``direct`` or ``oue``
            (:func:`aggregator.publishing.mechanisms.choice.mechanism_for`).
        answers: answers per device and period.
        bins: bins of equal width of every numeric feature and component; None for the bins of the schema. Gaussian
            designs have None.
        reduction: ``none``, ``pca:K`` or ``dca:K``.
        approach: only for ``laplace`` in a Gaussian campaign: 1 asks for all moments at once; None for one.
    """

    family: str
    mechanism: str
    answers: int = 1
    bins: int | None = None
    reduction: str = "none"
    approach: int | None = None

    @property
    def coding(self) -> tuple[str, int | None, str]:
        """Family, bins and reduction. Designs with the same coding ask for the same statistics."""
        return self.family, self.bins, self.reduction

    @property
    def name(self) -> str:
        """The design in a few words, for tables and legends."""
        parts = [self.family]
        parts += [] if self.bins is None else [f"{self.bins} bins"]
        parts += [] if self.reduction == "none" else [self.reduction]
        named = "direct or oue" if self.mechanism == AUTO else self.mechanism
        parts.append(named if self.approach is None else f"{named} approach {self.approach}")
        parts += [] if self.answers == 1 else [f"{self.answers} answers"]
        return ", ".join(parts)

    def schema_of(self, schema: Schema, pilot: pd.DataFrame | None) -> Schema:
        """The campaign's schema: ``schema`` with the design's bins and projection, which is fitted on ``pilot``.

        Raises:
            InputError: what :func:`aggregator.models.reduction.fit_projection` raises.
        """
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
    ) -> Campaign:
        """The unsigned campaign of this design, made and checked by the code that makes real campaigns.

        Args:
            schema: from :meth:`schema_of`.
            epsilon_micro: total ε of a device in one period, in millionths.
            postprocess: name of the post-processing.
            class_question: whether devices are also asked for the class alone.
            shares: all features of ``schema``, with the share of each and with the same groups; empty for equal shares.

        Raises:
            InputError, DocumentError: no campaign can have these values
                (:func:`aggregator.publishing.campaigns.build_campaign`).
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
        stated = schema._replace(groups=()) if shares else schema
        return parse_campaign(build_campaign(stated, parameters, 1, _NOW))


def with_bins(schema: Schema, bins: int) -> Schema:
    """The schema with ``bins`` bins of equal width in every numeric feature, without a projection."""
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
