"""The steps of a device in fault tests, and a record of what others have received from it.

A life has a folder: state, batch files, the files of a server. Outside of the folder, out of reach of faults, are the
clock and a record of all reports that others have seen or received. A scenario is one act of a life after some
preparation.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk import Device
from edge_sdk.policy import Policy
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from protocol.batches import batch
from protocol.documents.campaign import Series
from protocol.errors import HearsayError, StorageError
from support.publisher import DAY, NOW, Publisher, installed

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


def said(campaign: bytes, raw: bytes) -> Iterator[Said]:
    """The reports in these bytes."""
    for start in range(0, len(raw), RECORD_BYTES):
        record = raw[start : start + RECORD_BYTES]
        yield Said(campaign, int.from_bytes(record[10:14]), record)


def said_in_batches(content: bytes) -> Iterator[Said]:
    """The reports in a batch file. A batch file with its final name must be complete.

    Raises:
        AssertionError: it is incomplete.
    """
    for found in batch.read_batches(content):
        assert isinstance(found, batch.Batch), "a batch file is damaged"
        assert found.proven, "a batch file is torn"
        for position, count in found.spans:
            yield from said(found.header.campaign, content[position : position + RECORD_BYTES * count])


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


class Life:
    """A device and its folder. The public methods without arguments are the steps that scenarios name.

    Attributes:
        suffix: how the names of sealed files end.
        cost_micro, delta_pico: what one answered period costs: ε in millionths, δ in 10⁻¹².
    """

    suffix = ".hsr"
    cost_micro = EPSILON_MICRO
    delta_pico = 0

    def __init__(self, root: Path, policy: Mapping[str, object]) -> None:
        self.root = root
        self.world = root / "world"
        self.state = self.world / "state"
        self.out = self.world / "out"
        self.server = self.world / "server"
        self.policy = Policy.of(**policy)
        self.device: Device | None = None

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

    def _tell(self, name: str, campaign: bytes, raw: bytes) -> None:
        with (self.root / name).open("a") as file:
            file.write(f"{campaign.hex()} {raw.hex()}\n")

    def told(self, name: str) -> set[Said]:
        """The recorded answers that were ``returned`` by the device or ``received`` by others."""
        path = self.root / name
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = (map(bytes.fromhex, line.split()) for line in lines)
        return {each for campaign, raw in pairs for each in self.said(campaign, raw)}

    # What the answers are -----------------------------------------------------------------------------

    @property
    def documents(self) -> dict[str, bytes]:
        """All documents that the publisher signs in this life."""
        return documents()

    @staticmethod
    def said(campaign: bytes, raw: bytes) -> Iterator[Said]:
        """The answers in the bytes that the device returned."""
        return said(campaign, raw)

    @staticmethod
    def said_in_file(content: bytes) -> Iterator[Said]:
        """The answers in a sealed file; AssertionError if the file is not whole."""
        return said_in_batches(content)

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
        self.device = installed(Device, self.state, trust=self.documents["root 1"], **self._surroundings())

    def _surroundings(self) -> dict[str, Any]:
        """The device's clock and surroundings in tests. Entropy comes from ``os.urandom``, which the shim can break."""
        return {"policy": self.policy, "clock": lambda: self.now, "entropy": os.urandom, "machine": lambda: None}

    def close(self) -> None:
        if self.device is not None:
            self.device.close()
            self.device = None

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
        self._tell("returned", campaign.id, self.device.report(campaign.id, RECORD, label="e"))

    def report_series(self) -> None:
        """Report to both campaigns of the series. One of them is answered, and stays so."""
        for campaign in self.device.campaigns():
            try:
                self._tell("returned", campaign.id, self.device.report(campaign.id, RECORD, label="e"))
            except HearsayError as error:
                if error.reason != "series_answered":
                    raise

    def drain(self) -> None:
        self.device.drain(self.out / f"{len(list(self.out.iterdir()))}{self.suffix}")

    def send(self) -> None:
        """Someone comes by and takes a copy of every batch file."""
        for path in self.out.glob(f"*{self.suffix}"):
            for each in self.said_in_file(path.read_bytes()):
                self._tell("received", each.campaign, each.raw)

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
        child = os.fork()
        if child == 0:
            connection = sqlite3.connect(self.state / "state.db", isolation_level=None)
            for statement in ("PRAGMA journal_mode = TRUNCATE", "PRAGMA cache_size = 5", "BEGIN", "DELETE FROM meta"):
                connection.execute(statement).fetchall()
            for _ in range(20):
                connection.execute("INSERT INTO evidence VALUES (NULL, 'root', zeroblob(8000), zeroblob(8000), x'')")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert (self.state / "state.db-journal").stat().st_size > 0

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
        outcome = sync(self.device, Folder(self.server), entropy=os.urandom)
        for refusal in outcome.refusals:
            raise StorageError(refusal.reason, refusal.step)


class Scenario(NamedTuple):
    """An act after some preparation; steps of :class:`Life`, in order.

    Attributes:
        prepare: done without faults. The device is open from the step ``open`` on.
        act: done by a new process while one thing breaks. Begins with the start of the program.
        policy: the owner's limits, as in ``policy.toml``.
    """

    prepare: tuple[str, ...]
    act: tuple[str, ...]
    policy: Mapping[str, object] = MappingProxyType({})


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
    "a whole life": Scenario(
        (), ("open", "enrol", "report", "install", "drain", "send", "ack", "second_day", "rotate", "report")
    ),
}


def summary(status: Status) -> dict[str, object]:
    """What must be equal after an unbroken act and after a broken and repeated act, from a device's status."""
    return {
        "campaigns": [list(each[:2]) for each in status.campaigns],
        "models": [list(each[:2]) for each in status.models],
        "root": status.root_version,
        "spent": status.spent_micro,
    }


def warm_up() -> None:
    """Live one life before the first fork, so that late imports and caches are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), {})
        folders(life)
        for step in SCENARIOS["a whole life"].act:
            getattr(life, step)()
        summary(life.device.status())
        life.close()


def folders(life: Life) -> None:
    """Make the empty folders of a life."""
    for folder in (life.world, life.out):
        folder.mkdir(parents=True, exist_ok=True)
