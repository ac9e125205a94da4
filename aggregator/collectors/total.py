"""The signed total of a period: what the leading collector gives to the publisher of models.

Source: docs/formats.md, section 12.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aggregator.collectors.noise import variance_of
from aggregator.common.periods import period_fault
from protocol import SPEC, canonical
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import PAYLOAD_TYPES, SigningKey, read_envelope, seal, verified_by
from protocol.documents.payload import read_field, read_integer
from protocol.documents.shared_terms import LEADER
from protocol.errors import DocumentError
from protocol.shared.report import terms_of, variant_of

ROLE = "total"
MOST = 1 << 62
TAIL = 64
"""So many standard deviations of noise, and as many reports more, may a number be beyond possible counts."""
MOST_REASONS = 64
_NAME = re.compile("[a-z_]{1,64}")
_KEYS = {"accepted", "campaign", "numbers", "period", "refused", "spec"}


class Total(NamedTuple):
    """The noisy total of one period.

    Attributes:
        campaign: id of the campaign, 32 bytes.
        period: number of the period.
        accepted: number of accepted reports.
        numbers: the noisy count of every cell, block after block.
        refused: reason → number of reports that do not count.
    """

    campaign: bytes
    period: int
    accepted: int
    numbers: tuple[int, ...]
    refused: Mapping[str, int]


def sign_total(total: Total, leader: SigningKey) -> bytes:
    """Return the signed envelope of a total. The leader runs this.

    A number beyond :data:`MOST` can not be, and is cut to it: the total is kept, and nobody reads it.
    """
    numbers = tuple(max(1 - MOST, min(number, MOST - 1)) for number in total.numbers)
    body = {**total._asdict(), "numbers": list(numbers), "refused": dict(total.refused), "spec": SPEC}
    return seal(PAYLOAD_TYPES[ROLE], canonical.pack(body), [leader])


def read_total(raw: bytes, campaign: Campaign) -> Total:
    """Verify and parse the total of a campaign. The leader and the publisher of models run this.

    Raises:
        DocumentError: ``too_large``, ``malformed``, ``wrong_role``: it is no total; ``bad_signature``: the campaign's
            leader has not signed it; ``unrecognized_campaign``: it is of another campaign; ``collector_fault``: its
            period is none of the campaign's, it is of too few reports, or one of its numbers can not be.
    """
    envelope = read_envelope(raw, ROLE)
    leader = terms_of(campaign).collectors[LEADER].key
    found = parse_total(envelope.payload)
    if found.campaign != campaign.id:
        raise DocumentError(
            "unrecognized_campaign",
            f"the total is of campaign {found.campaign.hex()}, not of this one; a store has the totals of one campaign",
        )
    if not verified_by(envelope, [leader]):
        raise DocumentError("bad_signature", "the campaign's leading collector has not signed this total")
    if len(found.numbers) != variant_of(campaign).circuit.outputs:
        raise DocumentError("malformed", "the total has another number of cells than the campaign")
    fault = period_fault(campaign, found.period)
    if fault:
        raise DocumentError("collector_fault", f"the total is of a period that the campaign does not have: {fault}")
    reach = TAIL * (1 + variance_of(campaign) ** 0.5)
    if found.accepted < campaign.min_batch_size or not (
        -reach <= min(found.numbers) <= max(found.numbers) <= found.accepted + reach
    ):
        raise DocumentError(
            "collector_fault", "a collector made the total wrongly: it has too few reports, or numbers that can not be"
        )
    return found


def parse_total(payload: bytes) -> Total:
    """Parse the payload of a total, whoever signed it.

    Raises:
        DocumentError: ``malformed``.
    """
    parsed = canonical.unpack(payload)
    if not isinstance(parsed, dict) or parsed.keys() != _KEYS or parsed["spec"] != SPEC:
        raise DocumentError("malformed", "it is no total of a collector")
    refused = read_field(parsed, "refused", dict)
    if len(refused) > MOST_REASONS:
        raise DocumentError("malformed", "the total has too many reasons of refusals")
    return Total(
        read_field(parsed, "campaign", bytes),
        read_integer(parsed, "period", 0, (1 << 32) - 1),
        read_integer(parsed, "accepted", 1, 1 << 32),
        _numbers(read_field(parsed, "numbers", list)),
        {_reason(reason): read_integer(refused, reason, 0, 1 << 32) for reason in refused},
    )


def _reason(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DocumentError("malformed", "the total has a reason of refusals that is none")
    return name


def _numbers(listed: Sequence[object]) -> tuple[int, ...]:
    numbers = tuple(number for number in listed if isinstance(number, int) and not isinstance(number, bool))
    if len(numbers) != len(listed) or any(abs(number) >= MOST for number in numbers):
        raise DocumentError("malformed", "the total has a number that is no count")
    return numbers
