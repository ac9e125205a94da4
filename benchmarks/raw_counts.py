"""From the bytes of a file straight to counts by question and answer, as fast as memory gives them.

Every rule of docs/formats.md, sections 2 to 4, is checked as in ``decode``; nothing is stored, so repeats
are not found: a report that stands in the file twice counts twice. For files that are known to hold each
report once, for estimates ahead of an ingest, and to see what decoding alone costs.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.decoding.matrix import count_adjacent, matrices, other_prefix
from aggregator.decoding.rules import FAULTS, Fields, Rules
from aggregator.tally.sums import Sums
from protocol.batches.batch import Batch, Damage, Header, read_batches
from protocol.batches.framing import COUNT_HEAD, DIGEST_HEAD, END, TRAILER_BYTES
from protocol.mechanisms import INTEGERS, SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.decoding.mapped import Source
    from aggregator.decoding.matrix import Matrix
    from protocol.documents.campaign import Campaign


class Counted(NamedTuple):
    """The counts of one file, repeats included.

    Attributes:
        n: good reports per question.
        counts: per question its sums, as in a tally.
        proven: good reports in batches whose digest and number are right.
        unproven: other good reports; all of them where digests were not verified.
        rejected: records and stretches set aside, by reason.
    """

    n: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    proven: int
    unproven: int
    rejected: dict[str, int]


def count_batches(data: Source, campaign: Campaign, *, now: int, verify: bool = True) -> Counted:
    """Counts of all good reports in a file of concatenated batches. Run by the aggregator.

    Args:
        data: the whole file, or a map of it.
        campaign: whose reports are wanted.
        now: the aggregator's present in seconds since 1970; later periods are too early.
        verify: take the digests of batches; without, none is proven.
    """
    whole = _one_batch(data, campaign, verify=verify)
    found = None if whole is None else _Count(data, campaign, now).run([whole], known_prefix=False)
    if found is None:
        layouts = {campaign.id: campaign.layout}
        batches = read_batches(data, layouts, adjacent=count_adjacent, verify=verify)
        found = _Count(data, campaign, now).run(batches, known_prefix=True)
    assert found is not None
    return found


def _one_batch(data: Source, campaign: Campaign, *, verify: bool) -> Batch | None:
    """The file as one whole batch, if it is one, but for the first bytes of its records."""
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
    """The counting of one file."""

    def __init__(self, data: Source, campaign: Campaign, now: int) -> None:
        self._data = data
        self._layout = campaign.layout
        self._header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
        self._rules = Rules(campaign)
        self._sums = Sums(campaign)
        self._now = now
        self._has_singles = any(each.mechanism.layout == SINGLE for each in campaign.questions)
        self._rejected: Counter[str] = Counter()

    def run(self, found: Iterable[Batch | Damage], *, known_prefix: bool) -> Counted | None:
        """Counts of everything found; None if a record lacks its first bytes where that is not known yet."""
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
        return Counted(self._sums.n, self._sums.counts, reports[True], reports[False], rejected)

    def _add(self, rows: Matrix, *, known_prefix: bool) -> int | None:
        """Count the good ones of some records; returns how many they are."""
        fields = Fields.of(rows)
        answers = None if self._layout.kind == SINGLE else rows.answers()
        values = fields.values() if self._has_singles else None
        sound = self._rules.is_sound(fields, self._now)
        if sound and self._layout.kind == INTEGERS:  # what is counted of integers does not show what they were
            sound = self._rules.in_domain(fields)
        if sound and self._sums.add(fields.question, answers, values):
            return rows.rows
        if not known_prefix and other_prefix(rows).any():
            return None
        fault = self._rules.faults(fields, self._now)
        good = fault == 0
        for number, count in enumerate(np.bincount(fault, minlength=1 + len(FAULTS))[1:].tolist()):
            self._rejected[FAULTS[number]] += count
        counted = self._sums.add(
            fields.question[good],
            None if answers is None else answers[good],
            None if values is None else values[good],
        )
        assert counted
        return int(good.sum())
