"""The other side of every transport for tests: documents to fetch, a place for batches, and a way to remove both."""

from __future__ import annotations

import re
import signal
import sys
from abc import abstractmethod
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from edge_sdk.transport.folder import Folder
from edge_sdk.transport.http import RetryPolicy, Web
from support.broker import EXAMPLE, RunningBroker, kill, start_gateway
from support.servers import tree_server

if TYPE_CHECKING:
    import subprocess

    from edge_sdk.transport import Transport


class World(AbstractContextManager["World"]):
    """The other side of a transport, as the contract tests need it.

    Args:
        folder: an empty folder for this world only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = ExitStack()

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def put(self, place: str, content: bytes) -> None:
        """Publish a new or changed document at a place. The next opened transport finds it."""
        path = self.folder / "tree" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    @abstractmethod
    def open(self) -> Transport:
        """A transport to this world."""

    def arrived(self) -> list[bytes]:
        """The batches that have arrived so far, by place."""
        return [path.read_bytes() for path in sorted((self.folder / "tree" / "reports").glob("*"))]

    @abstractmethod
    def vanish(self) -> None:
        """Remove the other side."""


class ZipWorld(World):
    """The transport that docs/how-to/extending.md writes, over one ZIP file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = folder / "source.zip"
        self._pack({})
        self._code: dict[str, Any] = {}
        page = (Path(__file__).parents[2] / "docs" / "how-to" / "extending.md").read_text("utf-8")
        (source,) = re.findall(r"""zip_transport\.py"\)\.write_text\('''(.*?)'''\)""", page, re.DOTALL)
        exec(source, self._code)

    def _pack(self, content: dict[str, bytes]) -> None:
        with ZipFile(self._file, "w") as file:
            for place, raw in content.items():
                file.writestr(place, raw)

    def _content(self) -> dict[str, bytes]:
        with ZipFile(self._file) as file:
            return {place: file.read(place) for place in file.namelist()}

    def put(self, place: str, content: bytes) -> None:
        self._pack({**self._content(), place: content})

    def open(self) -> Transport:
        made: Transport = self._code["open_zip"](f"zip://{self._file}", method="PUT", token=None, seconds=None)
        return made

    def arrived(self) -> list[bytes]:
        return [raw for place, raw in sorted(self._content().items()) if place.startswith("reports/")]

    def vanish(self) -> None:
        self._file.rename(self.folder / "gone.zip")


class FolderWorld(World):
    """A folder whose subfolders are empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "tree" / "roots").mkdir(parents=True)

    def open(self) -> Transport:
        return Folder(self.folder / "tree")

    def vanish(self) -> None:
        (self.folder / "tree").rename(self.folder / "gone")


class WebWorld(World):
    """A web server over a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "tree").mkdir()
        self._server = ExitStack()
        self._url, _ = self._server.enter_context(tree_server(folder / "tree"))
        self.stack.enter_context(self._server)

    def open(self) -> Transport:
        return Web(self._url, retry=RetryPolicy(seconds=5, attempts=1))

    def vanish(self) -> None:
        self._server.close()


class MqttWorld(World):
    """The example's gateway behind a real broker."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "inbox").mkdir()
        (folder / "tree").mkdir()
        self._broker = RunningBroker(folder / "broker")
        self._broker.start()
        self.stack.callback(self._broker.stop, signal.SIGKILL)
        self._gateway: subprocess.Popen[str] | None = None
        self.stack.callback(self._stop_gateway)

    def put(self, place: str, content: bytes) -> None:
        super().put(place, content)
        self._stop_gateway()  # a gateway offers its documents when it starts

    def open(self) -> Transport:
        if str(EXAMPLE) not in sys.path:
            sys.path.insert(0, str(EXAMPLE))
        from device import Broker

        if self._gateway is None:
            self._gateway = start_gateway(self._broker, self.folder / "inbox", self.folder / "tree")
        connection = Broker("127.0.0.1", self._broker.port, seconds=5, login=self._broker.logins["device"])
        self.stack.enter_context(connection)
        return connection

    def arrived(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.folder / "inbox").glob("*.hsr"))]

    def vanish(self) -> None:
        self._broker.stop(signal.SIGKILL)

    def _stop_gateway(self) -> None:
        if self._gateway is not None:
            kill(self._gateway)
            self._gateway = None


WORLDS = {"folder": FolderWorld, "zip": ZipWorld, "web": WebWorld, "mqtt": MqttWorld}
"""Name of a transport → its world for the contract tests. ``zip`` is that of the guide."""
