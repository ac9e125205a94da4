"""Reports of a shared campaign in batch files: which count for a period, and their shares for one collector.

A device has one id per period. Different reports with one id are all set aside, so the order of files does not matter.
Batches hold both shares, so either collector can hand them on.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from aggregator.collectors.verification import Shares, Terms
from aggregator.common.files import storage_errors
from aggregator.common.periods import period_fault
from aggregator.reports.decoding.content import Content, FileShortenedError, piecewise_digest
from aggregator.reports.intake.enrolment import REASON, Enrolled
from aggregator.reports.intake.sources import SHORTENED_REASON, Unreadable, read_source
from protocol.batches.batch import Damage, read_batches
from protocol.batches.report import decode_report
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import SigningKey
from protocol.errors import DocumentError, InputError
from protocol.shared.prio3 import Prio3
from protocol.shared.report import Field, context_of, open_box, read_field, variant_of

IN_MEMORY = 1 << 25
"""Larger files are read in pieces."""
_CONFLICT = -1


class Task(NamedTuple):
    """What a collector does for one campaign.

    Attributes:
        campaign: the verified campaign.
        role: the collector's number.
        verify_key: the verify key of both collectors.
        own: the collector's key pair.
        private: the X25519 secret key that follows from it.
        secret: what both collectors, and nobody else, can compute.
    """

    campaign: Campaign
    role: int
    verify_key: bytes
    own: SigningKey
    private: bytes
    secret: bytes

    @property
    def prio3(self) -> Prio3:
        """The variant of Prio3 that the campaign uses."""
        return variant_of(self.campaign)

    @property
    def terms(self) -> Terms:
        """What all checks of the task have in common."""
        return Terms(self.prio3, self.verify_key, context_of(self.campaign.id), self.role)


class Reports:
    """The reports of one period, copied from batch files into a file without a name; in memory are ids and places.

    Attributes:
        refused: reason → number of records or damaged places; of ``report_conflict`` the number of ids.
    """

    def __init__(self, campaign: Campaign, period: int, folder: Path) -> None:
        """Begin without any report. ``folder`` is where the disk has room for all reports of the period."""
        self._campaign, self._period = campaign, period
        self._length = campaign.layout.answer_bytes
        self._places: dict[bytes, int] = {}
        self._size = 0
        with storage_errors(f"reports can not be copied to '{folder}'"):
            self._copy = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by __exit__
        self.refused: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._copy.close()

    def read(self, files: Sequence[str | Path], progress: Callable[[int, int], None] | None = None) -> None:
        """Read all reports of the period. A bad report or damaged file is counted, and never an error.

        Args:
            files: batch files, perhaps compressed.
            progress: called after each file with (files read, files given).

        Raises:
            InputError: a file can not be read.
            StorageError: the disk is full.
        """
        for number, file in enumerate(files, 1):
            found = read_source(file, IN_MEMORY)
            if not isinstance(found, Unreadable):
                self._read(file, found.data)
            elif found.reason != "empty_file":
                raise InputError(found.reason, f"'{file}' can not be read; nothing was sent")
            if progress is not None:
                progress(number, len(files))
        self.refused["report_conflict"] = sum(place == _CONFLICT for place in self._places.values())

    def keep(self, enrolled: Enrolled | None) -> None:
        """Refuse all reports but those of a closed fleet's devices; none for None, an open fleet."""
        if enrolled is None or not self._places:
            return
        ids = list(self._places)
        known = enrolled.has(self._period, np.frombuffer(b"".join(ids), ">u8").astype(np.uint64))
        self._places = {each: self._places[each] for each, is_known in zip(ids, known, strict=True) if is_known}
        self.refused[REASON] += len(ids) - len(self._places)

    def ids(self) -> list[bytes]:
        """Return the ids of the reports that can count, in rising order."""
        return sorted(identifier for identifier, place in self._places.items() if place != _CONFLICT)

    def fields(self, ids: Iterable[bytes]) -> list[tuple[bytes, Field]]:
        """Return the parts of the answer fields of some ids. Threads may share this."""
        prio3 = variant_of(self._campaign)
        return [(identifier, read_field(prio3, self._at(self._places[identifier]))) for identifier in ids]

    def _at(self, place: int) -> bytes:
        with storage_errors("the copy of the reports can not be read"):
            return os.pread(self._copy.fileno(), self._length, place)

    def _read(self, file: str | Path, data: Content) -> None:
        campaign, layout = self._campaign, self._campaign.layout
        length = layout.record_length
        try:
            for part in read_batches(data, {campaign.id: layout}, digest=piecewise_digest):
                if isinstance(part, Damage):
                    self.refused[part.reason] += 1
                elif (part.header.campaign, part.header.record_length) != (campaign.id, length):
                    self.refused["unrecognized_campaign"] += sum(count for _, count in part.spans)
                else:
                    for start, count in part.spans:
                        for at in range(start, start + count * length, length):
                            self._add(data[at : at + length])
            return
        except FileShortenedError:
            pass
        raise InputError(SHORTENED_REASON, f"'{file}' became shorter while it was read; nothing was sent")

    def _add(self, record: bytes) -> None:
        identifier, period, question, field = decode_report(self._campaign.layout, record)
        if period != self._period:
            return
        if question:
            self.refused["value_out_of_domain"] += 1
        elif problem := period_fault(self._campaign, period):
            self.refused[problem] += 1
        elif identifier not in self._places:
            with storage_errors("the reports can not be copied"):
                left = memoryview(field)
                while left:  # Without a buffer, a file may take less than it is given.
                    left = left[self._copy.write(left) :]
            self._places[identifier] = self._size
            self._size += len(field)
        elif (place := self._places[identifier]) != _CONFLICT and self._at(place) != field:
            self._places[identifier] = _CONFLICT


class Opened(NamedTuple):
    """A report whose share this collector could open: id, the parts of the answer field, and its input share."""

    identifier: bytes
    field: Field
    share: bytes


def open_shares(task: Task, period: int, fields: Iterable[tuple[bytes, Field]]) -> Iterator[Opened | str]:
    """Yield for each report its opened share, or the reason why it can not be used.

    Args:
        task: whose shares of which campaign.
        period: the period.
        fields: id and answer field of each report. Only the collector's own box is read.
    """
    for identifier, field in fields:
        bound = (task.campaign.id, period, identifier, task.role, field.digest)
        try:
            share = open_box(field.boxes[task.role], field.sender, task.private, bound)
        except DocumentError as error:
            yield error.reason
        else:
            yield Opened(identifier, field, share)


def arrays_of(opened: Sequence[Opened]) -> Shares:
    """Return the opened shares of at least one report as arrays."""
    return Shares.of([(one.field.nonce, one.field.public, one.share) for one in opened])
