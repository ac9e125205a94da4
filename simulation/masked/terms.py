"""The terms of simulated masked campaigns, from the settings of a simulation."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import cache
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from protocol.documents.masked_terms import (
    DILUTED,
    DIVIDED,
    MAX_DELTA_PICO,
    NOISES,
    UNITS,
    MaskedTerms,
    least_slot_bits,
    unfit_modulus,
)
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.masked.costs import PICO
from protocol.sums.vectors import summed_subjects

if TYPE_CHECKING:
    from aggregator.publishing.nodes.dealer_file import DealerPublic
    from protocol.schema import Schema
    from simulation.settings import Settings

DEFAULT_DELTA = "1e-5"
"""δ of a whole total with ``diluted`` noise, if the settings name none."""


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

    def masked(
        self,
        schema: Schema,
        family: str,
        parties: int,
        most: int,
        epsilon_micro: int,
        dealer: DealerPublic | None = None,
    ) -> MaskedTerms:
        """The terms of a campaign, with the narrowest slots that fit.

        Args:
            schema: features and label.
            family: ``discrete`` or ``gaussian``.
            parties: number of parties.
            most: largest number of records of a party.
            epsilon_micro: ε of a message in millionths.
            dealer: key and modulus of a dealer; None for made-up ones, which encrypt nothing.

        Raises:
            InputError: ``epsilon_invalid``: ε is less than a millionth for each released vector.
        """
        subjects = summed_subjects(schema, family)
        if epsilon_micro < len(subjects):
            raise InputError("epsilon_invalid", f"ε is less than a millionth for each of {len(subjects)} vectors")
        key, modulus = dealer or (bytes(32), made_up_modulus())
        bits = least_slot_bits(
            subjects,
            unit=self.unit,
            max_records=most,
            most_parties=parties,
            epsilon_micro=epsilon_micro,
        )
        return MaskedTerms(
            key,
            modulus,
            self.noise,
            self.delta_pico,
            self.honest_micro,
            self.colluding_micro,
            parties,
            self.unit,
            bits,
        )


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
    delta = (
        0 if noise == DIVIDED else _whole(DEFAULT_DELTA if settings.delta is None else settings.delta, PICO, "delta")
    )
    if noise == DILUTED and not 1 <= delta <= MAX_DELTA_PICO:
        raise InputError("setting_invalid", f"delta is from 1e-12 to {MAX_DELTA_PICO / PICO:g} with {DILUTED} noise")
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
    if not number.is_finite() or not 0 <= number <= parts or number != int(number):
        raise InputError("setting_invalid", f"{name} is a number from 0 to 1 with at most {len(str(parts)) - 1} digits")
    return int(number)


@cache
def made_up_modulus() -> int:
    """A number in the place of the modulus where numpy draws the totals. It is a hash, and encrypts nothing."""
    for trial in count():
        raw = b"".join(sha256(b"hearsay simulated modulus %d %d" % (trial, block)).digest() for block in range(8))
        number = int.from_bytes(raw, "big") | 1 << 2047 | 1
        if not unfit_modulus(number):
            break
    return number
