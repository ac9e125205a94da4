"""The terms of simulated masked campaigns, from the settings of a simulation."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

from aggregator.nodes.campaigns.campaigns import Masking
from aggregator.nodes.campaigns.dealer_file import DealerPublic
from protocol.documents.masked_terms import DIVIDED, MODULUS_BYTES, unfit_modulus
from protocol.errors import InputError

if TYPE_CHECKING:
    from simulation.settings import Settings

DEFAULT_DELTA = "1e-5"
"""δ of a whole total with ``diluted`` noise, if the settings name none."""


def masking_of(settings: Settings, dealer: DealerPublic | None = None) -> Masking:
    """What the publisher of a simulated campaign chooses.

    Args:
        settings: the settings. Noise that is ``divided`` has no δ, whatever they say.
        dealer: key and modulus of a dealer; None for made-up ones, which encrypt nothing.

    Raises:
        InputError: ``setting_invalid``: fewer than two parties.
    """
    if settings.nodes is None or settings.nodes < 2:
        raise InputError("setting_invalid", "distributed trust needs a number of parties, 2 or more (--nodes)")
    noise = settings.noise or DIVIDED
    delta = DEFAULT_DELTA if settings.delta is None else str(settings.delta)
    return Masking(
        dealer=dealer or made_up_dealer(),
        honest_share=str(settings.honest_share),
        most_parties=settings.nodes,
        colluding_share=str(settings.colluding_share),
        noise=noise,
        delta=None if noise == DIVIDED else delta,
        unit=settings.unit,
    )


def made_up_dealer() -> DealerPublic:
    """The dealer of a campaign of which numpy draws the totals. It has no secret, and nothing is encrypted for it."""
    return DealerPublic(bytes(32), made_up_modulus())


@cache
def made_up_modulus() -> int:
    """A number in the place of a modulus. It is a hash, and encrypts nothing but simulations with a seed."""
    for trial in count():
        blocks = [sha256(b"hearsay simulated modulus %d %d" % (trial, block)).digest() for block in range(8)]
        number = int.from_bytes(b"".join(blocks), "big") | 1 << 8 * MODULUS_BYTES - 1 | 1
        if not unfit_modulus(number):
            break
    return number
