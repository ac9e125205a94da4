"""Join small parts. Each ingest leaves small parts, and many of them would slow down every tally."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aggregator.reports.storage.manifest import Manifest, Part
from aggregator.reports.storage.part_writer import PartWriter
from aggregator.reports.storage.parts import read_part
from protocol.batches.report import Layout

MOST_SMALL = 16
"""Number of small parts that a bucket may have. If there are more, they are joined."""
SMALL_RECORDS = 1 << 18


def compact(
    folder: Path,
    layout: Layout,
    manifest: Manifest,
    parts: Sequence[Part],
    *,
    most_small: int | None = None,
    name: str = "joined",
) -> list[Part]:
    """Join the small parts of every bucket that has too many. Returns the parts for the next manifest.

    A part is small if it has fewer records than :data:`SMALL_RECORDS`. The small parts stay on the disk until the next
    manifest is written.

    Args:
        folder: of the store.
        layout: of the campaign.
        manifest: the manifest before the ingest.
        parts: the parts of this manifest, and the parts written since.
        most_small: number of small parts that a bucket may have; None for :data:`MOST_SMALL`.
        name: text in the file names of the joined parts. Two calls for one generation need different texts.

    Raises:
        StorageError: ``store_damaged``: one of the small parts is not as it was written.
        OSError: a joined part can not be written.
    """
    kept: list[Part] = []
    joined: list[Part] = []
    for bucket in range(manifest.buckets):
        of_bucket = [part for part in parts if part.bucket == bucket]
        small = [part for part in of_bucket if part.records < SMALL_RECORDS]
        if len(small) > (MOST_SMALL if most_small is None else most_small):
            joined += small
            kept += [part for part in of_bucket if part.records >= SMALL_RECORDS]
        else:
            kept += of_bucket
    if not joined:
        return sorted(kept)
    with PartWriter(folder, layout, manifest.buckets, f"{manifest.generation + 1:08d}-{name}") as writer:
        for part in joined:
            for stored in read_part(folder / part.path, part, layout, manifest.buckets):
                writer.add(stored)
        return sorted(kept + writer.finish())
