"""Notes on fetched documents, so that an unchanged document is not fetched again.

The notes are a small file beside the state, and not part of it: if the file is lost or damaged, documents are fetched
once more. Only documents that the device has accepted are noted.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import NamedTuple

from edge_sdk.storage.atomic_files import is_no_file, private, read_regular, remove
from protocol.errors import StorageError

_MAX_BYTES = 1 << 20
FETCHED_FILE = "fetched.json"


class Known(NamedTuple):
    """An accepted document: the version it had, the digest of the file it came in, and the transport's tag for it."""

    version: int
    digest: str
    tag: str


class Fetched:
    """The notes on the documents of one source, by their place: a path inside the source."""

    def __init__(self, folder: str, address: str) -> None:
        """Read the notes in ``folder``. A file that can not be read, or whose address differs, counts as empty."""
        self._path = os.path.join(folder, FETCHED_FILE)
        self._address = address
        self._places = _read(self._path, address)
        self._changed = False

    def get(self, place: str, version: int | None) -> Known | None:
        """The note on a document, if the device has the noted version; None otherwise.

        Args:
            place: path of the document inside the source.
            version: the version that the device has; None if it has none.
        """
        known = self._places.get(place)
        return known if known is not None and known.version == version else None

    def put(self, place: str, known: Known) -> None:
        """Note in memory that the document at ``place`` is ``known``; :meth:`save` writes the note to disk."""
        if self._places.get(place) != known:
            self._places[place] = known
            self._changed = True

    def save(self) -> None:
        """Write the notes if they changed, by one rename. They are not flushed, to spare the memory card.

        Errors are ignored: documents are then fetched once more.
        """
        if not self._changed:
            return
        text = json.dumps({"address": self._address, "places": self._places})
        temporary = f"{self._path}.new"
        with contextlib.suppress(OSError):
            remove(temporary)  # a crash has left it; or it is a pipe, whose opening would block
            with open(temporary, "x", encoding="utf-8", opener=private) as file:
                file.write(text)
            if is_no_file(self._path):
                remove(temporary)
            else:
                os.replace(temporary, self._path)
        self._changed = False


def forget_fetched(folder: str) -> None:
    """Remove the file of notes in ``folder``. It names campaigns, so an opt-out and a reset remove it.

    Raises:
        StorageError: ``io_failed``: the file can not be removed.
    """
    place, problem = os.path.join(folder, FETCHED_FILE), ""
    try:
        for path in (f"{place}.new", place):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    except OSError as error:
        problem = error.strerror or "the system refused it"
    if problem:
        raise StorageError("io_failed", f"{FETCHED_FILE} can not be removed: {problem}")


def _read(path: str, address: str) -> dict[str, Known]:
    entries: object = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        entries = json.loads(read_regular(path, _MAX_BYTES))
    if not isinstance(entries, dict) or entries.get("address") != address:
        return {}
    places = entries.get("places")
    if not isinstance(places, dict):
        return {}
    return {place: Known(*fields) for place, fields in places.items() if _is_known(fields)}


def _is_known(fields: object) -> bool:
    return isinstance(fields, list) and [type(field) for field in fields] == [int, str, str]
