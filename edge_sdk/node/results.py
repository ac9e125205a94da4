"""What the methods of a node return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edge_sdk.node.sums import Unread
    from protocol.documents.campaign import Campaign


class Summarised(NamedTuple):
    """The summary of a node for one period.

    Attributes:
        raw: the bytes of the signed summary.
        period: index of the period since 1970.
        repeated: the period was summarised before; these are the bytes of that summary, and no record was read.
        next_at: when the wall clock will show that the next period can be summarised, in seconds since 1970.
        epsilon_micro: ε of the summary for one record more or less, in millionths.
        cost_micro: the ε that the ledger counts for the summary, in millionths.
        unread: counts of missing and unlisted values, for the owner; None if no record was read. They are exact and
            private: they must not leave the node.
    """

    raw: bytes
    period: int
    repeated: bool
    next_at: int
    epsilon_micro: int
    cost_micro: int
    unread: Unread | None


class Encrypted(NamedTuple):
    """The encrypted sums of a node for one period of a masked campaign.

    Attributes:
        raw: the bytes of the signed message.
        period: index of the period since 1970.
        repeated: the period was encrypted before; these are the bytes of that message, and no record was read.
        next_at: when the wall clock will show that the next period can be encrypted, in seconds since 1970.
        serial: serial number of the key that encrypted.
        cost_micro, cost_delta_pico: the ε in millionths and the δ in 10⁻¹² that the ledger counts for the message.
        unread: counts of missing and unlisted values, for the owner; None if no record was read. They are exact and
            private: they must not leave the node.
        beyond: number of records after the first ``max_records``, if the unit of protection is a party. They were not
            read and are in no sum.
    """

    raw: bytes
    period: int
    repeated: bool
    next_at: int
    serial: int
    cost_micro: int
    cost_delta_pico: int
    unread: Unread | None
    beyond: int


class AcceptedKeys(NamedTuple):
    """A key book that the node has accepted.

    Attributes:
        campaign: the masked campaign of the book.
        version: of the book.
        parties: number of parties in the book.
        serial, u: of this node's key.
    """

    campaign: Campaign
    version: int
    parties: int
    serial: int
    u: int
