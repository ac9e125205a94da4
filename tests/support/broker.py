"""A Mosquitto broker on loopback with the example's configuration. Tests start, kill and restart it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLE = Path(__file__).parents[2] / "examples" / "mqtt"
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
PASSWORDS = {"gateway": "the-gateways-own", "device": "one-for-all-devices"}


def need_mosquitto() -> str:
    """The path of the broker's program. If it is not installed, the test is skipped; in CI the test fails."""
    program = shutil.which("mosquitto", path=PATHS)
    if program is None and os.environ.get("CI"):
        pytest.fail("mosquitto is missing in CI")
    if program is None:
        pytest.skip("mosquitto is not installed: apt-get install mosquitto")
    return program


def free_port() -> int:
    """A port that the system gives to nobody who asks for any: another test could take such a port meanwhile."""
    for port in random.SystemRandom().sample(range(10_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port in 100")


class RunningBroker:
    """Mosquitto in a folder; ``logins`` are the files that the example's programs read.

    Args:
        folder: made here.
        certificate: a folder with ``cert.pem`` and ``key.pem``; then it speaks TLS only.
        largest: most bytes of a packet; None for the example's limit.
    """

    def __init__(self, folder: Path, certificate: Path | None = None, largest: int | None = None) -> None:
        self._program = need_mosquitto()
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        text = (EXAMPLE / "mosquitto.conf").read_text("utf-8")
        text = text.replace("listener 1883 127.0.0.1", f"listener {self.port} 127.0.0.1")
        if largest is not None:
            text = re.sub(r"(?<=max_packet_size )\d+", str(largest), text)
        if certificate is not None:
            text += f"certfile {certificate / 'cert.pem'}\nkeyfile {certificate / 'key.pem'}\n"
        if os.geteuid() == 0:
            text += "user root\n"
        (folder / "mosquitto.conf").write_text(text, "utf-8")
        shutil.copy(EXAMPLE / "acl", folder)
        (folder / "acl").chmod(0o600)
        self.logins = {}
        (folder / "passwords").touch(mode=0o600)
        for user, password in PASSWORDS.items():
            tool = shutil.which("mosquitto_passwd", path=PATHS)
            subprocess.run([tool, "-b", folder / "passwords", user, password], check=True)
            self.logins[user] = folder / f"{user}.login"
            self.logins[user].write_text(f"{user}:{password}\n", "utf-8")

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            command = [self._program, "-c", "mosquitto.conf"]
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        for _ in range(3000):
            assert self._process.poll() is None, self.log()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError("mosquitto does not answer")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End the broker by a signal. After SIGKILL it has saved nothing."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def log(self) -> str:
        """The broker's log so far."""
        return (self._folder / "log").read_text("utf-8")


def start_gateway(
    broker: RunningBroker, inbox: Path, source: Path, program: Path = EXAMPLE / "gateway.py"
) -> subprocess.Popen[str]:
    """Start the example's gateway, and wait until the broker keeps what comes for it."""
    command = [sys.executable, "-W", "error", program, "--broker", f"127.0.0.1:{broker.port}"]
    command += ["--inbox", inbox, "--source", source, "--login", broker.logins["gateway"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(EXAMPLE.parents[1])])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a gateway, and close the pipe of its output."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


class HostileBroker(threading.Thread):
    """Accepts one connection of MQTT 5 on loopback, and answers its first request with bytes of the test's choice.

    Args:
        flood: pieces of what it sends; it stops when the other side closes the connection.
    """

    def __init__(self, flood: Iterable[bytes]) -> None:
        super().__init__(daemon=True)
        self._flood = flood
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.sent = 0
        self.start()

    def run(self) -> None:
        """Serve the connection."""
        with self._server, contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"\x20\x03\x00\x00\x00")  # CONNACK: accepted, no properties
                connection.recv(65536)
                for piece in self._flood:
                    connection.sendall(piece)
                    self.sent += len(piece)
                connection.recv(65536)


def huge_message() -> Iterable[bytes]:
    """A PUBLISH of 256 MB, announced and begun."""
    yield b"\x30\xff\xff\xff\x7f"
    yield from repeat(bytes(1 << 20), 32)


def unfinished_messages() -> Iterable[bytes]:
    """Forty messages of QoS 2 with 1 MiB each, which the broker never completes."""
    for number in range(1, 41):
        body = b"\x00\x01t" + number.to_bytes(2, "big") + b"\x00" + bytes((1 << 20) - 6)
        yield b"\x34\x80\x80\x40" + body
