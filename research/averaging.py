"""Averaging gossip: peers agree on the sums of all their summaries without an aggregator or a list of summaries.

Each peer holds one vector of integers. In an exchange two peers replace their vectors by their average. After a few
rounds every peer holds the average of all vectors, and a *weight* turns averages into sums. It is for nodes whose
summaries are too many or too long to be collected; all others should use ``hearsay-edge node exchange``.

**Exactness.** An exchange moves an integer from one peer to the other (:func:`exchange`): the sum over all peers and
all transfers on their way is the same at every moment, whatever is lost, repeated or late. Rounding cannot drift.

**Resolution.** A summary's integer v travels as v·2^64, and the weight 1 as 2^64. After convergence every sum has a
relative error below N·2^−62 and an absolute error below N·2^−62, where N is the number of peers. For 65,536 nodes of at
most 2^26 records this is less than half the noise of the sums, for every ε ≤ 16.

**What it does not do.** Messages carry no signatures: a peer that lies changes the sums for everybody, and nobody can
tell who it was. A lost peer takes its share of sums and weight with it. Vectors must come from summaries, which have
their noise: peers see one another's vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from math import ceil, e, log, sqrt
from typing import Any, NamedTuple

from protocol import canonical
from protocol.errors import DocumentError, HearsayError, InputError

FRACTION_BITS = 64
"""A summary's integer v is averaged as v·2^FRACTION_BITS."""
ROUND_FACTOR = 1 / (2 * sqrt(e))
"""Expected factor of the variance between peers in one round, in which every peer starts one exchange."""
ENTRY_BYTES = 16
LARGEST = 1 << 126
"""Bound on the size of a vector's entry. A released number is below 2^57, so its entry is below 2^121."""
MOST_ENTRIES = 1 << 19
_MESSAGE, _STATE = "hearsay averaging 1", "hearsay averaging state 1"

Vector = tuple[int, ...]


def exchange(first: Vector, second: Vector) -> tuple[Vector, Vector]:
    """Average two vectors in integers: a'_i + b'_i = a_i + b_i, and b'_i − a'_i is 0 or 1.

    Args:
        first, second: a and b, of equal length.

    Returns:
        a' and b'. Each entry is between the smaller and the larger of a_i and b_i.

    Raises:
        InputError: ``averaging_mismatch``: the vectors have different lengths.
    """
    if len(first) != len(second):
        raise InputError("averaging_mismatch", "two vectors of different lengths have no average")
    lower = tuple((a + b) >> 1 for a, b in zip(first, second, strict=True))
    return lower, tuple(a + b - c for a, b, c in zip(first, second, lower, strict=True))


def rounds_for(peers: int, relative: float, failure: float) -> int:
    """Return after how many rounds all peers' weights are within ``relative`` of 1/N, where N is ``peers``.

    The relative variance of the weights begins at N − 1 if one peer holds the weight, and falls by :data:`ROUND_FACTOR`
    per round. By Chebyshev's inequality over N peers, N²·ROUND_FACTOR^rounds / relative² bounds the probability that
    some peer is not within this bound. Lost messages make rounds slower; docs/how-to/gossip.md has measurements.

    Args:
        peers: N, at least 1.
        relative: largest relative error, for example 0.01.
        failure: largest probability that some peer is not within ``relative``, for example 0.01.

    Raises:
        InputError: ``averaging_mismatch``: an argument is not positive.
    """
    if peers < 1 or not (relative > 0 and failure > 0):
        raise InputError("averaging_mismatch", "peers, the relative error and the probability are positive")
    return max(0, ceil(log(peers**2 / (relative**2 * failure)) / -log(ROUND_FACTOR)))


class Session(NamedTuple):
    """What all peers of one averaging agree on before it begins.

    Attributes:
        campaign: id of the campaign, 32 bytes.
        period: index of the period whose summaries are averaged.
        holders: number of peers that begin with weight 1; all others begin with 0. With 1, the usual choice, the
            number of peers need not be known; if that peer is lost early, the sums are lost. With all peers as
            holders, the sums are N times the average of the peers that are left.
        entries: length of a summary's vector.
    """

    campaign: bytes
    period: int
    holders: int
    entries: int


class Outcome(NamedTuple):
    """The end of the last exchange that another peer started with this one.

    Attributes:
        number: the other peer's number of the exchange.
        transfer: what the other peer has to add to its vector; None if the exchange was refused.
    """

    number: int
    transfer: Vector | None


class AveragingPeer:
    """One peer's vector, and what it must remember for every exchange to take effect exactly once.

    A peer starts an exchange with :meth:`offer`, the other peer answers with :meth:`answer`, and :meth:`take` ends it.
    All three messages are bytes; how they travel is the caller's choice. Any message may be lost, repeated or late.
    Store :meth:`to_bytes` before a message is sent: a peer that restarts from an older state changes the sums.

    Memory: one vector per peer that ever started an exchange with this one.
    """

    def __init__(
        self, session: Session, name: bytes, members: Collection[bytes], sums: Sequence[int], *, holds_weight: bool
    ) -> None:
        """Begin with the released integers of this peer's summary.

        Args:
            session: the values on which all peers agree.
            name: this peer's id, 8 bytes, different from all others: its node id.
            members: ids of all peers that may take part, for example those of the node list. Messages that name
                another sender are refused, so the memory is bounded.
            sums: the released integers of this peer's summary. Never pass exact sums: other peers see them.
            holds_weight: whether this peer is one of the session's holders.

        Raises:
            InputError: ``averaging_mismatch``: the session's values are out of range, the name does not have 8 bytes,
                ``sums`` does not have the session's length, or an integer is 2^62 or more in size.
        """
        _check_session(session)
        if type(name) is not bytes or len(name) != 8:
            raise InputError("averaging_mismatch", "a peer's name is its node id, 8 bytes")
        if len(sums) != session.entries:
            raise InputError("averaging_mismatch", "the summary has another number of entries than the session")
        if any(type(each) is not int or abs(each) >= LARGEST >> FRACTION_BITS for each in sums):
            raise InputError("averaging_mismatch", "a summary's entries are integers below 2^62")
        self.session, self.name, self._members = session, name, members
        self.units: Vector = tuple(each << FRACTION_BITS for each in (*sums, int(holds_weight)))
        self._number = 0
        self._waits_for: bytes | None = None
        self._open: dict[bytes, int] = {}
        self._outcomes: dict[bytes, Outcome] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether an exchange that this peer started has not ended yet. Until then it refuses exchanges of others."""
        return self._waits_for is not None

    @property
    def unfinished(self) -> tuple[bytes, ...]:
        """Partners of exchanges that this peer started and that have not ended, including those that it gave up.

        Such a partner may hold a part of the sums for this peer. So offer to these partners again from time to time.
        """
        return tuple(self._open)

    def offer(self, partner: bytes) -> bytes:
        """Return the message that starts an exchange with a partner, or repeats one that has not ended yet.

        Args:
            partner: id of the other peer, 8 bytes.

        Raises:
            InputError: ``averaging_mismatch``: the partner is this peer, or no member; ``averaging_waits``: an exchange
                with another partner has not ended yet.
        """
        if partner == self.name or partner not in self._members:
            raise InputError("averaging_mismatch", "a partner is another member, named by its node id")
        if self._waits_for not in {None, partner}:
            raise InputError("averaging_waits", "an exchange has no end yet: repeat it, or give it up")
        if partner not in self._open:
            self._number += 1
            self._open[partner] = self._number
        self._waits_for = partner
        return self._message("offer", partner, self._open[partner], self.units)

    def answer(self, message: bytes) -> bytes | None:
        """Answer another peer's offer. Only the first call for an offer averages; repetitions get the same answer.

        Returns:
            The reply to send back; None for an offer older than the last one of this peer, which needs no reply.

        Raises:
            DocumentError: ``malformed``: the bytes are no offer; ``averaging_mismatch``: the offer belongs to another
                session, is for another peer, or is from a peer that is no member.
        """
        sender, number, theirs = self._read("offer", message)
        assert theirs is not None
        last = self._outcomes.get(sender, Outcome(0, None))
        if number < last.number:
            return None
        if number > last.number:
            transfer = None
            if not self.is_waiting:
                moved, self.units = exchange(theirs, self.units)
                transfer = tuple(new - old for new, old in zip(moved, theirs, strict=True))
            last = self._outcomes[sender] = Outcome(number, transfer)
        return self._message("reply", sender, number, last.transfer)

    def take(self, message: bytes) -> bool:
        """End an exchange with the partner's reply. A repeated reply changes nothing.

        Returns:
            Whether the vectors were averaged; False if the partner refused, or the reply came a second time.

        Raises:
            DocumentError: ``malformed``: the bytes are no reply, or the reply moves more than any honest one;
                ``averaging_mismatch``: the reply belongs to another session, or is for another peer.
        """
        sender, number, transfer = self._read("reply", message)
        if self._open.get(sender) != number:
            return False
        if transfer is not None:
            units = tuple(own + moved for own, moved in zip(self.units, transfer, strict=True))
            if any(abs(each) >= LARGEST for each in units):
                raise DocumentError("malformed", "a reply moves more than an honest peer has")
            self.units = units
        del self._open[sender]
        if self._waits_for == sender:
            self._waits_for = None
        return transfer is not None

    def give_up(self) -> None:
        """Stop waiting for the partner. A reply that comes later still counts, so nothing is lost or doubled.

        The next :meth:`offer` to the same partner repeats the exchange in place of starting another.
        """
        self._waits_for = None

    def sums(self) -> Vector:
        """Return this peer's estimate of the sums over all peers, as integers: ``holders``·value/weight, rounded.

        Raises:
            InputError: ``averaging_unmixed``: no weight has reached this peer yet.
        """
        *values, weight = self.units
        if weight <= 0:
            raise InputError("averaging_unmixed", "no weight has reached this peer yet: exchange with more peers")
        return tuple(round(Fraction(self.session.holders * value, weight)) for value in values)

    def peers(self) -> float:
        """Return this peer's estimate of the number of peers: the session's ``holders`` divided by this peer's weight.

        Raises:
            InputError: ``averaging_unmixed``: no weight has reached this peer yet.
        """
        if self.units[-1] <= 0:
            raise InputError("averaging_unmixed", "no weight has reached this peer yet: exchange with more peers")
        return self.session.holders * (1 << FRACTION_BITS) / self.units[-1]

    def to_bytes(self) -> bytes:
        """Return the whole state, to be stored in a file. :meth:`from_bytes` restores it."""
        outcomes = [
            [name, each.number, None if each.transfer is None else _packed(each.transfer)]
            for name, each in sorted(self._outcomes.items())
        ]
        started = [[name, number] for name, number in sorted(self._open.items())]
        own = [self.name, self._number, self._waits_for, _packed(self.units), started, outcomes]
        return canonical.pack([_STATE, list(self.session), own])

    @classmethod
    def from_bytes(cls, stored: bytes, members: Collection[bytes]) -> AveragingPeer:
        """Restore a peer from the result of :meth:`to_bytes`. The numbers are not checked, since nobody else made them.

        Args:
            stored: the result of :meth:`to_bytes`.
            members: ids of all peers that may take part; they are not stored.

        Raises:
            DocumentError: ``malformed``: the bytes are no stored peer.
        """
        try:
            kind, session, (name, number, waits_for, units, started, outcomes) = canonical.unpack(stored)
            found = Session(*session)
            peer = cls(found, name, members, [0] * found.entries, holds_weight=False)
            peer.units = _unpacked(units, found.entries + 1)
            peer._number, peer._waits_for = int(number), waits_for
            peer._open = {bytes(partner): int(each) for partner, each in started}
            peer._outcomes = {
                bytes(sender): Outcome(int(each), None if moved is None else _unpacked(moved, found.entries + 1))
                for sender, each, moved in outcomes
            }
        except (HearsayError, TypeError, ValueError):
            kind = None
        if kind != _STATE:
            raise DocumentError("malformed", "this is no stored averaging peer")
        return peer

    def _message(self, kind: str, partner: bytes, number: int, vector: Vector | None) -> bytes:
        body = None if vector is None else _packed(vector)
        return canonical.pack([_MESSAGE, kind, list(self.session), self.name, partner, number, body])

    def _read(self, expected: str, message: bytes) -> tuple[bytes, int, Vector | None]:
        """Return sender, number and vector of a message to this peer. The vector is None in a refusal."""
        fields = _fields(message, ENTRY_BYTES * (self.session.entries + 1) + 256)
        if fields is None or fields[1] != expected:
            raise DocumentError("malformed", f"this is no {expected} of averaging gossip")
        _, _, session, sender, partner, number, body = fields
        # Bytes are compared, since 1 and True are equal in Python and not in a message.
        if canonical.pack(session) != canonical.pack(self.session):
            raise DocumentError("averaging_mismatch", "the message is of another session")
        if partner != self.name or sender == self.name or sender not in self._members:
            raise DocumentError("averaging_mismatch", "the message is between other peers")
        if body is None and expected == "reply":
            return sender, number, None
        vector = None
        if type(body) is bytes and len(body) == ENTRY_BYTES * (self.session.entries + 1):
            vector = _unpacked(body, self.session.entries + 1)
        if vector is None or any(abs(each) >= LARGEST for each in vector):
            raise DocumentError("malformed", "the message has no vector of this session")
        return sender, number, vector


def _check_session(session: Session) -> None:
    """Raise ``averaging_mismatch`` if a value of the session is out of range."""
    campaign, period, holders, entries = session
    whole = all(type(each) is int for each in (period, holders, entries))
    if type(campaign) is not bytes or len(campaign) != 32 or not whole:
        raise InputError("averaging_mismatch", "a session has a campaign id of 32 bytes and three integers")
    if not (0 <= period < 1 << 32 and 1 <= holders < 1 << 32 and 1 <= entries <= MOST_ENTRIES):
        raise InputError("averaging_mismatch", "the session's period, holders or entries are out of range")


def _fields(message: bytes, longest: int) -> list[Any] | None:
    """Return the seven fields of a message; None if the bytes have another form or are longer than ``longest``."""
    if len(message) > longest:
        return None
    try:
        fields = canonical.unpack(message, max_items=16)
    except DocumentError:
        return None
    if type(fields) is not list or len(fields) != 7 or fields[0] != _MESSAGE:
        return None
    sender, partner, number = fields[3:6]
    named = all(type(name) is bytes and len(name) == 8 for name in (sender, partner))
    return fields if named and type(number) is int and number >= 1 else None


def _packed(vector: Vector) -> bytes:
    return b"".join(each.to_bytes(ENTRY_BYTES, "big", signed=True) for each in vector)


def _unpacked(packed: bytes, entries: int) -> Vector:
    """Return the ``entries`` integers in ``packed``. Raise ValueError if it has another length."""
    if len(packed) != ENTRY_BYTES * entries:
        raise ValueError(entries)
    parts = (packed[start : start + ENTRY_BYTES] for start in range(0, len(packed), ENTRY_BYTES))
    return tuple(int.from_bytes(part, "big", signed=True) for part in parts)
