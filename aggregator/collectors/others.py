"""Ways to other programs: a collector's own shares for another program to check, and shards for a task of DAP.

An export has the form of the draft's test vectors. It holds the shares of one collector, and never those of both, and
the verify key, which devices must not know. So it is as secret as the collector's folder.

Shards for a task of DAP are what a device would send if two other programs, such as Janus, were collectors.

Reports for this software can not be moved to a DAP deployment, as a share is bound to its application context. A
campaign that moves asks anew, with a circuit that other programs have: Prio3MultihotCountVec, whose largest weight is
the number of blocks. A liar may then set up to so many cells of one block, where a report for this software has one.
Source: draft-ietf-ppm-dap-18, "Upload Request"; draft-irtf-cfrg-vdaf-20, section 7.4.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.collectors.intake import Opened, Reports, Task, arrays_of, open_shares
from aggregator.collectors.verification import AT_ONCE, prepared
from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import best_chunk, shared_subjects
from protocol.errors import InputError
from protocol.shared.circuits import Bits, Blocks
from protocol.shared.prio3 import Prio3, Shards
from protocol.shared.proofs import dot

if TYPE_CHECKING:
    from protocol.shared.proofs import Call

VERSION = b"dap-18"
"""The draft's name in application contexts; each version of the draft has its own."""
TASK_BYTES = 32
MULTIHOT = 5
"""The registered number of Prio3MultihotCountVec."""


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
    sizes = [subject.size for subject in shared_subjects(campaign.schema)]
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

    Sealing them (HPKE, with the task's configuration) and sending them is a DAP client's work.

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
    sizes = [subject.size for subject in shared_subjects(campaign.schema)]
    vector = prio3.circuit.encoded(Blocks(sizes, 1).encoded(cells))
    return prio3.shard(context_of_task(task), vector, report_id, random)


class Exported(NamedTuple):
    """What another program checks.

    Attributes:
        document: the map of the file, for JSON.
        refused: reason → number of reports that are not in it.
    """

    document: dict[str, Any]
    refused: dict[str, int]


def exported(task: Task, period: int, reports: Reports) -> Exported:
    """Return a collector's shares of the reports of a period, each with what the collector would say of it.

    Args:
        task: whose shares of which campaign.
        period: the period.
        reports: its reports.
    """
    prio3, ids, refused = task.prio3, reports.ids(), Counter(reports.refused)
    circuit = prio3.circuit
    assert isinstance(circuit, Blocks)
    listed = []
    for start in range(0, len(ids), AT_ONCE):
        opened = list(open_shares(task, period, reports.fields(ids[start : start + AT_ONCE])))
        refused.update(one for one in opened if isinstance(one, str))
        usable = [one for one in opened if isinstance(one, Opened)]
        if not usable:
            continue
        found = prepared(*task.terms, arrays_of(usable))
        for one, verifier, readable in zip(usable, found.verifiers, found.readable, strict=True):
            if not readable:
                refused["value_out_of_domain"] += 1
                continue
            listed.append(
                {
                    "nonce": one.field.nonce.hex(),
                    "public_share": one.field.public.hex(),
                    "input_shares": _own(task.role, one.share.hex()),
                    "verifier_shares": [_own(task.role, verifier.tobytes().hex())],
                }
            )
    steps = [
        {"operation": "verify_init", "aggregator_id": task.role, "report_index": index, "success": True}
        for index in range(len(listed))
    ]
    document = {
        "algorithm_id": prio3.algorithm,
        "shares": prio3.shares,
        "block_lengths": list(circuit.sizes),
        "chunk_length": circuit.chunk,
        "ctx": task.terms.context.hex(),
        "verify_key": task.verify_key.hex(),
        "agg_param": "",
        "campaign": task.campaign.id.hex(),
        "period": period,
        "operations": steps,
        "reports": listed,
    }
    return Exported(document, dict(+refused))


def _own(role: int, share: str) -> list[str | None]:
    """Return a list for both collectors with this one's entry alone."""
    return [share if number == role else None for number in range(2)]
