"""What is fixed of shared answers: the variant of Prio3 that a campaign uses, lengths of parts, keys of boxes.

Source: docs/formats.md, section 12.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from nacl import bindings, exceptions

from protocol.errors import InputError
from protocol.shared.circuits import Blocks
from protocol.shared.keccak import SEED_BYTES
from protocol.shared.prio3 import NONCE_BYTES, Prio3

if TYPE_CHECKING:
    from collections.abc import Sequence

ALGORITHM = 0xFFFF4853
"""The private number of Prio3 with the circuit of :class:`protocol.shared.circuits.Blocks`."""
PUBLIC_BYTES = 2 * SEED_BYTES
SENDER_BYTES = 32
BOUND_BYTES = 32 + 4 + 8 + 1 + 32
"""What a box binds before the share: campaign, period, id, role, digest of nonce and public share."""
BOX_BYTES = 16
"""By how much a box is longer than its content."""


def variant(sizes: Sequence[int], chunk: int) -> Prio3:
    """Return the variant of Prio3 for blocks of the given sizes, and a chunk as in :class:`Blocks`."""
    return _variant(tuple(sizes), chunk)


@lru_cache(maxsize=16)
def _variant(sizes: tuple[int, ...], chunk: int) -> Prio3:
    return Prio3(ALGORITHM, Blocks(sizes, chunk))


def share_lengths(prio3: Prio3) -> tuple[int, int]:
    """Return the bytes of the leader's and of the helper's input share."""
    circuit = prio3.circuit
    return (circuit.length + circuit.proof_length) * circuit.field.size + SEED_BYTES, 2 * SEED_BYTES


def box_lengths(prio3: Prio3) -> tuple[int, int]:
    """Return the bytes of the leader's and of the helper's box."""
    leader, helper = share_lengths(prio3)
    return BOX_BYTES + BOUND_BYTES + leader, BOX_BYTES + BOUND_BYTES + helper


def field_bytes(prio3: Prio3) -> int:
    """Return the length of a report's answer field."""
    return NONCE_BYTES + PUBLIC_BYTES + SENDER_BYTES + sum(box_lengths(prio3))


@lru_cache(maxsize=16)
def box_key(public: bytes) -> bytes:
    """Return the X25519 key that follows from a collector's Ed25519 key.

    Raises:
        InputError: ``key_invalid``: nothing can be sealed to this key.
    """
    try:
        return bytes(bindings.crypto_sign_ed25519_pk_to_curve25519(public))
    except (exceptions.CryptoError, TypeError):
        pass
    raise InputError("key_invalid", "nothing can be sealed to the key of a collector")
