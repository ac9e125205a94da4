"""The terms of a masked campaign from what the publisher chooses: shares of parties, kind of noise, slots.

Source: docs/math.md, section 6; docs/formats.md, section 5 (map ``masked``).
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from aggregator.nodes.campaigns.dealer_file import DealerPublic, read_dealer
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import (
    DILUTED,
    DIVIDED,
    MAX_DELTA_PICO,
    MAX_PARTIES,
    MOST_SLOT_BITS,
    NOISES,
    PARTY,
    RECORD,
    UNITS,
    MaskedTerms,
    least_slot_bits,
)
from protocol.documents.node_terms import GLOBAL, NodeTerms
from protocol.epsilon import MICRO, pico_delta
from protocol.errors import InputError
from protocol.masked.terms import least_parties
from protocol.schema import Schema
from protocol.sums.vectors import summed_subjects

_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,18})?(e-[0-9]{1,2})?", re.ASCII)


class Masking(NamedTuple):
    """What the publisher of a masked campaign chooses. Numbers are decimal text such as ``0.8`` or ``1e-5``.

    Attributes:
        dealer: the dealer's public file, or what was read from it.
        honest_share: γ, the share of the parties that surely add their noise and do not reveal it; above 0, at most 1.
        most_parties: largest number of parties, 2 to 65536. It decides the size of slots.
        colluding_share: κ, the share of parties that may reveal their noise to the aggregator. γ + κ ≤ 1.
        noise: ``divided``, or ``diluted`` as in the paper.
        delta: δ of a message for one record, or party, more or less: for ``diluted`` noise only, at most 0.001.
        unit: what the noise hides: one ``record``, or all records of one ``party``.
    """

    dealer: DealerPublic | str | Path
    honest_share: str
    most_parties: int
    colluding_share: str = "0"
    noise: str = DIVIDED
    delta: str | None = None
    unit: str = RECORD


def masked_terms(masking: Masking, nodes: NodeTerms, schema: Schema, family: str, epsilon_micro: int) -> MaskedTerms:
    """The terms of a masked campaign, with the smallest slots in which no total of expected size overflows.

    Args:
        masking: the publisher's choices.
        nodes: the campaign's terms for nodes.
        schema: label and features that are summed.
        family: of the campaign's fit.
        epsilon_micro: ε of one message, in millionths.

    Raises:
        InputError: ``dealer_invalid``, or the file can not be read; ``terms_invalid``: a choice is out of range, or the
            terms for nodes have a least ε or smooth sensitivity; ``delta_invalid``; ``epsilon_invalid``: ε is too small
            to be divided.
    """
    dealer = masking.dealer if isinstance(masking.dealer, DealerPublic) else read_dealer(masking.dealer)
    if nodes.sensitivity != GLOBAL or nodes.least_epsilon_micro != epsilon_micro:
        raise InputError("terms_invalid", "a masked campaign has global sensitivity, and one ε for all parties")
    if masking.noise not in NOISES or masking.unit not in UNITS:
        raise InputError(
            "terms_invalid", f"noise is one of {', '.join(NOISES)}, and the unit one of {', '.join(UNITS)}"
        )
    honest = _share(masking.honest_share, "the honest share")
    colluding = _share(masking.colluding_share, "the colluding share")
    if not 1 <= honest <= MICRO - colluding:
        raise InputError("terms_invalid", "the honest share is above 0, and with the colluding share at most 1")
    if type(masking.most_parties) is not int or not 2 <= masking.most_parties <= MAX_PARTIES:
        raise InputError("terms_invalid", f"the most parties are a whole number from 2 to {MAX_PARTIES}")
    subjects = summed_subjects(schema, family)
    if epsilon_micro < len(subjects):
        raise InputError("epsilon_invalid", f"ε is less than a millionth for each of {len(subjects)} released vectors")
    bits = least_slot_bits(
        subjects,
        unit=masking.unit,
        max_records=nodes.max_records,
        most_parties=masking.most_parties,
        epsilon_micro=epsilon_micro,
    )
    if bits > MOST_SLOT_BITS:
        raise InputError(
            "terms_invalid", "a total would not fit into any slot: fewer parties, fewer records, or more ε"
        )
    return MaskedTerms(
        dealer=dealer.key,
        modulus=dealer.modulus,
        noise=masking.noise,
        delta_pico=_delta(masking),
        honest_micro=honest,
        colluding_micro=colluding,
        most_parties=masking.most_parties,
        unit=masking.unit,
        slot_bits=bits,
    )


def _delta(masking: Masking) -> int:
    """δ in multiples of 10^−12.

    Raises:
        InputError: ``delta_invalid``.
    """
    if masking.noise == DIVIDED:
        if masking.delta is not None and pico_delta(masking.delta) != 0:
            raise InputError("delta_invalid", "divided noise has δ = 0; leave δ out, or choose diluted noise")
        return 0
    if masking.delta is None:
        raise InputError("delta_invalid", "diluted noise needs a δ: with that probability no honest party adds noise")
    found = pico_delta(masking.delta)
    if not 1 <= found <= MAX_DELTA_PICO:
        raise InputError("delta_invalid", "δ is from 1e-12 to 0.001")
    return found


def _share(text: str, what: str) -> int:
    """A decimal text in millionths, exactly.

    Raises:
        InputError: ``terms_invalid``: it is no decimal number, or no whole number of millionths.
    """
    value = Fraction(text) * MICRO if _DECIMAL.fullmatch(str(text)) else None
    if value is None or value.denominator != 1:
        raise InputError("terms_invalid", f"{what} is a decimal number such as 0.8, of at most 6 places")
    return value.numerator


def masked_warnings(found: Campaign, listed: int | None) -> tuple[str, ...]:
    """Warnings for the signer and the reader of a masked campaign; empty if it is not masked.

    Args:
        found: the campaign.
        listed: number of nodes on its list; None if that is not known.
    """
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
        f"the noise hides a whole party: only its first {_max_records(found)} records count"
        if terms.unit == PARTY
        else "",
    )


def _max_records(found: Campaign) -> int:
    assert found.nodes is not None
    return found.nodes.max_records
