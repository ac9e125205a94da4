"""``hearsay ingest``: add report files to a store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.counting import workers_of
from aggregator.cli.inputs import (
    enrolled_ids,
    note_missing_ids,
    print_intake,
    recursive_option,
    report_files,
    say_unread,
    signer_of,
)
from aggregator.cli.options import PATH, read_start
from aggregator.cli.output import counted, note, progress, wrong_usage
from aggregator.common.files import read_file
from aggregator.common.periods import Moment
from aggregator.reports.storage.manifest import BUCKETS, FILE_NAME
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.reports.intake.transaction import IngestSummary


@click.command()
@click.argument("campaign_file", type=PATH, metavar="CAMPAIGN")
@click.argument("files", nargs=-1, required=True)
@recursive_option
@click.option("--strict", is_flag=True, help="Status 1 if any file could not be read.")
@click.option("--store", type=PATH, required=True, help="Folder to keep the reports in.")
@options.signers("campaign")
@click.option("--buckets", type=int, help="Number of buckets of a new store, a power of two.  [default: 16]")
@options.enrolment
@click.option("--nodes", "node_list", type=PATH, metavar="LIST.hsl", help="Signed list of nodes; the newest is kept.")
@click.option("--keys", type=PATH, metavar="BOOK.hsk", help="The dealer's key book, for a masked campaign.")
@click.option(
    "--now",
    "present",
    metavar="DAY",
    callback=read_start,
    help="Read the files as if it were the end of that day (UTC), or of the period of that number: for the made-up "
    "reports of hearsay rehearse, in a store of their own; default: now.",
)
@options.cluster
@options.json
def ingest(
    campaign_file: Path,
    files: tuple[str, ...],
    store: Path,
    trust: Path | None,
    workspace: Path | None,
    buckets: int | None,
    enrolled: Path | None,
    lists: tuple[Path, ...],
    node_list: Path | None,
    keys: Path | None,
    present: Moment | None,
    cluster: str | None,
    *,
    recursive: bool,
    strict: bool,
) -> None:
    """Add report files to a store: in any order, twice or damaged, with the same counts every time.

    FILES are files, folders (their .hsr, .hsr.gz and .hsr.zst), patterns in quotes, URLs such as
    s3://bucket/day1/*.hsr, or - for names on standard input, one a line or as find -print0 prints them.
    Files compressed by gzip or zstd are read too, whatever their names.

    CAMPAIGN is a file or, with --workspace, a name, NAME@VERSION or id.

    Bad reports are set aside by reason, in the store's quarantine. With --trust the campaign needs the signatures
    of that trust root. With --workspace it is enough that the workspace published it; a note says so if the
    workspace's trust root does not accept it, because signatures are missing or keys were replaced. A model is
    never published from a campaign that the workspace did not sign. Files that can not be read are listed, and the
    others are added; with --strict the status is then 1. If no file can be read, no store is made, and the status
    is 1. Empty folders add nothing to an existing store, and the status is 0. If the first ingest of a store has
    --enrolled or --fleet, the store belongs to a closed fleet and never takes a report without them.

    A campaign for nodes takes files of summaries (.hsn, .hsn.gz and .hsn.zst in folders). --nodes names the list of
    nodes, signed by the campaign keys of the trust root; the store keeps the newest list that it was given. A summary
    counts once, a node once per period; two different summaries of one node and period are both set aside. A masked
    campaign takes files of messages (.hse), and --keys the key book of its dealer; the store keeps every version. A
    shared campaign takes the totals (.hsz) that hearsay collector finish writes; reports go to its collectors.

    \b
    Example:
      hearsay ingest c.hsc inbox --recursive --store store --trust work/root.hst
      find inbox -name '*.hsr' -print0 | hearsay ingest c.hsc - --store store --trust work/root.hst
      hearsay ingest c.hsc 's3://inbox/*.hsr' --store store --trust work/root.hst --cluster tls://head:8786
      hearsay ingest n.hsc inbox --nodes clinics.hsl --store sums --trust work/root.hst
      hearsay ingest m.hsc inbox --nodes clinics.hsl --keys clinics.hsk --store sums --trust work/root.hst
    """  # noqa: D301
    from aggregator.cli.nodes.stores import ingest_summaries
    from aggregator.cli.totals import ingest_totals
    from aggregator.nodes.store.node_list import check_list
    from aggregator.operations.report_store import create_store
    from aggregator.publishing.naming import check_campaign
    from aggregator.reports.intake.remote import all_unreadable
    from aggregator.reports.intake.sources import expand
    from aggregator.reports.intake.transaction import IngestSummary

    raw = check_campaign(campaign_file, workspace=workspace, trust=trust)
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    now = int(time.time()) if present is None else _end_of(present, campaign.time_precision)
    if present is not None:
        note("--now is for a rehearsal: a store that took reports of periods to come must take none of real devices")
    if campaign.shared is not None:
        if any(option is not None for option in (buckets, enrolled, cluster, node_list, keys)) or lists:
            raise wrong_usage(
                "--buckets, --enrolled, --fleet, --cluster, --nodes and --keys are not about totals; of a closed fleet "
                "hearsay collector check --fleet accepts the listed devices alone"
            )
        ingest_totals(raw, files, store, recursive=recursive)
        _note_unchecked(trust, workspace, raw)
        return
    if campaign.nodes is not None:
        if any(option is not None for option in (buckets, enrolled, cluster)) or lists:
            raise wrong_usage("--buckets, --enrolled, --fleet and --cluster are for reports of devices")
        listed = None if node_list is None else check_list(node_list, workspace=workspace, trusted=trust)
        book = None if keys is None else read_file(keys, SIZE_LIMITS["keys"])
        ingest_summaries(raw, files, store, listed, book, now, recursive=recursive, strict=strict)
        _note_unchecked(trust, workspace, raw, has_list=listed is not None)
        return
    if node_list is not None or keys is not None:
        raise InputError("campaign_for_devices", "this campaign asks devices; --nodes and --keys are for nodes")
    ids = enrolled_ids(campaign, enrolled, lists)
    note_missing_ids(campaign, ids, now)
    given = report_files(files, recursive=recursive)
    with workers_of(cluster) as workers:
        is_new = not (store / FILE_NAME).exists()
        unread = all_unreadable(expand(given), workers) if is_new else ()
        if unread or (is_new and not given):
            _print_summary(IngestSummary(len(given), 0, unread, 0, 0, {}))
            why = f"none of {counted(len(given), 'file')} can be read" if given else "there is no report file"
            raise InputError("unreadable", f"{why}; no store was made")
        opened = create_store(store, raw, buckets=buckets or BUCKETS)
        opened.cluster = workers
        with progress("reading reports", len(given)) as callback:
            summary = opened.ingest(given, now=now, enrolled=ids, progress=callback)
    _print_summary(summary)
    _note_unchecked(trust, workspace, raw)
    if not given:
        note("there is no report file; nothing was added")
    say_unread(len(summary.unreadable), summary.files, strict=strict)


def _end_of(moment: Moment, time_precision: int) -> int:
    """Return the last second, counted from 1970, of a day or minute, or of a period that is given by its number."""
    if moment.lasts:
        return moment.number + moment.lasts - 1
    return (moment.number + 1) * time_precision - 1


def _note_unchecked(
    trust: Path | None, workspace: Path | None, campaign_bytes: bytes, *, has_list: bool = False
) -> None:
    """Print notes if signatures of campaign and node list (``has_list``) were not checked or are too few."""
    if trust is None and workspace is None:
        if has_list:
            note(
                "the signatures of the campaign, and of the list that says which nodes count, were not checked; "
                "--trust or --workspace does"
            )
        else:
            note("the campaign's signature was not checked; --trust or --workspace does")
    if workspace is not None:
        _note_signatures(workspace, campaign_bytes)


def _note_signatures(workspace: Path, campaign_bytes: bytes) -> None:
    """Print a note if the workspace published the campaign, and its trust root does not accept it."""
    found = signer_of(workspace).standing("campaign", campaign_bytes)
    if not found.complete:
        valid = f"{len(found.signers)} of {found.needed} needed signatures are valid"
        note(f"the workspace published this campaign, but its trust root does not accept it: {valid}")


def _print_summary(summary: IngestSummary) -> None:
    facts = {
        "files": summary.files,
        "files repeated": summary.files_repeated,
        "files not read": len(summary.unreadable),
        "reports read": summary.accepted,
        "of them from damaged files": summary.unproven,
    }
    print_intake(summary, facts, accepted=summary.accepted)
