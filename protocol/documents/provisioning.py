"""Provisioning files (``.hsp``): the secret by which a closed fleet recognises the reports of one device.

Source: docs/formats.md, section 8. The operator who enrols devices makes the file; one device reads it once.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol import canonical
from protocol.documents.payload import is_text
from protocol.errors import DocumentError
from protocol.stream import sha256

MAGIC = "hsyp"
FILE_VERSION = 1
SECRET_BYTES = 32
CHECK_BYTES = 8
MAX_BYTES = 4096
_ITEMS = 6


class Provisioning(NamedTuple):
    """The content of a provisioning file. Its ``repr`` does not show the secret.

    Attributes:
        fleet: name of the closed fleet.
        device: name of the device in the operator's list; never part of a report.
        secret: 32 bytes, the key of the device's report ids.
    """

    fleet: str
    device: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Provisioning(fleet={self.fleet!r}, device={self.device!r})"


def build_provisioning(provisioning: Provisioning) -> bytes:
    """Encode a provisioning file.

    Raises DocumentError ``malformed``: a name that is empty, too long or not printable, or a secret of another length.
    """
    _check(provisioning)
    fleet, device, secret = provisioning
    body = canonical.pack([MAGIC, FILE_VERSION, fleet, device, secret, bytes(CHECK_BYTES)])
    body = body[:-CHECK_BYTES]
    return body + _check_of(body)


def parse_provisioning(raw: bytes) -> Provisioning:
    """Parse and check ``raw``, the bytes of a provisioning file. A device runs this when its owner provisions it.

    Raises DocumentError ``too_large``: more than 4096 bytes; ``unsupported_version``: made by newer software;
    ``malformed``: not a provisioning file, a wrong value, or check bytes that reveal a damaged secret.
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
    """Return the first eight bytes of the body's SHA-256. They detect accidental damage, not forgery."""
    return sha256(body).digest()[:CHECK_BYTES]
