"""Make a party's (node's) message of one period: exact sums → public range → noise → slots → ciphertexts → signature.

A slot is a field of a ciphertext for one number. Two ciphertexts of one period under one key would reveal the
difference of what they encrypt, so sums are encrypted once, inside the transaction that pays for the message.
Sources: docs/math.md, section 6; docs/formats.md, section 6; decision 82.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import PARTY_KEYS, Rows
from protocol.documents.envelope import keyid
from protocol.errors import DocumentError, InputError
from protocol.masked.cipher import masked_with, pads
from protocol.masked.costs import ciphertexts_of, masked_terms_of, ranges_of
from protocol.masked.fields import Slots
from protocol.masked.keys import check_successor, open_key, own_key
from protocol.masked.message import build_message
from protocol.masked.noise import noise_of
from protocol.nodes.terms import released_vectors
from protocol.stream import SEED_BYTES, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_sdk.policy import Policy
    from edge_sdk.storage.rows import Database
    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import SigningKey
    from protocol.masked.keys import KeyBook, MaskedKey


class _KeyRow(NamedTuple):
    """A stored row: the newest key book of a campaign, without the entries of other parties.

    Attributes:
        campaign: id of the campaign in hexadecimal digits.
        version, digest: version of the book, and SHA-256 of its payload.
        node: id of this node when the book was accepted, 8 bytes.
        serial, u: serial number of this node's key, and this party's number u; u is 0 if the book has no key for it.
    """

    campaign: str
    version: int
    digest: bytes
    node: bytes
    serial: int
    u: int


class PartyKeys:
    """Reads and writes the party's keys, one entry of each key book. To write, the caller must open a transaction."""

    def __init__(self, state: Database) -> None:
        self._rows = Rows(state, PARTY_KEYS)

    def accept(self, book: KeyBook, key: SigningKey) -> DocumentError | None:
        """Store a verified book's version, and this node's sealed key in it, in place of an older book's.

        The rest of a book, up to 64 MiB, is not stored. Return why the book has no usable key for this node
        (``node_without_key``, ``invalid_keys``); None if it has one. Its version is stored in both cases, so that no
        older book is accepted after it. If DocumentError ``rollback`` or ``equivocation`` is raised, nothing is stored.
        """
        kept = self._kept(book.campaign)
        if kept is not None:
            check_successor(book, kept.version, kept.digest)
        entry, problem = book.parties.get(keyid(key.public)), None
        try:
            own_key(book, key)
        except DocumentError as error:
            entry, problem = None, error
        row = _KeyRow(
            book.campaign.hex(),
            book.version,
            book.identity,
            keyid(key.public),
            0 if entry is None else entry.serial,
            0 if entry is None else entry.u,
        )
        (self._rows.add if kept is None else self._rows.replace)(row, b"" if entry is None else entry.sealed)
        return problem

    def own(self, campaign: Campaign, key: SigningKey) -> MaskedKey:
        """Return this node's key from a masked campaign's newest accepted book. ``key``: the node's key pair.

        Raises InputError ``keys_unknown``: no book of the campaign was accepted yet; DocumentError
        ``node_without_key``: the newest book has no key for this node, or was accepted before an opt-out or a reset
        made another node; ``invalid_keys``: the stored box can not be opened.
        """
        kept = self._kept(campaign.id)
        if kept is None:
            raise InputError(
                "keys_unknown", "no key book of this campaign was accepted yet; give the dealer's file .hsk"
            )
        if kept.node != keyid(key.public) or not kept.u:
            raise DocumentError(
                "node_without_key",
                f"key book {kept.version} has no key for this node ({keyid(key.public).hex()}); after an opt-out or a "
                "reset a node has a new key pair: the publisher lists it anew, and the dealer makes a newer key book",
            )
        return open_key(self._rows.body(kept.campaign), key, campaign.id)

    def _kept(self, campaign_id: bytes) -> _KeyRow | None:
        for row in self._rows.all():
            if row[0] == campaign_id.hex():
                return _KeyRow(*row)
        return None


NOISE_TAG = b"hearsay/1/masked noise"
"""Tag of the random stream for a message's noise. Vectors get their noise in order, each from its first number on."""
_MOST_ATTEMPTS = 4
"""Most transactions that are begun anew because the powers are of another period or key. After that the powers are
computed inside the transaction: periods are then shorter than the powers take."""


class Unprepared(Exception):  # noqa: N818 - not an error: the caller computes powers and calls again
    """Raised if a message needs powers (a slow part of the encryption) that were not computed. Nothing is stored.

    Powers depend on the key that encrypts (``key``) and the ``period`` of the message, not on records or noise.
    """

    def __init__(self, key: MaskedKey, period: int) -> None:
        super().__init__("powers of this key and period are needed")
        self.key = key
        self.period = period


class _Powers(NamedTuple):
    """The powers H(t, j)^sk mod N² for all ciphertexts j of a message; sk: the key's secret, N: modulus, t: period.

    They are as secret as the key, and the ``repr`` shows neither.
    """

    key: MaskedKey
    period: int
    values: list[int]

    def __repr__(self) -> str:
        return f"<powers of period {self.period}>"


def clamped(campaign: Campaign, exact: Sequence[int]) -> list[int]:
    """Return the M sums ``exact``, cut off at a party's public ranges. No number's sensitivity changes."""
    found, place = [], 0
    for subject, limits in zip(released_vectors(campaign), ranges_of(campaign), strict=True):
        found += [min(max(number, limits.low), limits.high) for number in exact[place : place + subject.size]]
        place += subject.size
    return found


def drawn_noise(campaign: Campaign, u: int, seed: bytes) -> list[int]:
    """Return the noise of party number ``u`` for all M numbers, not cut off: the guarantee is for unbounded noise.

    ``seed``: 32 fresh random bytes, used for nothing else.
    """
    stream = Stream(seed, NOISE_TAG)
    vectors = zip(released_vectors(campaign), noise_of(campaign, u), strict=True)
    return [noise.draw(stream) for subject, noise in vectors for _ in range(subject.size)]


class OfSums:
    """Makes a party's message for one period, as a :class:`edge_sdk.answering.reporting.Making`."""

    def __init__(self, keys: PartyKeys, signer: Callable[[], SigningKey], entropy: Callable[[int], bytes]) -> None:
        """Begin without sums: set :attr:`exact` later. ``signer`` returns the node's present key pair."""
        self._keys = keys
        self._signer = signer
        self._entropy = entropy
        self._powers: _Powers | None = None
        self._attempts = 0
        self.exact: Sequence[int] = ()
        """Shape (M,), the exact sums. They are set before the message is made."""

    def check(self, campaign: Campaign) -> None:
        """Raise an error if a campaign is not masked, or this node has no key for it (:meth:`PartyKeys.own`)."""
        if campaign.nodes is None:
            raise InputError("campaign_for_devices", "this campaign asks about one record; a device reports about it")
        masked_terms_of(campaign)
        self._keys.own(campaign, self._signer())

    def cost(self, campaign: Campaign, policy: Policy) -> tuple[int, int]:
        """Return the ε in millionths and the δ in 10⁻¹² of the message, for the adjacency that the policy names."""
        return policy.cost_micro(campaign), policy.cost_delta(campaign)

    def prepare(self, campaign: Campaign, needed: Unprepared) -> None:
        """Compute the powers of the encryption for the key and the period of ``needed``. No transaction may be open."""
        self._powers = _powers(campaign, needed.key, needed.period)

    def make(self, campaign: Campaign, secret: bytes, period: int) -> list[bytes]:
        """Return a list of the signed message. After ``Unprepared``, :meth:`prepare` it and begin a new transaction."""
        del secret  # the signer reads it
        signer = self._signer()
        key, powers = self._keys.own(campaign, signer), self._powers
        if powers is None or (powers.key, powers.period) != (key, period):
            self._attempts += 1
            if self._attempts < _MOST_ATTEMPTS:
                raise Unprepared(key, period)
            powers = _powers(campaign, key, period)
        terms = masked_terms_of(campaign)
        slots = Slots(terms.slot_bits)
        exact = slots.pack(clamped(campaign, self.exact))
        noise = slots.spread(drawn_noise(campaign, key.u, self._entropy(SEED_BYTES)))
        plaintexts = [number + added for number, added in zip(exact, noise, strict=True)]
        ciphertexts = masked_with(plaintexts, powers.values, terms.modulus)
        return [build_message(campaign, signer, period, key.serial, ciphertexts)]

    def note(self, campaign: Campaign) -> None:
        """Do nothing: the node counts missing and unlisted values while it reads the records."""


def _powers(campaign: Campaign, key: MaskedKey, period: int) -> _Powers:
    modulus = masked_terms_of(campaign).modulus
    return _Powers(key, period, pads(key.secret, campaign.id, period, ciphertexts_of(campaign), modulus))
