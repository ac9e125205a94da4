"""The terms of shared campaigns, whose devices split an exact record into two shares for two collectors.

At least one of the two collectors is assumed to be honest: it keeps its share for itself, and adds its noise before its
half of the sum leaves. The terms name the collectors, the proof of a report, and the noise.

Source: docs/formats.md, section 5 (map ``shared``) and section 12; docs/math.md, section 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.documents.asked import NO_MODELS
from protocol.documents.payload import read_field, read_integer, read_text
from protocol.epsilon import MICRO, PrivacyLoss
from protocol.errors import DocumentError, InputError
from protocol.questions import CELL, Subject, outcome_subjects, right_subjects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.documents.asked import NamedModels
    from protocol.documents.payload import Header
    from protocol.schema import Schema

KEY = "shared"
"""Key of the shared terms in a campaign's payload. ``crit`` must name it too, so that older readers refuse it."""
LAPLACE, GAUSSIAN = "laplace", "gaussian"
NOISES = (LAPLACE, GAUSSIAN)
"""What each collector adds to its sums: discrete Laplace noise (δ = 0), or discrete Gaussian noise."""
LEADER, HELPER = 0, 1
"""Numbers of the two collectors. The leader publishes the total."""
ROLES = ("leader", "helper")
"""What the two are called, by number."""
KEY_BYTES = 32
SALT_BYTES = 32
MAX_CELLS = 2048
"""Largest number of cells: a report of so many has some 40 kB."""
MAX_DELTA_PICO = 10**9
_REASON = "invalid_campaign"
_KEYS = {"chunk", "collectors", "delta_pico", "noise", "salt", "verify_key"}
_COLLECTOR_KEYS = {"contact", "key", "name"}


class Collector(NamedTuple):
    """One of the two collectors.

    Attributes:
        name, contact: who runs it, and where to reach them, in words.
        key: Ed25519 public key, 32 bytes. It signs totals; devices seal shares to the X25519 key that follows from it.
    """

    name: str
    contact: str
    key: bytes


class SharedTerms(NamedTuple):
    """The map ``shared`` of a campaign.

    Attributes:
        collectors: the leader and the helper.
        salt: 32 random bytes, from which and from a secret of both collectors the verify key follows.
        verify_key: SHA-256 of the verify key (the secret with which collectors check proofs); 32 bytes.
        chunk: cells that one product of a proof checks (:class:`protocol.shared.circuits.Blocks`).
        noise: one of :data:`NOISES`.
        delta_pico: δ for a changed record, in 10^−12; 0 with ``laplace``.
    """

    collectors: tuple[Collector, Collector]
    salt: bytes
    verify_key: bytes
    chunk: int
    noise: str = LAPLACE
    delta_pico: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as the map that a campaign's payload contains."""
        return {**self._asdict(), "collectors": [one._asdict() for one in self.collectors]}


def shared_fields(shared: SharedTerms | None) -> Mapping[str, Any]:
    """Return the field of a campaign's payload with the shared terms; empty for other campaigns (None)."""
    return {} if shared is None else {KEY: shared.to_dict()}


def shared_subjects(schema: Schema, family: str = "discrete", named: NamedModels = NO_MODELS) -> list[Subject]:
    """Return what the blocks of a shared answer are about; a record has exactly one cell in every block.

    First are the cells (value-class pairs) of each observed feature, unless the family is ``outcome``. Then each
    evaluated model has a block: the pairs of true and predicted class of a single model, or of each of several models
    the two cells wrong and right.
    """
    classes = len(schema.label.classes)
    found = [Subject(CELL, index, classes * feature.size) for index, feature in enumerate(schema.observed)]
    if family != "discrete":
        found = []
    return found + (right_subjects(len(named.models)) if named.model is None else outcome_subjects(schema))


def parse_shared(
    body: dict[str, Any], header: Header, subjects: Sequence[Subject], family: str, epsilon_micro: int
) -> SharedTerms | None:
    """Read the shared terms of a campaign from its payload, or return None if it is another campaign.

    Args:
        body, header: fields and header of the payload.
        subjects: what the blocks are about (:func:`shared_subjects`).
        family: family of the campaign's fit.
        epsilon_micro: the campaign's ε in millionths, for a changed record.

    Raises:
        DocumentError: ``invalid_campaign``: the map is wrong; ``shared`` is a key without being in ``crit``, or the
            reverse; the campaign also has questions, nodes, several answers or a family of moments; it has no block,
            more than :data:`MAX_CELLS` cells, or an ε below two millionths for each block; nothing can be sealed to a
            collector's key, so no device could ever answer.
    """
    if (KEY in body) != (KEY in header.crit):
        raise DocumentError(_REASON, "'shared' is a key that 'crit' does not name, or the other way round")
    if KEY not in body:
        return None
    if body.get("questions") != [] or "nodes" in body or "masked" in body or family not in ("discrete", "outcome"):
        raise DocumentError(_REASON, "a shared campaign has no questions and no nodes, and no numbers are summed")
    read_integer(body, "answers", 1, 1, _REASON)
    if not subjects or sum(subject.size for subject in subjects) > MAX_CELLS:
        raise DocumentError(
            _REASON, f"a shared campaign has 1 to {MAX_CELLS} cells: pairs of a value and a class, or of two classes"
        )
    if epsilon_micro < 2 * len(subjects):
        raise DocumentError(_REASON, "its ε is below two millionths for each feature and evaluated model")
    return _parse_terms(read_field(body, KEY, dict, _REASON), sum(subject.size for subject in subjects))


def _parse_terms(entry: dict[str, Any], cells: int) -> SharedTerms:
    if set(entry) != _KEYS:
        raise DocumentError(_REASON, f"'shared' has other keys than {', '.join(sorted(_KEYS))}")
    listed = read_field(entry, "collectors", list, _REASON)
    if len(listed) != 2:
        raise DocumentError(_REASON, "'collectors' has not two entries")
    first, second = map(_parse_collector, listed)
    if first.key == second.key:
        raise DocumentError(_REASON, "the two collectors have the same key, so one of them would see every record")
    noise = read_text(entry, "noise", _REASON)
    if noise not in NOISES:
        raise DocumentError(_REASON, f"'noise' is not one of {', '.join(NOISES)}")
    least, most = (0, 0) if noise == LAPLACE else (1, MAX_DELTA_PICO)
    return SharedTerms(
        collectors=(first, second),
        salt=_bytes(entry, "salt", SALT_BYTES),
        verify_key=_bytes(entry, "verify_key", KEY_BYTES),
        chunk=read_integer(entry, "chunk", 1, cells, _REASON),
        noise=noise,
        delta_pico=read_integer(entry, "delta_pico", least, most, _REASON),
    )


def _parse_collector(entry: object) -> Collector:
    if not isinstance(entry, dict) or set(entry) != _COLLECTOR_KEYS:
        raise DocumentError(_REASON, f"a collector has other keys than {', '.join(sorted(_COLLECTOR_KEYS))}")
    found = Collector(
        read_text(entry, "name", _REASON), read_text(entry, "contact", _REASON), _bytes(entry, "key", KEY_BYTES)
    )
    if not _can_open(found.key):
        raise DocumentError(_REASON, "nothing can be sealed to the key of a collector")
    return found


def _can_open(key: bytes) -> bool:
    from protocol.shared.shape import box_key  # imported here, since most devices never need it

    try:
        return bool(box_key(key))
    except InputError:
        return False


def _bytes(entry: dict[str, Any], key: str, length: int) -> bytes:
    found = read_field(entry, key, bytes, _REASON)
    if len(found) != length:
        raise DocumentError(_REASON, f"'{key}' has not {length} bytes")
    return bytes(found)


@lru_cache(maxsize=64)
def best_chunk(cells: int) -> int:
    """Return the chunk that makes the shortest proof of a vector of ``cells`` elements; of equal ones the smallest.

    A proof has 2c + 2·n − 1 elements for the chunk c, n the least power of two above the number ⌈cells/c⌉ of calls.
    """
    return min(range(1, cells + 1), key=lambda chunk: (2 * chunk + 2 * (1 << (-(-cells // chunk)).bit_length()), chunk))


def cell_micro(blocks: int, epsilon_micro: int) -> int:
    """Return ⌊ε/2Q⌋ in millionths, the rate of discrete Laplace noise in one cell, Q the number of blocks.

    A changed record moves two cells of every block by one.
    """
    return epsilon_micro // (2 * blocks)


def shared_loss(blocks: int, epsilon_micro: int, noise: str) -> PrivacyLoss:
    """Return the exact worst privacy loss of a shared answer in nats: 2Q·⌊ε/2Q⌋ with Laplace noise.

    It is for changing one record, against readers of the total and one dishonest collector. With Gaussian noise it is
    ε, except with the campaign's δ.
    """
    from fractions import Fraction

    micro = epsilon_micro if noise == GAUSSIAN else 2 * blocks * cell_micro(blocks, epsilon_micro)
    return PrivacyLoss(Fraction(1), Fraction(micro, MICRO))
