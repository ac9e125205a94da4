"""``hearsay`` and ``hearsay-edge`` as forks of one process that has imported both.

A page has up to some thirty commands. A new process imports numpy, pandas and pyarrow first, which takes a second each
time; a fork of a process that has them takes some milliseconds. Standard streams, folder, environment and arguments are
the caller's, and so is the exit status.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

SHIM = """#!{python} -SE
import array, json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
words = json.dumps([{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = array.array("i", [0, 1, 2])
server.sendmsg([len(words).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(words)
status = server.recv(1)
sys.exit(status[0] if status else 70)
"""
LOADED = (
    "aggregator.cli.app", "aggregator.operations.models", "aggregator.operations.campaigns",
    "aggregator.operations.report_store",
    "edge_sdk.cli.main", "edge_sdk.device", "edge_sdk.sync", "simulation.simulate", "pyarrow.parquet", "rich.table",
)  # fmt: skip
"""Modules that most commands need."""


def install(folder: Path, address: Path) -> None:
    """Write the two programs into a folder. They ask the server at a socket's address."""
    for program in ("hearsay", "hearsay-edge"):
        file = folder / program
        file.write_text(SHIM.format(python=sys.executable, address=str(address), program=program), "utf-8")
        file.chmod(0o755)


def serve(address: Path) -> None:
    """Answer requests until the process is ended. Run in a process of its own."""
    for name in LOADED:
        __import__(name)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(16)
        while True:
            asked, _ = server.accept()
            streams, words = _request(asked)
            child = os.fork()
            if child == 0:
                server.close()
                asked.close()
                _run(streams, *words)
            for stream in streams:
                os.close(stream)
            threading.Thread(target=_answer, args=(asked, child), daemon=True).start()


def _request(asked: socket.socket) -> tuple[list[int], list]:
    """The caller's three streams; program, arguments, folder and environment."""
    length, ancillary, _, _ = asked.recvmsg(8, socket.CMSG_SPACE(12))
    streams = array.array("i")
    for _, _, data in ancillary:
        streams.frombytes(data)
    left = int.from_bytes(length, "big")
    words = b""
    while len(words) < left:
        words += asked.recv(left - len(words))
    return list(streams), json.loads(words)


def _answer(asked: socket.socket, child: int) -> None:
    """Wait for a command, and tell the caller its exit status."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        asked.sendall(bytes([code if code >= 0 else 128 - code]))
    asked.close()


def _run(streams: list[int], program: str, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be the command: in the forked process. Never returns."""
    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 64)
        # The objects of the server know whether *its* streams can seek.
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115 - open as long as the fork
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [program, *arguments]
        from aggregator.entry import main as hearsay
        from edge_sdk.cli.main import main as edge

        try:
            code = hearsay() if program == "hearsay" else edge()
        except SystemExit as ended:
            code = ended.code
        code = code if isinstance(code, int) else int(code is not None)
    except BaseException as error:  # noqa: BLE001 - the fork ends here, whatever it was
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = 70
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
