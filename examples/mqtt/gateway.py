"""The gateway: stores batches from the broker in an inbox folder, and publishes documents through the broker.

    python examples/mqtt/gateway.py --broker localhost --inbox inbox/ [--source published/]

The gateway checks no batch: `hearsay ingest` finds damaged and repeated batches. A batch is acknowledged to the broker
and to its device only after it is on disk, under a name that is the digest of its content. A batch that is delivered
again becomes the same file. So the gateway may be killed and started again at any moment, by systemd for example.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from topics import INDEX, REPORTS, client, digest, granted, host_and_port, kept, source

from aggregator.common.files import PRIVATE, sync_folder, write_output
from protocol.errors import HearsayError

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

NAME = "hearsay-gateway"
FOR_EVER = 0xFFFFFFFF
"""Session expiry: the broker stores messages while the gateway is not connected."""
SUFFIXES = {".hst", ".hsc", ".hsm"}
SUMMARY = b"\x94\xa4hsy1"
"""First bytes of a file of nodes' summaries, which is no batch of reports."""


def keep(inbox: Path, content: bytes) -> None:
    """Write a batch to disk completely or not at all, flushed, readable by this user only.

    Raises:
        StorageError: disk full, no permission.
    """
    suffix = ".hsn" if content.startswith(SUMMARY) else ".hsr"
    path = inbox / f"{digest(content)}{suffix}"
    if path.exists():
        sync_folder(inbox)  # the name may not be on disk, if the gateway stopped before its flush
    else:
        write_output(path, content, force=True, mode=PRIVATE)


def offer(gateway: Client, folder: Path) -> None:
    """Publish every document of a tree as a retained message, and the index last. See `hearsay publish --to`."""
    index = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        place, content = path.relative_to(folder).as_posix(), path.read_bytes()
        index[place] = digest(content)
        gateway.publish(source(place), content, qos=1, retain=True)
    gateway.publish(INDEX, json.dumps(index), qos=1, retain=True)


class Gateway:
    """A session at the broker that continues after its connection breaks.

    Args:
        inbox: the folder for batches.
        documents: the tree of documents for devices; None for none.
    """

    def __init__(self, inbox: Path, documents: Path | None = None, **options: Any) -> None:
        self._inbox = inbox
        self._documents = documents
        self._client = client(NAME, manual_ack=True, **options)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._arrived
        self.batches = 0

    def run(self, host: str, port: int) -> None:
        """Serve until the connection breaks.

        Raises:
            OSError: the broker can not be reached; StorageError: a batch could not be stored, and the broker keeps it.
        """
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = FOR_EVER
        self._client.connect(host, port, clean_start=False, properties=session)
        self._client.loop_forever()

    def _connected(self, gateway: Client, _data: object, _flags: object, reason: ReasonCode, _more: object) -> None:
        if reason.is_failure:
            raise ConnectionRefusedError(f"the broker refuses: {reason}")
        gateway.subscribe(REPORTS, qos=1)
        if self._documents is not None:
            offer(gateway, self._documents)

    def _subscribed(
        self, _client: Client, _data: object, _number: int, reasons: list[ReasonCode], _more: object
    ) -> None:
        if not granted(reasons):
            raise ConnectionRefusedError(f"the broker does not let us read '{REPORTS}'")
        print("listening", flush=True)  # from now on the broker stores messages, even if this process ends

    def _arrived(self, gateway: Client, _data: object, message: MQTTMessage) -> None:
        content = bytes(message.payload)
        keep(self._inbox, content)
        gateway.publish(kept(content), qos=1)
        gateway.ack(message.mid, message.qos)
        self.batches += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--broker", required=True, metavar="HOST[:PORT]", type=host_and_port)
    parser.add_argument("--inbox", required=True, type=Path, help="folder for batches")
    parser.add_argument("--source", type=Path, help="folder of documents, from hearsay publish --to")
    parser.add_argument("--ca", type=Path, help="certificates that may vouch for the broker")
    parser.add_argument("--login", type=Path, help="file with one line, user:password")
    given = parser.parse_args()
    try:
        given.inbox.mkdir(exist_ok=True)
        gateway = Gateway(given.inbox, given.source, ca=given.ca, login=given.login)
        gateway.run(*given.broker)
    except HearsayError as refusal:
        sys.exit(str(refusal))
    except (OSError, ValueError) as problem:  # a broker that is down, or refuses; a file that can not be read
        sys.exit(f"unreachable: {':'.join(map(str, given.broker))}: {problem}")
    sys.exit("the connection to the broker is gone")
