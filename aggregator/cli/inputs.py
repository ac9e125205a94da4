"""Readers of what commands' arguments name: campaigns, models, fleet lists, report files, workspaces."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.options import existing_passphrase
from aggregator.cli.output import as_json, counted, note, print_facts, print_json, print_table
from aggregator.common.files import read_file
from aggregator.common.periods import shown
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.models.scoring import Model
    from aggregator.nodes.store.envelope_store import EnvelopeIngest
    from aggregator.publishing.workspace import Workspace
    from aggregator.reports.fleet import Roster
    from aggregator.reports.intake.enrolment import Enrolled
    from aggregator.reports.intake.sources import Unreadable
    from aggregator.reports.intake.transaction import IngestSummary


def open_model(given: Path, trust: Path | None, workspace: Path | None) -> Model:
    """Load a model file or, with a workspace, also a name, NAME@VERSION or id.

    Its signature is checked if a trust root or a workspace is given. Raises InputError ``trust_ambiguous``: both are
    given; and the errors of reading and verifying.
    """
    from aggregator.models.scoring import Model
    from aggregator.publishing.naming import document_bytes
    from aggregator.publishing.workspace import open_workspace

    if trust is not None and workspace is not None:
        raise InputError("trust_ambiguous", "give --trust or --workspace, not both")
    signer = None if workspace is None else open_workspace(workspace)
    raw = document_bytes("model", given, signer)
    if signer is not None:
        return Model.verified(raw, signer.root_bytes)
    if trust is not None:
        return Model.verified(raw, read_file(trust, SIZE_LIMITS["root"]))
    return Model.of(parse_model(read_envelope(raw, "model").payload))


WHY_NOT = {
    "file_not_found": "there is no such file",
    "is_folder": "it is a folder in a list of files, or one that can not be listed; folders are given as arguments",
    "empty_file": "it holds nothing: it was cut on its way, or never written",
    "permission_denied": "this user may not read it",
    "too_large": "it has more than 1 TiB (of summaries 1 GiB), or more than fits into memory; it can be sent in parts",
    "expands_too_far": "it is compressed and holds more than 16 times its length: no reports do",
    "compression_damaged": "it is compressed, and nothing can be had from it",
    "file_shortened": "it became shorter while it was read; give it again when it is complete",
    "not_reached": "no server answers where its URL leads; look at the endpoint, the network and its settings",
    "unreadable": "it is no file, or the disk failed",
}
"""Reason → why a file was not read, in words."""
NAME_DIGITS = 8
"""Digits of a file's identity that name it on the command line."""
MOST_SHOWN = 40
"""Most unread files that are listed. The number of further ones is printed."""
MOST_CHARACTERS = 120
"""Most characters of a printed file name. A longer name is cut at its beginning."""


def print_intake(taken: IngestSummary | EnvelopeIngest, facts: dict[str, int], **added: int) -> None:
    """Print the numbers of an ingest: ``facts`` and what was set aside; with ``--json`` all numbers, and ``added``."""
    if as_json():
        print_json({**taken._asdict(), "unreadable": [found._asdict() for found in taken.unreadable], **added})
        return
    print_facts(facts | {f"set aside: {reason}": count for reason, count in taken.rejected.items()})
    print_unread(taken.unreadable)


def print_unread(unreadable: Sequence[Unreadable]) -> None:
    """Print a table of the files that were not read, if there are any."""
    if not unreadable:
        return
    click.echo()
    shown = unreadable[:MOST_SHOWN]
    print_table(["not read", "reason", ""], [(_short(file), reason, WHY_NOT[reason]) for file, reason in shown])
    if len(unreadable) > len(shown):
        note(f"and {len(unreadable) - len(shown)} more that were not read; --json names all")


def print_groups(pieces: Iterable[tuple[str, str, str, int]]) -> None:
    """Print how many pieces of each file were set aside, by reason, from (reason, file, its identity, bytes)."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for reason, file, identity, length in pieces:
        groups.setdefault((reason, file, identity[:NAME_DIGITS]), []).append(length)
    rows = [(*group, len(lengths), sum(lengths)) for group, lengths in sorted(groups.items())]
    print_table(["reason", "file", "identity", "pieces", "bytes"], rows, ["pieces", "bytes"])


def say_unread(missed: int, files: int, *, strict: bool) -> None:
    """Print how many of ``files`` files were not read. If ``strict``, or if no file was read, raise ``unreadable``."""
    if not missed:
        return
    words = f"{missed} of {counted(files, 'file')} could not be read"
    if strict or missed == files:
        raise InputError("unreadable", words)
    note(f"{words}; --strict makes that an error")


def _short(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else "…" + name[1 - MOST_CHARACTERS :]


recursive_option = click.option("--recursive", is_flag=True, help="Read folders in folders too.")


def report_files(names: Sequence[str], *, recursive: bool, suffixes: tuple[str, ...] | None = None) -> list[str]:
    """Return the file names and URLs of a command's files, folders, patterns, URLs and ``-`` (a list from a pipe).

    Notes tell how many files are left out. ``suffixes``: ends of the names that are taken from folders; None for those
    of report files. Raises InputError ``too_large``: the list on standard input is too long.
    """
    from aggregator.reports.intake.finding import SUFFIXES, find_files, read_names

    suffixes = suffixes or SUFFIXES
    listed = read_names(sys.stdin.buffer) if "-" in names else []
    found = find_files((name for name in names if name != "-"), recursive=recursive, suffixes=suffixes)
    if found.left:
        note(f"left out {counted(found.left, 'file')} in the folders: hidden, or no {suffixes[0]}")
    if found.folders:
        note(f"left out {counted(found.folders, 'folder')} in the folders; --recursive reads what is in them")
    return [*found.files, *listed]


def campaign_of(given: Path, workspace: Path | None) -> Campaign:
    """Read a campaign for devices: a file or, with a workspace, also a name or id. Its signatures are not checked.

    Raises InputError ``campaign_for_nodes``, since nodes have no report ids; and the errors of reading and parsing.
    """
    from aggregator.publishing.naming import document_bytes
    from aggregator.publishing.workspace import open_workspace

    signer = None if workspace is None else open_workspace(workspace)
    found = parse_campaign(read_envelope(document_bytes("campaign", given, signer), "campaign").payload)
    if found.nodes is not None:
        raise InputError(
            "campaign_for_nodes",
            f"'{given}' asks nodes for summaries, which have no report ids; the list of its nodes says who counts "
            "(hearsay nodes), and hearsay ingest takes files of summaries as they are",
        )
    return found


def campaign_document(given: Path, signer: Workspace) -> Campaign:
    """Read a campaign that a workspace has signed: a file, or a name or id."""
    from aggregator.publishing.naming import check_campaign

    return parse_campaign(read_envelope(check_campaign(given, workspace=signer), "campaign").payload)


def rosters_of(lists: tuple[Path, ...]) -> list[Roster]:
    """Read fleet lists that have one passphrase; without a passphrase file the user is asked for it once."""
    if not lists:
        return []
    from aggregator.reports.fleet import read_roster

    passphrase = existing_passphrase("the fleet list")
    return [read_roster(path, passphrase) for path in lists]


def enrolled_ids(campaign: Campaign, enrolled: Path | None, lists: tuple[Path, ...]) -> Enrolled | None:
    """Return the report ids of a campaign's enrolled devices, or None if the command names neither ids nor lists.

    ``enrolled``: file of ids. ``lists``: fleet lists. Raises InputError ``enrolment_ambiguous``: both are given; or a
    file can not be read, or is of another campaign.
    """
    if enrolled is not None and lists:
        raise InputError("enrolment_ambiguous", "give --enrolled or --fleet, not both")
    if enrolled is not None:
        from aggregator.reports.fleet import IdReader
        from aggregator.reports.intake.enrolment import enrolled_from_file

        return enrolled_from_file(campaign, IdReader(enrolled))
    if lists:
        from aggregator.reports.intake.enrolment import enrolled_from_rosters

        return enrolled_from_rosters(campaign, rosters_of(lists))
    return None


def note_missing_ids(campaign: Campaign, ids: Enrolled | None, now: int) -> None:
    """Print a note if the ids do not cover the period at ``now``: reports of that period would be refused."""
    period = campaign.period_at(now)
    if ids is not None and not ids.covers(period):
        now_is = shown(period, campaign.time_precision)
        note(
            f"the enrolled ids are not for period {now_is}, which is now: its reports are refused as id_not_enrolled "
            "until their files are ingested again with its ids"
        )


def signer_of(workspace: Path) -> Workspace:
    """Open the workspace that signs. Its passphrase is asked for when a key is needed."""
    from aggregator.publishing.workspace import open_workspace

    return open_workspace(workspace, existing_passphrase())
