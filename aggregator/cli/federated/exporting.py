"""``hearsay export`` and ``hearsay quarantine ls`` of a store of nodes' summaries."""

from __future__ import annotations

from pathlib import Path

from aggregator.cli.counting import chosen_periods
from aggregator.cli.output import note, print_facts, print_json, print_table
from aggregator.common.periods import Span
from protocol.errors import InputError

_DIGITS = 8


def export_summaries(
    store: Path, kind: str, periods: Span | None, output: Path, *, everything: bool, force: bool, as_json: bool
) -> None:
    """Write the summaries or masked messages of a store to one file, and print their number.

    Args:
        store: folder of the store.
        kind: ``hsn`` or ``hse``, as the store holds summaries or masked messages.
        periods: the periods to write; None for all.
        output: the file.
        everything: write all kept summaries, also those that do not count.
        force: replace an existing file.
        as_json: print one JSON object.

    Raises:
        InputError, StorageError: :meth:`aggregator.nodes.summaries.envelope_store.EnvelopeStore.export`.
    """
    from aggregator.nodes.masked.stores import open_node_store
    from aggregator.reports.tally.scope import scope_of

    opened = open_node_store(store)
    if opened.suffix != f".{kind}":
        raise InputError("argument_invalid", f"this store holds {opened.what}: export them as {opened.suffix[1:]}")
    scope = scope_of(chosen_periods(periods, opened.campaign))
    number = opened.export(output, scope=scope, everything=everything, force=force)
    if as_json:
        print_json({opened.what: number, "output": str(output)})
        return
    print_facts({opened.what: number, "written": str(output)})


def list_refused(store: Path, reason: str | None, *, pieces: bool, as_json: bool) -> None:
    """Print what was refused of files of summaries, by reason and file. The bytes stay in the files.

    Args:
        store: folder of the store.
        reason: only this reason; None for all.
        pieces: one line per piece.
        as_json: print one JSON object.

    Raises:
        InputError, StorageError: the store can not be read.
    """
    from aggregator.nodes.masked.stores import open_node_store

    opened = open_node_store(store)
    counted = {each: number for each, number in opened.rejected().items() if reason in (None, each)}
    found = [(name, file, piece) for name, file, piece in opened.quarantined() if reason in (None, piece.reason)]
    if as_json:
        listed = [{"file": name, "identity": file.hex(), **piece._asdict()} for name, file, piece in found]
        print_json({"counted": counted, "kept": listed})
        return
    if pieces:
        rows = [(piece.reason, name, piece.offset, piece.length) for name, _, piece in found]
        print_table(["reason", "file", "offset", "bytes"], rows, ["offset", "bytes"])
    else:
        groups: dict[tuple[str, str, str], list[int]] = {}
        for name, file, piece in found:
            groups.setdefault((piece.reason, name, file.hex()[:_DIGITS]), []).append(piece.length)
        totals = [(*group, len(lengths), sum(lengths)) for group, lengths in sorted(groups.items())]
        print_table(["reason", "file", "identity", "pieces", "bytes"], totals, ["pieces", "bytes"])
    for each, number in counted.items():
        kept = sum(piece.reason == each for _, _, piece in found)
        if number > kept:
            note(f"{each}: {number} were counted, the places of {kept} of them are kept")
