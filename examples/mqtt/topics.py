"""The topics that devices and gateway share. None of them, and nothing in a payload, names a device."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

if TYPE_CHECKING:
    from pathlib import Path

REPORTS = "hearsay/reports"
"""Batches, from any device to the gateway."""
INDEX = "hearsay/index"
"""What the source holds: a JSON object, place → SHA-256 in hexadecimal. Retained."""
MAX_MESSAGE = 4 << 20
"""Largest document that a device takes, in bytes; a model's limit."""
OVERHEAD = 4096
"""More than the headers and the topic of any message of ours, in bytes."""


def digest(content: bytes) -> str:
    """What a content is called, here and in the inbox."""
    return sha256(content).hexdigest()


def kept(content: bytes) -> str:
    """The topic on which the gateway says that it has this batch on disk."""
    return f"hearsay/kept/{digest(content)}"


def source(place: str) -> str:
    """The topic of a document. Retained; a name's `+`, `#` and the like are quoted, as in a web address."""
    return f"hearsay/source/{quote(place)}"


def client(name: str, *, ca: Path | None, login: Path | None, manual_ack: bool = False) -> Client:
    """A client that speaks MQTT 5 and gives up where its connection breaks.

    Args:
        name: what the broker knows it by; empty: the broker makes one up for this connection.
        ca: certificates that may vouch for the broker; None: no TLS.
        login: a file with one line, `user:password`.
        manual_ack: whether a message is the broker's until it is acknowledged by hand.
    """
    made = Client(
        CallbackAPIVersion.VERSION2,
        client_id=name,
        protocol=MQTTProtocolVersion.MQTTv5,
        reconnect_on_failure=False,
        manual_ack=manual_ack,
    )
    if ca is not None:
        made.tls_set(ca_certs=str(ca))
    if login is not None:
        user, _, password = login.read_text("utf-8").strip().partition(":")
        made.username_pw_set(user, password)
    return made


def host_and_port(text: str) -> tuple[str, int]:
    """`host` or `host:port`."""
    host, _, port = text.partition(":")
    return host, int(port or 1883)
