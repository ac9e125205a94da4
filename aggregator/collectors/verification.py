"""The check of many reports at once: the steps of :mod:`protocol.shared.prio3` on arrays.

The formulas are those of devices: circuits, proofs and the permutation compute on arrays as they do on integers.
A report that can not be read or whose share is wrong costs itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregator.collectors.elements import Elements, decoded, encoded
from aggregator.reports.intake.reader import WorkSharingPool
from aggregator.reports.intake.remote import Executor, check_software
from protocol import VERSION
from protocol.errors import PolicyError
from protocol.shared.keccak import DOMAIN, RATE, SEED_BYTES, permuted
from protocol.shared.prio3 import JOINT, JOINT_PART, JOINT_SEED, PROOF, PROOFS, QUERY, VECTOR, Prio3
from protocol.shared.proofs import accepted, is_root, query

Bytes = NDArray[np.uint8]
Verdicts = NDArray[np.bool_]
RUNS_EACH = 2
"""Runs of reports that are sent to each thread of a cluster at a time."""
Run = TypeVar("Run")
Kept = TypeVar("Kept")
Given = TypeVar("Given")
Found = TypeVar("Found")


def at_once(prio3: Prio3) -> int:
    """Return how many reports are checked at once: many, so that numpy computes most of the time; 2,048 of 256 cells.

    Of longer reports fewer: the arrays of a run have some hundred bytes for each cell of each report.
    """
    return max(256, min(2048, (1 << 19) // prio3.circuit.length))


def hashed(seed: Bytes | bytes, tag: bytes, binder: Bytes, count: int) -> Bytes:
    """Return the first bytes of :class:`protocol.shared.keccak.Xof` for N seeds and binders.

    Args:
        seed: shape (N, 32) uint8, or one seed for all.
        tag: the domain separation tag.
        binder: shape (N, B) uint8.
        count: bytes of each.

    Returns:
        Shape (N, count) uint8.
    """
    n = len(binder)
    size = len(seed) if isinstance(seed, bytes) else seed.shape[1]
    head = len(tag).to_bytes(2, "little") + tag + bytes([size])
    length = len(head) + size + binder.shape[1] + 1
    message = np.zeros((n, -(-length // RATE) * RATE), np.uint8)
    message[:, : len(head)] = np.frombuffer(head, np.uint8)
    message[:, len(head) : len(head) + size] = np.frombuffer(seed, np.uint8) if isinstance(seed, bytes) else seed
    message[:, len(head) + size : length - 1] = binder
    message[:, length - 1] = DOMAIN
    message[:, -1] ^= 0x80
    words = np.ascontiguousarray(message.view("<u8").astype(np.uint64).T)
    lanes = [np.zeros(n, np.uint64) for _ in range(25)]
    for start in range(0, len(words), RATE // 8):
        for lane in range(RATE // 8):
            lanes[lane] = lanes[lane] ^ words[start + lane]
        lanes = permuted(lanes)
    blocks = [lanes[: RATE // 8]]
    while len(blocks) * RATE < count:
        lanes = permuted(lanes)
        blocks.append(lanes[: RATE // 8])
    found = np.stack([lane for block in blocks for lane in block], axis=1).astype("<u8")
    return found.view(np.uint8)[:, :count]


class Terms(NamedTuple):
    """What all checks of one collector for a campaign have in common.

    Attributes:
        prio3: the variant.
        key: the verify key of both collectors, secret.
        context: the application context.
        number: the collector's number; 0 is the leader.
    """

    prio3: Prio3
    key: bytes
    context: bytes
    number: int


class Workers(NamedTuple):
    """Who checks reports.

    Attributes:
        threads: number of threads of this process.
        cluster: what checks in their place, if it is not None. It gets the collector's shares and the verify key.
    """

    threads: int
    cluster: Executor | None = None

    def each(
        self,
        check: Callable[[Terms, Given], Found],
        terms: Terms,
        opened: Callable[[Run], tuple[Kept, Given | None]],
        runs: Iterable[Run],
    ) -> Iterator[tuple[Kept, Found | None]]:
        """Check runs of reports, and yield in their order what was kept of a run, and what was found.

        Args:
            check: the check of a run, a function at the top of a module, so that its name can be sent.
            terms: its first argument.
            opened: called in this process; returns for a run what is kept of it, and the second argument of ``check``,
                or None if there is nothing to check.
            runs: the runs.

        Raises:
            PolicyError: ``cluster_open``: the cluster's connections are not encrypted.
            StorageError: ``cluster_lost``, ``cluster_differs``.
        """
        if self.cluster is not None:
            yield from _remotely(self.cluster, check, terms, map(opened, runs))
            return

        def whole(run: Run) -> tuple[Kept, Found | None]:
            kept, given = opened(run)
            return kept, None if given is None else check(terms, given)

        with ThreadPoolExecutor(self.threads) as pool:
            yield from WorkSharingPool(pool, 2 * self.threads).each(whole, runs)


def _remotely(
    cluster: Executor,
    check: Callable[[Terms, Given], Found],
    terms: Terms,
    opened: Iterator[tuple[Kept, Given | None]],
) -> Iterator[tuple[Kept, Found | None]]:
    """Check runs on a cluster. While it checks some, this process opens the next ones."""
    if not cluster.is_private:
        raise PolicyError("cluster_open", "shares are secret, and tcp:// is not encrypted; use tls://")
    shared, before = cluster.share(terms), None
    with ThreadPoolExecutor(1) as pool:
        while some := list(islice(opened, RUNS_EACH * cluster.threads)):
            calls = [(VERSION, at, check, shared, given) for at, (_, given) in enumerate(some) if given is not None]
            after = (
                [kept for kept, _ in some],
                pool.submit(lambda calls: dict(cluster.run(checked_remotely, calls)), calls),
            )
            if before is not None:
                yield from _paired(*before)
            before = after
        if before is not None:
            yield from _paired(*before)


def _paired(kept: list[Kept], coming: Future[dict[int, Found]]) -> Iterator[tuple[Kept, Found | None]]:
    found = coming.result()
    return ((one, found.get(at)) for at, one in enumerate(kept))


def checked_remotely(
    software: str, number: int, check: Callable[[Terms, Given], Found], terms: Terms, given: Given
) -> tuple[int, Found]:
    """Task: return the number of a run, and what its check finds.

    Raises:
        StorageError: ``cluster_differs``: this worker has another version of this software than the client.
    """
    check_software(software)
    return number, check(terms, given)


class Shares(NamedTuple):
    """What one collector has of N reports.

    Attributes:
        nonces: shape (N, 16) uint8.
        public: the public shares, shape (N, 32 · collectors) uint8, or (N, 0).
        inputs: the collector's own shares, shape (N, bytes) uint8.
    """

    nonces: Bytes
    public: Bytes
    inputs: Bytes

    @classmethod
    def of(cls, reports: Sequence[tuple[bytes, bytes, bytes]]) -> Self:
        """Return the arrays of at least one report: for each its nonce, public share and input share."""
        columns = zip(*reports, strict=True)
        return cls(*(np.frombuffer(b"".join(each), np.uint8).reshape(len(reports), -1) for each in columns))


class Prepared(NamedTuple):
    """What a collector sends and keeps of N reports.

    Attributes:
        verifiers: what it sends, shape (N, bytes) uint8.
        seeds: the joint randomness seeds that it expects, shape (N, 32) uint8, or (N, 0).
        outputs: its shares of what is added up: ``outputs`` times the elements of N reports.
        readable: shape (N,) bool: False for a report with an element that is not below p, or whose random point is a
            root of unity; its other entries mean nothing.
    """

    verifiers: Bytes
    seeds: Bytes
    outputs: list[Elements]
    readable: Verdicts


def expanded(prio3: Prio3, context: bytes, number: int, secrets: Bytes) -> tuple[Bytes, Bytes]:
    """Return the encoded vectors and proofs of N shares that are seeds, of shape (N, 32): all but the leader's."""
    circuit, role = prio3.circuit, repeated(bytes([number]), len(secrets))
    size = circuit.field.size
    return (
        hashed(secrets, prio3.tag(VECTOR, context), role, circuit.length * size),
        hashed(
            secrets,
            prio3.tag(PROOF, context),
            np.hstack([repeated(PROOFS, len(role)), role]),
            circuit.proof_length * size,
        ),
    )


def joint_part(prio3: Prio3, context: bytes, number: int, blinds: Bytes, nonces: Bytes, vectors: Bytes) -> Bytes:
    """Return a collector's parts of the joint randomness of N reports, (N, 32) uint8; ``vectors`` are its shares."""
    binder = np.hstack([repeated(bytes([number]), len(nonces)), nonces, vectors])
    return hashed(blinds, prio3.tag(JOINT_PART, context), binder, SEED_BYTES)


def joint_randomness(prio3: Prio3, context: bytes, parts: Bytes) -> tuple[Bytes, list[Elements], Verdicts]:
    """Return for N reports the joint randomness seed, the elements that follow from it, and whether all are below p.

    Args:
        prio3: the variant.
        context: the application context.
        parts: the parts of all collectors, shape (N, 32 · collectors) uint8.
    """
    circuit = prio3.circuit
    seeds = hashed(bytes(SEED_BYTES), prio3.tag(JOINT_SEED, context), parts, SEED_BYTES)
    binder = repeated(PROOFS, len(seeds))
    found = hashed(seeds, prio3.tag(JOINT, context), binder, circuit.joint * circuit.field.size)
    return seeds, *decoded(circuit.field, found)


def repeated(some: bytes, n: int) -> Bytes:
    """Return the same bytes for each of N reports."""
    return np.tile(np.frombuffer(some, np.uint8), (n, 1))


def prepared(prio3: Prio3, key: bytes, context: bytes, number: int, shares: Shares) -> Prepared:
    """Return what a collector sends and keeps of N reports. The aggregator of shares runs this.

    Args:
        prio3: the variant.
        key: the verify key of all collectors.
        context: the application context.
        number: the collector's number; 0 is the leader.
        shares: its shares of the reports.
    """
    circuit = prio3.circuit
    field, n = circuit.field, len(shares.nonces)
    length = circuit.length * field.size
    blind = shares.inputs.shape[1] - SEED_BYTES if circuit.joint else shares.inputs.shape[1]
    secret, blinds = shares.inputs[:, :blind], shares.inputs[:, blind:]
    content, proofs = (
        (secret[:, :length], secret[:, length:]) if number == 0 else expanded(prio3, context, number, secret)
    )
    # A hash is not below p with a probability of 2^−59 per element: such a report counts as unreadable.
    vector, readable = decoded(field, content)
    proof, below = decoded(field, proofs)
    readable = readable & below
    part, seeds = np.zeros((n, 0), np.uint8), np.zeros((n, 0), np.uint8)
    joint: list[Any] = []
    if circuit.joint:
        part = joint_part(prio3, context, number, blinds, shares.nonces, content)
        parts = shares.public.copy()
        parts[:, SEED_BYTES * number : SEED_BYTES * (number + 1)] = part
        seeds, joint, below = joint_randomness(prio3, context, parts)
        readable = readable & below
    binder = np.hstack([repeated(PROOFS, n), shares.nonces])
    random, below = decoded(field, hashed(key, prio3.tag(QUERY, context), binder, circuit.query_length * field.size))
    readable = readable & below & ~is_root(field, random[-1], circuit.nodes)
    verifiers = encoded(query(circuit, vector, proof, random, joint, prio3.shares))
    return Prepared(np.hstack([verifiers, part]), seeds, circuit.released(vector), readable)


def confirmed(prio3: Prio3, context: bytes, verifiers: Sequence[Bytes], seeds: Bytes) -> tuple[Verdicts, Bytes]:
    """Return which of N reports all collectors accept, and the message of each.

    Args:
        prio3: the variant.
        context: the application context.
        verifiers: for each collector, in the order of their numbers, its verifiers, shape (N, bytes) uint8.
        seeds: the joint randomness seeds that this collector expects, of :class:`Prepared`.

    Returns:
        Shape (N,) bool, and shape (N, 32) or (N, 0) uint8.
    """
    circuit = prio3.circuit
    length = circuit.verifier_length * circuit.field.size
    found = [decoded(circuit.field, one[:, :length]) for one in verifiers]
    sums = [sum(each) % circuit.field.modulus for each in zip(*(elements for elements, _ in found), strict=True)]
    right = np.logical_and.reduce([below for _, below in found]) & accepted(circuit, sums)
    messages = np.zeros((len(seeds), 0), np.uint8)
    if circuit.joint:
        parts = np.hstack([one[:, length:] for one in verifiers])
        messages = hashed(bytes(SEED_BYTES), prio3.tag(JOINT_SEED, context), parts, SEED_BYTES)
        right = right & (messages == seeds).all(axis=1)
    return right, messages


def added(outputs: Sequence[Elements], accepted: Verdicts) -> list[int]:
    """Return a collector's sums modulo p over the accepted reports.

    Args:
        outputs: the shares of N reports.
        accepted: shape (N,) bool.
    """
    # Limbs of 26 bits: 64 bits hold the sum of 2^36 reports.
    return [
        sum(int(limb) << 26 * at for at, limb in enumerate(output.limbs[:, accepted].sum(axis=1)))
        % output.field.modulus
        for output in (output.reduced() for output in outputs)
    ]
