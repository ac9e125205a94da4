"""The published folder: static files that devices fetch from a web server or a shared folder.

The paths are those of docs/formats.md, section 9. Roots are written before the documents that need them. Each file is
replaced atomically, and only if its content changes, so whoever reads during an update finds complete documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from aggregator.common.files import read_file, storage_errors, write_output
from aggregator.publishing.endings import Ending, ending_of
from aggregator.publishing.workspace import Published, Workspace, latest_of_each
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.payload import read_payload
from protocol.errors import DocumentError, InputError, StorageError
from protocol.masked.fields import largest_file
from protocol.masked.keys import ROLE, read_key_book

FOLDERS = {
    "campaign": ("campaigns", ".hsc"),
    "model": ("models", ".hsm"),
    "nodes": ("nodes", ".hsl"),
    "keys": ("keys", ".hsk"),
}
"""Role of a document → its folder and the ending of its files."""
MAX_FILE_NAME = 255
"""Longest file name on the usual file systems, in bytes."""


class Tree(NamedTuple):
    """The content of a published folder: numbers of files of each kind, and ``written``, paths of changed files.

    ``lacking``: newest versions with too few signatures, in whose place an older one may stay. ``unnamable``: names of
    documents that are too long for a file name.
    """

    roots: int
    campaigns: int
    models: int
    written: tuple[str, ...]
    lacking: tuple[Published, ...]
    unnamable: tuple[str, ...]
    lists: int = 0
    key_books: int = 0


def write_tree(workspace: Workspace, folder: str | Path, key_books: Sequence[bytes] = ()) -> Tree:
    """Write all documents of a workspace that devices need into a published folder, and return what it holds then.

    The folder is made if its parent exists. Files of other names in it stay. ``key_books``: bytes of key books of
    masked campaigns (``.hsk``), signed by their dealers; a book that is not given stays in the folder as it is. Raises
    DocumentError ``unrecognized_campaign``: a key book is for no campaign that is published, or is refused. Raises
    StorageError ``tree_newer``: the folder has a newer version of a document, or another one of the same version: the
    workspace is an old copy, or the folder belongs to another workspace.
    """
    folder = Path(folder)
    with workspace.locked() as current:
        files: dict[str, tuple[str, bytes]] = {
            f"roots/{number}.hst": ("root", raw) for number, raw in enumerate(current.roots(), 1)
        }
        roots = len(files)
        documents, lacking, unnamable = _files_to_publish(current)
        files |= documents
        for place, (role, raw) in files.items():
            _check_not_newer(folder / place, role, raw)
        books = _books_to_publish(documents, key_books)
        for place, (campaign, raw) in books.items():
            _check_not_newer(folder / place, "keys", raw, campaign)
            files[place] = ("keys", raw)
        _check_last_root(folder, roots)
        _make_folders(folder)
        written = [place for place, (_, raw) in files.items() if _write_if_changed(folder / place, raw)]
    kinds = [role for role, _ in documents.values()]
    return Tree(
        roots,
        kinds.count("campaign"),
        kinds.count("model"),
        tuple(written),
        tuple(lacking),
        tuple(unnamable),
        kinds.count("nodes"),
        len(books),
    )


def endings_in(folder: str | Path, now: int) -> list[Ending]:
    """Return the documents of a published folder that have expired or will within a week, with any signatures."""
    folder = Path(folder)
    numbered = [path for path in (folder / "roots").glob("*.hst") if path.stem.isdecimal()]
    places = [("root", path) for path in sorted(numbered, key=lambda path: int(path.stem))[-1:]]
    for role in ("nodes", "campaign", "model"):
        kind, extension = FOLDERS[role]
        places += [(role, path) for path in sorted((folder / kind).glob(f"*{extension}"))]
    found = []
    for role, path in places:
        with suppress(DocumentError, InputError):
            found.append(ending_of(role, read_envelope(read_file(path, SIZE_LIMITS[role]), role).payload, now))
    return [each for each in found if each is not None]


def file_name(role: str, name: str) -> str:
    """Return the path of a document's file, relative to the published folder. A key book has its campaign's name."""
    kind, extension = FOLDERS[role]
    return f"{kind}/{quote(name, safe='')}{extension}"


def _files_to_publish(current: Workspace) -> tuple[dict[str, tuple[str, bytes]], list[Published], list[str]]:
    """Return path → (role, bytes) of files, newest versions with too few signatures, and names that are too long."""
    history = current.history()
    files: dict[str, tuple[str, bytes]] = {}
    lacking, unnamable = [], []
    for newest in latest_of_each(history):
        if newest.role not in FOLDERS:  # counts of records are for models, and devices do not fetch them
            continue
        place = file_name(newest.role, newest.name)
        if len(Path(place).name) > MAX_FILE_NAME:
            unnamable.append(newest.name)
            continue
        versions = [item for item in history if (item.role, item.name) == (newest.role, newest.name)]
        for item in sorted(versions, key=lambda item: item.version, reverse=True):
            raw = current.copy(item)
            if current.standing(item.role, raw).complete:
                files[place] = (item.role, raw)
                break
            if item is newest:
                lacking.append(item)
    return files, lacking, unnamable


def _books_to_publish(
    documents: Mapping[str, tuple[str, bytes]], key_books: Sequence[bytes]
) -> dict[str, tuple[Campaign, bytes]]:
    if not key_books:
        return {}
    campaigns = [
        parse_campaign(read_envelope(raw, role).payload) for role, raw in documents.values() if role == "campaign"
    ]
    found = {}
    for raw in key_books:
        campaign = campaign_of(raw, campaigns)
        found[file_name("keys", campaign.header.name)] = (campaign, raw)
    return found


def _version(role: str, raw: bytes, campaign: Campaign | None) -> tuple[int, bytes]:
    """Return version and content of a document; if ``campaign`` is given, of the key book of that campaign."""
    if campaign is not None:
        book = read_key_book(raw, campaign)
        return book.version, book.identity
    payload = read_envelope(raw, role).payload
    return read_payload(payload)[1].version, payload


def _check_not_newer(path: Path, role: str, raw: bytes, campaign: Campaign | None = None) -> None:
    """Refuse to replace a file by an older version, or by another file of the same version, which devices refuse."""
    if not path.exists():
        return
    try:
        most = SIZE_LIMITS[role] if campaign is None else largest_file(ROLE, campaign)
        present, content = _version(role, read_file(path, most), campaign)
    except (DocumentError, InputError):
        return
    new, wanted = _version(role, raw, campaign)
    if present < new or (present == new and content == wanted):
        return
    if campaign is not None:
        raise StorageError(
            "tree_newer",
            f"'{path}' is version {present} of the key book, and the given one is another version {new}; ask the "
            "dealer for the newest one",
        )
    raise StorageError(
        "tree_newer",
        f"'{path}' is version {present} and not this workspace's version {new}; is the workspace an old copy, or is "
        "the tree that of another workspace?",
    )


def _check_last_root(folder: Path, roots: int) -> None:
    if (folder / "roots" / f"{roots + 1}.hst").exists():
        raise StorageError(
            "tree_newer", f"the tree has a root {roots + 1}, the workspace has {roots}; is the workspace an old copy?"
        )


def _make_folders(folder: Path) -> None:
    with storage_errors(f"the tree at '{folder}' can not be made"):
        folder.mkdir(exist_ok=True)
        for name in ("roots", *(kind for kind, _ in FOLDERS.values()), "reports"):
            (folder / name).mkdir(exist_ok=True)


def _write_if_changed(path: Path, raw: bytes) -> bool:
    if path.is_file() and path.read_bytes() == raw:
        return False
    write_output(path, raw, force=True)
    return True


def campaign_of(book: bytes, campaigns: Sequence[Campaign]) -> Campaign:
    """Return the campaign whose dealer signed a key book (``.hsk``); else ``unrecognized_campaign`` or why not read."""
    problem = DocumentError(
        "unrecognized_campaign", "the key book is for no masked campaign in this folder; publish its campaign first"
    )
    for campaign in campaigns:
        if campaign.masked is None:
            continue
        try:
            read_key_book(book, campaign)
        except DocumentError as error:
            # "malformed" and "bad_signature" are the reasons for a book of another campaign or dealer.
            if error.reason not in ("malformed", "bad_signature", "unrecognized_campaign"):
                problem = error
        else:
            return campaign
    raise problem
