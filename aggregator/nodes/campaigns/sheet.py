"""What a campaign for nodes costs the people in a node's records: the exact privacy loss of every sum, and in all.

Each of Q released vectors has ε_q = ⌊ε/Q⌋ millionths and discrete Laplace noise of rate ε_q/Δ, Δ the largest change by
one record more or less. Under an adjacency of largest change Δ' it loses ε_q·Δ'/Δ. Source: docs/math.md, section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

from aggregator.nodes.campaigns.numbering import first_numbers
from aggregator.publishing.privacy import (
    HIGH_EPSILON_MICRO,
    campaign_warning,
    pace_warning,
    refusal_warning,
    subject_text,
)
from protocol import SCALE
from protocol import epsilon as allowance
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import DILUTED, PARTY, MaskedTerms
from protocol.epsilon import MICRO, format_micro
from protocol.errors import PolicyError
from protocol.masked.costs import delta_of, least_parties
from protocol.masked.noise import noise_of
from protocol.nodes.terms import cost_micro, noise_variance, released_vectors, sensitivity, shares, terms_of
from protocol.questions import ADD_REMOVE, ADJACENCIES, CHANGE, CHANGE_FEATURES, MOMENT, SENSITIVITIES, Subject

_MOST_NOISES = 1000
"""Most parties whose noise is computed for a sheet."""


class VectorLoss(NamedTuple):
    """One released vector of sums, and what it costs.

    ``size``: number of integers. ``sensitivity``: Δ, the largest change of the sums by one record more or less
    (``smooth``: by new features of one record; unit party: by all records of a party), in counts or half ranges.
    ``deviation``: of the noise of one number (of a masked total, or for ``smooth`` an upper bound). ``losses``:
    adjacency that the noise covers → privacy loss, in nats.
    """

    name: str
    size: int
    sensitivity: Fraction
    epsilon_micro: int
    deviation: float
    losses: dict[str, Fraction]


class NodeSheet(NamedTuple):
    """The ε that a campaign for nodes declares for one summary, and the ε that a summary spends.

    ``vectors`` are in the order of the summary; ``declared_micro`` is ε for one record more or less. ``booked_micro``:
    adjacency that the noise covers → ε that a node enters in its ledger for a summary. All in millionths.
    """

    vectors: tuple[VectorLoss, ...]
    declared_micro: int
    booked_micro: dict[str, int]

    def total(self, adjacency: str) -> Fraction:
        """Return the exact privacy loss of one summary under an adjacency, in nats: the sum over all vectors."""
        return sum((vector.losses[adjacency] for vector in self.vectors), Fraction(0))

    @property
    def numbers(self) -> int:
        """Number of integers in one summary."""
        return sum(vector.size for vector in self.vectors)

    @property
    def holds(self) -> bool:
        """Whether a summary spends at most ``booked_micro`` under each adjacency. Exact fractions are compared."""
        return all(self.total(name) <= Fraction(booked, MICRO) for name, booked in self.booked_micro.items())

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``privacy`` in the output of ``hearsay verify --privacy --json``."""
        return {
            "vectors": [
                {
                    "vector": vector.name,
                    "numbers": vector.size,
                    "sensitivity": str(vector.sensitivity),
                    "epsilon": format_micro(vector.epsilon_micro),
                    "noise_sd": vector.deviation,
                    "loss": {name: str(loss) for name, loss in vector.losses.items()},
                }
                for vector in self.vectors
            ],
            "queries": len(self.vectors),
            "numbers": self.numbers,
            "declared": {"epsilon_total": format_micro(self.declared_micro)},
            "total": {name: float(self.total(name)) for name in self.booked_micro},
            "booked": {name: format_micro(micro) for name, micro in self.booked_micro.items()},
            "holds": self.holds,
        }


def node_sheet(found: Campaign, epsilon_micro: int | None = None) -> NodeSheet:
    """Compute what a summary costs that states ``epsilon_micro`` (None: the campaign's ε). Run by auditors."""
    names = [feature.name for feature in found.schema.observed]
    micro = found.epsilon_micro if epsilon_micro is None else epsilon_micro
    booked, kind = _booked(found, micro), terms_of(found).sensitivity
    vectors: list[VectorLoss] = []
    variances = _variances_of_totals(found)
    for subject, share in zip(released_vectors(found), shares(found, epsilon_micro), strict=True):
        by_adjacency = SENSITIVITIES[subject.kind, subject.power]
        unit = SCALE if subject.kind == MOMENT else 1
        base = sensitivity(subject, kind)
        stated = base if found.masked is None else delta_of(found, subject)
        vectors.append(
            VectorLoss(
                subject_text(subject, names),
                subject.size,
                Fraction(stated, unit),
                share,
                sqrt(variances.get(subject) or noise_variance(found, subject, share)) / unit,
                {name: Fraction(share * by_adjacency[name], MICRO * base) for name in booked},
            )
        )
    return NodeSheet(tuple(vectors), micro, booked)


def _variances_of_totals(found: Campaign) -> dict[Subject, float]:
    """Return vector → noise variance of a number in the total of as many parties as a masked campaign may have."""
    if found.masked is None:
        return {}
    most = found.masked.most_parties
    numbers = list(first_numbers(party.to_bytes(4, "big") for party in range(most)).values())
    sample = numbers[:: -(-most // _MOST_NOISES)]
    weight, copies = most / len(sample), Counter(sample)
    noise = [(weight * count, noise_of(found, u)) for u, count in copies.items()]
    return {
        subject: sum(count * each[place].variance for count, each in noise)
        for place, subject in enumerate(released_vectors(found))
    }


def _booked(found: Campaign, epsilon_micro: int) -> dict[str, int]:
    """Return adjacency → ε that a node enters in its ledger for one summary, in millionths, if the noise covers it."""
    booked = {}
    for name in ADJACENCIES:
        try:
            booked[name] = cost_micro(found, name, epsilon_micro)
        except PolicyError:  # adjacency_uncovered
            continue
    return booked


def usual_cost(found: Campaign) -> int:
    """Return the ε, in millionths, that a node without an owner's policy books for one summary."""
    booked = _booked(found, found.epsilon_micro)
    return booked.get(CHANGE, max(booked.values()))


def is_refused(found: Campaign) -> bool:
    """Return whether a node whose owner set no policy refuses the campaign because of its kind of noise or its ε."""
    return CHANGE not in _booked(found, found.epsilon_micro) or usual_cost(found) > allowance.PERIOD_MICRO


def node_warnings(found: Campaign) -> tuple[str, ...]:
    """Return warnings for signers and readers of a campaign for nodes. A text is empty without a warning."""
    return (_uncovered(found), _high(found), _limits(found))


def warning_of(found: Campaign) -> str:
    """Return all warnings about a campaign for devices or for nodes in one text; empty for most campaigns."""
    if found.nodes is None:
        return campaign_warning(found)
    warnings = (*node_warnings(found), *masked_warnings(found, None), refusal_warning(found.schema))
    return "; ".join(filter(None, warnings))


def _uncovered(found: Campaign) -> str:
    """Return a warning that nodes refuse noise that does not cover changed records; otherwise empty."""
    if CHANGE in _booked(found, found.epsilon_micro):
        return ""
    return (
        "a summary covers changed features of a record, and neither a changed label nor a record more or less: nodes "
        'refuse the campaign (adjacency_uncovered) unless their owner\'s policy says node_adjacency = "change-features"'
    )


def _high(found: Campaign) -> str:
    """Return a warning if ε is so large that it hides next to nothing; otherwise empty."""
    cost = usual_cost(found)
    if cost <= HIGH_EPSILON_MICRO:
        return ""
    if CHANGE in _booked(found, found.epsilon_micro):
        more = f" for one record more or less is ε = {format_micro(cost)} for a changed record"
    else:
        more = " for changed features of a record"
    return f"ε = {format_micro(found.epsilon_micro)}{more}; above 20 it hides next to nothing of a record"


def _limits(found: Campaign) -> str:
    """Return a warning that nodes refuse the campaign, or skip periods, under default limits; otherwise empty."""
    cost = usual_cost(found)
    who = "a node" if CHANGE in _booked(found, found.epsilon_micro) else "a node with that node_adjacency"
    if cost > allowance.PERIOD_MICRO:
        return (
            f"{who} whose owner set no limits refuses this campaign: its ledger would count ε = {format_micro(cost)} "
            f"for a summary, and the default limit of a period is {format_micro(allowance.PERIOD_MICRO)}"
        )
    return pace_warning(cost, found.time_precision, found.header.expires - found.header.not_before, who)


def masked_warnings(found: Campaign, listed: int | None) -> tuple[str, ...]:
    """Return warnings about a masked campaign with ``listed`` nodes on its list (None: not known); none for others."""
    terms = found.masked
    if terms is None:
        return ()
    parties = terms.most_parties if listed is None else listed
    least = least_parties(terms, parties)
    trust = "whoever has the dealer's secret and the parties' messages reads every party's numbers"
    return (
        f"{trust}: the dealer is on another machine, of people who never get messages",
        f"one missing party blocks a period: all {parties} parties must report; a smaller honest share leaves slack"
        if least >= parties
        else "",
        f"the list has {listed} nodes, and the campaign allows {terms.most_parties}: no keys can be made for it"
        if listed is not None and listed > terms.most_parties
        else "",
        "diluted noise is larger than divided noise, which also has δ = 0; see --noise divided"
        if terms.noise == DILUTED
        else "",
        f"the noise hides a whole party: only its first {terms_of(found).max_records} records count"
        if terms.unit == PARTY
        else "",
    )


IN_WORDS = {
    ADD_REMOVE: "one record more or less",
    CHANGE: "one record changed",
    CHANGE_FEATURES: "one record's features changed",
}
OF_PARTIES = {
    ADD_REMOVE: "all records of one party more or less",
    CHANGE: "all records of one party changed",
    CHANGE_FEATURES: "the features of all records of one party changed",
}
"""Adjacency → what differs, in masked campaigns whose unit is the party."""


def in_words(found: Campaign) -> dict[str, str]:
    """Return adjacency → what differs between neighbouring data sets of a campaign for nodes, in words."""
    return OF_PARTIES if found.masked is not None and found.masked.unit == PARTY else IN_WORDS


def cost_text(sheet: NodeSheet, words: Mapping[str, str] = IN_WORDS) -> str:
    """Return one line with the ε of one summary under every adjacency that the noise covers.

    ``words``: adjacency → its name in the line. Changed features are named only where changed records are not covered.
    """
    booked = dict(sheet.booked_micro)
    if CHANGE in booked:
        booked.pop(CHANGE_FEATURES, None)
    return "; ".join(f"{format_micro(micro)} for {words[name]}" for name, micro in booked.items())


def noise_text(sheet: NodeSheet, masked: MaskedTerms | None = None) -> str:
    """Return in words the noise's standard deviations in one number of a node, or of the ``masked`` total."""
    deviations = [vector.deviation for vector in sheet.vectors]
    ends = dict.fromkeys(f"{end:.4g}" for end in (min(deviations), max(deviations)))
    of = "a node" if masked is None else f"the total of {masked.most_parties} parties"
    return f"standard deviation {' to '.join(ends)} records in each number of {of}"
