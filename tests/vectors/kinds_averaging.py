"""Kinds for averaging gossip: a peer's offer, its answer to an offer, and the end of its exchange by a reply."""

from __future__ import annotations

from typing import Any

from research.averaging import AveragingPeer, Session
from vectors.runner import kind


def _peer(session: list[Any], peer: str, members: list[str], sums: list[int], *, weight: bool) -> AveragingPeer:
    campaign, period, holders, entries = session
    known = [bytes.fromhex(one) for one in members]
    agreed = Session(bytes.fromhex(campaign), period, holders, entries)
    return AveragingPeer(agreed, bytes.fromhex(peer), known, sums, holds_weight=weight)


def _units(peer: AveragingPeer) -> list[str]:
    """The vector in units of 2^−64, the weight last, as decimal texts."""
    return [str(unit) for unit in peer.units]


@kind
def averaging_offer(
    session: list[Any], peer: str, members: list[str], sums: list[int], weight: bool, partner: str
) -> str:
    """The first offer of a peer with these sums to the partner."""
    return _peer(session, peer, members, sums, weight=weight).offer(bytes.fromhex(partner)).hex()


@kind
def averaging_answer(
    session: list[Any], peer: str, members: list[str], sums: list[int], weight: bool, offers: list[str]
) -> dict[str, Any]:
    """A peer's replies to offers that come in this order (nil: no reply), and its vector afterwards."""
    found = _peer(session, peer, members, sums, weight=weight)
    replies = [found.answer(bytes.fromhex(offer)) for offer in offers]
    return {"replies": [None if reply is None else reply.hex() for reply in replies], "units": _units(found)}


@kind
def averaging_taken(
    session: list[Any], peer: str, members: list[str], sums: list[int], weight: bool, partner: str, replies: list[str]
) -> dict[str, Any]:
    """Whether each reply to a peer's first offer was averaged, and the peer's vector afterwards."""
    found = _peer(session, peer, members, sums, weight=weight)
    found.offer(bytes.fromhex(partner))
    return {"averaged": [found.take(bytes.fromhex(reply)) for reply in replies], "units": _units(found)}
