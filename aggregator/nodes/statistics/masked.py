"""Decrypted totals of masked messages and their statistics.

A party whose number in the key book is u adds noise of a variance w and a fourth cumulant c, which follow from u. The
noise of a total has the variance Σw and the excess kurtosis Σc/(Σw)². Source: docs/math.md, section 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.statistics.federation import added, statistics_of
from aggregator.nodes.statistics.totals import Total
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import DILUTED, RECORD
from protocol.epsilon import MICRO, PICO, format_micro
from protocol.errors import PolicyError
from protocol.masked.costs import least_parties, masked_terms_of, ranges_of
from protocol.masked.keys import KeyBook
from protocol.masked.noise import noise_of
from protocol.nodes.terms import released_vectors
from protocol.questions import MOMENT

ESTIMATOR = "decrypted sums of the parties' encrypted sums, each with the weight one"
THREATS = (
    "Nobody sees a party's numbers, as long as the dealer of the keys keeps them: the dealer's secret and the "
    "messages together decrypt every party's sums. Up to the stated δ the total is differentially private for {} even"
    " if {} of the parties collude with the aggregator or add no noise; nodes that the publisher invented are among "
    "these. Nothing shows whether a party's numbers are true: one that lies can move every count by any amount, "
    "unlike a node that sends its sums in the clear."
)


class PeriodTotal(NamedTuple):
    """The decrypted sums of one period: the key book, the ids of the parties, and M integers with their noise."""

    period: int
    book: KeyBook
    parties: tuple[bytes, ...]
    numbers: tuple[int, ...]


def masked_statistics(
    campaign: Campaign,
    totals: Sequence[PeriodTotal],
    *,
    rejected: Mapping[str, int] | None = None,
    periods: str = "all",
) -> Statistics:
    """Return the statistics of decrypted totals, at most one for each period. Run by the aggregator.

    ``rejected`` and ``periods`` are attributes of :class:`.federation.Federation`. Raises PolicyError
    ``batch_too_small`` without totals.
    """
    if not totals:
        raise PolicyError(
            "batch_too_small",
            "no period of masked messages was decrypted yet: hearsay masked request writes the request to the dealer",
        )
    parts = Counter(total.book.parties[party].u for total in totals for party in total.parties)
    laws = [
        (count, [(law.variance, law.fourth_cumulant) for law in noise_of(campaign, u)])
        for u, count in sorted(parts.items())
    ]
    found, entries = _total(campaign, totals), card_entries(campaign, totals)
    sums = added(campaign, found, laws)
    return statistics_of(campaign, found, sums, rejected=rejected, periods=periods, entries=entries)


def _total(campaign: Campaign, totals: Sequence[PeriodTotal]) -> Total:
    """Return the sum over the periods, in the form that all statistics of nodes start from."""
    classes = released_vectors(campaign)[0].size
    numbers = [sum(each) for each in zip(*(total.numbers for total in totals), strict=True)]
    parties = {party for total in totals for party in total.parties}
    messages = sum(len(total.parties) for total in totals)
    records = {total.period: sum(total.numbers[:classes]) for total in totals}
    stated = {campaign.epsilon_micro: messages} if messages else {}
    return Total(campaign.id, len(parties), stated, records, tuple(numbers))


def card_entries(campaign: Campaign, totals: Sequence[PeriodTotal]) -> dict[str, Any]:
    """Return the entries of a model's card that are special to masked totals. ``totals``: at least one."""
    terms = masked_terms_of(campaign)
    unit = "one record" if terms.unit == RECORD else "all records of one party"
    # A period is only as safe as its own key book, so the period of the smallest book is stated.
    weakest = min(totals, key=lambda total: (len(total.book.parties), total.period))
    parties = len(weakest.book.parties)
    colluding = f"{terms.colluding_micro * parties // MICRO} of {parties}"
    return {
        "trust": "distributed",
        "dealer": terms.dealer.hex(),
        "unit": terms.unit,
        "noise": terms.noise,
        "delta_total": f"{terms.delta_pico / PICO:.12g}" if terms.noise == DILUTED else "0",
        "honest_share": format_micro(terms.honest_micro),
        "colluding_share": format_micro(terms.colluding_micro),
        "smallest_set": min(len(total.parties) for total in totals),
        "least_set": least_parties(terms, parties),
        "estimator": ESTIMATOR,
        "threats": THREATS.format(f"{unit} added or removed", colluding),
    }


def check_numbers(campaign: Campaign, numbers: Sequence[int], parties: int) -> int | None:
    """Return the index of the first of M decrypted numbers that so many honest parties can not cause, or None."""
    place = 0
    for subject, limits in zip(released_vectors(campaign), ranges_of(campaign), strict=True):
        low, high = limits.total(parties)
        for number in numbers[place : place + subject.size]:
            if not low <= number <= high:
                return place
            place += 1
    return None


def largest_claim(campaign: Campaign, parties: int) -> int:
    """Return the largest accepted total of a count of so many parties. One lying party can move a count so far."""
    counts = zip(released_vectors(campaign), ranges_of(campaign), strict=True)
    return max(limits.total(parties)[1] for subject, limits in counts if subject.kind != MOMENT)
