"""A static tree of files that devices fetch from: any web server, or a shared folder, can serve it.

    roots/N.hst          every trust root by number, from 1 to the one in force
    campaigns/NAME.hsc   the newest version of every campaign that has enough signatures
    models/NAME.hsm      likewise of every model
    reports/             made empty, for whoever takes uploads

NAME is the document's name, percent-encoded with nothing left as it is but letters, digits and ``_.-~``.
Roots are written before the documents that need them, each file at once or not at all, and a file that
is right already is left alone: a reader in the midst of it sees the old tree or the new one, and a
repetition costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from aggregator.files import read_file, write_output
from aggregator.publishing.history import latest_of_each
from protocol.document import read_payload
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from aggregator.publishing.history import Published
    from aggregator.publishing.workspace import Workspace

FOLDERS = {"campaign": ("campaigns", ".hsc"), "model": ("models", ".hsm")}
MAX_FILE_NAME = 255
"""Bytes of a file name on the usual file systems."""


class Tree(NamedTuple):
    """What was made.

    Attributes:
        roots, campaigns, models: how many of each are in the tree now.
        written: paths in the tree of the files that changed.
        lacking: newest versions that have too few signatures; the version before them is there instead,
            if one has enough.
        unnamable: names that are too long for a file.
    """

    roots: int
    campaigns: int
    models: int
    written: tuple[str, ...]
    lacking: tuple[Published, ...]
    unnamable: tuple[str, ...]


def write_tree(workspace: Workspace, folder: str | Path) -> Tree:
    """Bring a tree up to date with a workspace.

    Args:
        workspace: what was signed.
        folder: the top of the tree; made if its parent is there.

    Raises:
        StorageError: ``tree_newer``: the tree holds a document that is newer than the workspace's, or
            another of its version: the workspace is an old copy, or the tree is of another one;
            ``workspace_damaged``, ``io_failed``.
    """
    folder = Path(folder)
    with workspace.locked() as current:
        files: dict[str, tuple[str, bytes]] = {
            f"roots/{number}.hst": ("root", raw) for number, raw in enumerate(current.roots(), 1)
        }
        roots = len(files)
        served, lacking, unnamable = _served(current)
        files |= served
        for place, (role, raw) in files.items():
            _check_not_newer(folder / place, role, raw)
        _check_last_root(folder, roots)
        _make_folders(folder)
        written = [place for place, (_, raw) in files.items() if _bring(folder / place, raw)]
    kinds = [role for role, _ in served.values()]
    return Tree(roots, kinds.count("campaign"), kinds.count("model"), tuple(written), tuple(lacking), tuple(unnamable))


def file_name(role: str, name: str) -> str:
    """Where the newest document of a name lies in the tree."""
    kind, extension = FOLDERS[role]
    return f"{kind}/{quote(name, safe='')}{extension}"


def _served(current: Workspace) -> tuple[dict[str, tuple[str, bytes]], list[Published], list[str]]:
    """Of every name the newest version that has enough signatures; the newest ones that lack some."""
    history = current.history()
    files: dict[str, tuple[str, bytes]] = {}
    lacking, unnamable = [], []
    for newest in latest_of_each(history):
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


def _check_not_newer(path: Path, role: str, raw: bytes) -> None:
    """A tree never goes back: devices would take that for a replay."""
    if not path.exists():
        return
    there = None
    try:
        there = read_envelope(read_file(path, SIZE_LIMITS[role]), role)
        _, standing = read_payload(there.payload)
    except (DocumentError, InputError):
        return  # damaged: it is replaced
    ours = read_envelope(raw, role)
    _, header = read_payload(ours.payload)
    if standing.version > header.version or (standing.version == header.version and there.payload != ours.payload):
        raise StorageError(
            "tree_newer",
            f"'{path}' is version {standing.version} and not this workspace's version {header.version}; "
            "is the workspace an old copy, or the tree another's?",
        )


def _check_last_root(folder: Path, roots: int) -> None:
    if (folder / "roots" / f"{roots + 1}.hst").exists():
        raise StorageError(
            "tree_newer", f"the tree has a root {roots + 1}, the workspace has {roots}; is the workspace an old copy?"
        )


def _make_folders(folder: Path) -> None:
    problem = ""
    try:
        folder.mkdir(exist_ok=True)
        for name in ("roots", *(kind for kind, _ in FOLDERS.values()), "reports"):
            (folder / name).mkdir(exist_ok=True)
        return
    except OSError as error:
        problem = error.strerror or "it can not be made"
    raise StorageError("io_failed", f"the tree at '{folder}' can not be made: {problem}")


def _bring(path: Path, raw: bytes) -> bool:
    """Replace a file unless it is right already; whether it was replaced."""
    if path.is_file() and path.read_bytes() == raw:
        return False
    write_output(path, raw, force=True)
    return True
