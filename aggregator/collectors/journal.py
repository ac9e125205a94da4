"""A collector's journal: for each campaign and period, the one request or answer that left, and the total.

Which ids a period has is in the file that left, whose digest the journal names. Layout: docs/formats.md, section 12.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from aggregator.common.files import COLLECTOR_MARK
from aggregator.common.journals import KEEPER_COLUMNS, MARK_COLUMNS, table_of
from aggregator.common.journals import Journal as Original
from protocol import canonical
from protocol.database import Reasons, Schema
from protocol.errors import StorageError


class PeriodRow(NamedTuple):
    """One period of a campaign.

    Attributes:
        campaign: id of the campaign, 32 bytes.
        period: number of the period.
        role: the collector's number in the campaign.
        reports: number of reports in the file that left.
        refused: reason → number of reports that were not sent, or that the helper refused; a canonical map.
        content: of a helper, SHA-256 of the leader's request without its sealing; of a leader, of the shares it kept.
        file: SHA-256 of the file that left.
        total: of a leader, the signed total; empty until the helper's answer has come, and for a helper.
        made_at: seconds since 1970.
    """

    campaign: bytes
    period: int
    role: int
    reports: int = 0
    refused: bytes = b""
    content: bytes = b""
    file: bytes = b""
    total: bytes = b""
    made_at: int = 0

    @property
    def refusals(self) -> Counter[str]:
        """What ``refused`` says."""
        found = canonical.unpack(self.refused)
        assert isinstance(found, dict)
        return Counter(found)


def packed_refusals(refused: Counter[str]) -> bytes:
    """Return the map ``refused`` of a row."""
    return canonical.pack({reason: count for reason, count in sorted(refused.items()) if count})


_TABLES = {"collector": KEEPER_COLUMNS, "mark": MARK_COLUMNS, "periods": PeriodRow._fields}
_KEYS = {"collector": "number", "mark": "number", "periods": "campaign, period"}
SCHEMA = Schema(
    what="the collector's journal",
    reasons=Reasons("collector_busy", "collector_damaged", "collector_newer", "collector_damaged"),
    application_id=COLLECTOR_MARK,
    version=1,
    tables={name: table_of(name, columns, _KEYS[name]) for name, columns in _TABLES.items()},
    damage="the collector's journal is damaged; which periods were released is not known, so nothing is released",
    unchanged="nothing was released",
)
OTHER_FILES = ("collector.key", "collector.pub")


class Journal(Original):
    """An open journal. All methods may raise ``collector_damaged`` and ``collector_busy``."""

    SCHEMA, KEEPER, KEYS = SCHEMA, "collector", _KEYS
    TIMES = MappingProxyType({"periods": PeriodRow._fields.index("made_at")})

    def __init__(self, path: Path, machine: bytes | None) -> None:
        """Open the journal at ``path``; ``machine`` is as of :class:`aggregator.common.journals.Journal`.

        Raises:
            StorageError: ``not_a_collector``: there is no file; ``collector_damaged``, ``collector_newer``,
                ``collector_busy``; ``collector_copied``: this is a copy, or a restored backup.
        """
        if not path.is_file():
            if any((path.parent / name).exists() for name in OTHER_FILES):
                raise StorageError(
                    "collector_damaged",
                    f"the journal '{path}' is missing, so which periods were released is not known; put its newest "
                    "copy back, then hearsay collector adopt",
                )
            raise StorageError(
                "not_a_collector", f"'{path.parent}' is no collector's folder; hearsay collector new makes one"
            )
        super().__init__(path, machine)

    def _copied(self) -> StorageError:
        return StorageError(
            "collector_copied",
            "the collector's folder is a copy, was restored from a backup or was moved to another disk, so it may not "
            "know what was released since; if no other copy is in use any more: hearsay collector adopt",
        )

    def period(self, campaign: bytes, period: int) -> PeriodRow | None:
        """Return the row of a campaign's period, or None if nothing left for it."""
        found = self._rows("periods", "campaign = ? AND period = ?", (campaign, period))
        return PeriodRow(*found[0]) if found else None

    def periods(self) -> list[PeriodRow]:
        """Return the rows of all periods, by campaign and period."""
        return [PeriodRow(*row) for row in self._rows("periods", "1", ())]
