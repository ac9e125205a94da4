"""The contract of a transport: how a device fetches documents and sends batches.

A *source* is a tree of files, as ``hearsay publish --to`` writes it. A *place* is a path in it: ``roots/N.hst``,
``campaigns/NAME.hsc``, ``models/NAME.hsm``, ``reports/NAME.hsr``. The device verifies every document that a transport
fetches, but not that a batch has arrived. docs/how-to/extending.md explains how to add a transport.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.errors import HearsayError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Found(NamedTuple):
    """A fetched document.

    Attributes:
        content: the bytes; None if they are unchanged since the version with the given tag.
        tag: identifies this version of the bytes, in a form that only the transport understands; may be empty.
    """

    content: bytes | None
    tag: str = ""


class Transport(Protocol):
    """Fetches from a source and sends to it. This package has transports for folders and HTTP; others may add more.

    A transport is used by one thread at a time. It waits for a bounded time, and raises :class:`HearsayError` only.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the source is, in one line without secrets. The device stores tags together with this text."""

    @abstractmethod
    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """Return the document at a place of the source; None if the source has none there.

        Args:
            place: a path below the address.
            limit: largest size in bytes; at most one byte more is read.
            tag: tag of the version that is known already. If the document is unchanged, its bytes need not be read.

        Raises:
            InputError: ``address_invalid``: the place is no path below the address (:func:`parts_of`).
            DocumentError: ``too_large``: the document has more than ``limit`` bytes.
            StorageError: ``unreachable``: the source does not answer; ``refused_by_server``: it answers with an error;
                ``redirect_refused``: it redirects too often or to a wrong address; ``server_untrusted``: its
                certificate is not trusted; ``io_failed``: a file can not be read.
        """

    @abstractmethod
    def send(self, place: str, path: str) -> None:
        """Send a file to a place of the source. When this returns, the complete file has arrived.

        The same file may be sent to the same place any number of times.

        Args:
            place: a path below the address.

        Raises InputError ``address_invalid``: the place is no path below the address (:func:`parts_of`); StorageError
        ``file_exists``: another file is at the place; ``disk_full``; or a reason of :meth:`fetch`. After other reasons
        than ``file_exists`` the file may or may not have arrived; send it again.
        """


@contextmanager
def refusals() -> Iterator[None]:
    """Turn every exception in the body of ``with`` that is no :class:`HearsayError` into ``transport_failed``.

    The text of the exception is dropped, since the server may have written it. KeyboardInterrupt is not changed.
    """
    foreign = ""
    try:
        yield
    except HearsayError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001
        foreign = type(error).__name__
    if foreign:
        raise StorageError("transport_failed", f"the transport failed with {foreign}; repeat it later, or report this")


def parts_of(place: str) -> list[str]:
    """Split a place, a path inside the source, at each ``/`` into its names.

    Raise InputError ``address_invalid`` if a name is empty, ``.`` or ``..``, or has a zero byte: no place leads out of
    the source.
    """
    parts = place.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InputError(
            "address_invalid", "a place is names joined by /, none of them empty, . or .., none with a zero byte"
        )
    return parts
