"""Files of node summaries (``.hsn``) for ``hearsay show`` and ``verify``, and the privacy sheet of their campaign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from aggregator.cli.output import counted, print_facts, print_json, print_table
from aggregator.nodes.campaigns.sheet import NodeSheet
from aggregator.nodes.campaigns.words import IN_WORDS, cost_text
from protocol.documents import campaign, trust
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import SIZE_LIMITS
from protocol.epsilon import format_micro
from protocol.errors import DocumentError, InputError
from protocol.nodes import node_list
from protocol.nodes.node_list import NodeList
from protocol.nodes.summary import Summary, judge_summary, read_summary
from protocol.nodes.summary_files import read_summaries
from protocol.sums.adjacency import ADD_REMOVE, CHANGE

MAX_ROWS = 1000
"""Most summaries and damaged byte ranges that are listed for one file. All of them are counted."""
COLUMNS = ("campaign", "node", "period", "ε", "numbers", "least", "largest")


class Entry(NamedTuple):
    """One summary of a file, or a byte range that holds none.

    Attributes:
        summary: the summary; None for a byte range that holds none, or one that can not be read.
        raw: the bytes of the summary's envelope; empty for damage.
        reason: why there is no summary; empty if there is one.
        position, length: place in the file, in bytes.
    """

    summary: Summary | None
    raw: bytes
    reason: str
    position: int
    length: int


def entries(raw: bytes) -> Iterator[Entry]:
    """The summaries and damaged byte ranges of a file, in order. Signatures are not checked."""
    for piece in read_summaries(raw):
        if piece.reason is not None:
            yield Entry(None, b"", piece.reason, piece.offset, piece.length)
            continue
        try:
            _, found = read_summary(piece.envelope)
        except DocumentError as error:
            yield Entry(None, b"", error.reason, piece.offset, piece.length)
        else:
            yield Entry(found, piece.envelope, "", piece.offset, piece.length)


def described(raw: bytes) -> tuple[dict[str, object], list[list[object]], dict[str, Any]] | None:
    """What a file of summaries says, for ``hearsay show``. Nothing is verified.

    Returns:
        Facts for people, rows of :data:`COLUMNS`, and the content in the types of JSON; None if the file holds no
        summary.
    """
    rows: list[list[object]] = []
    listed: list[dict[str, Any]] = []
    count = damaged = 0
    for entry in entries(raw):
        count, damaged = count + (entry.summary is not None), damaged + (entry.length if entry.summary is None else 0)
        if len(rows) < MAX_ROWS:
            rows.append(_row(entry))
            listed.append(_content(entry))
    if not count:
        return None
    facts: dict[str, object] = {"summaries": count, "bytes": len(raw), "damaged bytes": damaged}
    facts["numbers"] = "sums over a node's records, each with noise; nothing shows whether they are true"
    if count > MAX_ROWS:
        facts["listed"] = f"the first {MAX_ROWS}"
    content = {"summaries": count, "bytes": len(raw), "damaged_bytes": damaged, "entries": listed}
    return facts, rows, content


def _row(entry: Entry) -> list[object]:
    found = entry.summary
    if found is None:
        return ["damage", entry.reason, f"{counted(entry.length, 'byte')} at {entry.position}"]
    return [
        found.campaign.hex(),
        found.node.hex(),
        found.period,
        format_micro(found.epsilon_micro),
        len(found.sums),
        min(found.sums),
        max(found.sums),
    ]


def _content(entry: Entry) -> dict[str, Any]:
    found = entry.summary
    if found is None:
        return {"damage": entry.reason, "position": entry.position, "length": entry.length}
    return {
        "campaign": found.campaign,
        "node": found.node,
        "period": found.period,
        "epsilon": format_micro(found.epsilon_micro),
        "numbers": len(found.sums),
        "least": min(found.sums),
        "largest": max(found.sums),
    }


def verify_summaries(
    raw: bytes, state: trust.TrustState, campaign_file: Path, list_file: Path, now: int, *, as_json: bool
) -> None:
    """Check all summaries of a file against their campaign and node list, as an aggregator does, and print the result.

    Args:
        raw: bytes of the file.
        state: the trust in the root that must have signed campaign and list.
        campaign_file, list_file: signed campaign and node list.
        now: seconds since 1970.
        as_json: whether to print one JSON object.

    Raises:
        InputError: a file can not be read; ``not_a_campaign``: the campaign is not for nodes; ``summaries_refused``: a
            summary is refused, or the file is damaged. The result is printed before.
        DocumentError: campaign or list lack signatures or are out of date (:func:`protocol.documents.trust.verify`).
    """
    from aggregator.common.files import read_file

    def accepted(path: Path, role: str, known: frozenset[str]) -> bytes:
        return trust.verify(state, read_file(path, SIZE_LIMITS[role]), role, now, known).payload

    asked = campaign.parse_campaign(accepted(campaign_file, "campaign", campaign.UNDERSTOOD))
    if asked.nodes is None:
        raise InputError(
            "not_a_campaign", f"'{campaign_file}' is a campaign for devices; summaries answer one for nodes"
        )
    nodes = node_list.parse_node_list(accepted(list_file, "nodes", node_list.UNDERSTOOD))
    if nodes.header.name != asked.nodes.list_name:
        raise InputError(
            "other_name", f"the campaign asks nodes of the list '{asked.nodes.list_name}', not of this one"
        )
    found = [(entry, _verdict(entry, asked, nodes)) for entry in entries(raw)]
    refused = sum(reason != "" for _, reason in found)
    if as_json:
        listed = [{**_content(entry), "verified": not reason, "reason": reason or None} for entry, reason in found]
        print_json({"kind": "node summaries", "verified": not refused, "entries": listed})
    else:
        rows = [
            [*_row(entry), *[""] * (len(COLUMNS) - len(_row(entry))), reason or "verified"] for entry, reason in found
        ]
        print_table((*COLUMNS, "verdict"), rows)
    if refused or not found:
        raise InputError("summaries_refused", f"{refused} of {counted(len(found), 'piece')} of the file are refused")


def _verdict(entry: Entry, asked: Campaign, nodes: NodeList) -> str:
    """Why an aggregator refuses a summary; empty if it does not. Its period is not compared with a clock."""
    if entry.summary is None:
        return entry.reason
    try:
        judge_summary(entry.raw, asked, nodes)
    except DocumentError as error:
        return error.reason
    return ""


def print_node_sheet(sheet: NodeSheet) -> None:
    """Print the exact privacy loss of every released vector, and whether a summary spends no more than it books."""
    shown = [name for name in (ADD_REMOVE, CHANGE) if name in sheet.booked_micro] or list(sheet.booked_micro)
    rows: list[list[object]] = [
        [vector.name, vector.size, str(vector.sensitivity), f"{vector.deviation:.4g}"]
        + [f"{float(vector.losses[name]):.9g}" for name in shown]
        for vector in sheet.vectors
    ]
    rows.append(["total", sheet.numbers, "", "", *(f"{float(sheet.total(name)):.9g}" for name in shown)])
    columns = ["released vector", "numbers", "Δ", "noise SD", *(f"ε, {IN_WORDS[name]}" for name in shown)]
    print_table(columns, rows, columns[1:])
    print_facts({"declared": f"ε = {format_micro(sheet.declared_micro)}", "a node books": cost_text(sheet)})
    click.echo("a summary spends no more than a node books" if sheet.holds else "A SUMMARY SPENDS MORE THAN IT BOOKS")
