"""``hearsay ingest`` of nodes' summaries or masked messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.cli.inbox import report_files
from aggregator.cli.output import note, print_facts, print_json, progress
from aggregator.cli.unread import print_unread, say_unread

if TYPE_CHECKING:
    from aggregator.nodes.summaries.writing import Taken


def ingest_summaries(
    campaign_bytes: bytes,
    names: tuple[str, ...],
    store: Path,
    list_bytes: bytes | None,
    book_bytes: bytes | None,
    now: int,
    *,
    recursive: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Take in files of summaries or masked messages, and print the numbers.

    Args:
        campaign_bytes: the checked campaign file, of a campaign for nodes.
        names: files, folders, patterns, URLs, or ``-``.
        store: folder of the store, which is made if there is none.
        list_bytes: a list of nodes whose signatures were checked; None for the list that the store has.
        now: the present, in seconds since 1970.
        book_bytes: a version of the dealer's key book for a masked campaign; None for those that the store has.
        recursive: whether folders in folders are read.
        strict: whether an unread file is an error.
        as_json: print one JSON object.

    Raises:
        InputError: ``unreadable``: no file can be read, or one with ``strict``; ``nodes_unknown``,
            ``keys_unknown``: there is no list, or no key book.
        DocumentError: the list is refused.
        StorageError: the store can not be made or written.
    """
    from aggregator.nodes.masked.stores import kind_of, new_or_open
    from aggregator.nodes.summaries.intake import suffixes
    from aggregator.reports.storage.manifest import read_campaign

    kind = kind_of(read_campaign(campaign_bytes))
    given = report_files(names, recursive=recursive, suffixes=suffixes(kind.suffix))
    opened = new_or_open(store, campaign_bytes, list_bytes, given, book_bytes)
    with progress(f"reading {kind.what}", len(given)) as callback:
        taken = opened.ingest(given, now=now, progress=callback)
    _print_taken(taken, kind.what, as_json=as_json)
    if not given:
        note(f"there is no file of {kind.what}; nothing was added")
    if taken.rejected.get("node_not_listed"):
        note("give files with nodes that were not listed again when a newer list names them (--nodes)")
    if taken.rejected.get("stale_key"):
        note("give files with stale keys again when you have the key book that names these keys (--keys)")
    say_unread(len(taken.unreadable), taken.files, strict=strict)


def _print_taken(taken: Taken, what: str, *, as_json: bool) -> None:
    """Print the numbers of an ingest, and the files that were not read."""
    if as_json:
        print_json({**taken._asdict(), "unreadable": [found._asdict() for found in taken.unreadable]})
        return
    print_facts(
        {
            "files": taken.files,
            "files not read": len(taken.unreadable),
            f"{what} added": taken.accepted,
            f"{what} repeated": taken.replayed,
        }
        | ({f"{what} in conflict": taken.conflicting} if taken.conflicting else {})
        | {f"set aside: {reason}": count for reason, count in taken.rejected.items()}
    )
    print_unread(taken.unreadable)
