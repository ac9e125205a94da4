"""Counts by question and answer directly from the bytes of a file, without a store.

Every rule of docs/formats.md, sections 2 to 4, is checked as by the aggregator's decoding. Repeats are not found: a
report that is in the file twice counts twice. The benchmarks use this to measure decoding without storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from aggregator.reports.decoding.columns import Matrix, count_adjacent, matrices, other_prefix
from aggregator.reports.decoding.content import Content
from aggregator.reports.decoding.rules import FAULTS, Fields, Rules
from aggregator.reports.tally.tally import TallyBuilder
from protocol.batches.batch import Batch, Damage, Header, read_batches
from protocol.batches.framing import COUNT_HEAD, DIGEST_HEAD, END, TRAILER_BYTES
from protocol.documents.campaign import Campaign
from protocol.mechanisms import INTEGERS, SINGLE


class Counted(NamedTuple):
    """The counts of one file, repeats included.

    Attributes:
        proven: number of good reports in batches with the right digest and number of records.
        unproven: number of other good reports; all good reports if digests were not verified.
    """

    n: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    proven: int
    unproven: int
    rejected: dict[str, int]


def count_batches(data: Content, campaign: Campaign, *, now: int, verify: bool = True) -> Counted:
    """Count all good reports in a file of concatenated batches.

    Args:
        now: the aggregator's time in seconds since 1970; reports of later periods are rejected.
        verify: whether to compute the digests of batches; without digests no report is proven.
    """
    whole = _one_batch(data, campaign, verify=verify)
    found = None if whole is None else _Count(data, campaign, now).run([whole], known_prefix=False)
    if found is None:
        layouts = {campaign.id: campaign.layout}
        batches = read_batches(data, layouts, adjacent=count_adjacent, verify=verify)
        found = _Count(data, campaign, now).run(batches, known_prefix=True)
    assert found is not None
    return found


def _one_batch(data: Content, campaign: Campaign, *, verify: bool) -> Batch | None:
    """Return the file as one complete batch, or None. The first bytes of the reports are not checked."""
    header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
    head = header.to_bytes()
    end = len(data) - TRAILER_BYTES
    count, rest = divmod(end - len(head), header.record_length)
    if rest or not 0 < count < 1 << 32 or data[: len(head)] != head:
        return None
    stated = data[end:]
    if not stated.startswith(END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD):
        return None
    digest = stated[-sha256().digest_size :]
    if verify:
        with memoryview(data) as view, view[:end] as body:
            if sha256(body).digest() != digest:
                return None
    return Batch(header, ((len(head), count),), proven=verify, truncated=False, digest=digest)


class _Count:
    """Running counts of one file."""

    def __init__(self, data: Content, campaign: Campaign, now: int) -> None:
        self._data = data
        self._layout = campaign.layout
        self._header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
        self._rules = Rules(campaign)
        self._sums = TallyBuilder(campaign)
        self._now = now
        self._has_singles = any(each.mechanism.layout == SINGLE for each in campaign.questions)
        self._rejected: Counter[str] = Counter()

    def run(self, found: Iterable[Batch | Damage], *, known_prefix: bool) -> Counted | None:
        """Count all batches. Return None if ``known_prefix`` is False and a report has wrong first bytes."""
        reports = [0, 0]
        for item in found:
            if isinstance(item, Damage):
                self._rejected[item.reason] += 1
            elif item.header != self._header:
                other = item.header.campaign != self._header.campaign
                reason = "unrecognized_campaign" if other else "invalid_message"
                self._rejected[reason] += sum(count for _, count in item.spans)
            else:
                for rows, _ in matrices(self._data, item.spans, self._layout):
                    good = self._add(rows, known_prefix=known_prefix)
                    if good is None:
                        return None
                    reports[item.proven] += good
        rejected = {reason: count for reason, count in sorted(self._rejected.items()) if count}
        tally = self._sums.tally()
        return Counted(tally.n, tally.counts, reports[True], reports[False], rejected)

    def _add(self, rows: Matrix, *, known_prefix: bool) -> int | None:
        """Count the good reports among ``rows``, (N, L) uint8. Return their number, or None as :meth:`run` does."""
        fields = Fields.of(rows)
        answers = None if self._layout.kind == SINGLE else rows.answers()
        values = fields.values() if self._has_singles else None
        sound = self._rules.is_sound(fields, self._now)
        if sound and self._layout.kind == INTEGERS:  # sums of integers do not show integers out of range
            sound = self._rules.in_domain(fields)
        if sound and self._sums.count(fields.question, answers, values):
            return rows.rows
        if not known_prefix and other_prefix(rows).any():
            return None
        fault = self._rules.faults(fields, self._now)
        good = fault == 0
        for number, count in enumerate(np.bincount(fault, minlength=1 + len(FAULTS))[1:].tolist()):
            self._rejected[FAULTS[number]] += count
        counted = self._sums.count(
            fields.question[good],
            None if answers is None else answers[good],
            None if values is None else values[good],
        )
        assert counted
        return int(good.sum())
