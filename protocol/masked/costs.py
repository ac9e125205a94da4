"""What one message of a masked campaign costs, in ε and δ, and what the noise of its numbers must be.

The total of the parties (nodes) is private for one *unit*: one record, or all records of one party. ε is divided over
the Q released vectors; δ over the numbers that change when one unit is added or removed. All functions of a campaign
raise InputError ``campaign_not_masked``. Source: docs/math.md, section 6; docs/formats.md, sections 5 and 6.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from protocol.documents.masked_terms import PARTY, MaskedTerms, ciphertexts_needed, reaches, sensitivity
from protocol.epsilon import MICRO, PICO
from protocol.errors import InputError
from protocol.nodes.terms import cost_micro, released_vectors, shares, terms_of
from protocol.noise.sums import rate
from protocol.questions import ADD_REMOVE, CHANGE_FEATURES, CLASS, MOMENT

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.documents.masked_terms import MaskedTerms
    from protocol.questions import Subject


class Range(NamedTuple):
    """Public limits of the numbers of one released vector.

    Attributes:
        low, high: smallest and largest exact number of one party; parties clamp to them before noise.
        reach: ⌈64·Δ/ε_q⌉, with Δ the sensitivity and ε_q the ε of the vector. The noise of one party exceeds it with
            probability below e^{−60}. Noise is not clamped.
    """

    low: int
    high: int
    reach: int

    def total(self, parties: int) -> tuple[int, int]:
        """Return the smallest and largest total of so many parties that a reader takes as correctly decrypted."""
        return parties * (self.low - self.reach), parties * (self.high + self.reach)


def masked_terms_of(campaign: Campaign) -> MaskedTerms:
    """Return the campaign's terms for masked sums. Raise ``campaign_not_masked`` if it has none."""
    if campaign.masked is None:
        raise InputError("campaign_not_masked", "this campaign does not ask nodes for encrypted sums")
    return campaign.masked


def delta_of(campaign: Campaign, subject: Subject) -> int:
    """Return Δ, the sensitivity of a released vector to adding or removing one unit: a record or a party."""
    return sensitivity(subject, masked_terms_of(campaign).unit, terms_of(campaign).max_records)


def ranges_of(campaign: Campaign) -> tuple[Range, ...]:
    """Return the range of every released vector, in their order."""
    unit, most = masked_terms_of(campaign).unit, terms_of(campaign).max_records
    pairs = zip(released_vectors(campaign), shares(campaign), strict=True)
    return tuple(Range(*reaches(subject, unit, most, share)) for subject, share in pairs)


def ciphertexts_of(campaign: Campaign) -> int:
    """Return J, the number of ciphertexts of every message of the campaign, and of elements of a release."""
    bits = masked_terms_of(campaign).slot_bits
    return ciphertexts_needed(sum(subject.size for subject in released_vectors(campaign)), bits)


def least_parties(terms: MaskedTerms, parties: int) -> int:
    """Return the smallest size of a set whose sum the dealer releases: ⌈γ·n⌉ + ⌊κ·n⌋ for n parties in the key book.

    Such a set holds ⌈γ·n⌉ honest parties even if ⌊κ·n⌋ of its members collude with the aggregator. γ and κ are
    ``honest_micro`` and ``colluding_micro`` of the terms, in millionths.
    """
    return -(-terms.honest_micro * parties // MICRO) + terms.colluding_micro * parties // MICRO


def rates(campaign: Campaign) -> tuple[Fraction, ...]:
    """Return the rate ε_q/Δ_q of a whole copy of the noise (:mod:`protocol.masked.noise`), one per released vector.

    ε_q = ⌊ε/Q⌋ millionths for Q vectors; Δ_q is that of :func:`delta_of`.
    """
    vectors = zip(released_vectors(campaign), shares(campaign), strict=True)
    return tuple(rate(share, delta_of(campaign, subject)) for subject, share in vectors)


def moved(campaign: Campaign, adjacency: str) -> int:
    """Return the largest number of released numbers that differ between two data sets that are neighbours.

    A unit has R records, 1 or ``max_records``. ``add-remove``: a record is in one entry of every vector, so a unit is
    in at most min(R, size). ``change``: R records leave and R others come: min(2R, size). ``change-features``: labels
    stay, so class counts do not differ, and a record stays in its entry of the sums of a number: min(R, size) there.
    ``adjacency`` is one of these three.
    """
    records = terms_of(campaign).max_records if masked_terms_of(campaign).unit == PARTY else 1
    return sum(min(_entries(subject, adjacency) * records, subject.size) for subject in released_vectors(campaign))


def _entries(subject: Subject, adjacency: str) -> int:
    """Return the largest number of entries of one vector that differ if one record of the data set differs."""
    if adjacency == ADD_REMOVE:
        return 1
    if adjacency == CHANGE_FEATURES and subject.kind in (CLASS, MOMENT):
        return 0 if subject.kind == CLASS else 1
    return 2


def delta_share(campaign: Campaign) -> Fraction:
    """Return δ_q, the δ of one released number, or 0 for ``divided`` noise.

    It is the campaign's δ, divided by the number of numbers that change when one unit is added or removed.
    """
    return Fraction(masked_terms_of(campaign).delta_pico, PICO * moved(campaign, ADD_REMOVE))


def cost(campaign: Campaign, adjacency: str) -> tuple[int, int]:
    """Return what one message costs one unit of protection: ε in millionths, δ in 10⁻¹², both rounded up.

    ``add-remove``: ε and δ of the campaign. ``change`` and ``change-features``: 2ε, and δ_q (:func:`delta_share`) for
    each number that :func:`moved` counts.
    """
    delta = delta_share(campaign) * moved(campaign, adjacency) * PICO
    return cost_micro(campaign, adjacency), -(-delta.numerator // delta.denominator)


def honest_parties(terms: MaskedTerms, u: int) -> int:
    """Return the number h = ⌈γu⌉ ≥ 1 of honest parties that a party with the number u assumes for its noise.

    Since u ≤ n, the number of parties, h is at most ⌈γn⌉: so many every released total contains
    (:func:`least_parties`). Raises InputError ``value_out_of_domain``: u is below 1.
    """
    if u < 1:
        raise InputError("value_out_of_domain", "a party's number u is at least 1")
    return -(-terms.honest_micro * u // MICRO)
