"""``hearsay quarantine``: pieces, rejected records or damaged bytes of files, that an ingest kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import NAME_DIGITS, enrolled_ids, print_groups
from aggregator.cli.output import as_json, note, print_facts, print_json, print_table, say, when, working, wrong_usage
from aggregator.common.facts import Fact, all_said, stated
from aggregator.reports.decoding.decode import Rejected
from aggregator.reports.storage.manifest import QUARANTINE, read_manifest
from aggregator.reports.storage.quarantine import QuarantinedFile
from protocol.batches.report import decode_report
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

_ROW_BYTES = 16
_MOST_SHOWN = 20

reason_option = click.option("--reason", help="Only what was set aside for this reason.")


@click.group()
def quarantine() -> None:
    """See what an ingest set aside and why, and judge it again.

    \b
    Example:
      hearsay quarantine ls --store store
      hearsay quarantine show 3fa9c411:62 --store store
      hearsay quarantine retry --store store --reason report_too_early
    """  # noqa: D301


@quarantine.command()
@options.store
@reason_option
@click.option("--pieces", is_flag=True, help="One line per piece, with its name.")
@options.json
def ls(store: Path, reason: str | None, *, pieces: bool) -> None:
    """List what was set aside, by reason and file.

    All pieces are counted. At most 1000 pieces of one file, and 64 MiB in all, are kept to look at.

    \b
    Example:
      hearsay quarantine ls --store store --reason question_unknown --pieces
    """  # noqa: D301
    from aggregator.cli.nodes.stores import list_refused
    from aggregator.nodes.store.opening import is_node_store
    from aggregator.operations.report_store import open_store

    if is_node_store(store):
        list_refused(store, reason, pieces=pieces)
        return
    counted = dict(sorted(read_manifest(store).rejected.items()))
    kept = open_store(store).quarantined()
    found = [
        (file, piece) for file in kept for piece in file.pieces if reason in (None, piece.reason)
    ]  # at most some hundred thousand pieces, since the quarantine is limited to 64 MiB
    if as_json():
        print_json({"counted": counted, "kept": [_piece_json(file, piece) for file, piece in found]})
        return
    if pieces:
        rows = [(_name(file, piece), piece.reason, file.file, piece.offset, piece.length) for file, piece in found]
        print_table(["piece", "reason", "file", "offset", "bytes"], rows, ["offset", "bytes"])
        return
    print_groups([(piece.reason, file.file, file.identity, piece.length) for file, piece in found])
    in_all = Counter(piece.reason for _, piece in found)
    for each, number in counted.items():
        if reason in (None, each) and number > in_all[each]:
            note(f"{each}: {number} were counted, {in_all[each]} of them are kept to look at")


def _name(file: QuarantinedFile, piece: Rejected) -> str:
    """Return a piece's name for the command line: digits of its file's identity, and the offset in the file."""
    return f"{file.identity[:NAME_DIGITS]}:{piece.offset}"


def _piece_json(file: QuarantinedFile, piece: Rejected) -> dict[str, Any]:
    return {
        "piece": _name(file, piece),
        "identity": file.identity,
        "file": file.file,
        "reason": piece.reason,
        "offset": piece.offset,
        "length": piece.length,
        "bytes": piece.data,
        "proven": piece.proven,
    }


@quarantine.command()
@click.argument("name", metavar="NAME")
@options.store
@options.json
def show(name: str, store: Path) -> None:
    """Show what was set aside: its bytes, its fields if it is a report, and the reason.

    NAME is printed by hearsay quarantine ls: a file, its identity, or with --pieces one piece.

    \b
    Example:
      hearsay quarantine show 3fa9c411:62 --store store
      hearsay quarantine show today.hsr --store store
    """  # noqa: D301
    from aggregator.operations.report_store import open_store

    opened = open_store(store)
    campaign = opened.campaign
    found = [(file, piece) for file, pieces in _chosen(opened.quarantined(), name) for piece in pieces]
    if as_json():
        shown = [
            {**_piece_json(file, piece), **_fields(campaign, piece), "why": _in_words(campaign, piece)}
            for file, piece in found
        ]
        print_json(shown[0] if len(shown) == 1 else {"pieces": shown})
        return
    for number, (file, piece) in enumerate(found[:_MOST_SHOWN]):
        if number:
            click.echo()
        _print_piece(campaign, file, piece)
    if len(found) > _MOST_SHOWN:
        note(f"{len(found) - _MOST_SHOWN} more pieces have that name; ls --pieces lists them")


@quarantine.command()
@click.argument("names", nargs=-1, metavar="NAME…")
@options.store
@reason_option
@click.option("--all", "everything", is_flag=True, help="Everything that is kept.")
@options.json
def rm(names: tuple[str, ...], store: Path, reason: str | None, *, everything: bool) -> None:
    """Delete what was set aside, so that it is not judged again. The numbers of what was set aside stay.

    NAME is printed by hearsay quarantine ls: a file, its identity, or with --pieces one piece. Ingesting the file
    again does not set it aside again. Retry reports that were too early before you delete them.

    \b
    Example:
      hearsay quarantine rm today.hsr --store store
      hearsay quarantine rm --all --reason empty_file --store store
    """  # noqa: D301
    from aggregator.operations.report_store import open_store
    from aggregator.reports.storage.quarantine import Quarantine

    if bool(names) == everything:
        raise wrong_usage("give names, or --all")
    removed = 0
    opened = open_store(store)
    with opened.changing():
        kept = opened.quarantined()
        folder = Quarantine(store / QUARANTINE)
        chosen = [(file, file.pieces) for file in kept] if everything else _merged(kept, names)
        for file, pieces in chosen:
            unwanted = {id(piece) for piece in pieces if reason in (None, piece.reason)}
            folder.remove(file, [piece for piece in file.pieces if id(piece) not in unwanted])
            removed += len(unwanted)
    say([Fact("removed", removed, label="pieces removed")])


def _merged(kept: list[QuarantinedFile], names: tuple[str, ...]) -> list[tuple[QuarantinedFile, tuple[Rejected, ...]]]:
    found: dict[str, tuple[QuarantinedFile, tuple[Rejected, ...]]] = {}
    for name in names:
        for file, pieces in _chosen(kept, name):
            before = found.get(file.identity, (file, ()))[1]
            more = tuple(piece for piece in pieces if not any(piece is each for each in before))
            found[file.identity] = (file, before + more)
    return list(found.values())


def _chosen(kept: list[QuarantinedFile], name: str) -> list[tuple[QuarantinedFile, tuple[Rejected, ...]]]:
    """Return the pieces that a name selects: all of a file or of an identity (four digits or more), or one piece."""
    found = [(file, file.pieces) for file in kept if file.file == name]
    if found:
        return found
    identity, colon, offset = name.partition(":")
    files = [file for file in kept if len(identity) >= 4 and file.identity.startswith(identity)]
    chosen = [
        (file, tuple(piece for piece in file.pieces if not colon or str(piece.offset) == offset)) for file in files
    ]
    chosen = [pair for pair in chosen if pair[1]]
    if len(chosen) != 1:
        several = "several files begin so; give more digits" if chosen else "nothing that is kept has that name"
        raise InputError("piece_unknown", f"{several}; 'hearsay quarantine ls --pieces' lists them")
    return chosen


def _print_piece(campaign: Campaign, file: QuarantinedFile, piece: Rejected) -> None:
    facts = {"file": file.file, "offset": piece.offset, "bytes": piece.length, "reason": piece.reason}
    fields = {name.replace("_", " "): value for name, value in _fields(campaign, piece).items()}
    print_facts({**facts, "why": _in_words(campaign, piece), **fields})
    click.echo()
    for line in _hexdump(piece.data, piece.offset):
        click.echo(line)
    if len(piece.data) < piece.length:
        note(f"the first {len(piece.data)} of {piece.length} bytes are kept")


def _fields(campaign: Campaign, piece: Rejected) -> dict[str, Any]:
    """Return the fields of a piece that has a record's length, without its answer; empty for other pieces."""
    from aggregator.estimates.cells import question_name

    if piece.proven is None or len(piece.data) != campaign.layout.record_length:
        return {}
    identifier, period, question, _ = decode_report(campaign.layout, piece.data)
    known = question < len(campaign.questions)
    return {
        "id": identifier.hex(),
        "period": period,
        "period_begins": when(period * campaign.time_precision),
        "question": question,
        "asked": question_name(campaign.questions[question].subject, campaign.schema) if known else "unknown",
        "stratum": campaign.questions[question].stratum if known else None,
        "whole_batch": piece.proven,
    }


def _in_words(campaign: Campaign, piece: Rejected) -> str:
    """Return the reason why a piece was set aside, with the numbers that decided."""
    fields = _fields(campaign, piece)
    header = campaign.header
    if piece.reason == "question_not_assigned" and fields:
        question = fields["question"]
        low, high = campaign.assignment.interval(question, campaign.questions[question].stratum)
        begin = int(fields["id"][:8], 16)
        return f"question {question} is for ids from {low:08x} to below {high:08x}; this one begins with {begin:08x}"
    words = {
        "unrecognized_campaign": "its batch is one of another campaign",
        "invalid_message": "these bytes are no report, header or trailer, or their batch has another layout",
        "truncated": "a report, header or trailer begins here, but file or batch end in it",
        "question_unknown": f"the campaign has {len(campaign.questions)} questions, numbered from 0",
        "value_out_of_domain": "its question has no such answer, or unused bits are set",
        "report_too_late": f"its period begins at or after the campaign's end, {when(header.expires)}",
        "report_too_early": f"when it was read its period had not begun, or ended before {when(header.not_before)}",
        "empty_file": "it holds nothing: it was cut on its way, or never written",
        "id_not_enrolled": "no enrolled device has this id in this period for a question of this stratum",
    }
    return words.get(piece.reason, "see docs/reference/reasons.md")


def _hexdump(data: bytes, offset: int) -> Iterator[str]:
    for start in range(0, len(data), _ROW_BYTES):
        row = data[start : start + _ROW_BYTES]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{offset + start:08x}  {row.hex(' '):<{3 * _ROW_BYTES - 1}}  {text}"


@quarantine.command()
@options.store
@reason_option
@options.enrolment
@options.json
def retry(store: Path, reason: str | None, enrolled: Path | None, lists: tuple[Path, ...]) -> None:
    """Judge again what was set aside, and add the reports that are valid now, each once.

    Reports of a period that had not begun are valid once it has begun. Others may be valid after a fault was mended,
    or with a list of ids that has more devices. Pieces that can not be judged again stay; their number is printed.

    \b
    Example:
      hearsay quarantine retry --store store --reason report_too_early
    """  # noqa: D301
    from aggregator.operations.report_store import open_store
    from aggregator.operations.retry import retry as judge_again

    opened = open_store(store)
    ids = enrolled_ids(opened.campaign, enrolled, lists)
    with working("judging again"):
        summary = judge_again(opened, now=int(time.time()), enrolled=ids, reason=reason)
    facts = {
        "pieces": summary.tried,
        "reports added": summary.proven + summary.unproven,
        "of them from damaged files": summary.unproven,
        **({"added by an earlier retry": summary.repeated} if summary.repeated else {}),
        **{f"left: {why}": number for why, number in summary.left.items() if number},
    }
    say([*map(stated, summary._fields, summary), *all_said(facts)])
