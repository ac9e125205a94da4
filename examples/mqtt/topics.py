"""The topics that devices and the gateway share. No topic and no payload names a device."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

if TYPE_CHECKING:
    from pathlib import Path

    from paho.mqtt.reasoncodes import ReasonCode

REPORTS = "hearsay/reports"
"""Batches, from any device to the gateway."""
INDEX = "hearsay/index"
"""The list of documents, a retained JSON object: place → SHA-256 in hexadecimal."""
MAX_MESSAGE = 4 << 20
"""Largest document that a device accepts, in bytes: the limit of a model."""
OVERHEAD = 4096
"""Upper bound on the headers and the topic of one message, in bytes."""


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal: the name of a content in topics and in the inbox."""
    return sha256(content).hexdigest()


def kept(content: bytes) -> str:
    """The topic on which the gateway confirms that this batch is on its disk."""
    return f"hearsay/kept/{digest(content)}"


def source(place: str) -> str:
    """The topic of a document, a retained message. Characters such as `+` and `#` are quoted as in a web address."""
    return f"hearsay/source/{quote(place)}"


def client(name: str, *, ca: Path | None, login: Path | None, manual_ack: bool = False) -> Client:
    """Make a client for MQTT 5 that does not reconnect by itself.

    Args:
        name: the client's name at the broker; "" lets the broker choose a name for this connection.
        ca: file of authorities that the broker's certificate is checked with; None for no TLS.
        login: a file with one line, `user:password`; None for no login.
        manual_ack: whether the program acknowledges each message itself. The broker keeps a message until then.
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
    """Split `host` or `host:port`. The default port is 1883."""
    host, _, port = text.partition(":")
    return host, int(port or 1883)


def granted(reasons: list[ReasonCode]) -> bool:
    """Whether the answer to a subscription of one topic grants it. An answer without reason codes grants nothing."""
    return len(reasons) == 1 and not reasons[0].is_failure
