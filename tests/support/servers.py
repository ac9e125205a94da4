"""Servers on loopback: one sends exactly the bytes of a script, one serves and accepts files."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Request:
    """A request that a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def reply(status: int = 200, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    """The bytes of an HTTP answer. ``length`` replaces the true Content-Length."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Scripted:
    """A server that answers connection n with step n, and all later connections with the last step.

    A step is the bytes to send or a function of (socket, request).
    """

    steps: list[bytes | Callable[[socket.socket, Request], None]]
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        request = read_request(connection)
        if request is None:
            return
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(request)
        if callable(step):
            step(connection, request)
        else:
            connection.sendall(step)


def read_request(connection: socket.socket) -> Request | None:
    """Read a complete request; None if the client closed the connection before."""
    connection.settimeout(10)
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = connection.recv(65536)
        if not part:
            return None
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        part = connection.recv(65536)
        if not part:
            return None
        body += part
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


@contextlib.contextmanager
def scripted(*steps: bytes | Callable[[socket.socket, Request], None], wrap=lambda plain: plain) -> Iterator[Scripted]:
    """A server that follows a script. ``wrap`` may put TLS around a connection."""
    server = Scripted(list(steps))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        stop = threading.Event()

        def one(plain: socket.socket) -> None:
            with contextlib.suppress(OSError), plain, wrap(plain) as connection:
                server.serve(connection)

        def run() -> None:
            workers = []
            with contextlib.suppress(OSError):
                while not stop.is_set():
                    plain, _ = listener.accept()
                    if stop.is_set():
                        plain.close()
                        break
                    workers.append(threading.Thread(target=one, args=(plain,)))
                    workers[-1].start()
            for worker in workers:
                worker.join(10)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", server.port), 1).close()
            thread.join(10)


def certificate(folder: Path) -> ssl.SSLContext:
    """Make ``cert.pem`` of this machine and ``key.pem`` in a folder; return what trusts this certificate alone."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem"
    folder.mkdir(exist_ok=True)
    subprocess.run([*command.split(), *names.split()], cwd=folder, check=True, capture_output=True)
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))


def drip(data: bytes, seconds: float = 0.02) -> Callable[[socket.socket, Request], None]:
    """A step that sends the data byte by byte with pauses, and then further bytes without end."""

    def step(connection: socket.socket, _: Request) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(seconds)
        while True:
            connection.sendall(b"x")
            time.sleep(seconds)

    return step


class TreeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as a web server does, and stores the files of PUT and POST requests."""

    log: list[tuple[str, str, int]]

    def log_message(self, *_: object) -> None:
        pass

    def log_request(self, code: object = "-", size: object = "-") -> None:
        self.log.append((self.command, self.path, int(getattr(code, "value", code))))

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        target = Path(self.translate_path(self.path))
        target.parent.mkdir(exist_ok=True)
        is_other = target.exists() and target.read_bytes() != content
        if not is_other:
            target.write_bytes(content)
        self.send_response(409 if is_other else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT  # noqa: N815


@contextlib.contextmanager
def tree_server(folder: Path) -> Iterator[tuple[str, list[tuple[str, str, int]]]]:
    """A web server over a folder: its address and the list of (method, path, status) that it fills."""
    log: list[tuple[str, str, int]] = []
    handler = type("Handler", (TreeHandler,), {"log": log})

    def make(*arguments: object) -> http.server.BaseHTTPRequestHandler:
        return handler(*arguments, directory=os.fspath(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", log
        finally:
            server.shutdown()
            thread.join(10)
