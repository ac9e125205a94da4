"""Provisioning files (``.hsp``): the secret by which a closed fleet knows one of its devices.

Source: docs/formats.md, section 8. Made by whoever enrols devices, read once by the device they are for.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol import canonical
from protocol.digest import sha256
from protocol.document import is_text
from protocol.errors import DocumentError

MAGIC = "hsyp"
FILE_VERSION = 1
SECRET_BYTES = 32
CHECK_BYTES = 8
MAX_BYTES = 4096
_ITEMS = 6


class Provisioning(NamedTuple):
    """What a provisioning file says. Its ``repr`` does not show the secret.

    Attributes:
        fleet: name of the closed fleet.
        device: name of the device in the operator's list; never part of a report.
        secret: 32 bytes, the key of its report ids.
    """

    fleet: str
    device: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Provisioning(fleet={self.fleet!r}, device={self.device!r})"


def build_provisioning(provisioning: Provisioning) -> bytes:
    """The bytes of a provisioning file.

    Raises:
        DocumentError: ``malformed``: a name that is empty, too long or does not print, or a secret
            that is not 32 bytes.
    """
    _check(provisioning)
    fleet, device, secret = provisioning
    body = canonical.pack([MAGIC, FILE_VERSION, fleet, device, secret, bytes(CHECK_BYTES)])
    body = body[:-CHECK_BYTES]
    return body + _check_of(body)


def parse_provisioning(raw: bytes) -> Provisioning:
    """The content of a provisioning file. Run by a device when its owner provisions it.

    Raises:
        DocumentError: ``too_large``; ``malformed``, also where a bit was flipped on the way: a device
            with a wrong secret would answer for ever and never be counted; ``unsupported_version``.
    """
    if len(raw) > MAX_BYTES:
        raise DocumentError("too_large", f"a provisioning file has at most {MAX_BYTES} bytes")
    items = canonical.unpack(raw, 1 + _ITEMS)
    if not isinstance(items, list) or not items or items[0] != MAGIC:
        raise DocumentError("malformed", "not a provisioning file")
    if len(items) > 1 and type(items[1]) is int and items[1] > FILE_VERSION:
        raise DocumentError("unsupported_version", "a provisioning file of newer software; update this one")
    if len(items) != _ITEMS or items[1] != FILE_VERSION or type(items[1]) is not int:
        raise DocumentError("malformed", "not a provisioning file of this version")
    if items[5] != _check_of(raw[:-CHECK_BYTES]):
        raise DocumentError("malformed", "the provisioning file was damaged on its way; copy it again")
    provisioning = Provisioning(*items[2:5])
    _check(provisioning)
    return provisioning


def _check(provisioning: Provisioning) -> None:
    fleet, device, secret = provisioning
    if not is_text(fleet) or not is_text(device) or not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise DocumentError("malformed", "a provisioning file names a fleet and a device and holds 32 secret bytes")


def _check_of(body: bytes) -> bytes:
    """SHA-256 of all bytes before the check itself, its first eight bytes: shows accidents, not forgery."""
    return sha256(body).digest()[:CHECK_BYTES]
