"""What follows from the terms of a masked campaign: ranges of exact numbers, ciphertexts per message, least sets.

Source: docs/formats.md, sections 5 and 6; docs/math.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.documents.masked_terms import MaskedTerms, ciphertexts_needed, reaches, sensitivity
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.nodes.terms import released_vectors, shares, terms_of

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.questions import Subject

__all__ = ["MaskedTerms", "Range", "ciphertexts_of", "delta_of", "least_parties", "masked_terms_of", "ranges_of"]


class Range(NamedTuple):
    """Public limits of the numbers of one released vector.

    Attributes:
        low, high: smallest and largest exact number of one party; parties clamp to them before noise.
        reach: ⌈64·Δ/ε_q⌉, which the noise of one party exceeds with probability below e^{−60}. Noise is not clamped.
    """

    low: int
    high: int
    reach: int

    def total(self, parties: int) -> tuple[int, int]:
        """Smallest and largest total of so many parties that a reader takes as correctly decrypted."""
        return parties * (self.low - self.reach), parties * (self.high + self.reach)


def masked_terms_of(campaign: Campaign) -> MaskedTerms:
    """The campaign's terms for masked sums.

    Raises:
        InputError: ``campaign_not_masked``: the campaign asks devices, or nodes for sums in the clear.
    """
    if campaign.masked is None:
        raise InputError("campaign_not_masked", "this campaign does not ask nodes for encrypted sums")
    return campaign.masked


def delta_of(campaign: Campaign, subject: Subject) -> int:
    """Δ of the noise of a released vector, for adding or removing one unit of the campaign: a record or a party.

    Raises:
        InputError: ``campaign_not_masked``.
    """
    return sensitivity(subject, masked_terms_of(campaign).unit, terms_of(campaign).max_records)


def ranges_of(campaign: Campaign) -> tuple[Range, ...]:
    """The range of every released vector, in their order.

    Raises:
        InputError: ``campaign_not_masked``.
    """
    unit, most = masked_terms_of(campaign).unit, terms_of(campaign).max_records
    pairs = zip(released_vectors(campaign), shares(campaign), strict=True)
    return tuple(Range(*reaches(subject, unit, most, share)) for subject, share in pairs)


def ciphertexts_of(campaign: Campaign) -> int:
    """J: the number of ciphertexts of every message of the campaign, and of elements of a release.

    Raises:
        InputError: ``campaign_not_masked``.
    """
    bits = masked_terms_of(campaign).slot_bits
    return ciphertexts_needed(sum(subject.size for subject in released_vectors(campaign)), bits)


def least_parties(terms: MaskedTerms, parties: int) -> int:
    """Smallest size of a set whose sum the dealer releases: ⌈γ·n⌉ + ⌊κ·n⌋.

    Such a set holds ⌈γ·n⌉ honest parties even if ⌊κ·n⌋ of its members collude with the aggregator.

    Args:
        terms: γ and κ.
        parties: n, the number of parties in the key book.
    """
    return -(-terms.honest_micro * parties // MICRO) + terms.colluding_micro * parties // MICRO
