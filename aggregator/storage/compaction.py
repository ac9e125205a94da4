"""Many small parts into few: what many ingests leave behind would otherwise make each tally slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.storage.part_writer import PartWriter
from aggregator.storage.parts import read_part

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aggregator.storage.manifest import Manifest, Part
    from protocol.batches.report import Layout

MOST_SMALL = 16
"""A bucket may have so many small parts."""
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
    """The parts as the next manifest shall name them: the small ones of a bucket that has too many, in one.

    What they replace stays where it is until that manifest stands.

    Args:
        folder: the store's.
        layout: of the campaign.
        manifest: of the store before.
        parts: in it, or written since.
        most_small: so many small ones of a bucket may stay; None for :data:`MOST_SMALL`.
        name: of the joined parts, once for each name and generation.

    Raises:
        StorageError: ``store_damaged``: one of the small parts is not as it was written.
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
