"""The helper's check of a request: a verdict for each report, and its share of the sums over what both accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from aggregator.collectors.exchange import REFUSALS, RequestRow, fault
from aggregator.collectors.intake import Opened, Task, arrays_of, open_shares
from aggregator.collectors.verification import AT_ONCE, added, confirmed, prepared
from aggregator.reports.intake.reader import WorkSharingPool
from protocol.documents.shared_terms import HELPER
from protocol.shared.keccak import SEED_BYTES


class Judgement(NamedTuple):
    """What the helper says of some reports.

    Attributes:
        verdicts: rows of the answer, joined.
        accepted: the ids of the accepted reports, in order.
        refused: reason → number of reports.
        sums: the helper's share of the sums over the accepted reports, modulo p.
    """

    verdicts: bytes
    accepted: list[bytes]
    refused: Counter[str]
    sums: list[int]


def judged(task: Task, period: int, rows: Sequence[RequestRow]) -> Judgement:
    """Return the helper's judgement of some rows. Threads run this."""
    prio3, opened = task.prio3, list(open_shares(task, period, ((row.identifier, row.field) for row in rows)))
    reasons = [one if isinstance(one, str) else "" for one in opened]
    messages = [bytes(SEED_BYTES)] * len(rows)
    usable = [one for one in opened if isinstance(one, Opened)]
    sums = [0] * prio3.circuit.outputs
    if usable:
        places = [place for place, reason in enumerate(reasons) if not reason]
        found = prepared(prio3, task.verify_key, task.context, HELPER, arrays_of(usable))
        leading = np.frombuffer(b"".join(rows[place].verifier for place in places), np.uint8).reshape(len(places), -1)
        right, said = confirmed(prio3, task.context, [leading, found.verifiers], found.seeds)
        # Both parts must be those of the public share: else the leader would expect another seed than the helper.
        public = np.frombuffer(b"".join(one.field.public for one in usable), np.uint8).reshape(len(places), -1)
        agreed = (np.hstack([leading[:, -SEED_BYTES:], found.verifiers[:, -SEED_BYTES:]]) == public).all(axis=1)
        good = right & agreed & found.readable
        for number, place in enumerate(places):
            if good[number]:
                messages[place] = said[number].tobytes()
            elif not found.readable[number]:
                reasons[place] = "value_out_of_domain"
            else:
                reasons[place] = "proof_invalid" if agreed[number] else "public_share"
        sums = added(found.outputs, good)
    verdicts = b"".join(
        bytes([REFUSALS.index(reason)]) + message for reason, message in zip(reasons, messages, strict=True)
    )
    accepted = [row.identifier for row, reason in zip(rows, reasons, strict=True) if not reason]
    return Judgement(verdicts, accepted, Counter(filter(None, reasons)), sums)


class Judge:
    """Judges the rows of one request, some hundred at a time.

    Attributes:
        verdicts: rows of the answer.
        accepted: number of accepted reports.
        refused: reason → number of reports.
    """

    def __init__(self, task: Task, period: int) -> None:
        self._task, self._period = task, period
        self.verdicts: list[bytes] = []
        self.accepted, self.refused = 0, Counter[str]()
        self._ids = sha256()
        self._sums = np.zeros(task.prio3.circuit.outputs, object)

    def read(self, parts: Iterable[bytes], threads: int, done: Callable[[int], None]) -> None:
        """Judge all rows with some threads; ``done`` is told how many more were judged.

        Raises:
            DocumentError: ``collector_fault``: ids are not in rising order, so one could count twice.
        """
        task = self._task
        with ThreadPoolExecutor(threads) as pool:
            runs = _runs(task, parts)
            for found in WorkSharingPool(pool, 2 * threads).each(lambda rows: judged(task, self._period, rows), runs):
                self.verdicts.append(found.verdicts)
                self.accepted += len(found.accepted)
                self.refused.update(found.refused)
                self._ids.update(b"".join(found.accepted))
                self._sums += np.array(found.sums, object)
                done(found.refused.total() + len(found.accepted))

    def ids(self) -> bytes:
        """Return SHA-256 of the accepted ids, in order."""
        return self._ids.digest()

    def sums(self) -> list[int]:
        """Return the helper's share of the sums over the accepted reports, modulo p."""
        return [int(each) % self._task.prio3.circuit.field.modulus for each in self._sums]


def _runs(task: Task, parts: Iterable[bytes]) -> Iterator[list[RequestRow]]:
    """Yield the rows of a request in runs, and refuse ids that are not in rising order."""
    last, size = b"", AT_ONCE * RequestRow.length(task.prio3)
    for part in parts:
        for start in range(0, len(part), size):
            rows = RequestRow.read(task.prio3, part[start : start + size])
            for row in rows:
                if row.identifier <= last:
                    raise fault("the ids of the request are not in rising order")
                last = row.identifier
            yield rows
