"""One shared report: the two shares of a record's cells, each sealed to its collector, with the proof.

A device makes it of one 32-byte seed, so the report is a pure function of campaign, cells, id, period and seed. The
answer field of the report is

    nonce 16 ‖ public share 64 ‖ sender's key 32 ‖ leader's box ‖ helper's box

A box is libsodium's ``crypto_box`` of campaign id 32 ‖ period u32 ‖ id 8 ‖ role u8 ‖ SHA-256(nonce ‖ public share) ‖
input share. It is from the sender's key, which is of this report alone, to the X25519 key that follows from the
collector's Ed25519 key.
Source: docs/formats.md, section 12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nacl import bindings, exceptions

from protocol.documents.shared_terms import LEADER
from protocol.errors import DocumentError, InputError
from protocol.shared.circuits import Blocks
from protocol.shared.keccak import SEED_BYTES
from protocol.shared.prio3 import NONCE_BYTES
from protocol.shared.shape import BOUND_BYTES, PUBLIC_BYTES, SENDER_BYTES, box_key, box_lengths, field_bytes, variant
from protocol.stream import Stream, sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.shared_terms import SharedTerms
    from protocol.shared.prio3 import Prio3, Shards

TAG = b"hearsay/1/shared"
_BOX_NONCE = bindings.crypto_box_NONCEBYTES


class Field(NamedTuple):
    """The parts of a report's answer field.

    Attributes:
        nonce: 16 bytes.
        public: the public share, a joint randomness part of 32 bytes for each collector.
        sender: the X25519 public key of this report.
        boxes: the leader's and the helper's box.
    """

    nonce: bytes
    public: bytes
    sender: bytes
    boxes: tuple[bytes, bytes]

    @property
    def digest(self) -> bytes:
        """SHA-256 of nonce and public share: both boxes hold it."""
        return sha256(self.nonce + self.public).digest()


def terms_of(campaign: Campaign) -> SharedTerms:
    """Return what a campaign says about its two collectors: who they are, the proof's shape, and the noise.

    Raises:
        InputError: ``campaign_not_shared``: the campaign sends its answers to no collectors.
    """
    if campaign.shared is None:
        raise InputError("campaign_not_shared", "this campaign asks for no answers that two collectors share")
    return campaign.shared


def variant_of(campaign: Campaign) -> Prio3:
    """Return the variant of Prio3 that a shared campaign uses.

    Raises:
        InputError: ``campaign_not_shared``.
    """
    return variant([block.size for block in campaign.blocks], terms_of(campaign).chunk)


def context_of(campaign_id: bytes) -> bytes:
    """Return the draft's application context of a campaign. Its id covers the digest of the verify key."""
    return TAG + campaign_id


def make_field(campaign: Campaign, cells: Sequence[int], identifier: bytes, period: int, seed: bytes) -> bytes:
    """Return the answer field of one report. A device runs this.

    Args:
        campaign: an accepted shared campaign.
        cells: for each block the number of the record's cell.
        identifier: the report's id, 8 bytes.
        period: number of the period.
        seed: 32 fresh random bytes, used for nothing else and forgotten afterwards.

    Raises:
        InputError: ``campaign_not_shared``; ``value_out_of_domain``, ``shape_invalid``: there are no such cells.
    """
    prio3 = variant_of(campaign)
    circuit = prio3.circuit
    assert isinstance(circuit, Blocks)
    nonce, random, own = drawn_of(prio3, seed)
    shards = prio3.shard(context_of(campaign.id), circuit.encoded(cells), nonce, random)
    return sealed_field(campaign, identifier, period, (nonce, shards, own))


def drawn_of(prio3: Prio3, seed: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the random bytes of one report: its nonce, those of its shares, and the seed of its key pair."""
    stream = Stream(seed, TAG)
    return stream.read(NONCE_BYTES), stream.read(prio3.random_bytes), stream.read(SEED_BYTES)


def sealed_field(campaign: Campaign, identifier: bytes, period: int, made: tuple[bytes, Shards, bytes]) -> bytes:
    """Return the answer field of a report: its shares, each sealed to its collector.

    Args:
        campaign: an accepted shared campaign.
        identifier: the report's id, 8 bytes.
        period: number of the period.
        made: the nonce, the shares, and the seed of the report's key pair.
    """
    nonce, shards, own = made
    sender, private = bindings.crypto_box_seed_keypair(own)
    digest = sha256(nonce + shards.public).digest()
    boxes = [
        _sealed(_bound(campaign.id, period, identifier, role, digest) + share, collector.key, role, private)
        for role, (collector, share) in enumerate(zip(terms_of(campaign).collectors, shards.inputs, strict=True))
    ]
    return nonce + shards.public + sender + b"".join(boxes)


def _bound(campaign_id: bytes, period: int, identifier: bytes, role: int, digest: bytes) -> bytes:
    return campaign_id + period.to_bytes(4, "big") + identifier + bytes([role]) + digest


def _box_nonce(role: int) -> bytes:
    """Return the nonce of a box: a report's key pair seals one box for each role."""
    return bytes([role]).ljust(_BOX_NONCE, b"\0")


def _sealed(content: bytes, public: bytes, role: int, private: bytes) -> bytes:
    return bytes(bindings.crypto_box(content, _box_nonce(role), box_key(public), private))


def read_field(prio3: Prio3, field: bytes) -> Field:
    """Split the answer field of a report. A collector runs this.

    Raises:
        DocumentError: ``malformed``: another length.
    """
    if len(field) != field_bytes(prio3):
        raise DocumentError("malformed", "the answer field has another length than the campaign's")
    ends = [NONCE_BYTES, NONCE_BYTES + PUBLIC_BYTES, NONCE_BYTES + PUBLIC_BYTES + SENDER_BYTES]
    leader = ends[2] + box_lengths(prio3)[LEADER]
    return Field(
        field[: ends[0]], field[ends[0] : ends[1]], field[ends[1] : ends[2]], (field[ends[2] : leader], field[leader:])
    )


def open_box(box: bytes, sender: bytes, private: bytes, bound: tuple[bytes, int, bytes, int, bytes]) -> bytes:
    """Return a collector's input share from its box.

    Args:
        box: the collector's box.
        sender: the report's public key.
        private: the X25519 secret key that follows from the collector's key.
        bound: campaign id, period, report id, the collector's number, and the digest of nonce and public share, which
            the box must hold.

    Raises:
        DocumentError: ``share_unreadable``: the box can not be opened with this key; ``share_misplaced``: it was sealed
            for another campaign, period, id, collector or public share.
    """
    try:
        content = bytes(bindings.crypto_box_open(box, _box_nonce(bound[3]), sender, private))
    except (exceptions.CryptoError, TypeError):
        content = b""
    if not content:
        raise DocumentError("share_unreadable", "the share can not be opened with this collector's key")
    if content[:BOUND_BYTES] != _bound(*bound):
        raise DocumentError(
            "share_misplaced", "the share is of another campaign, period, id, collector or public share"
        )
    return content[BOUND_BYTES:]
