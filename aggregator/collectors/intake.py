"""Reports of a shared campaign in batch files: which count for a period, and their shares for one collector.

A device has one id per period. Different reports with one id are all set aside, so the order of files does not matter.
Batches hold both shares, so either collector can hand them on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aggregator.common.files import read_file
from protocol.batches.batch import Damage, read_batches
from protocol.batches.report import decode_report
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError
from protocol.shared.report import Field, open_box, read_field, variant_of
from protocol.shared.shape import share_lengths

MAX_FILE_BYTES = 1 << 34


class Found(NamedTuple):
    """The reports of files.

    Attributes:
        reports: period → report id → the report's answer field.
        refused: reason → number of records or damaged places.
    """

    reports: dict[int, dict[bytes, bytes]]
    refused: Counter[str]


def read_reports(campaign: Campaign, files: Sequence[Path]) -> Found:
    """Read all reports of a campaign from batch files. A bad report or file is counted, and never an error.

    Raises:
        InputError: a file can not be read.
    """
    layout, refused = campaign.layout, Counter[str]()
    reports: dict[int, dict[bytes, bytes]] = {}
    for path in files:
        data = read_file(path, MAX_FILE_BYTES)
        for part in read_batches(data, {campaign.id: layout}):
            if isinstance(part, Damage):
                refused[part.reason] += 1
            elif (part.header.campaign, part.header.record_length) != (campaign.id, layout.record_length):
                refused["unrecognized_campaign"] += sum(count for _, count in part.spans)
            else:
                for start, count in part.spans:
                    for at in range(start, start + count * layout.record_length, layout.record_length):
                        _add(reports, refused, campaign, data[at : at + layout.record_length])
    for period, given in reports.items():
        refused["report_conflict"] += sum(not field for field in given.values())
        reports[period] = {identifier: field for identifier, field in given.items() if field}
    return Found(reports, +refused)


def _add(reports: dict[int, dict[bytes, bytes]], refused: Counter[str], campaign: Campaign, record: bytes) -> None:
    identifier, period, question, field = decode_report(campaign.layout, record)
    length, header = campaign.time_precision, campaign.header
    if question:
        refused["value_out_of_domain"] += 1
    elif period * length >= header.expires:
        refused["report_too_late"] += 1
    elif (period + 1) * length <= header.not_before:
        refused["report_too_early"] += 1
    else:
        known = reports.setdefault(period, {}).setdefault(identifier, field)
        if known != field:
            refused["report_conflict"] += 1
            reports[period][identifier] = b""


class Opened(NamedTuple):
    """A report whose share this collector could open: id, the parts of the answer field, and its input share."""

    identifier: bytes
    field: Field
    share: bytes


def open_shares(
    campaign: Campaign, private: bytes, role: int, period: int, fields: Sequence[tuple[bytes, Field]]
) -> Iterator[tuple[bytes, Field, Opened | str]]:
    """Yield each report with its opened share, or with the reason why it can not be used.

    Args:
        campaign: a shared campaign.
        private: the collector's X25519 secret key.
        role: the collector's number.
        period: the period.
        fields: id and answer field of each report. Of a helper's only its own box is read.
    """
    wanted = share_lengths(variant_of(campaign))[role]
    for identifier, field in fields:
        try:
            share = open_box(
                field.boxes[role], field.sender, private, (campaign.id, period, identifier, role, field.digest)
            )
        except DocumentError as error:
            yield identifier, field, error.reason
            continue
        yield identifier, field, Opened(identifier, field, share) if len(share) == wanted else "malformed"


def fields_of(campaign: Campaign, reports: dict[bytes, bytes]) -> list[tuple[bytes, Field]]:
    """Return id and parts of the answer field of each report, by id."""
    prio3 = variant_of(campaign)
    return [(identifier, read_field(prio3, reports[identifier])) for identifier in sorted(reports)]
