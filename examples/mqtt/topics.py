"""The topics that devices and the gateway share. No topic and no payload names a device."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from protocol.errors import InputError

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


class BoundedClient(Client):
    """A client that ends the connection before a larger packet than ``largest`` is in memory.

    MQTT's MaximumPacketSize only asks the broker; paho reads packets of up to 256 MB all the same. Nor does it bound
    messages of QoS 2, which it stores until the broker completes them. No program here subscribes to these.
    """

    largest: int | None = None
    """Most bytes of a packet after its header; None for MQTT's own limit."""

    def _sock_recv(self, bufsize: int) -> bytes:
        """Receive at most ``bufsize`` bytes: what is missing of a packet. ``b""`` ends the connection."""
        return b"" if self.largest is not None and bufsize > self.largest else super()._sock_recv(bufsize)

    def _handle_publish(self) -> MQTTErrorCode:
        if self.largest is not None and self._in_packet["command"] & 0x04:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        return super()._handle_publish()


def client(
    name: str, *, ca: Path | None, login: Path | None, manual_ack: bool = False, largest: int | None = None
) -> Client:
    """Make a client for MQTT 5 that does not reconnect by itself.

    Args:
        name: the client's name at the broker; "" lets the broker choose a name for this connection.
        ca: file of authorities that the broker's certificate is checked with; None for no TLS.
        login: a file with one line, `user:password`; None for no login.
        manual_ack: whether the program acknowledges each message itself. The broker keeps a message until then.
        largest: most bytes of a packet from a broker that is not trusted; None for MQTT's own limit.

    Raises:
        InputError: ``file_unreadable``: a file can not be read, or is not what it should be.
    """
    made = BoundedClient(
        CallbackAPIVersion.VERSION2,
        client_id=name,
        protocol=MQTTProtocolVersion.MQTTv5,
        reconnect_on_failure=False,
        manual_ack=manual_ack,
    )
    made.largest = largest
    if ca is not None:
        try:
            made.tls_set(ca_certs=str(ca))
        except ValueError:  # an ssl.SSLError is both a ValueError and an OSError in some versions
            raise _unusable("--ca", ca, "it holds no certificates") from None
        except OSError as error:
            raise _unusable("--ca", ca, error.strerror or "it holds no certificates") from None
    if login is not None:
        made.username_pw_set(*_login(login))
    return made


def _login(path: Path) -> tuple[str, str]:
    try:
        user, colon, password = path.read_text("utf-8").strip().partition(":")
    except OSError as error:
        raise _unusable("--login", path, error.strerror or "it can not be read") from None
    except UnicodeDecodeError:
        colon = ""
    if not colon or not user:
        raise _unusable("--login", path, "it has no line user:password")
    return user, password


def _unusable(option: str, path: Path, problem: str) -> InputError:
    return InputError("file_unreadable", f"{option} '{path}': {problem}")


def host_and_port(text: str) -> tuple[str, int]:
    """Split `host` or `host:port`. The default port is 1883."""
    host, _, port = text.partition(":")
    return host, int(port or 1883)


def granted(reasons: list[ReasonCode]) -> bool:
    """Whether the answer to a subscription of one topic grants it. An answer without reason codes grants nothing."""
    return len(reasons) == 1 and not reasons[0].is_failure
