"""The contract of a transport: how documents come to a device, and how batches leave it.

A *source* is a tree of files, as ``hearsay publish --to`` writes it: ``roots/N.hst``,
``campaigns/NAME.hsc``, ``models/NAME.hsm``. Batches go to ``reports/NAME.hsr``. A *place* is such a path,
its parts joined by ``/``. Nothing that a transport brings is believed: the device verifies it. What a
transport takes is believed to have arrived, so :meth:`Transport.send` returns only once that is sure.

docs/extending.md says how to add a transport. ``tests/test_transport_contract.py`` holds every one to this.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.errors import DocumentError, HearsayError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Found(NamedTuple):
    """What is at a place.

    Attributes:
        content: the bytes; None if they are those that the tag stands for.
        tag: says which bytes these are, in words that only its transport understands; empty if it can not.
    """

    content: bytes | None
    tag: str = ""


class Transport(Protocol):
    """Fetches from a source and sends to it. A folder and the web are here; other packages may bring more.

    A transport is used by one thread at a time. It waits for a bounded time, and raises no errors but ours.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """Which source this is, in one line without secrets; tags are remembered for one address only."""

    @abstractmethod
    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """The bytes at a place, or None if there is nothing.

        Args:
            place: a path below the address.
            limit: largest size in bytes; no more than one byte above it is read.
            tag: of the bytes that are known already; an unchanged place need not be read again.

        Raises:
            InputError: ``address_invalid``, the place leads elsewhere (:func:`parts_of`).
            DocumentError: ``too_large``; StorageError: ``unreachable``, ``refused_by_server``,
            ``redirect_refused``, ``server_untrusted``, ``io_failed``.
        """

    @abstractmethod
    def send(self, place: str, path: str) -> None:
        """Bring the file at ``path`` to a place. Once this returns it has arrived, whole.

        The same file may be sent to the same place any number of times.

        Raises:
            StorageError: as :meth:`fetch`, and ``file_exists``: something else is there; ``disk_full``. The
            file may or may not have arrived; send it again.
        """


class Guarded:
    """A transport whose every failure is a refusal: what one place brings must not end the whole run."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def address(self) -> str:
        """As the transport's."""
        return self._transport.address

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """As the transport's; what it brings above the limit is refused here too.

        Raises:
            HearsayError: as the transport; StorageError: ``transport_failed``, for all other errors of it.
        """
        with refusals():
            found = self._transport.fetch(place, limit, tag)
            if found is not None and found.content is not None and len(found.content) > limit:
                raise DocumentError("too_large", f"what is at {place} has more than {limit} bytes")
            return found

    def send(self, place: str, path: str) -> None:
        """As the transport's.

        Raises:
            HearsayError: as :meth:`fetch`.
        """
        with refusals():
            self._transport.send(place, path)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what is no error of ours into one. Its text is not told: the other side may have written it."""
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
    """The names in a place, none of which leads anywhere but down.

    Raises:
        InputError: ``address_invalid``.
    """
    parts = place.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InputError("address_invalid", "a place is names joined by /, none of them empty or of dots alone")
    return parts
