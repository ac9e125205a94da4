"""What one report of a shared campaign costs, and what is guaranteed: everything follows from the campaign's file.

With Q features a changed record moves two cells of each by one. Discrete Laplace noise of the rate r in every cell then
loses exactly 2Q·r. Source: docs/math.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

from aggregator.cards.guarantee import MOST_DEVICES, GuaranteeSheet, life_text, number_text, spending
from aggregator.collectors.noise import COLLECTORS, cell_variance
from aggregator.common.facts import Fact, Facts, said, stated
from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import GAUSSIAN, Collector
from protocol.epsilon import PICO, PrivacyLoss, format_micro, format_pico
from protocol.errors import InputError
from protocol.questions import CHANGE
from protocol.shared.report import terms_of

EVERYTHING = "every record: the two shares of a report together are the device's record"
"""What two collectors see who work together, in words."""
UNSEEN_OF_SHARES = (
    "whether the two collectors work together. Then they see every record, also of periods that are over",
    (
        "whether a collector is honest: one alone can shift the total as it likes and choose whose reports count, and "
        "neither the other one nor a reader sees it. It learns nothing but the total with the other's noise"
    ),
    (
        "in an open fleet: made-up devices. They fill the smallest batch, and then only the honest collector's noise "
        "protects. A closed fleet (hearsay collector check --fleet) counts listed devices alone"
    ),
    "whether a device's record is true: a lie that is a possible record is believed",
    "whether a device was reset: it has a new id and may answer a period twice, which doubles ε",
    "who reports is no secret from the leader, who gets the reports as they come",
)
"""What no test of a shared campaign's reports can see, in sentences."""


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
    terms, blocks = terms_of(found), found.blocks
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


@dataclass(frozen=True)
class SharedGuarantee(GuaranteeSheet):
    """All guarantees of a shared campaign: devices split their records for two collectors.

    Attributes:
        devices: number of devices that answer in a period; None if it is not known.
    """

    privacy: SharedSheet
    devices: int | None

    @property
    def facts(self) -> Facts:
        """The whole sheet, for people and programs."""
        found, spent, sheet = self.campaign, self.spending, self.privacy
        leader, helper = sheet.collectors
        condition = "under the default limits of an owner whose policy names both collectors"
        lived = spent.answered * sheet.delta_pico
        noise = sheet.noise_text
        if self.devices is not None:
            noise += f"; {sheet.total_deviation / self.devices:.2%} of {number_text(self.devices, 'device')}"
        batch = f"{found.min_batch_size} accepted reports; in an open fleet it protects nobody, see below"
        one_liar = (
            f"one cell of each of {number_text(sheet.features, 'feature')}, by one device: it can claim one record"
        )
        facts = [
            *self._first(", shared by two collectors", sheet.cost),
            Fact("device", spent.to_json(), f"at most {format_micro(spent.day)}, {condition}", "ε per day"),
            said("ε in its life", life_text(spent)),
            Fact("delta_in_life", lived / PICO, f"at most {format_pico(lived)}", "δ in its life"),
            said("covers", "the whole record of a device, against all who see totals and models, and one collector"),
            Fact("both_collectors_see", "everything", f"{EVERYTHING} (not only one period's)"),
            Fact(
                "collectors",
                [{"name": one.name, "contact": one.contact, "key": one.key.hex()} for one in sheet.collectors],
                f"{leader.name} ({leader.contact}) and {helper.name} ({helper.contact}); one of them is honest",
                "rests on",
            ),
            Fact("noise_sd", sheet.total_deviation, noise, "noise of a cell"),
            Fact("min_batch_size", found.min_batch_size, batch, "smallest batch"),
            Fact("most_claimed", 1, one_liar, "one liar moves"),
            stated("pilots", [one._asdict() for one in found.pilots]),
            *self._pilots(),
        ]
        return self._sheet(facts, "reports")


def shared_guarantee(found: Campaign, *, devices: int | None = None) -> SharedGuarantee:
    """Compute the guarantee sheet of a shared campaign. Run by owners, analysts and auditors.

    ``devices``: number of devices that answer in a period; None if it is not known.

    Raises InputError ``campaign_not_shared``; ``argument_invalid``: the number is below 1 or too large.
    """
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise InputError("argument_invalid", "devices are 1 to 10¹⁵")
    return SharedGuarantee(found, shared_sheet(found), spending(found), UNSEEN_OF_SHARES, devices)
