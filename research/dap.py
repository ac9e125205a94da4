"""A record for a task of DAP: what a device would upload if two other programs, such as Janus, were its collectors.

In: a campaign, whose features the task counts, the task's configuration and the keys of its two servers. Out: the bytes
of one report for the leader's resource ``{leader}/tasks/{task id}/reports``. Sending them is the caller's.

Reports for this software's collectors can not be moved to a DAP deployment: a share is bound to its application
context. A campaign that moves asks anew, with a circuit that other programs have: Prio3MultihotCountVec, whose largest
weight is the number of features. A liar may then set up to so many cells of one feature, where a report for this
software has one.

Needs ``pip install 'hearsay-bayes[aggregator,dap]'``, for HPKE (RFC 9180) by pyhpke.
Source: draft-ietf-ppm-dap-18, sections "Task Configuration", "Uploading Reports" and "VDAF Configuration Encodings";
draft-irtf-cfrg-vdaf-20, section 7.4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import best_chunk
from protocol.errors import DocumentError, InputError
from protocol.shared.circuits import Bits, Blocks
from protocol.shared.prio3 import Prio3, Shards
from protocol.shared.proofs import dot

if TYPE_CHECKING:
    from protocol.shared.proofs import Call

VERSION = b"dap-18"
"""The draft's name in application contexts and keys; each version of the draft has its own."""
TASK_BYTES = 32
ID_BYTES = 16
KEY_SEED_BYTES = 32
MULTIHOT = 5
"""The registered number of Prio3MultihotCountVec."""
CLIENT, LEADER, HELPER = 1, 2, 3
"""DAP's numbers of roles."""


def weights(largest: int) -> list[int]:
    """Return the weights of bits whose sums are exactly the numbers from 0 to ``largest``."""
    bits = largest.bit_length()
    return [2**bit for bit in range(bits - 1)] + [largest - (2 ** (bits - 1) - 1)]


def bits_of(number: int, largest: int) -> list[int]:
    """Return the bits of a number by the weights of :func:`weights`."""
    *low, last = weights(largest)
    high = int(number > sum(low))
    return [(number - high * last) >> bit & 1 for bit in range(len(low))] + [high]


class MultihotCountVec(Bits):
    """Vectors of zeros and ones, of which at most ``most`` are ones.

    Args:
        length: elements of a vector.
        most: the largest number of ones, at least 1.
        chunk: as of :class:`protocol.shared.circuits.Bits`.
    """

    def __init__(self, length: int, most: int, chunk: int) -> None:
        super().__init__(length + most.bit_length(), chunk)
        self.outputs, self.most, self.results = length, most, 2

    def evaluated(self, call: Call, vector: Sequence[Any], joint: Sequence[Any], shares: int) -> list[Any]:
        """Return the number of :class:`Bits`, and the number of ones minus the number that the vector states."""
        stated = dot(weights(self.most), vector[self.outputs :])
        return [
            *super().evaluated(call, vector, joint, shares),
            (sum(vector[: self.outputs]) - stated) % self.field.modulus,
        ]

    def released(self, vector: Sequence[Any]) -> list[Any]:
        """Return the vector without the bits that state its number of ones."""
        return list(vector[: self.outputs])

    def encoded(self, bits: Sequence[int]) -> list[int]:
        """Return a vector with the bits that state its number of ones.

        Raises:
            InputError: ``shape_invalid``: another length; ``value_out_of_domain``: too many ones, or other numbers.
        """
        if len(bits) != self.outputs:
            raise InputError("shape_invalid", f"{len(bits)} bits for a vector of {self.outputs}")
        if any(bit not in (0, 1) for bit in bits) or sum(bits) > self.most:
            raise InputError("value_out_of_domain", f"a vector has zeros and ones, and at most {self.most} ones")
        return [*map(int, bits), *bits_of(sum(bits), self.most)]


def task_variant(campaign: Campaign) -> Prio3:
    """Return the variant of Prio3 for a DAP task that asks what a campaign asks.

    The task's parameters are ``length`` (all cells), ``max_weight`` (the number of features) and ``chunk_length``.
    """
    sizes = [block.size for block in campaign.blocks]
    return Prio3(MULTIHOT, MultihotCountVec(sum(sizes), len(sizes), best_chunk(sum(sizes))))


def context_of_task(task: bytes) -> bytes:
    """Return the application context of a DAP task.

    Raises:
        InputError: ``shape_invalid``: the task's id has not 32 bytes.
    """
    if len(task) != TASK_BYTES:
        raise InputError("shape_invalid", f"the id of a DAP task has {TASK_BYTES} bytes, not {len(task)}")
    return VERSION + task


def task_shards(campaign: Campaign, task: bytes, cells: Sequence[int], report_id: bytes, random: bytes) -> Shards:
    """Return the public share and both input shares of one record for a DAP task. A client of the task would run this.

    :func:`upload` seals them.

    Args:
        campaign: a campaign that asks about the same features.
        task: the task's id, 32 bytes.
        cells: for each block the number of the record's cell.
        report_id: 16 fresh random bytes; the draft's report id is the nonce.
        random: 128 fresh secret random bytes.

    Raises:
        InputError: ``shape_invalid``, ``value_out_of_domain``: wrong lengths, or a block has no such cell.
    """
    prio3 = task_variant(campaign)
    assert isinstance(prio3.circuit, MultihotCountVec)
    sizes = [block.size for block in campaign.blocks]
    vector = prio3.circuit.encoded(Blocks(sizes, 1).encoded(cells))
    return prio3.shard(context_of_task(task), vector, report_id, random)


class TaskConfiguration(NamedTuple):
    """What all parties of a task agree on; its encoding is authenticated by every sealed share.

    Attributes:
        info: 1 to 255 bytes that tell tasks apart that are equal otherwise.
        leader: address of the leader's resources, as the parties wrote it.
        helper: address of the helper's.
        time_precision: seconds of the task's unit of time.
        min_batch_size: fewest reports of a batch.
        batch_mode: DAP's number of the mode: 1 for intervals of time, 2 for batches that the leader selects.
        batch_parameters: the mode's own parameters; empty for both modes above.
        extensions: (type, data) of each extension, by rising type.
    """

    info: bytes
    leader: str
    helper: str
    time_precision: int
    min_batch_size: int
    batch_mode: int = 1
    batch_parameters: bytes = b""
    extensions: tuple[tuple[int, bytes], ...] = ()

    def encoded(self, prio3: Prio3) -> bytes:
        """Return the configuration's bytes with those of the variant of Prio3.

        Raises:
            InputError: ``shape_invalid``: a part is too long, empty, not ASCII or out of order where it must not be.
        """
        circuit = prio3.circuit
        assert isinstance(circuit, MultihotCountVec)
        if self.time_precision < 1 or not (self.leader + self.helper).isascii():
            raise InputError("shape_invalid", "a DAP task has a unit of time, and addresses of ASCII characters")
        types = [number for number, _ in self.extensions]
        if types != sorted(set(types)):
            raise InputError("shape_invalid", "the extensions of a DAP task stand in the order of their types")
        variant = _number(circuit.outputs, 4) + _number(circuit.chunk, 4) + _number(circuit.most, 8)
        return b"".join(
            [
                _opaque(self.info, 1, least=1),
                *(_opaque(address.encode("ascii"), 2, least=1) for address in (self.leader, self.helper)),
                _number(self.time_precision, 8),
                _number(self.min_batch_size, 8),
                _number(self.batch_mode, 1),
                _opaque(self.batch_parameters, 2),
                _number(prio3.algorithm, 4),
                _opaque(variant, 2),
                _opaque(b"".join(_number(number, 2) + _opaque(data, 2) for number, data in self.extensions), 2),
            ]
        )


class HpkeKey(NamedTuple):
    """A server's public key for sealed shares (HpkeConfig), with the numbers of its algorithms by RFC 9180."""

    id: int
    kem: int
    kdf: int
    aead: int
    public: bytes


def read_keys(content: bytes) -> list[HpkeKey]:
    """Return the keys that a server's resource ``hpke_config`` answers with, the preferred one first.

    Raises:
        DocumentError: ``invalid_message``: the bytes are no list of keys, or the list is empty.
    """
    length, rest = int.from_bytes(content[:2], "big"), content[2:]
    found = []
    while rest:
        size = int.from_bytes(rest[7:9], "big")
        if len(rest) < 9 + size or not size:
            break
        kem, kdf, aead = (int.from_bytes(rest[at : at + 2], "big") for at in (1, 3, 5))
        found.append(HpkeKey(rest[0], kem, kdf, aead, rest[9 : 9 + size]))
        rest = rest[9 + size :]
    if rest or not found or length != len(content) - 2:
        raise DocumentError("invalid_message", "these bytes are no list of HPKE configurations")
    return found


def sealed(key: HpkeKey, info: bytes, associated: bytes, content: bytes, random: bytes) -> bytes:
    """Return an HpkeCiphertext: the key's number, the encapsulated key and the sealed content.

    Args:
        key: the recipient's.
        info: what the key schedule is bound to.
        associated: what is authenticated beside the content.
        content: what is sealed.
        random: 32 fresh secret random bytes, from which the ephemeral key is derived.

    Raises:
        InputError: ``shape_invalid``: an algorithm that pyhpke does not have, or a key that is none of its algorithm;
            ``missing_extra``: pyhpke is not installed.
    """
    try:
        from pyhpke import AEADId, CipherSuite, KDFId, KEMId, PyHPKEError
    except ImportError:
        raise InputError("missing_extra", "sealing for a task of DAP needs pyhpke: install the extra dap") from None
    try:
        suite = CipherSuite.new(KEMId(key.kem), KDFId(key.kdf), AEADId(key.aead))
        public = suite.kem.deserialize_public_key(key.public)
        encapsulated, sender = suite.create_sender_context(public, info, eks=suite.kem.derive_key_pair(random))
        return _number(key.id, 1) + _opaque(encapsulated, 2, least=1) + _opaque(sender.seal(content, associated), 4)
    # pyhpke raises ValueError for unknown numbers, PyHPKEError for keys, NotImplementedError for export-only suites.
    except (ValueError, PyHPKEError, NotImplementedError) as error:
        raise InputError("shape_invalid", f"HPKE configuration {key.id} can not be used: {error}") from error


def upload(
    campaign: Campaign,
    task: bytes,
    configuration: TaskConfiguration,
    cells: Sequence[int],
    keys: tuple[HpkeKey, HpkeKey],
    *,
    time: int,
    random_bytes: Callable[[int], bytes],
) -> bytes:
    """Return the Report of one record, as a client of the task would send it.

    Args:
        campaign: a campaign that asks about the same features.
        task: the task's id, 32 bytes.
        configuration: the task's.
        cells: for each feature the number of the record's cell.
        keys: the leader's and the helper's, of :func:`read_keys`.
        time: the report's time in seconds since 1970; the report states it in units of the task's precision.
        random_bytes: source of secret random bytes, such as :func:`os.urandom`.

    Raises:
        InputError: as :func:`task_shards`, :meth:`TaskConfiguration.encoded` and :func:`sealed`.
    """
    report_id = random_bytes(ID_BYTES)
    prio3 = task_variant(campaign)
    stated = configuration.encoded(prio3)
    shards = task_shards(campaign, task, cells, report_id, random_bytes(prio3.random_bytes))
    metadata = report_id + _number(time // configuration.time_precision, 8) + _opaque(b"", 2)
    public = _opaque(shards.public, 4)
    associated = task + stated + metadata + public
    shares = [
        sealed(
            key,
            VERSION + b" input share" + bytes([CLIENT, role]),
            associated,
            _opaque(b"", 2) + _opaque(share, 4, least=1),
            random_bytes(KEY_SEED_BYTES),
        )
        for role, key, share in zip((LEADER, HELPER), keys, shards.inputs, strict=True)
    ]
    return metadata + public + b"".join(shares)


def _number(number: int, size: int) -> bytes:
    if not 0 <= number < 1 << 8 * size:
        raise InputError("shape_invalid", f"{number} does not fit into {size} bytes")
    return number.to_bytes(size, "big")


def _opaque(content: bytes, size: int, *, least: int = 0) -> bytes:
    """Return bytes behind their length in ``size`` bytes."""
    if len(content) < least:
        raise InputError("shape_invalid", "a part of a DAP message is empty that must not be")
    return _number(len(content), size) + content
