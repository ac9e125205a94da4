"""Results of reading: of one file, and of one block of a file's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.reports.decoding.spans import Rejected

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aggregator.reports.decoding.columns import Columns
    from aggregator.reports.decoding.decode import Block
    from aggregator.reports.intake.sources import Unreadable
    from aggregator.reports.storage.input_index import Ingested


class Read(NamedTuple):
    """What was found in one file.

    Attributes:
        number: index of the file among the files given, from 0.
        entry: for the index of input files; None if the store has the whole content already.
        known: the earlier entry of the same content, which ``entry`` replaces.
        proven, unproven: good records added to the store, from complete and from damaged batches.
        claims: first eight bytes, as numbers, of the digests that damaged batches claim to have.
        pieces: rejected records and byte ranges, for the quarantine.
        unreadable: the reason why nothing of the file is stored: it does not fit into memory, or became shorter. None
            for other files.
        received: number of the file's bytes as they came, compressed or not. They bound what the quarantine keeps.
    """

    number: int
    entry: Ingested | None
    known: Ingested | None = None
    proven: int = 0
    unproven: int = 0
    claims: frozenset[int] = frozenset()
    pieces: tuple[Rejected, ...] = ()
    unreadable: Unreadable | None = None
    received: int = 0


class Kept(NamedTuple):
    """Good records of a block, divided by what becomes of them.

    Attributes:
        records: M records to add to the store.
        rows: (M,) intp, their rows in the block; None if they are all its rows.
        forgotten: (F,) intp, rows whose period was forgotten.
        foreign: (E,) intp, rows that no enrolled device made.
    """

    records: Columns
    rows: NDArray[np.intp] | None
    forgotten: NDArray[np.intp]
    foreign: NDArray[np.intp]


class BlockResult(NamedTuple):
    """The result of one block. Pairs are (unproven, proven) numbers of records.

    Attributes:
        block: the block without its good records.
        added: records written into the parts.
        good: records of kept periods and enrolled devices, whether new or not.
        forgotten: records whose period was forgotten.
        foreign: (E,) int64, offsets in the file of the records that no enrolled device made.
        pieces: some of the foreign records, for the quarantine.
    """

    block: Block
    added: tuple[int, int]
    good: tuple[int, int]
    forgotten: int
    foreign: NDArray[np.int64]
    pieces: tuple[Rejected, ...]
