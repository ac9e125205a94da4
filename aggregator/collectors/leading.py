"""The leader's two steps: its check of a period's reports, and the total once the helper has answered.

What the leader keeps meanwhile is a row for each report that it sent: id ‖ the seed that it expects ‖ its share of
what is added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import IO

import numpy as np
from numpy.typing import NDArray

from aggregator.collectors.elements import decoded
from aggregator.collectors.exchange import REFUSALS, VERDICT_BYTES, RequestRow, fault
from aggregator.collectors.intake import Opened, Reports, Task, arrays_of, open_shares
from aggregator.collectors.noise import noisy
from aggregator.collectors.total import Total
from aggregator.collectors.verification import (
    Bytes,
    Shares,
    Terms,
    Verdicts,
    Workers,
    added,
    at_once,
    prepared,
)
from protocol.batches.report import ID_BYTES
from protocol.errors import DocumentError
from protocol.shared.keccak import SEED_BYTES
from protocol.shared.prio3 import Prio3

HEAD_BYTES = ID_BYTES + SEED_BYTES


def kept_length(prio3: Prio3) -> int:
    """Return the bytes of a row that the leader keeps."""
    return HEAD_BYTES + prio3.circuit.outputs * prio3.circuit.field.size


def check(terms: Terms, shares: Shares) -> tuple[Bytes, Bytes, Verdicts]:
    """Return what the leader sends of some reports, the seeds that it expects, and which reports are readable."""
    found = prepared(*terms, shares)
    return found.verifiers, found.seeds, found.readable


def check_all(
    task: Task,
    period: int,
    reports: Reports,
    files: tuple[IO[bytes], IO[bytes]],
    workers: Workers,
    done: Callable[[int], None],
) -> tuple[int, Counter[str]]:
    """Check all reports of a period.

    Args:
        task: what the leader does.
        period: the period.
        reports: the reports.
        files: where the rows go: those for the helper, and those that the leader keeps, both by id.
        workers: who checks.
        done: told how many more reports were checked.

    Returns:
        The number of rows, and reason → number of reports without a row.

    Raises:
        PolicyError, StorageError: those of :meth:`aggregator.collectors.verification.Workers.each`.
    """
    ids, count, refused = reports.ids(), 0, Counter[str]()
    length, size = kept_length(task.prio3) - HEAD_BYTES, at_once(task.prio3)

    def opened(run: list[bytes]) -> tuple[tuple[list[Opened], Counter[str]], Shares | None]:
        shares = list(open_shares(task, period, reports.fields(run)))
        usable = [one for one in shares if isinstance(one, Opened)]
        return (usable, Counter(one for one in shares if isinstance(one, str))), arrays_of(usable) if usable else None

    runs = (ids[start : start + size] for start in range(0, len(ids), size))
    for (usable, bad), found in workers.each(check, task.terms, opened, runs):
        sent, kept = [], []
        for one, verifier, seed, readable in zip(usable, *found, strict=True) if found else ():
            if readable:
                sent.append(RequestRow(one.identifier, one.field, verifier.tobytes()).to_bytes())
                kept.append(one.identifier + seed.tobytes() + one.share[:length])
            else:
                bad["value_out_of_domain"] += 1
        for file, rows in zip(files, (sent, kept), strict=True):
            file.write(b"".join(rows))
        count += len(sent)
        refused.update(bad)
        done(len(sent) + bad.total())
    return count, refused


def total_of(
    task: Task, period: int, kept: NDArray[np.uint8], answer: tuple[bytes, bytes], refused: Counter[str], seed: bytes
) -> Total:
    """Return the total of a period with both noises. What can not be in it is for :func:`read_total` to find.

    Args:
        task: what the leader does.
        period: the period.
        kept: the rows that the leader kept, shape (N, :func:`kept_length`) uint8.
        answer: of the helper's answer the N verdicts, joined, and what follows them.
        refused: reason → number of reports for which the leader sent no row.
        seed: 32 fresh random bytes.

    Raises:
        DocumentError: ``collector_fault``: the answer is for other reports, or its sums are no field elements.
    """
    verdicts = np.frombuffer(answer[0], np.uint8).reshape(-1, VERDICT_BYTES)
    accepted = verdicts[:, 0] == 0
    if (verdicts[:, 0] >= len(REFUSALS)).any():
        raise fault("a verdict is none")
    field, outputs = task.prio3.circuit.field, task.prio3.circuit.outputs
    sums, ids = np.zeros(outputs, object), sha256()
    some = at_once(task.prio3)
    for start in range(0, len(kept), some):
        rows, right = kept[start : start + some], accepted[start : start + some]
        if (verdicts[start : start + some, 1:] != rows[:, ID_BYTES:HEAD_BYTES])[right].any():
            raise fault("a verdict does not fit to its report")
        ids.update(rows[right, :ID_BYTES].tobytes())
        vectors, _ = decoded(field, rows[:, HEAD_BYTES:])
        sums += np.array(added(vectors, right), object)
    count, size = int(accepted.sum()), outputs * field.size
    if answer[1][size:] != count.to_bytes(4, "big") + ids.digest():
        raise fault("its sums are over other reports than its verdicts accept")
    if count < task.campaign.min_batch_size:
        raise fault("it accepts fewer reports than the campaign wants")
    numbers = _joined(task, sums.tolist(), _decoded(task, answer[1][:size]), seed)
    refused = refused + Counter(REFUSALS[verdict] for verdict in verdicts[~accepted, 0].tolist())
    return Total(task.campaign.id, period, count, tuple(numbers), dict(refused))


def _decoded(task: Task, sums: bytes) -> list[int]:
    try:
        return task.prio3.circuit.field.decode(sums)
    except DocumentError:
        pass
    raise fault("its sums are no field elements")


def _joined(task: Task, own: list[int], other: list[int], seed: bytes) -> list[int]:
    """Return the leader's sums with its noise and the helper's noisy sums together, as signed numbers."""
    campaign, p = task.campaign, task.prio3.circuit.field.modulus
    numbers = [(one + two) % p for one, two in zip(noisy(campaign, own, seed), other, strict=True)]
    return [number - p if number > p // 2 else number for number in numbers]
