"""The section on reports: how many came, by day and question, and why others are not counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aggregator.collectors.totals import TotalsStatus
from aggregator.common.periods import shown
from aggregator.nodes.campaigns.sheet import in_words
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.status import NodeStatus, PeriodCount
from aggregator.operations.status import DayCount, Status, date_of
from aggregator.page.blocks import Block, Chart, Section, facts, paragraph, table
from aggregator.page.charts import Bar, whiskers
from aggregator.page.entries import mapping, rows_of
from aggregator.page.reasons import meaning
from protocol.epsilon import format_micro

if TYPE_CHECKING:
    from aggregator.operations.models import OpenStore


ANCHOR = "reports"
HEADING = "Reports: how many came, and why others were dropped"
_DAYS, _QUESTIONS, _PERIODS, _NODES = 31, 60, 31, 4
_IN_CARD = "What was counted"


AnyStatus = Status | NodeStatus | TotalsStatus


def of_stores(found: Sequence[tuple[OpenStore, AnyStatus]], records: Sequence[str] = ()) -> Section:
    """Return the section about stores, each with its status; ``records``: what counts of records are joined."""
    blocks: list[Block] = [paragraph(f"Records in the clear, joined with the answers: {each}.") for each in records]
    for store, status in found:
        if isinstance(status, TotalsStatus):
            blocks += _of_totals(status)
        else:
            blocks += _of_reports(status) if isinstance(status, Status) else _of_nodes(store, status)
        blocks += _dropped(status.rejected)
    return Section(ANCHOR, HEADING, tuple(blocks))


def of_card(card: Mapping[str, object]) -> Section:
    """Return the section of a model: what its card says of the reports."""
    told = rows_of(card, _IN_CARD, ("rejected",))
    blocks: list[Block] = [facts("Counted, as the model's card says", told)] if told else []
    if not told:
        blocks.append(paragraph("The model's card does not say what was counted."))
    if "rejected" in card:
        stated = mapping(card, "rejected")
        blocks += _dropped({name: number for name, number in stated.items() if type(number) is int})
    return Section(ANCHOR, HEADING, tuple(blocks))


def between(least: int, most: int) -> str:
    """Return the bounds of a number of devices, or the number if they are equal."""
    return str(most) if least == most else f"{least} to {most}"


def day_row(day: DayCount) -> tuple[object, ...]:
    """Return the cells of a day: its date, its periods, the reports of these, and their devices."""
    periods = str(day.first) if day.first == day.last else f"{day.first}..{day.last}"
    return date_of(day.day), periods, day.reports, between(day.devices_at_least, day.devices_at_most)


def period_row(period: PeriodCount, time_precision: int) -> tuple[object, ...]:
    """Return the cells of a period: its date, nodes heard, missing and in conflict, and names of missing nodes."""
    names = ", ".join(period.missing[:_NODES]) + (", …" if len(period.missing) > _NODES else "")
    return shown(period.period, time_precision), period.seen, len(period.missing), len(period.conflicting), names


def _of_reports(found: Status) -> list[Block]:
    reached = "reached" if found.enough else "not reached"
    pairs: dict[str, object] = {
        "reports counted": found.reports,
        "devices": between(found.devices_at_least, found.devices_at_most),
        "smallest batch": f"{found.min_batch_size}, {reached}",
        "of them from damaged files": found.unproven,
    }
    if found.superseded:
        pairs["superseded by whole files"] = found.superseded
    if found.forgotten_before:
        pairs["forgotten"] = f"periods before {shown(found.forgotten_before, found.time_precision)}; counts are kept"
    blocks: list[Block] = [facts(f"Counted for {found.name}", pairs)]
    if found.days:
        blocks.append(_days(found))
    rows = [
        (one.question, one.n, "" if one.half_width is None else f"±{one.half_width:.4f}") for one in found.questions
    ]
    columns = ("question", "reports", "widest 95 % interval")
    more = "hearsay status --store STORE --json"
    caption = "Reports by question; the interval is that of the question's least certain share"
    blocks.append(table(caption, columns, rows, (1, 2), more=more, folded=True, most=_QUESTIONS))
    return blocks


def _days(found: Status) -> Block:
    last = found.days[-_DAYS:]
    bars = [Bar(date_of(day.day), float(day.reports)) for day in last]
    most = max(day.reports for day in last)
    earlier = len(found.days) - len(last)
    title = "Reports by day" + (f", the last {len(last)} days of {len(found.days)}" if earlier else "")
    numbers = table(title, ("day", "periods", "reports", "devices"), map(day_row, last), (2, 3), folded=True)
    return Chart(whiskers(title, bars, high=float(most), without=""), numbers)


def _of_totals(found: TotalsStatus) -> list[Block]:
    reached = "reached" if found.enough else "not reached"
    pairs: dict[str, object] = {
        "reports counted": found.reports,
        "smallest batch": f"{found.min_batch_size} in each period, {reached}",
        "noise of a cell": f"± {found.noise_sd:.4g} devices, over all periods",
    }
    rows = [(shown(period, found.time_precision), count) for period, count in found.periods.items()]
    more = "hearsay status --store STORE --json"
    totals = table("Totals by period", ("period", "reports"), rows, (1,), more=more, most=_PERIODS)
    return [facts(f"Counted for {found.name}", pairs), totals]


def _of_nodes(store: OpenStore, found: NodeStatus) -> list[Block]:
    reached = "reached" if found.enough else "not reached"
    masked = isinstance(store, MaskedStore)
    pairs: dict[str, object] = {
        "list of nodes": f"{found.list_name}, version {found.list_version}: {found.listed} nodes",
        "nodes heard": found.nodes,
        "messages" if masked else "summaries": sum(found.summaries.values()),
        "smallest batch": f"{found.min_batch_size} nodes, {reached}",
    }
    neighbours = in_words(store.campaign)[found.adjacency]
    pairs |= {
        f"of them with ε = {format_micro(micro)} for {neighbours}": number for micro, number in found.summaries.items()
    }
    last = found.periods[-_PERIODS:]
    rows = [period_row(each, found.time_precision) for each in last]
    columns = ("period", "nodes", "missing", "in conflict", "missing nodes")
    title = "Nodes by period" + (
        f", the last {len(last)} of {len(found.periods)}" if len(found.periods) > _PERIODS else ""
    )
    blocks: list[Block] = [facts(f"Counted for {found.name}", pairs), table(title, columns, rows, (1, 2, 3))]
    if isinstance(store, MaskedStore):
        totals = [(shown(each.period, found.time_precision), len(each.parties)) for each in store.totals()]
        blocks.append(table("Decrypted sums", ("period", "parties in the sum"), totals[-_PERIODS:], (1,)))
    return blocks


def _dropped(rejected: Mapping[str, int]) -> list[Block]:
    some = {reason: number for reason, number in rejected.items() if number}
    if not some:
        return [paragraph("Nothing was set aside.")]
    rows = [(reason, number, meaning(reason)) for reason, number in sorted(some.items())]
    columns = ("reason", "number", "what it means")
    return [
        table("Set aside and not counted", columns, rows, (1,), more="hearsay quarantine ls --store STORE", most=40)
    ]
