"""Break the act of a scenario at every call in every way, and check the promises on the remaining files.

The harness is a process with the shim preloaded (``python -m support.faults``). Each act and each check is a fork
of this process, which never opens a state itself. So each is like a new process, without the tenth of a second that
the interpreter takes to start.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import sqlite3
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import database
from protocol.errors import HearsayError
from support.faults.disk import MARK, WRITE, Call, Disk, read_log, read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

KINDS = {"none": 0, "kill": 1, "kill_after": 2, "fail": 3, "fail_from": 4, "tear": 5, "short": 6}
"""As in shim.c."""
WAYS = {
    "kill": ("kill", 0),
    "tear": ("tear", 0),
    "short": ("short", 0),
    "EIO": ("fail", errno.EIO),
    "ENOSPC": ("fail_from", errno.ENOSPC),
    "restart": ("kill", 0),
}
"""Way to break a call → kind and error of the shim. After ``restart`` another process repeats the act."""
POWER_CUTS = ("kill", "tear", "EIO", "restart")
"""Ways that are followed by a check after a power cut that loses everything not flushed."""
RANDOM_CUTS = ("kill",)
"""Ways that are also followed by checks after power cuts that lose a random part of it."""
EXPECTED = {"disk_full", "io_failed"}
"""Allowed reasons of a device's error after a failed call."""


class Scenario(NamedTuple):
    """An act after some preparation; steps of a :class:`FolderLife`, in order.

    Attributes:
        prepare: done without faults. The tool is open from the step ``open`` on.
        act: done by a new process while one thing breaks. Begins with the start of the program.
        policy: a device owner's limits, as in ``policy.toml``.
    """

    prepare: tuple[str, ...]
    act: tuple[str, ...]
    policy: Mapping[str, object] = MappingProxyType({})


class Mistake(NamedTuple):
    """A deliberate mistake of the software, and the scenario and way to break it that must find it."""

    scenario: str
    way: str
    spoil: Callable[[], None]


class FolderLife(ABC):
    """A tool that works in a folder. The public methods without arguments are the steps that scenarios name.

    Attributes:
        world: the folder in reach of faults, with a folder ``out`` for files that others may take.
        tool: the open device, dealer, budget or store; None if none is open.
    """

    def __init__(self, root: Path, policy: Mapping[str, object]) -> None:
        del policy  # only a device has one
        self.root = root
        self.world = root / "world"
        self.out = self.world / "out"
        self.tool: Any = None

    def tell(self, what: str, name: str = "told") -> None:
        """Note something that others have received. The note is out of reach of every fault."""
        with (self.root / name).open("a") as file:
            file.write(what + "\n")

    def told(self, name: str = "told") -> list[str]:
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        if self.tool is not None:
            self.tool.close()
            self.tool = None

    def do(self, steps: tuple[str, ...]) -> None:
        for step in steps:
            getattr(self, step)()

    @classmethod  # noqa: B027 - most lives have nothing to load
    def warm_up(cls) -> None:
        """Load late imports and caches before the first fork."""

    def seen_in(self, tree: dict[str, bytes | None]) -> set[Any]:
        """What others may have seen in these files; AssertionError if a file is not whole."""
        del tree
        return set()

    @abstractmethod
    def summary(self) -> dict[str, object]:
        """What must be equal after an unbroken act, and after a broken and repeated one; JSON values."""

    def promises(self, when: str, scenario: Scenario) -> list[str]:
        """The promises that are broken now."""
        del when, scenario
        return []

    def examine(self, scenario: Scenario, before: Any, whole: Any, visible: set[Any]) -> list[str]:
        """Restart on the remaining files, and repeat the act. Return the broken promises."""
        del before, visible
        try:
            self.open()  # type: ignore[attr-defined]
        except HearsayError as error:
            return [f"can not be opened: {error.reason}"]
        problems = self.promises("after the restart", scenario)
        self.do(scenario.act)
        if self.summary() != whole:
            problems.append(f"done once more, it is {self.summary()}, not {whole}")
        return problems + self.promises("after the act was done once more", scenario)


@dataclass
class Findings:
    """Counts of what was tried, and the broken promises."""

    calls: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    violations: list[str] = field(default_factory=list)


class Harness:
    """Breaks one scenario of a life. ``root`` is an empty folder; ``seeds`` random power cuts per kill point."""

    def __init__(self, life: type[FolderLife], scenario: Scenario, root: Path, name: str, seeds: int) -> None:
        self.root = root.resolve()
        self.name = name
        self.scenario = scenario
        self.seeds = seeds
        self.life = life(self.root, scenario.policy)
        self.findings = Findings()
        self._shim = ctypes.CDLL(None)
        self._looked: set[bytes] = set()
        self._beside: dict[str, bytes] = {}
        self._tree: dict[str, bytes | None] = {}

    # Forks --------------------------------------------------------------------------------------------

    def _in_child(self, work: Callable[[], Any]) -> tuple[Any, int]:
        """The result of ``work`` in a child process, sent as JSON, and its exit status; no result if it was killed."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                text = json.dumps(work())
                with os.fdopen(writing, "w") as pipe:
                    pipe.write(text)
                status = 0
            except BaseException:  # noqa: BLE001
                with os.fdopen(writing, "w") as pipe:
                    pipe.write(json.dumps(traceback.format_exc()))
            os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        return (json.loads(text) if text else None), status

    def _act(self, kind: int, at: int, number: int, seed: int = 1) -> Any:
        """Run the act in a child. Return the state of the device, and the reason of the first failure."""
        self._shim.faults_seed(ctypes.c_uint64(seed))
        world, log = os.fsencode(self.life.world), os.fsencode(self.root / "log")
        self._shim.faults_arm(world, log, kind, ctypes.c_long(at), number)
        failed = None
        try:
            self.life.do(self.scenario.act)
        except HearsayError as error:
            failed = error.reason
        if failed:  # the program goes on, with its tool if that is open, and tries once more
            self._shim.faults_spare()
            is_open = self.life.tool is not None
            self.life.do(tuple(step for step in self.scenario.act if not (is_open and step == "open")))
        result = self.life.summary()
        self.life.close()
        self._shim.faults_disarm()
        return {"failed": failed, "summary": result}

    # The world and what is beside it ------------------------------------------------------------------

    def _prepare(self) -> None:
        def prepare() -> dict[str, object]:
            self.life.out.mkdir(parents=True)
            self.life.do(self.scenario.prepare)
            before = self.life.summary() if self.life.tool is not None else {}
            self.life.close()
            return before

        self._before, status = self._in_child(prepare)
        assert status == 0, f"{self.name}: the preparation failed: {self._before}"
        self._tree = read_tree(self.life.world)
        self._beside = {path.name: path.read_bytes() for path in self.root.iterdir() if path.is_file()}

    def _restore(self, tree: dict[str, bytes | None], beside: dict[str, bytes]) -> None:
        write_tree(self.life.world, tree)
        for path in self.root.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in beside.items():
            (self.root / name).write_bytes(content)

    def _read_beside(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.iterdir() if path.is_file() and path.name != "log"}

    # Breaking -----------------------------------------------------------------------------------------

    def run(self, ways: list[str], turns: list[str], *, first: bool = False) -> Findings:
        """Break each call of the act in each of these ways, and in one of the ``turns``, which alternate.

        ``first``: stop at the first broken promise.
        """
        self.life.warm_up()
        gc.disable()
        gc.freeze()
        self._prepare()
        calls = self._unbroken()
        self.findings.calls = len(calls)
        for way, at in self._faults(ways, turns, calls):
            self._break(way, at)
            if first and self.findings.violations:
                break
        shutil.rmtree(self.life.world)
        return self.findings

    @staticmethod
    def _faults(ways: list[str], turns: list[str], calls: list[Call]) -> Iterator[tuple[str, int]]:
        """Every way with the number of every call that can be broken so. The ``turns`` share the calls in turn."""
        for at in range(1, len(calls) + 1) if turns else ():
            yield turns[at % len(turns)], at
        for way in ways:
            for at, call in enumerate(calls, 1):
                if way not in ("tear", "short") or (call.op == WRITE and len(call.data) > 1):
                    yield way, at
            if way == "kill":  # whole, and then the power goes
                yield way, len(calls) + 1

    def _unbroken(self) -> list[Call]:
        """Run the act without faults; also check that the shim sees every change of the disk."""
        disk = Disk(self.life.world)
        result, status = self._in_child(lambda: self._act(KINDS["none"], 0, 0))
        assert status == 0, f"{self.name}: the act failed without any fault: {result}"
        assert result["failed"] is None, f"{self.name}: the act was refused without any fault: {result['failed']}"
        calls = [call for call in read_log(self.root / "log") if call.op != MARK]
        disk.replay(calls)
        assert disk.seen() == read_tree(self.life.world), f"{self.name}: the shim did not see every change"
        self.whole = result["summary"]
        return calls

    def _break(self, way: str, at: int) -> None:
        """Inject one fault and check every state that may remain."""
        kind, number = WAYS[way]
        where = f"{way} at call {at}"
        self.findings.broken[way] = self.findings.broken.get(way, 0) + 1
        self._restore(self._tree, self._beside)
        disk = Disk(self.life.world)
        result, status = self._in_child(lambda: self._act(KINDS[kind], at, number))
        stopped = kind in ("kill", "tear")
        if stopped and at <= self.findings.calls and status != signal.SIGKILL:
            self._violation(where, f"was not killed, but ended with {status}: {result}")
        if way == "restart":
            result, status = self._in_child(lambda: self._act(KINDS["none"], 0, 0, seed=2))
        if way == "restart" or not stopped:
            self._judge(where, result, status)
        left, beside = read_tree(self.life.world), self._read_beside()
        disk.replay(read_log(self.root / "log"))
        assert disk.seen() == left, f"{self.name}, {where}: the shim did not see every change"
        try:
            visible = self.life.seen_in(left)
        except AssertionError as error:
            self._violation(where, str(error))
            return
        self._look(where, left, beside, visible)
        if way in POWER_CUTS:
            self._look(f"{where}, power cut", disk.after_power_cut(), beside, visible)
        for seed in range(self.seeds if way in RANDOM_CUTS else 0):
            lost = disk.after_power_cut(seed * 1000 + at)
            self._look(f"{where}, power cut that leaves some ({seed})", lost, beside, visible)

    def _judge(self, where: str, result: Any, status: int) -> None:
        """Check the errors and the final state of a program that was not killed."""
        if status != 0:
            self._violation(where, f"an error that is not ours, or at a second try: {result}")
        elif result["failed"] not in {None, *EXPECTED}:
            self._violation(where, f"said {result['failed']}")
        elif result["summary"] != self.whole:
            self._violation(where, f"is {result['summary']} after a second try, not {self.whole}")

    def _look(self, where: str, tree: dict[str, bytes | None], beside: dict[str, bytes], visible: set[Any]) -> None:
        """Restart on the remaining files and check the promises. Equal remains are checked once."""
        key = sha256(repr((sorted(tree.items()), sorted(beside.items()), sorted(visible))).encode()).digest()
        if key in self._looked:
            return
        self._looked.add(key)
        self._restore(tree, beside)
        self.findings.looks += 1
        problems, status = self._in_child(lambda: self.life.examine(self.scenario, self._before, self.whole, visible))
        if status != 0:
            problems = [f"it does not work any more: {problems}"]
        for problem in problems:
            self._violation(where, problem)

    def _violation(self, where: str, problem: str) -> None:
        self.findings.violations.append(f"{where}: {problem}")


def die_within(path: Path, emptied: str, insert: str) -> None:
    """Fork a process that dies within a transaction of a database which is larger than its page cache."""
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = TRUNCATE",
            "PRAGMA cache_size = 5",
            "BEGIN",
            f"DELETE FROM {emptied}",
        ):
            connection.execute(statement).fetchall()
        for number in range(20):
            connection.execute(insert, (number + 10,))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.with_name(f"{path.name}-journal").stat().st_size > 0


def without_synchronisation() -> None:
    """A mistake of every owner of a database: nothing waits for the disk."""
    database.SYNCHRONOUS = "OFF"


def with_less_synchronisation() -> None:
    """A mistake of every owner of a database: a commit does not wait for the disk."""
    database.SYNCHRONOUS = "NORMAL"


def without_journal() -> None:
    """A mistake of every owner of a database: nothing can be rolled back."""
    database.JOURNAL = "OFF"
