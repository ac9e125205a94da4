"""The steps of a device in fault tests, what others have received from it, and what must hold.

A life has a folder: state, batch files, the files of a server. Outside of the folder, out of reach of faults, are the
clock and a record of all reports that others have seen or received. A scenario is one act of a life after some
preparation.

The promises: ε emitted ≤ ε ledgered; no question is answered twice with different bytes; no report is lost, except
reports that a stated bound dropped and counted; no document is partly installed; and the device continues to work.
"""

from __future__ import annotations

import errno
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk import Device
from edge_sdk.policy import Policy
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from protocol.documents.campaign import Series
from protocol.errors import HearsayError, StorageError
from support.faults.harness import FolderLife, Scenario, die_within
from support.publisher import DAY, NOW, Publisher, installed
from support.reports import records_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edge_sdk.status import Status

RECORD = {"odor": "n", "width": 3.2}
EPSILON_MICRO = 1_000_000
RECORD_BYTES = 18


class Said(NamedTuple):
    """One report that others have seen."""

    campaign: bytes
    period: int
    raw: bytes

    @property
    def id(self) -> bytes:
        return self.raw[2:10]


@cache
def documents() -> dict[str, bytes]:
    """All documents that the publisher signs in these lives."""
    publisher = Publisher()
    return {
        "root 1": publisher.root(1),
        "root 2": publisher.root(2),
        "root 3": publisher.root(3),
        "campaign 1": publisher.campaign(),
        "campaign 2": publisher.campaign(version=2),
        "series 1": publisher.campaign(name="first", series=Series("pilot", NOW)),
        "series 2": publisher.campaign(name="second", series=Series("pilot", NOW)),
        "model 1": publisher.model(),
        "model 2": publisher.model(version=2),
    }


class Life(FolderLife):
    """A device and its folder.

    Attributes:
        suffix: how the names of sealed files end.
        cost_micro, delta_pico: what one answered period costs: ε in millionths, δ in 10⁻¹².
    """

    kind: type[Device] = Device
    suffix = ".hsr"
    cost_micro = EPSILON_MICRO
    delta_pico = 0

    def __init__(self, root: Path, policy: Mapping[str, object]) -> None:
        super().__init__(root, policy)
        self.state = self.world / "state"
        self.server = self.world / "server"
        self.policy = Policy.of(**policy)

    @property
    def device(self) -> Any:
        return self.tool

    @classmethod
    def warm_up(cls) -> None:
        """Live one life before the first fork, so that late imports and caches are loaded."""
        with tempfile.TemporaryDirectory() as folder:
            life = cls(Path(folder), {})
            life.out.mkdir(parents=True)
            life.do(WHOLE)
            life.summary()
            life.close()

    def summary(self) -> dict[str, object]:
        return summary(self.device.status())

    def examine(self, scenario: Scenario, before: Any, whole: Any, visible: set[Said]) -> list[str]:
        return examine(self, scenario, before, whole, visible)

    # Out of reach of every fault ----------------------------------------------------------------------

    @property
    def now(self) -> int:
        path = self.root / "now"
        return int(path.read_text()) if path.exists() else NOW

    def later(self) -> None:
        """A day passes."""
        (self.root / "now").write_text(str(self.now + DAY))

    def second_day(self) -> None:
        """Set the clock to the second day."""
        (self.root / "now").write_text(str(NOW + DAY))

    def tell_answer(self, name: str, campaign: bytes, raw: bytes) -> None:
        self.tell(f"{campaign.hex()} {raw.hex()}", name)

    def answers_told(self, name: str) -> set[Said]:
        """The recorded answers that were ``returned`` by the device or ``received`` by others."""
        pairs = (map(bytes.fromhex, line.split()) for line in self.told(name))
        return {each for campaign, raw in pairs for each in self.said(campaign, raw)}

    # What the answers are -----------------------------------------------------------------------------

    @property
    def documents(self) -> dict[str, bytes]:
        """All documents that the publisher signs in this life."""
        return documents()

    @staticmethod
    def said(campaign: bytes, raw: bytes) -> Iterator[Said]:
        """The answers in the bytes that the device returned."""
        for start in range(0, len(raw), RECORD_BYTES):
            record = raw[start : start + RECORD_BYTES]
            yield Said(campaign, int.from_bytes(record[10:14]), record)

    def said_in_file(self, content: bytes) -> Iterator[Said]:
        """The answers in a sealed file; AssertionError if the file is not whole."""
        return (each for campaign, raw in records_in(content) for each in self.said(campaign, raw))

    def seen_in(self, tree: Mapping[str, bytes | None]) -> set[Said]:
        """The answers in finished files. Another program may have copied these files.

        Raises:
            AssertionError: a file is not whole.
        """
        return {
            each
            for path, content in tree.items()
            if content is not None and path.endswith(self.suffix) and not Path(path).name.startswith(".")
            for each in self.said_in_file(content)
        }

    # Steps --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """A program starts."""
        self.close()
        self.tool = installed(self.kind, self.state, trust=self.documents["root 1"], **self._surroundings())

    def _surroundings(self) -> dict[str, Any]:
        """The device's clock and surroundings in tests. Entropy comes from ``os.urandom``, which the shim can break."""
        return {"policy": self.policy, "clock": lambda: self.now, "entropy": os.urandom, "machine": lambda: None}

    def no_links(self) -> None:
        """The file system has no hard links."""

        def refused(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        os.link = refused

    def enrol(self) -> None:
        self.device.enrol(self.documents["campaign 1"])

    def enrol_next(self) -> None:
        self.device.enrol(self.documents["campaign 2"])

    def enrol_series(self) -> None:
        """Enrol in two campaigns of one series, in which a device answers once."""
        for name in ("series 1", "series 2"):
            self.device.enrol(documents()[name])

    def install(self) -> None:
        self.device.install(documents()["model 1"])

    def install_next(self) -> None:
        self.device.install(documents()["model 2"])

    def rotate(self) -> None:
        self.device.rotate([documents()["root 3"], documents()["root 2"]])

    def report(self) -> None:
        (campaign,) = self.device.campaigns()
        self.tell_answer("returned", campaign.id, self.device.report(campaign.id, RECORD, label="e"))

    def report_series(self) -> None:
        """Report to both campaigns of the series. One of them is answered, and stays so."""
        for campaign in self.device.campaigns():
            try:
                self.tell_answer("returned", campaign.id, self.device.report(campaign.id, RECORD, label="e"))
            except HearsayError as error:
                if error.reason != "series_answered":
                    raise

    def drain(self) -> None:
        self.device.drain(self.out / f"{len(list(self.out.iterdir()))}{self.suffix}")

    def send(self) -> None:
        """Someone comes by and takes a copy of every batch file."""
        for path in self.out.glob(f"*{self.suffix}"):
            for each in self.said_in_file(path.read_bytes()):
                self.tell_answer("received", each.campaign, each.raw)

    def ack(self) -> None:
        """Acknowledge the sent files. A file whose process died before noting the seal is unknown and sealed again."""
        for path in sorted(self.out.glob(f"*{self.suffix}")):
            try:
                self.device.ack(path)
            except HearsayError as error:
                if error.reason != "batch_unknown":
                    raise

    def disable(self) -> None:
        self.device.disable()

    def enable(self) -> None:
        self.device.enable()

    def change_by_half(self) -> None:
        """A process dies within a transaction larger than its page cache. Its journal must be rolled back."""
        self.close()
        insert = "INSERT INTO evidence VALUES (?, 'root', zeroblob(8000), zeroblob(8000), x'')"
        die_within(self.state / "state.db", "meta", insert)

    def lose(self) -> None:
        """The card loses the state file."""
        self.close()
        (self.state / "state.db").unlink()

    def reset(self) -> None:
        """The owner's program continues with a new state after the loss, as the owner has allowed."""
        try:
            self.open()
            return
        except StorageError as error:
            if error.reason != "state_lost":
                raise
        Device.reset(self.state, documents()["root 1"], **self._surroundings())
        self.open()

    def publish(self) -> None:
        """The server offers everything in its newest version."""
        for place, document in {
            "roots/2.hst": "root 2",
            "roots/3.hst": "root 3",
            "campaigns/mushrooms.hsc": "campaign 2",
            "models/mushrooms.hsm": "model 2",
        }.items():
            (self.server / place).parent.mkdir(parents=True, exist_ok=True)
            (self.server / place).write_bytes(self.documents[document])

    def sync(self) -> None:
        """Fetch new documents and send waiting batches. A refusal is raised as an error."""
        outcome = sync(self.device, Folder(self.server), campaigns=["mushrooms"], entropy=os.urandom)
        for refusal in outcome.refusals:
            raise StorageError(refusal.reason, refusal.step)


LIFE = Life
WHOLE = ("open", "enrol", "report", "install", "drain", "send", "ack", "second_day", "rotate", "report")
READY = ("open", "enrol", "report", "later")
SCENARIOS = {
    "provision": Scenario((), ("open",)),
    "enrol": Scenario(("open",), ("open", "enrol")),
    "enrol a successor": Scenario(READY, ("open", "enrol_next")),
    "report": Scenario(READY, ("open", "report")),
    "first report": Scenario(("open", "enrol"), ("open", "report")),
    "report in a series": Scenario(("open", "enrol_series"), ("open", "report_series")),
    "report into a full spool": Scenario(
        ("open", "enrol", "report", "later", "report", "later"), ("open", "report"), {"spool_reports": 2}
    ),
    "drain": Scenario((*READY, "report"), ("open", "drain")),
    "drain without links": Scenario((*READY, "report"), ("no_links", "open", "drain")),
    "drain again": Scenario((*READY, "report", "drain", "send", "ack", "later", "report"), ("open", "drain")),
    "ack": Scenario((*READY, "report", "drain", "send", "later", "report"), ("open", "ack")),
    "install": Scenario(("open", "enrol"), ("open", "install")),
    "install a newer one": Scenario((*READY, "install"), ("open", "install_next")),
    "rotate": Scenario((*READY, "install"), ("open", "rotate")),
    "disable": Scenario((*READY, "drain", "send"), ("open", "disable")),
    "enable": Scenario((*READY, "disable"), ("open", "enable")),
    "reset": Scenario((*READY, "report", "drain", "send", "lose"), ("reset",)),
    "reset beside a journal": Scenario((*READY, "report", "drain", "send", "change_by_half", "lose"), ("reset",)),
    "restart after half a change": Scenario((*READY, "report", "change_by_half"), ("open", "drain")),
    "sync": Scenario((*READY, "report", "publish"), ("open", "sync")),
    "sync again": Scenario((*READY, "publish", "sync", "later", "report"), ("open", "sync")),
    "first sync": Scenario(("open", "publish"), ("open", "sync")),
    "a whole life": Scenario((), WHOLE),
}


def summary(status: Status) -> dict[str, object]:
    """What must be equal after an unbroken act and after a broken and repeated act, from a device's status."""
    return {
        "campaigns": [list(each[:2]) for each in status.campaigns],
        "models": [list(each[:2]) for each in status.models],
        "root": status.root_version,
        "spent": status.spent_micro,
    }


# What must hold ---------------------------------------------------------------------------------------


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
    life.do(scenario.act)
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
    returned, received = life.answers_told("returned"), life.answers_told("received")
    received |= life.seen_in({str(path): path.read_bytes() for path in _arrived(life)})
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
    outbox = {path.name for path in (life.state / "outbox").glob("*")}
    arrived = {path.name for path in _arrived(life) if kept & set(life.said_in_file(path.read_bytes()))}
    if not arrived <= outbox:
        problems.append("a file that has arrived and counts as unsent does not wait under its name")
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


def _arrived(life: Life) -> list[Path]:
    """The files that have arrived at the server of ``sync``."""
    return list((life.server / "reports").glob(f"*{life.suffix}"))


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
