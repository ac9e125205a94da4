"""``hearsay status``: print the number of reports, and of devices that are still needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.counting import working_on
from aggregator.cli.output import (
    as_json,
    note,
    print_facts,
    print_json,
    print_table,
    warn,
    warn_of_end,
    working,
    wrong_usage,
)
from aggregator.common.periods import shown

if TYPE_CHECKING:
    from aggregator.cards.alarms import Alarms
    from aggregator.operations.status import DayCount, Status


_BAR = 30
_DAYS = 31
_ALARMS = 10


@click.command()
@options.store
@click.option("--interval", type=click.FloatRange(0, 1, min_open=True), metavar="H",
              help="Target for the half width of every share's 95 % interval, for example 0.02.")  # fmt: skip
@click.option("--target-sd", type=click.FloatRange(0, 1, min_open=True), metavar="SD",
              help="The target as a standard deviation instead.")  # fmt: skip
@options.memory("1GiB")
@options.cluster
@options.json
def status(store: Path, interval: float | None, target_sd: float | None, memory: int, cluster: str | None) -> None:
    """Show how many reports there are, by day (UTC) and question, and how many devices are still needed.

    For each question it prints the half width of the widest 95 % interval, as a share of the devices asked, once the
    campaign's smallest batch is reached. With --interval or --target-sd it also prints how many more devices must
    answer. Devices of one period are counted. For several periods there are only bounds, because ids do not tell
    whether a device answered again.

    Alarms tell of reports that honest devices hardly ever send: set bits that do not follow their law, questions with
    too many reports, estimates outside their range, a period unlike the others. Their p-values are corrected for the
    number of tests. hearsay guarantee says what no test can see.

    Of a store of nodes' summaries it shows the nodes that were heard and those that are missing, by period; of a store
    of a shared campaign's totals the reports of each period, and the noise of a cell.

    \b
    Example:
      hearsay status --store store --interval 0.02
    """  # noqa: D301
    from aggregator.cli.nodes.stores import print_node_status
    from aggregator.cli.totals import print_total_status
    from aggregator.collectors.totals import is_total_store
    from aggregator.nodes.store.opening import is_node_store
    from aggregator.operations.report_store import open_store
    from aggregator.operations.status import half_width_of
    from aggregator.operations.status import status as status_of

    if interval is not None and target_sd is not None:
        raise wrong_usage("give --interval or --target-sd, not both")
    if is_node_store(store):
        if target_sd is not None or interval is not None or cluster is not None:
            raise wrong_usage(
                "--interval, --target-sd and --cluster are for reports; this store has summaries of nodes"
            )
        print_node_status(store)
        return
    if is_total_store(store):
        if target_sd is not None or interval is not None or cluster is not None:
            raise wrong_usage("--interval, --target-sd and --cluster are for reports; this store has totals")
        print_total_status(store)
        return
    target = interval if target_sd is None else half_width_of(target_sd)
    opened = open_store(store)
    opened.memory_bytes = memory
    with working_on(opened, cluster), working("counting reports"):
        found = status_of(opened, target=target)
    warn_of_end(opened.campaign)
    if as_json():
        print_json(found.to_json())
        return
    _print_status(found)


def _print_status(found: Status) -> None:
    from aggregator.page.sections.counts import between

    reached = "reached" if found.enough else "not reached"
    forgotten = f"periods before {shown(found.forgotten_before, found.time_precision)}"
    needed = {} if found.devices_needed is None else {"devices still needed": found.devices_needed}
    print_facts(
        {
            "campaign": found.name,
            "reports": found.reports,
            "devices": between(found.devices_at_least, found.devices_at_most),
            "smallest batch": f"{found.min_batch_size}, {reached}",
            "of damaged files": found.unproven,
        }
        | ({"superseded by whole files": found.superseded} if found.superseded else {})
        | ({"forgotten": forgotten} if found.forgotten_before else {})
        | {f"set aside: {reason}": count for reason, count in found.rejected.items()}
        | needed
        | ({} if found.alarms is None else {"alarms": found.alarms.summary()})
    )
    if found.alarms is not None and found.alarms.raised:
        _print_alarms(found.alarms)
    if found.days:
        _print_days(found.days)
    click.echo()
    rows: list[tuple[object, ...]] = [
        (
            reach.question,
            reach.n,
            "" if reach.half_width is None else f"{reach.half_width:.4f}",
            "" if reach.devices_needed is None else reach.devices_needed,
        )
        for reach in found.questions
    ]
    columns = ["question", "reports", "± (95 %)", "devices needed"]
    if all(reach.devices_needed is None for reach in found.questions):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(columns, rows, columns[1:])
    if found.alarms is not None:
        note("alarms do not look for drift: hearsay diff --periods compares two spans of time")


def _print_alarms(found: Alarms) -> None:
    click.echo()
    shown = found.raised[:_ALARMS]
    rows = [(test.kind, test.about, f"{test.p:.2g}", f"{test.corrected:.2g}") for test in shown]
    if len(shown) < len(found.raised):
        rows.append(("", f"and {len(found.raised) - len(shown)} more; see --json", "", ""))
    print_table(["alarm", "found", "p-value", "corrected"], rows, ["p-value", "corrected"])
    warn(
        "honest devices hardly ever send such reports: lies, faults, or (kind periods) a population that changed; "
        "hearsay guarantee says what lies can move"
    )


def _print_days(days: tuple[DayCount, ...]) -> None:
    from aggregator.page.sections.counts import between, day_row

    click.echo()
    shown = days[-_DAYS:]
    most = max(day.reports for day in shown)
    rows: list[tuple[object, ...]] = []
    if len(days) > len(shown):
        earlier = days[: -len(shown)]
        least = max(day.devices_at_least for day in earlier)
        devices = between(least, sum(day.devices_at_most for day in earlier))
        reports = sum(day.reports for day in earlier)
        rows.append(("earlier", f"{earlier[0].first}..{earlier[-1].last}", reports, devices, ""))
    rows += [(*day_row(day), "█" * max(1, round(_BAR * day.reports / most))) for day in shown]
    print_table(["day (UTC)", "periods", "reports", "devices", ""], rows, ["reports", "devices"])
