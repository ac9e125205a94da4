"""A device that syncs through an MQTT broker: `hearsay-edge sync` over another transport.

    hearsay-edge --state DIR provision root.hst
    python examples/mqtt/device.py --state DIR --broker localhost --campaign pumps     # as often as you like

Reports are made by `hearsay-edge report` or `Device.report`. The device deletes them only after the gateway has
confirmed that they are on its disk; the broker's receipt confirms less (README.md).
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from topics import INDEX, MAX_MESSAGE, OVERHEAD, REPORTS, client, digest, granted, host_and_port, kept, source

from edge_sdk import Device, DocumentError, HearsayError, StorageError
from edge_sdk.sync import sync
from edge_sdk.transport import Found, Transport, parts_of
from protocol.batches.batch import Batch, read_batches
from protocol.batches.framing import write_batch
from protocol.nodes.summary import read_summaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

MAX_EVENTS = 100
"""Most events that wait for the main thread; the oldest are dropped."""
FRAME_BYTES = 256
"""More than header and trailer of a batch of reports have."""
NOBODY_LISTENS = 0x10
"""Reason code of a broker's receipt (MQTT 5) if no session receives the message, which is then lost."""


class Broker(Transport):
    """A transport over one connection to a broker.

    Args:
        host: the host of the broker.
        port: the port of the broker.
        seconds: longest time that one fetch or one sending waits for its answer.
        ca: file of authorities that the broker's certificate is checked with; None for no TLS.
        login: a file with one line, `user:password`, the same for all devices; None for no login.

    Raises:
        StorageError: ``unreachable``, ``server_untrusted``, ``refused_by_server``.
        InputError: ``file_unreadable``: the file of authorities or of the login.
    """

    def __init__(self, host: str, port: int = 1883, *, seconds: float = 30, **options: Any) -> None:
        self._address = f"mqtt{'s' if options.get('ca') else ''}://{host}:{port}"
        self._seconds = seconds
        self._news = threading.Condition()
        self._seen: dict[object, Any] = {}
        self._wanted: set[str] = set()
        self._index: dict[str, str] | None = None
        self._largest_sent = 0xFFFFFFFF
        self._client = client("", ca=options.get("ca"), login=options.get("login"), largest=MAX_MESSAGE + OVERHEAD)
        self._client.on_connect = self._connected
        self._client.on_disconnect = lambda *_: self._note("gone", value=True)
        self._client.on_subscribe = lambda _c, _d, mid, reasons, _p: self._note(("subscribed", mid), reasons)
        self._client.on_publish = lambda _c, _d, mid, reason, _p: self._note(("receipt", mid), reason)
        self._client.on_message = self._arrived
        largest = Properties(PacketTypes.CONNECT)
        largest.MaximumPacketSize = MAX_MESSAGE + OVERHEAD
        reason = problem = ""
        try:
            self._client.connect(host, port, properties=largest)
        except ssl.SSLCertVerificationError as error:
            reason, problem = "server_untrusted", error.verify_message
        except OSError as error:
            reason, problem = "unreachable", error.strerror or "no connection"
        if reason:
            raise StorageError(reason, f"{self.address}: {problem}")
        self._client.loop_start()
        try:
            answer = self._wait("connected")
            if answer.is_failure:
                raise StorageError("refused_by_server", f"{self.address}: {answer}")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self._address

    def close(self) -> None:
        """End the connection. The broker stores no session for it."""
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """Fetch the document at a place, a retained message. The index lists the places that exist."""
        parts_of(place)
        if self._index is None:
            self._index = self._read_index()
        if place not in self._index:
            return None
        if tag == self._index[place]:
            return Found(None, tag)
        content = self._retained(source(place))
        if len(content) > limit:
            raise DocumentError("too_large", f"'{place}' has more than {limit} bytes")
        return Found(content, digest(content))

    def send(self, place: str, path: str) -> None:
        """Publish a batch and wait until the gateway has it on disk. The gateway names it by its digest.

        A larger file than the broker takes is sent in parts, each a file of its own. If the sending stops between two,
        all are sent again: the same reports count once.
        """
        parts_of(place)
        content, room = _read(path), self._largest_sent - OVERHEAD
        for part in [content] if len(content) <= room else divided(content, place, room):
            if len(part) > room:
                raise StorageError(
                    "refused_by_server",
                    f"{self.address} takes packets of at most {self._largest_sent} bytes, which is too few for one "
                    f"entry of '{place}'; raise its max_packet_size",
                )
            self._send_part(place, part)

    def _send_part(self, place: str, content: bytes) -> None:
        self._subscribe(kept(content))
        number = self._client.publish(REPORTS, content, qos=1).mid
        receipt = self._wait(("receipt", number))
        if receipt.is_failure or receipt.value == NOBODY_LISTENS:
            raise StorageError("refused_by_server", f"{self.address} does not take '{place}': {receipt}")
        self._wait(kept(content))

    def _connected(
        self, _client: Client, _data: object, _flags: object, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._largest_sent = getattr(properties, "MaximumPacketSize", self._largest_sent)
        self._note("connected", reason)

    def _arrived(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        with self._news:
            if message.topic not in self._wanted:
                return  # this device has not asked for it
        self._note(message.topic, message.payload)

    def _note(self, what: object, value: Any) -> None:
        """Store an event and wake the waiting thread. Runs in the MQTT client's thread."""
        with self._news:
            while len(self._seen) >= MAX_EVENTS:  # a broker that confirms what was not asked
                del self._seen[next(iter(self._seen))]
            self._seen[what] = value
            self._news.notify_all()

    def _wait(self, what: object) -> Any:
        end = time.monotonic() + self._seconds
        with self._news:
            while what not in self._seen:
                if "gone" in self._seen or not self._news.wait(end - time.monotonic()):
                    raise StorageError("unreachable", f"{self.address}: the connection ended, or nobody answers")
            if isinstance(what, str):
                self._wanted.discard(what)
            return self._seen.pop(what)

    def _subscribe(self, topic: str) -> None:
        with self._news:
            self._wanted.add(topic)
        reasons = self._wait(("subscribed", self._client.subscribe(topic, qos=1)[1]))
        if not granted(reasons):
            said = ", ".join(map(str, reasons)) or "its answer grants nothing"
            raise StorageError("refused_by_server", f"{self.address} does not let us read '{topic}': {said}")

    def _retained(self, topic: str) -> bytes:
        self._subscribe(topic)
        content: bytes = self._wait(topic)
        self._client.unsubscribe(topic)
        return content

    def _read_index(self) -> dict[str, str]:
        try:
            index = json.loads(self._retained(INDEX))
        except (ValueError, RecursionError):
            index = None
        if not isinstance(index, dict) or not all(isinstance(item, str) for item in index.values()):
            raise DocumentError("malformed", f"the index at {self.address} is not understood")
        return index


def divided(content: bytes, place: str, room: int) -> Iterator[bytes]:
    """Divide a file that this device has sealed into files of at most ``room`` bytes; one entry may need more.

    Args:
        content: the file's bytes.
        place: its name: ``.hsr`` for reports, ``.hsn`` for a node's summaries, ``.hse`` for its encrypted sums.
        room: most bytes of a part.
    """
    if place.endswith(".hsr"):
        for batch in read_batches(content):
            if isinstance(batch, Batch):
                length = batch.header.record_length
                records = [
                    content[start + length * number : start + length * (number + 1)]
                    for start, count in batch.spans
                    for number in range(count)
                ]
                most = max(1, (room - FRAME_BYTES) // length)
                for first in range(0, len(records), most):
                    yield write_batch(batch.header, records[first : first + most])
        return
    part = b""
    for piece in read_summaries(content, "masked" if place.endswith(".hse") else "node"):
        if part and len(part) + piece.length > room:
            yield part
            part = b""
        part += piece.envelope
    if part:
        yield part


def _read(path: str) -> bytes:
    problem = ""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
    raise StorageError("io_failed", f"the batch file can not be read: {problem}")


def main(state: Path, broker: Broker, names: list[str]) -> int:
    """Run sync once and print its outcome; returns exit status 1 if a step was refused."""
    with Device.open(state) as device, broker:
        done = sync(device, broker, campaigns=names)
    print(json.dumps(done.to_json()))
    return 1 if done.refusals else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", required=True, type=Path, help="this device's own folder, provisioned")
    parser.add_argument("--broker", required=True, metavar="HOST[:PORT]", type=host_and_port)
    parser.add_argument("--campaign", action="append", default=[], help="name of a campaign to take part in")
    parser.add_argument("--seconds", type=float, default=30, help="longest wait for one answer")
    parser.add_argument("--ca", type=Path, help="certificates that may vouch for the broker")
    parser.add_argument("--login", type=Path, help="file with one line, user:password")
    given = parser.parse_args()
    try:
        connection = Broker(*given.broker, seconds=given.seconds, ca=given.ca, login=given.login)
        sys.exit(main(given.state, connection, given.campaign))
    except HearsayError as refusal:
        sys.exit(str(refusal))
