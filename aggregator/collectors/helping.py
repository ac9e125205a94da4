"""The helper's check of a request: a verdict for each report, and its share of the sums over what both accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from aggregator.collectors.exchange import REFUSALS, RequestRow, fault
from aggregator.collectors.intake import Opened, Task, arrays_of, open_shares
from aggregator.collectors.verification import (
    Bytes,
    Shares,
    Terms,
    Verdicts,
    Workers,
    added,
    at_once,
    confirmed,
    prepared,
)
from aggregator.reports.intake.enrolment import REASON, Enrolled
from protocol.shared.keccak import SEED_BYTES


class Checked(NamedTuple):
    """What the helper finds in N reports.

    Attributes:
        readable, agreed, right: shape (N,) bool: whether a report can be checked, both joint randomness parts are those
            of its public share, and its proof is right.
        messages: of Prio3, shape (N, 32) uint8.
        sums: the helper's share of the sums over the reports of which all that holds, modulo p.
    """

    readable: Verdicts
    agreed: Verdicts
    right: Verdicts
    messages: Bytes
    sums: list[int]

    @property
    def reasons(self) -> list[str]:
        """Why each report is refused; empty for an accepted one."""
        rules = ("value_out_of_domain", self.readable), ("public_share", self.agreed), ("proof_invalid", self.right)
        return [next((reason for reason, holds in rules if not holds[at]), "") for at in range(len(self.messages))]


def check(terms: Terms, given: tuple[Shares, Bytes]) -> Checked:
    """Return what the helper finds in N reports; ``given`` are its shares, and what the leader sent of each report."""
    shares, leading = given
    found = prepared(*terms, shares)
    right, messages = confirmed(terms.prio3, terms.context, [leading, found.verifiers], found.seeds)
    # Both parts must be those of the public share: else the leader would expect another seed than the helper.
    parts = np.hstack([leading[:, -SEED_BYTES:], found.verifiers[:, -SEED_BYTES:]])
    agreed = (parts == shares.public).all(axis=1)
    sums = added(found.outputs, found.readable & agreed & right)
    return Checked(found.readable, agreed, right, messages, sums)


class Judge:
    """Judges the rows of one request, some hundred at a time.

    Attributes:
        verdicts: rows of the answer.
        accepted: number of accepted reports.
        refused: reason → number of reports.
    """

    def __init__(self, task: Task, period: int, enrolled: Enrolled | None = None) -> None:
        """Begin without any row. ``enrolled``: the ids of a closed fleet; rows with other ids are refused."""
        self._task, self._period, self._enrolled = task, period, enrolled
        self.verdicts: list[bytes] = []
        self.accepted, self.refused = 0, Counter[str]()
        self._ids = sha256()
        self._sums = np.zeros(task.prio3.circuit.outputs, object)

    def read(self, parts: Iterable[bytes], workers: Workers, done: Callable[[int], None]) -> None:
        """Let the workers check all rows, and judge them; ``done`` is told how many more were judged.

        Raises:
            DocumentError: ``collector_fault``: ids are not in rising order, so one could count twice.
            PolicyError, StorageError: those of :meth:`aggregator.collectors.verification.Workers.each`.
        """
        for (ids, reasons), found in workers.each(check, self._task.terms, self._opened, _runs(self._task, parts)):
            places, messages = [at for at, reason in enumerate(reasons) if not reason], [bytes(SEED_BYTES)] * len(ids)
            if found is not None:
                for at, reason, message in zip(places, found.reasons, found.messages, strict=True):
                    reasons[at] = reason
                    if not reason:
                        messages[at] = message.tobytes()
                self._sums += np.array(found.sums, object)
            verdicts = zip(map(REFUSALS.index, reasons), messages, strict=True)
            self.verdicts.append(b"".join(bytes([number]) + message for number, message in verdicts))
            accepted = [identifier for identifier, reason in zip(ids, reasons, strict=True) if not reason]
            self._ids.update(b"".join(accepted))
            self.accepted += len(accepted)
            self.refused.update(filter(None, reasons))
            done(len(ids))

    def _opened(self, rows: Sequence[RequestRow]) -> tuple[tuple[list[bytes], list[str]], tuple[Shares, Bytes] | None]:
        """Return ids and reasons of refusals, empty if there are none so far, and what is to be checked."""
        fields = ((row.identifier, row.field) for row in rows)
        shares = list(open_shares(self._task, self._period, fields))
        if self._enrolled is not None:
            ids = np.frombuffer(b"".join(row.identifier for row in rows), ">u8").astype(np.uint64)
            known = self._enrolled.has(self._period, ids)
            shares = [share if is_known else REASON for share, is_known in zip(shares, known, strict=True)]
        usable = [(one, row.verifier) for one, row in zip(shares, rows, strict=True) if isinstance(one, Opened)]
        kept = [row.identifier for row in rows], [one if isinstance(one, str) else "" for one in shares]
        if not usable:
            return kept, None
        leading = np.frombuffer(b"".join(verifier for _, verifier in usable), np.uint8).reshape(len(usable), -1)
        return kept, (arrays_of([one for one, _ in usable]), leading)

    def ids(self) -> bytes:
        """Return SHA-256 of the accepted ids, in order."""
        return self._ids.digest()

    def sums(self) -> list[int]:
        """Return the helper's share of the sums over the accepted reports, modulo p."""
        return [int(each) % self._task.prio3.circuit.field.modulus for each in self._sums]


def _runs(task: Task, parts: Iterable[bytes]) -> Iterator[list[RequestRow]]:
    """Yield the rows of a request in runs, and refuse ids that are not in rising order."""
    last, size = b"", at_once(task.prio3) * RequestRow.length(task.prio3)
    for part in parts:
        for start in range(0, len(part), size):
            rows = RequestRow.read(task.prio3, part[start : start + size])
            for row in rows:
                if row.identifier <= last:
                    raise fault("the ids of the request are not in rising order")
                last = row.identifier
            yield rows
