"""Documents of a workspace: found by name or id instead of by file, and as they were signed.

A command takes a file. With a workspace, an argument that names no file may be

    mushrooms          the newest version of that name; of a campaign the newest that has questions, if one has
    mushrooms@2        version 2 of that name
    56475aa75463474c   an id in hexadecimal: its first 8 digits or more
    four-words-of-it   an id in words, as ``protocol.words.to_words`` prints it
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aggregator.common.files import read_file, write_output
from aggregator.common.notebooks import facts
from aggregator.publishing.mechanisms.choice import Candidate
from aggregator.publishing.signatures import Signatures, signed_campaign
from aggregator.publishing.workspace import EXTENSIONS, Published, Workspace, open_workspace
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.documents.model import Model
from protocol.epsilon import format_micro
from protocol.errors import InputError, StorageError
from protocol.nodes.summary import NodeList
from protocol.words import to_words

Document = bytes | str | Path


LEAST_DIGITS = 8
_HEXADECIMAL = frozenset("0123456789abcdef")


def document_bytes(role: str, given: Document, workspace: Workspace | None) -> bytes:
    """Return the bytes of a signed file that is given as bytes, by its path or, in a workspace, by name or id.

    An existing path takes precedence. Raises InputError ``file_not_found``, ``unreadable``, ``too_large``, and as
    :func:`find_document`.
    """
    if isinstance(given, bytes):
        return given
    if workspace is None or Path(given).exists():
        return read_file(given, SIZE_LIMITS[role])
    return workspace.copy(find_document(workspace, role, str(given)))


def check_campaign(
    campaign: Document, *, workspace: Workspace | str | Path | None = None, trust: bytes | str | Path | None = None
) -> bytes:
    """Return the bytes of a campaign. Its signatures are checked only if ``workspace`` or ``trust`` is given.

    The ``workspace`` must have signed it, or the keys of the root ``trust``. Raises InputError ``trust_ambiguous``:
    both are given; DocumentError ``bad_signature``; and as :func:`document_bytes`.
    """
    if workspace is not None and trust is not None:
        raise InputError("trust_ambiguous", "give --trust or --workspace, not both")
    signer = None if workspace is None else opened(workspace)
    raw = document_bytes("campaign", campaign, signer)
    if signer is not None:
        signer.check_signed(raw)
    elif trust is not None:
        signed_campaign(trust if isinstance(trust, bytes) else read_file(trust, SIZE_LIMITS["root"]), raw)
    return raw


def opened(workspace: Workspace | str | Path) -> Workspace:
    """Return an open workspace unchanged, or open the workspace in a folder (:func:`open_workspace`)."""
    return workspace if isinstance(workspace, Workspace) else open_workspace(workspace)


def find_document(workspace: Workspace, role: str, given: str) -> Published:
    """Return the history's entry of the document that a workspace signed under a name or id.

    ``given`` is a name (the newest version; of a campaign the newest that asks questions), else NAME@VERSION, else an
    id's first digits or its words. Raises InputError ``campaign_unknown``, ``model_unknown``: none fits, or several
    ids.
    """
    signed = [item for item in workspace.history() if item.role == role]
    name, mark, version = given.rpartition("@")
    found = _with_questions(workspace, [item for item in signed if item.name == given])
    found = found or [item for item in signed if mark and item.name == name and str(item.version) == version]
    found = found or _by_id(signed, given)
    if found:
        return found[0]
    from aggregator.common.tables import shorten  # this imports pandas, so only a refusal does it

    names = shorten(sorted({item.name for item in signed})) or "none"
    problem = f"there is no file of that name, and the workspace signed no such {role}; it signed: {names}"
    if role == "campaign":
        raise InputError("campaign_unknown", problem)
    raise InputError("model_unknown", problem)


def _with_questions(workspace: Workspace, versions: list[Published]) -> list[Published]:
    """Return versions of one document, newest first; of a campaign only the newest one with questions, if any has."""
    newest = sorted(versions, key=lambda item: item.version, reverse=True)
    if not newest or newest[0].role != "campaign":
        return newest
    for item in newest:
        if not parse_campaign(read_envelope(workspace.copy(item), "campaign").payload).ended:
            return [item]
    return newest


def _by_id(signed: list[Published], given: str) -> list[Published]:
    digits = given.lower()
    matching = (
        [item for item in signed if item.digest.hex().startswith(digits)]
        if len(digits) >= LEAST_DIGITS and _HEXADECIMAL.issuperset(digits)
        else [item for item in signed if to_words(item.digest) == given]
    )
    return matching if len(matching) == 1 else []


@dataclass(frozen=True, repr=False)
class SignedDocument:
    """A signed document with its file, recorded in a workspace; ``standing``: its valid signatures."""

    raw: bytes
    document: Campaign | Model | NodeList
    standing: Signatures

    def __repr__(self) -> str:
        header = self.document.header
        return f"{type(self).__name__}({header.name!r}, version {header.version}, {self._size()})"

    def _size(self) -> str:
        return f"{len(self.raw)} bytes"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the signed document to a file that the user chose; an error says where the workspace keeps its copy."""
        try:
            write_output(Path(path), self.raw, force=force)
            return
        except StorageError as error:
            reason, problem = error.reason, error.detail
        role = role_of(self.raw) or ""
        copy = f"published/{sha256(read_envelope(self.raw, role).payload).hexdigest()}{EXTENSIONS[role]}"
        kept = f"version {self.document.header.version} is signed all the same: copy it from {copy} in the workspace"
        raise StorageError(reason, f"{problem}; {kept}")


@dataclass(frozen=True, repr=False)
class SignedCampaign(SignedDocument):
    """A signed campaign with its file, the mechanisms that ``auto`` compared, and warnings for the signer."""

    document: Campaign
    why: tuple[Candidate, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def campaign(self) -> Campaign:
        """The parsed campaign."""
        return self.document

    def _repr_html_(self) -> str:
        found, nodes = self.document, self.document.nodes
        about: dict[str, object] = {"name": found.header.name, "version": found.header.version, "id": found.id.hex()}
        about |= {"questions": len(found.questions)} if nodes is None else {"node list": nodes.list_name}
        about |= {"ε per period": format_micro(found.epsilon_micro), "signatures": str(self.standing)}
        return facts("Campaign", {**about, **{f"warning {n}": each for n, each in enumerate(self.warnings, 1)}})
