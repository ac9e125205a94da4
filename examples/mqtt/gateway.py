"""The gateway: takes batches from the broker into an inbox folder, and offers a source's documents.

    python examples/mqtt/gateway.py --broker localhost --inbox inbox/ [--source published/]

It judges nothing and forgets nothing: `hearsay ingest` finds what is damaged or came twice. A batch is acknowledged,
to the broker and to its device, only once it is on disk under the name of its content; what is redelivered is the
same file again. So this may be killed at any moment and started again; systemd or a shell loop does the latter.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from topics import INDEX, REPORTS, client, digest, host_and_port, kept, source

from aggregator.files import PRIVATE, sync_folder, write_output
from protocol.errors import HearsayError

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

NAME = "hearsay-gateway"
FOR_EVER = 0xFFFFFFFF
"""Session expiry: the broker keeps what comes while the gateway is away."""
SUFFIXES = {".hst", ".hsc", ".hsm"}


def keep(inbox: Path, content: bytes) -> None:
    """Put a batch on disk, name and content flushed; nothing is left half-written, and nobody else may read it.

    Raises:
        StorageError: disk full, no permission.
    """
    path = inbox / f"{digest(content)}.hsr"
    if path.exists():
        sync_folder(inbox)  # its name may not have been, if power was cut since
    else:
        write_output(path, content, force=True, mode=PRIVATE)


def offer(gateway: Client, folder: Path) -> None:
    """Leave every document of a tree, as `hearsay publish --to` writes it, with the broker; the index comes last."""
    index = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        place, content = path.relative_to(folder).as_posix(), path.read_bytes()
        index[place] = digest(content)
        gateway.publish(source(place), content, qos=1, retain=True)
    gateway.publish(INDEX, json.dumps(index), qos=1, retain=True)


class Gateway:
    """A session at the broker that outlives its connections.

    Args:
        inbox: the folder for batches.
        documents: the tree that devices may fetch from; None: none.
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
            OSError: the broker can not be reached; StorageError: a batch could not be kept, and stays the broker's.
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
        if any(reason.is_failure for reason in reasons):
            raise ConnectionRefusedError(f"the broker does not let us read '{REPORTS}'")
        print("listening", flush=True)  # from here on the broker keeps what comes, whether this lives or not

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
