"""Run the commands ``hearsay-edge node``: a node's key, the summary of its records, the exchange with peers."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.cli.files import print_note, read_document, write_file, writing
from protocol.documents.masked_terms import PARTY, RECORD
from protocol.documents.payload import quoted
from protocol.epsilon import format_micro, format_pico
from protocol.errors import InputError
from protocol.schema import FROM_RECORD

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from edge_sdk.node.node import Node
    from edge_sdk.node.sums import Unread
    from protocol.documents.campaign import Campaign
    from protocol.questions import Subject


_MOST_COLUMNS = 5
"""Most columns that are named as ignored."""


def open_node(options: argparse.Namespace) -> Node:
    """Open the node in the state folder ``options.state``. The caller closes it."""
    from edge_sdk.node.node import Node

    return Node.open(options.state)


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``node key`` to ``parser``."""
    parser.add_argument("out", type=Path, metavar="OUT.key.pub", help="a file that does not exist yet")


def key(options: argparse.Namespace) -> dict[str, Any]:
    """Write the public key of the node into the new file ``options.out``. Return the node's id and the file."""
    with open_node(options) as node:
        line, node_id = node.public_key_line, node.node_id
    with writing("the key", "there is already a file of that name; choose another name"):
        write_file(options.out, line)
    return {"node": node_id.hex(), "file": str(options.out)}


def add_summarise_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``node summarise`` to ``parser``."""
    parser.add_argument("--epsilon", metavar="E", help="less than the campaign's ε, for more noise, if it allows that")
    _add_records_arguments(parser)


def add_encrypt_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``node encrypt`` to ``parser``."""
    parser.add_argument(
        "--keys", type=Path, metavar="BOOK.hsk", help="the dealer's newest key book; default: the last one accepted"
    )
    _add_records_arguments(parser)


def _add_records_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--campaign", required=True, metavar="ID", help="name, or first digits of the id")
    parser.add_argument("--label", help="class of every record; default: each record's own label field")
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE.csv", help="records with the names of columns, plain or .gz"
    )
    parser.add_argument(
        "--missing-columns", action="store_true", help="features without a column are missing; default: refuse the file"
    )
    parser.add_argument(
        "--check", action="store_true", help="only count records and values that could not be used; nothing is spent"
    )
    parser.add_argument("--delimiter", default=",", metavar="C", help="between two cells of the file; a comma")
    parser.add_argument("--sqlite", type=Path, metavar="DB", help="a database, in the place of the file")
    parser.add_argument("--table", metavar="T", help="the table or view of the database whose rows are records")
    parser.add_argument("--query", metavar="Q", help="one SELECT that gives the records, in the place of a table")


def encrypt(options: argparse.Namespace) -> dict[str, Any]:
    """Encrypt noisy sums of records for a masked campaign, at most once per period; accept ``options.keys`` first.

    Return the campaign, the period, what the message costs, and when the next period begins. In a period that was
    encrypted before, no record is read. With ``options.check`` the records are read, and nothing is spent.
    """
    from protocol.masked.costs import masked_terms_of

    with open_node(options) as node:
        campaign = node.campaign(options.campaign)
        if options.keys is not None:
            node.accept_keys(read_document(options.keys, "keys"), campaign=campaign.id)
        if options.check:
            masked_terms_of(campaign)
            return _checked(node, options, campaign)
        with _read(options, campaign) as (records, label, progress):
            found = node.encrypt(campaign.id, records, label, progress=progress)
        node_id = node.node_id
    if found.unread is not None:
        _note_unread(found.unread, campaign)
    assert campaign.nodes is not None
    _note_beyond(found.beyond, campaign.nodes.max_records)
    return {
        "campaign": campaign.header.name,
        "node": node_id.hex(),
        "period": found.period,
        "encrypted_before": found.repeated,
        "bytes": len(found.raw),
        "key_serial": found.serial,
        "epsilon_counted_as_spent": format_micro(found.cost_micro),
        "delta_counted_as_spent": format_pico(found.cost_delta_pico),
        "next_period_at": found.next_at,
    }


def summarise(options: argparse.Namespace) -> dict[str, Any]:
    """Summarise records, at most once per period.

    Return the campaign, the period, what the summary costs, and when the next period begins. In a period that was
    summarised before, no record is read. With ``options.check`` the records are read, and nothing is stored.
    """
    with open_node(options) as node:
        campaign = node.campaign(options.campaign)
        if options.check:
            return _checked(node, options, campaign)
        with _read(options, campaign) as (records, label, progress):
            found = node.summarise(campaign.id, records, label, epsilon=options.epsilon, progress=progress)
        node_id = node.node_id
    if found.unread is not None:
        _note_unread(found.unread, campaign)
    return {
        "campaign": campaign.header.name,
        "node": node_id.hex(),
        "period": found.period,
        "summarised_before": found.repeated,
        "bytes": len(found.raw),
        **shown_costs(campaign, found.epsilon_micro),
        "epsilon_counted_as_spent": format_micro(found.cost_micro),
        "next_period_at": found.next_at,
    }


@contextmanager
def _read(options: argparse.Namespace, campaign: Campaign) -> Iterator[tuple[Iterator[dict[str, Any]], Any, _Progress]]:
    """Yield the source's records, their label, and a progress display that ends with the body of ``with``."""
    progress = _Progress()
    try:
        label = FROM_RECORD if options.label is None else options.label
        yield _noting_columns(_records(options, campaign), campaign), label, progress
    finally:
        progress.end()


def _checked(node: Node, options: argparse.Namespace, campaign: Campaign) -> dict[str, Any]:
    """Print which values a summary could not read. Return facts to print: numbers of records found and allowed."""
    with _read(options, campaign) as (records, label, progress):
        unread = node.check_records(campaign.id, records, label, progress)
    assert campaign.nodes is not None
    _note_unread(unread, campaign)
    most = campaign.nodes.max_records
    if campaign.masked is not None and campaign.masked.unit == PARTY:
        _note_beyond(unread.records - most, most)
    return {"campaign": campaign.header.name, "records": unread.records, "most_records": most, "epsilon_spent": "0"}


def _records(options: argparse.Namespace, campaign: Campaign) -> Iterator[dict[str, Any]]:
    """Return the records of the one source (CSV file, SQLite table or query) that the options name."""
    from edge_sdk.node.records import csv_records, sqlite_records

    names = [] if options.missing_columns else [feature.name for feature in campaign.schema.features]
    names += [campaign.schema.label.name] if options.label is None else []
    if (options.file is None) == (options.sqlite is None):
        raise InputError(
            "argument_invalid", "name one source of records: FILE.csv, or --sqlite DB with --table or --query"
        )
    if options.file is not None:
        if options.table is not None or options.query is not None:
            raise InputError("argument_invalid", "--table and --query are for --sqlite DB")
        return csv_records(options.file, names=names, delimiter=options.delimiter, note=print_note)
    return sqlite_records(options.sqlite, table=options.table, query=options.query, names=names)


def _noting_columns(records: Iterator[dict[str, Any]], campaign: Campaign) -> Iterator[dict[str, Any]]:
    """Yield the records unchanged. Print the names of columns of the first record that are no features."""
    schema = campaign.schema
    for number, record in enumerate(records):
        if number == 0:
            known = {schema.label.name, *(feature.name for feature in schema.features)}
            others = [quoted(name) for name in record if name not in known]
            shown = ", ".join(others[:_MOST_COLUMNS]) + ("" if len(others) <= _MOST_COLUMNS else ", …")
            if others:
                print_note(f"columns that are no features here and are ignored: {shown}")
        yield record


class _Progress:
    """Shows the number of records on a terminal; shows nothing elsewhere."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._shown = False

    def __call__(self, records: int) -> None:
        if self._shows:
            self._shown = True
            print(f"\r{records:,} records", end="", file=sys.stderr, flush=True)  # noqa: T201

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)  # noqa: T201


def _note_beyond(beyond: int, most: int) -> None:
    if beyond > 0:
        print_note(
            f"{beyond} records after the first {most} are in no sum: the campaign protects all records of one node "
            "together, and takes that many from each"
        )


def _note_unread(unread: Unread, campaign: Campaign) -> None:
    schema, counts = campaign.schema, unread.records
    for name in (schema.label.name, *(feature.name for feature in schema.features)):
        missing, unlisted = unread.missing.get(name, 0), unread.unlisted.get(name, 0)
        if missing:
            print_note(f"{quoted(name)} has no value in {missing} of {counts} records")
        if unlisted:
            print_note(f"{quoted(name)} has a value that the campaign can not read in {unlisted} of {counts} records")
    if unread.refused:
        print_note(f"{unread.refused} of {counts} records have a value that the campaign refuses; they are left out")
    for sentence in unread.hints:
        print_note(sentence)
    if not counts:
        print_note("there is no record; a summary of none is noise alone")
    assert campaign.nodes is not None
    takes_all = campaign.masked is None or campaign.masked.unit == RECORD
    if takes_all and counts > campaign.nodes.max_records:
        print_note(
            f"the campaign expects at most {campaign.nodes.max_records} records, and there are {counts}: sums are cut "
            "off there, which makes them useless; ask the publisher for a larger number (--max-records)"
        )


def shown_costs(campaign: Campaign, epsilon_micro: int | None = None) -> dict[str, str]:
    """Return the ε that a summary costs as texts, by adjacency: ``epsilon_add_remove``, … None: the campaign's ε."""
    from edge_sdk.explaining import costs

    return {f"epsilon_{kind.replace('-', '_')}": shown for kind, shown in costs(campaign, epsilon_micro).items()}


def add_exchange_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``node exchange`` to ``parser``."""
    parser.add_argument("--campaign", required=True, metavar="ID", help="name, or first digits of the id")
    parser.add_argument(
        "--nodes", type=Path, metavar="LIST.hsl", help="the signed list of nodes; default: the last one that was given"
    )
    text = "this node's file, replaced by the union"
    parser.add_argument("--set", required=True, type=Path, metavar="MINE.hsn", dest="own", help=text)
    parser.add_argument("--totals", action="store_true", help="print the sums over all nodes too, by period")
    parser.add_argument(
        "peers", nargs="*", type=Path, metavar="PEER", help="a file of summaries, or a folder of such files"
    )


def exchange(options: argparse.Namespace) -> dict[str, Any]:
    """Verify this node's summaries and those of ``options.peers``, and unite them with the file ``options.own``.

    Return what the united file holds, its digest, and the numbers of refused summaries. Peers' files that could not be
    read are listed as refusals.
    """
    from edge_sdk.node.exchanging import totals

    nodes = None if options.nodes is None else read_document(options.nodes, "nodes")
    with open_node(options) as node:
        campaign = node.campaign(options.campaign)
        found = node.exchange(campaign.id, options.own, options.peers, nodes)
    places = found.summaries.places()
    shown: dict[str, Any] = {
        "campaign": campaign.header.name,
        "set": str(options.own),
        "summaries": len(found.summaries),
        "nodes": len({place[2] for place in places}),
        "periods": len({place[1] for place in places}),
        "conflicts": len(found.summaries.conflicts()),
        "added": found.added,
        "refused": found.refused,
        "dropped": found.dropped,
        "digest": found.digest.hex(),
    }
    if options.totals:
        shown["totals"] = [
            {
                "period": each.period,
                "nodes": each.nodes,
                **{_named(subject, campaign): list(values) for subject, values in each.vectors(campaign)},
            }
            for each in totals(found.summaries, campaign)
        ]
    unread = [
        {"step": quoted(each.path), "reason": each.reason, "detail": each.detail, "status": InputError.status}
        for each in found.unread
    ]
    return {**shown, "refusals": unread} if unread else shown


def _named(subject: Subject, campaign: Campaign) -> str:
    """Return a vector of totals in words: ``counts by class``, ``cell odor``, ``moment age power 2``."""
    if subject.feature is None:
        return "counts by class"
    name = f"{subject.kind} {campaign.schema.ungrouped[subject.feature].name}"
    return name if subject.power is None else f"{name} power {subject.power}"
