"""The promises that must hold after a broken act.

ε emitted ≤ ε ledgered; no question is answered twice with different bytes; no report is lost, except reports that
a stated bound dropped and counted; no document is partly installed; and the device continues to work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import HearsayError
from support.faults.lives import Life, Said, Scenario, summary

if TYPE_CHECKING:
    from edge_sdk.status import Status


def examine(life: Life, scenario: Scenario, before: dict, whole: dict, visible: set[Said]) -> list[str]:
    """Restart the device, repeat the act, and live one ordinary day. Return the broken promises.

    Args:
        life: on the disk as the fault left it.
        scenario: what was being done.
        before: the device before the act; empty if there was none.
        whole: the device after an act that was not broken.
        visible: reports that others may have seen in files before the power went.
    """
    problems: list[str] = []
    reset = "lose" in scenario.prepare
    series = "enrol_series" in scenario.prepare
    try:
        life.open()
    except HearsayError as error:
        if not (reset and error.reason == "state_lost"):
            return [f"can not be opened: {error.reason}"]
    if life.device is not None:
        status = life.device.status()
        problems += _promises(life, status, visible, "after the restart", whole_ledger=not reset, series=series)
        problems += _documents(summary(status), before, whole, several=len(scenario.act) > 3)
    life.close()
    for step in scenario.act:
        getattr(life, step)()
    status = life.device.status()
    if summary(status) != whole:
        problems.append(f"done once more, it is {summary(status)}, not {whole}")
    problems += _promises(
        life, status, visible, "after the act was done once more", whole_ledger=not reset, series=series
    )
    return problems + _works_on(life, status, series=series)


def _promises(
    life: Life, status: Status, visible: set[Said], when: str, *, whole_ledger: bool, series: bool
) -> list[str]:
    """Privacy and reports, as far as this moment.

    Args:
        life: with its device open.
        status: the device's status now.
        visible: as in :func:`examine`.
        when: for the message.
        whole_ledger: false where the state was lost before, so that lines and reports of then are gone.
        series: whether all campaigns are of one series, in which one answer may be given.
    """
    device = life.device
    ledger = {(line.id, line.period): line.epsilon_micro for line in device.history()}
    fresh = life.root / f"fresh {when}{life.suffix}"
    device.drain(fresh)
    kept = set(life.said_in_file(fresh.read_bytes())) if fresh.exists() else set()
    life.seen_in(
        {str(path): path.read_bytes() for path in life.out.glob(f"*{life.suffix}")}
    )  # whole, whatever was lost
    returned, received = life.told("returned"), life.told("received") | _on_server(life)
    everything = visible | returned | received | kept
    periods = {(each.campaign, each.period) for each in everything}
    problems = []
    if len(periods) * life.cost_micro > status.spent_micro:
        problems.append(f"answered {len(periods)} periods and counts only {status.spent_micro} as spent")
    if len(periods) * life.delta_pico > status.delta_spent_pico:
        problems.append(f"answered {len(periods)} periods and counts only δ = {status.delta_spent_pico} as spent")
    if series and len(periods) > 1:
        problems.append(f"answered {len(periods)} periods of one series")
    if len(everything) > len(periods) or len({each.id for each in everything}) < len(everything):
        problems.append("answered one period with different bytes")
    if whole_ledger:
        if sum(ledger.values()) != status.spent_micro:
            problems.append("the ledger's lines are not what is spent")
        if sum(line.delta_pico for line in device.history()) != status.delta_spent_pico:
            problems.append("the δ of the ledger's lines is not what is spent")
        if not periods <= set(ledger):
            problems.append("something was said that is not in the ledger")
        safe = {(each.campaign, each.period) for each in kept | received}
        missing, dropped = len(set(ledger) - safe), sum(status.spool.dropped.values())
        if not missing <= dropped <= missing + len(received - kept):
            problems.append(f"{missing} reports are missing and {dropped} were dropped")
        if not dropped and not returned <= kept | received:
            problems.append("a report that was returned is gone")
    return [f"{when}: {problem}" for problem in problems]


def _on_server(life: Life) -> set[Said]:
    """The reports that have arrived at the server of ``sync``."""
    reports = life.server / "reports"
    return life.seen_in({str(path): path.read_bytes() for path in reports.glob("*")}) if reports.exists() else set()


def _documents(now: dict, before: dict, whole: dict, *, several: bool) -> list[str]:
    """Check that each document is the old or the new one, each by itself if the act installs several."""
    if several or not before:
        return []
    return [f"{key} is {value}" for key, value in now.items() if value not in (before[key], whole[key])]


def _works_on(life: Life, before: Status, *, series: bool) -> list[str]:
    """Check the next day: a report, a batch, its arrival; the newest root and model. ``before``: the status so far.

    In a series the next day's report is refused.
    """
    device, problems = life.device, []
    life.later()
    answers = bool(device.campaigns()) and not before.disabled and not series
    if series:
        life.report_series()
    if answers:
        life.report()
        path = life.root / f"last{life.suffix}"
        device.drain(path)
        if device.ack(path) < 1:
            problems.append("the next day's batch was not acknowledged")
    life.rotate()
    life.install_next()
    status = device.status()
    if status.spent_micro != before.spent_micro + life.cost_micro * answers:
        problems.append("the next day's report was not counted")
    if answers and status.spooled:
        problems.append("the next day's batch was not acknowledged as a whole")
    if status.root_version != 3 or device.model().predict({"odor": "n"}) != "e":
        problems.append("the next day's documents were not installed")
    return problems
