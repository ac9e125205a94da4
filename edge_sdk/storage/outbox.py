"""Keep sealed files in a folder, the outbox, until they are sent; and notes on fetched documents beside it.

The notes prevent that an unchanged document is fetched again. They are no part of the state: if they are lost,
documents are fetched once more. An opt-out or a reset removes outbox and notes.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.atomic_files import (
    TEMPORARY_SUFFIX,
    is_no_file,
    make_private_folder,
    os_errors,
    private,
    read_regular,
    remove,
    remove_old_temporaries,
)
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_BYTES = 1 << 20
FETCHED_FILE = "fetched.json"


class FetchNote(NamedTuple):
    """A fetched and accepted document: its version, its file's digest, and the tag by which the transport knows it."""

    version: int
    digest: str
    tag: str


class Fetched:
    """Notes on the fetched documents of one source, by their place (path inside the source)."""

    def __init__(self, folder: str, address: str) -> None:
        """Read the notes in ``folder``. A file that can not be read, or whose address differs, counts as empty."""
        self._path = os.path.join(folder, FETCHED_FILE)
        self._address = address
        self._places = _read(self._path, address)
        self._changed = False

    def get(self, place: str, version: int | None) -> FetchNote | None:
        """Return the note on the document at ``place``, if it is of the ``version`` that the device has; else None."""
        known = self._places.get(place)
        return known if known is not None and known.version == version else None

    def put(self, place: str, known: FetchNote) -> None:
        """Keep in memory the note ``known`` on the document at ``place``; :meth:`save` writes it to disk."""
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
        with suppress(OSError):
            remove(temporary)  # a crash has left it; or it is a pipe, whose opening would block
            with open(temporary, "x", encoding="utf-8", opener=private) as file:
                file.write(text)
            if is_no_file(self._path):
                remove(temporary)
            else:
                os.replace(temporary, self._path)
        self._changed = False


def forget_fetched(folder: str) -> None:
    """Remove the file of notes on fetched documents. It names campaigns, so an opt-out and a reset remove it."""
    with os_errors(f"{FETCHED_FILE} can not be removed"):
        for path in (os.path.join(folder, f"{FETCHED_FILE}.new"), os.path.join(folder, FETCHED_FILE)):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _read(path: str, address: str) -> dict[str, FetchNote]:
    entries: object = None
    with suppress(OSError, ValueError, RecursionError):
        entries = json.loads(read_regular(path, _MAX_BYTES))
    if not isinstance(entries, dict) or entries.get("address") != address:
        return {}
    places = entries.get("places")
    if not isinstance(places, dict):
        return {}
    return {place: FetchNote(*fields) for place, fields in places.items() if _is_known(fields)}


def _is_known(fields: object) -> bool:
    return isinstance(fields, list) and [type(field) for field in fields] == [int, str, str]


OUTBOX = "outbox"
NAME_BYTES = 16
_BLOCK = 1 << 16
REPORTS, SUMMARIES, MESSAGES = ".hsr", ".hsn", ".hse"
"""How the names of files end: of a device's reports, and of a node's summaries and encrypted sums."""
_NAME = re.compile(rf"[0-9a-f]{{{2 * NAME_BYTES}}}\.hs[rne]")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}")


class Outbox:
    """The folder ``outbox`` in a given folder. Its files have random names, which reveal nothing about the device."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(os.path.abspath(folder), OUTBOX)

    def new(self, chance: bytes, suffix: str) -> str:
        """Return the path for a new file: ``chance``, 16 random bytes, in hex, and ``suffix``. The folder is made."""
        with os_errors("the outbox can not be used"), suppress(FileExistsError):
            make_private_folder(self._path)
        return os.path.join(self._path, f"{chance.hex()}{suffix}")

    def waiting(self) -> list[str]:
        """Return the paths of the files that wait to be sent: regular files with names as of :meth:`new`."""
        return self._files(_NAME)

    def unfinished(self) -> list[str]:
        """Return the paths of the unfinished files that a crash left."""
        return self._files(_UNFINISHED)

    def _files(self, name: re.Pattern[str]) -> list[str]:
        with os_errors("the outbox can not be used"), suppress(FileNotFoundError), os.scandir(self._path) as entries:
            return sorted(
                entry.path for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            )
        return []

    def remove_unfinished(self) -> None:
        """Remove unfinished files that a crash left more than an hour ago. Errors are ignored."""
        with suppress(StorageError):
            if self.unfinished():
                remove_old_temporaries(self._path)

    @staticmethod
    def is_whole(path: str) -> bool:
        """Return whether the file at ``path`` can be read to its end. A failing memory card may lose parts of files."""
        with suppress(OSError), open(path, "rb") as file:
            while file.read(_BLOCK):
                pass
            return True
        return False

    @staticmethod
    def remove(path: str) -> None:
        """Remove the file at ``path``, if it exists."""
        with os_errors("the outbox can not be used"), suppress(FileNotFoundError):
            os.unlink(path)

    def clear(self) -> None:
        """Remove all waiting files, and unfinished files that a crash left."""
        for path in [*self.waiting(), *self.unfinished()]:
            self.remove(path)


def clear_outboxes(folder: str | None, sealed: Iterable[str]) -> None:
    """Remove the files in the outbox of a state folder, and the files ``sealed`` by its device into other outboxes.

    The notes on fetched documents beside each outbox are removed too. Files outside of outboxes stay, and those of
    other devices. After an error some files may be left. ``folder`` is None for a state in memory.
    """
    if folder is not None:
        Outbox(folder).clear()
        forget_fetched(folder)
    for path in sealed:
        above, name = os.path.split(path)
        place, last = os.path.split(above)
        if last == OUTBOX and _NAME.fullmatch(name) and place != folder:
            outbox = Outbox(place)
            for each in [path, *outbox.unfinished()]:
                outbox.remove(each)
            forget_fetched(place)
