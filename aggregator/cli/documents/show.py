"""``hearsay show``: print the content of a file, without verifying it."""

from __future__ import annotations

from pathlib import Path

import click

from aggregator.cli.documents import describe
from aggregator.cli.options import PATH, json_option
from aggregator.cli.output import print_facts, print_json, print_pairs, print_table, warn
from protocol.documents.envelope import read_envelope, role_of
from protocol.errors import InputError


@click.command()
@click.argument("file", type=PATH)
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """Print what a trust root, campaign, model, node list, report file or file of summaries says. Nothing is verified.

    Also of masked sums: messages, key books, requests, releases, and a dealer's public file. A report file may be
    compressed by gzip or zstd, as for hearsay ingest.

    \b
    Example:
      hearsay show c.hsc
    """  # noqa: D301
    from aggregator.common.files import read_file

    raw = read_file(file, describe.MAX_FILE_BYTES)
    role = role_of(raw)
    shown = describe.of_masked_sums(raw, role)
    if shown is None and role is not None and role != "node":
        shown = describe.document(read_envelope(raw, role), role)
    elif shown is None:
        shown = _of_reports(file, raw, role)
    if as_json:
        print_json({"kind": shown.kind, "verified": False, **shown.content})
    else:
        click.echo(f"UNVERIFIED {shown.kind}: what this file says, whoever wrote it")
        print_facts(shown.facts)
        for title, rows in shown.sections:
            click.echo(f"\n{title}")
            print_pairs(rows)
        if shown.rows:
            click.echo()
            print_table(shown.columns, shown.rows)
    if shown.warning:
        warn(shown.warning)


def _of_reports(file: Path, raw: bytes, role: str | None) -> describe.Shown:
    """Describe a file of reports or summaries. ``role`` is ``node`` if an envelope of a node begins it, else None.

    Raises:
        InputError: ``unknown_file``; or the file can not be decompressed.
    """
    content = describe.uncompressed(file, raw)
    shown = describe.summaries(content) if role == "node" else describe.batches(content)
    if shown is None and role is None:
        shown = describe.summaries(content)
    if shown is None:
        raise InputError("unknown_file", f"'{file}' is no file of Hearsay that can be shown")
    return shown
