"""What one report of a shared campaign costs, and what hides it: everything follows from the campaign's file.

With Q features a changed record moves two cells of each by one. Discrete Laplace noise of the rate r in every cell then
loses exactly 2Q·r. Source: docs/math.md, section 9.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

from aggregator.collectors.noise import COLLECTORS, cell_variance
from aggregator.common.facts import Facts, said
from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import GAUSSIAN, Collector, shared_subjects
from protocol.epsilon import PICO, PrivacyLoss, format_micro, format_pico
from protocol.questions import CHANGE
from protocol.shared.report import terms_of

EVERYTHING = "every record: the two shares of a report together are the device's record"
"""What two collectors see who work together, in words."""


class SharedSheet(NamedTuple):
    """What one report of a shared campaign costs a device.

    Attributes:
        collectors: the leader and the helper.
        features: Q, the number of features that a report is about.
        cells: number of cells (a value and a class).
        noise: ``laplace`` or ``gaussian``.
        deviation: standard deviation of one collector's noise in one cell, in devices.
        declared_micro, delta_pico: ε and δ of one report, for a changed record, in millionths and in 10^−12.
        loss: exact privacy loss (:meth:`Campaign.privacy_loss`); of Gaussian noise that to which its variance is set.
    """

    collectors: tuple[Collector, Collector]
    features: int
    cells: int
    noise: str
    deviation: float
    declared_micro: int
    delta_pico: int
    loss: PrivacyLoss

    @property
    def holds(self) -> bool:
        """Whether the loss is at most the declared ε. Exact fractions are compared."""
        return not self.loss.exceeds(self.declared_micro)

    @property
    def total_deviation(self) -> float:
        """Standard deviation of the noise of both collectors in one cell of a total, in devices."""
        return self.deviation * sqrt(COLLECTORS)

    @property
    def cost(self) -> str:
        """ε and δ of one report, in words."""
        delta = f", δ = {format_pico(self.delta_pico)}" if self.delta_pico else ""
        return f"{format_micro(self.declared_micro)}{delta} for one device's record changed"

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``privacy`` in the output of ``hearsay verify --privacy --json``."""
        return {
            "features": self.features,
            "cells": self.cells,
            "noise": self.noise,
            "noise_sd": self.total_deviation,
            "noise_sd_of_one_collector": self.deviation,
            "declared": {"epsilon_total": format_micro(self.declared_micro), "delta": self.delta_pico / PICO},
            "total": {CHANGE: float(self.loss)},
            "holds": self.holds,
        }

    @property
    def facts(self) -> Facts:
        """The sheet for people."""
        leader, helper = self.collectors
        loss = "its variance is set to ε and δ" if self.noise == GAUSSIAN else f"{self.loss.exponent}, exactly"
        return Facts(
            "privacy",
            (
                said("ε of a report", self.cost),
                said("loss of the noise", loss),
                said("against", "all who see totals and models, and one of the two collectors alone"),
                said("both collectors see", EVERYTHING),
                said("collectors", f"{leader.name} ({leader.contact}), {helper.name} ({helper.contact})"),
                said("a report is about", f"{self.features} features at once, {self.cells} cells (value and class)"),
                said("noise of a cell", self.noise_text),
            ),
        )

    @property
    def noise_text(self) -> str:
        """The noise of one cell of a total, in words."""
        return (
            f"± {self.total_deviation:.4g} devices (discrete {self.noise.capitalize()}, of both collectors; "
            f"± {self.deviation:.4g} of an honest one alone)"
        )


def shared_sheet(found: Campaign) -> SharedSheet:
    """Compute what one report of a shared campaign costs. Run by owners, auditors and analysts.

    Raises:
        InputError: ``campaign_not_shared``.
    """
    terms, blocks = terms_of(found), shared_subjects(found.schema)
    features, declared = len(blocks), found.epsilon_micro
    return SharedSheet(
        terms.collectors,
        features,
        sum(block.size for block in blocks),
        terms.noise,
        sqrt(cell_variance(terms.noise, features, declared, terms.delta_pico)),
        declared,
        terms.delta_pico,
        found.privacy_loss(),
    )
