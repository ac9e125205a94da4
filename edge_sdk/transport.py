"""How documents come to a device and batches leave it: what a carrier must do, whatever it is.

A *source* is a tree of files, as ``hearsay publish --to`` writes it: ``roots/N.hst``,
``campaigns/NAME.hsc``, ``models/NAME.hsm``. Batches go to ``reports/NAME.hsr``. A *place* is such a path,
its parts joined by ``/``. Nothing that a carrier brings is believed: the device verifies it. What it
takes is believed to have arrived, so :meth:`Transport.send` returns only once that is sure.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from protocol.errors import InputError


class Found(NamedTuple):
    """What is at a place.

    Attributes:
        content: the bytes; None if they are those that the tag stands for.
        tag: says which bytes these are, in words that only its transport understands; empty if it can not.
    """

    content: bytes | None
    tag: str = ""


class Transport(Protocol):
    """Fetches from a source and sends to it. Two are here, a folder and the web; an application may bring its own."""

    @property
    def address(self) -> str:
        """Which source this is; tags are remembered for one address only."""

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """The bytes at a place, or None if there is nothing.

        Args:
            place: a path below the address.
            limit: largest size in bytes; no more than one byte above it is read.
            tag: of the bytes that are known already; an unchanged place need not be read again.

        Raises:
            DocumentError: ``too_large``; StorageError: ``unreachable``, ``refused_by_server``,
            ``redirect_refused``, ``server_untrusted``, ``io_failed``.
        """

    def send(self, place: str, path: str) -> None:
        """Bring the file at ``path`` to a place. Once this returns it has arrived, whole.

        The same file may be sent to the same place any number of times.

        Raises:
            StorageError: as :meth:`fetch`, and ``file_exists``: something else is there; ``disk_full``. The
            file may or may not have arrived; send it again.
        """


def parts_of(place: str) -> list[str]:
    """The names in a place, none of which leads anywhere but down.

    Raises:
        InputError: ``address_invalid``.
    """
    parts = place.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InputError("address_invalid", "a place is names joined by /, none of them empty or of dots alone")
    return parts
