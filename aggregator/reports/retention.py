"""Forget periods: remove their reports, and keep their counts (decision 25).

Columns of the counts: ``period``, ``proven`` (complete batch), ``question``, ``cell`` (index of a possible answer, a
bit or a component; −1 for the number of answers) and ``count``. Every tally has the same bytes before and after.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.input_index import read_side_file, write_side_file
from aggregator.reports.storage.manifest import FORGOTTEN, Forgotten, Manifest
from aggregator.reports.storage.parts import PartWriter, Stored
from aggregator.reports.tally.counting import Counted, Deduplicated, load, partitions, settle_partition
from aggregator.reports.tally.profile import ANSWERS, SCHEMA, PeriodSums, profile_of_counts
from aggregator.reports.tally.scope import Scope
from aggregator.reports.tally.tally import row_bytes, tally_of_counts
from aggregator.reports.tally.turnout import turnout_of
from protocol.documents.campaign import Campaign


class Removal(NamedTuple):
    """Numbers of records, copies included, that :func:`forget` ``removed`` (of periods below ``before``) and kept."""

    before: int
    removed: int
    kept: int


def forget(folder: Path, campaign: Campaign, manifest: Manifest, before: int, memory_bytes: int) -> Manifest:
    """Write new files: the counts of the periods before ``before``, and the records of the other periods.

    Return the manifest for the caller to write, which names them in place of all parts and earlier counts.
    ``memory_bytes`` is for one partition's records. Raises StorageError ``store_damaged``.
    """
    generation = manifest.generation + 1
    counts, scope = PeriodSums(campaign), Scope(manifest.first_period, before - 1)
    removed = np.zeros(3, np.int64)
    with PartWriter(folder, campaign.layout, manifest.buckets, f"{generation:08d}-kept") as writer:
        for which in partitions(manifest, campaign.layout.answer_bytes, memory_bytes, 1):
            everything = load(folder, campaign, manifest, which)
            deduplicated = settle_partition(everything, manifest, which)
            for records in deduplicated.kept():
                chosen = scope.chosen(records)
                counts.add(records if chosen is None else records.take(chosen))
            rest = _rest(everything, deduplicated, before)
            after = settle_partition(rest, manifest, which)
            removed += np.subtract(deduplicated.uncounted, after.uncounted)
            writer.add(rest)
        parts = writer.finish()
    old, table = manifest.forgotten, counts.table()
    if old is not None:
        table = pa.concat_tables([read_side_file(folder / FORGOTTEN, old.counts, SCHEMA), table])
        removed += (old.replayed, old.conflicting, old.superseded)
    file = write_side_file(folder / FORGOTTEN, f"{generation:08d}.parquet", table)
    replayed, conflicting, superseded = removed.tolist()
    forgotten = Forgotten(before, file, replayed, conflicting, superseded)
    return manifest._replace(generation=generation, parts=tuple(parts), forgotten=forgotten)


def _rest(everything: Stored, deduplicated: Deduplicated, before: int) -> Stored:
    """Return the records of kept periods, and redacted earlier ones with their ids, which still decide what counts."""
    answer_bytes = everything.records.answer.shape[1]
    kept = everything.take(everything.records.period >= before)
    doubtful = deduplicated.stored.take(deduplicated.repeated)
    earlier = doubtful.records.period < before
    witnesses = doubtful.take(earlier & np.isin(doubtful.records.id, doubtful.records.id[~earlier]))
    if not witnesses.records.size:
        return kept
    return Stored.join([kept, Stored(_redacted(witnesses.records), witnesses.claim)], answer_bytes)


def _redacted(records: Columns) -> Columns:
    """Return records without question and answer; numbers as questions keep conflicting records of an id apart."""
    _, place = np.unique(row_bytes(records), return_inverse=True)
    _, of_id = np.unique(records.id, return_inverse=True)
    first = np.full(len(place), len(place))
    np.minimum.at(first, of_id, place)
    number = (place - first[of_id]).astype(np.uint16)
    return Columns(records.id, records.period, number, np.zeros_like(records.answer), records.proven)


def forgotten_counts(folder: Path, campaign: Campaign, manifest: Manifest, scope: Scope) -> Counted:
    """Return the counts of the forgotten periods in scope; of records that did not count, those of all periods."""
    if manifest.forgotten is None:
        return Counted.zero(campaign)
    table = read_side_file(folder / FORGOTTEN, manifest.forgotten.counts, SCHEMA)
    period, proven, question, cell, number = (table[name].to_numpy() for name in SCHEMA.names)
    chosen = (period >= scope.first) & (period <= scope.last) & (proven | (not scope.proven_only))
    sizes = [1 + one.mechanism.answers for one in campaign.questions]  # the number of all answers, and every cell
    starts = np.cumsum(sizes) - sizes
    sums = np.zeros(sum(sizes), np.int64)
    place = starts[question[chosen]] + cell[chosen] - ANSWERS
    np.add.at(sums, place, number[chosen])
    profile = profile_of_counts(campaign, period[chosen], place, number[chosen])
    answers = chosen & (cell == ANSWERS)
    stratum = np.array([one.stratum for one in campaign.questions])[question[answers]]
    turnout = turnout_of(campaign.answers, period[answers], stratum, number[answers])
    unproven = int(number[answers & ~proven].sum())
    rest = manifest.forgotten
    tally = tally_of_counts(campaign, sums)
    return Counted(tally, turnout, unproven, rest.superseded, rest.replayed, rest.conflicting, profile)
