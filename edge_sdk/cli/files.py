"""Files that the command line names: read within a limit, and refused if they are of another kind than expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from pathlib import Path

PROVISIONING = "provisioning"
_KINDS = {
    "root": "a trust root (.hst)",
    "campaign": "a campaign (.hsc)",
    "model": "a model (.hsm)",
    "nodes": "a list of nodes (.hsl)",
    "node": "a file of node summaries (.hsn)",
    "masked": "a file of masked messages (.hse)",
    "keys": "a key book (.hsk)",
    "release": "a release of a masked sum (.hsd)",
    PROVISIONING: "a provisioning file (.hsp)",
    "batch": "a file of reports (.hsr)",
}


def read_file(path: Path, limit: int) -> bytes:
    """Read the file at ``path``, but at most ``limit`` + 1 bytes. A longer result tells that the file is too large.

    Args:
        path: where the file is.
        limit: largest size in bytes that the caller accepts.

    Raises:
        InputError: ``file_unreadable``: there is no such file, or it can not be read.
    """
    problem = ""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        problem = error.strerror or "it can not be read"
    raise InputError("file_unreadable", f"'{path}' can not be read: {problem}")


def read_document(path: Path, kind: str) -> bytes:
    """Read a file and refuse one of another kind. Signatures and contents are checked later.

    Args:
        path: where the file is.
        kind: ``root``, ``campaign``, ``model``, ``nodes`` or ``provisioning``.

    Raises:
        InputError: ``file_unreadable``: there is no such file, or it can not be read.
        DocumentError: ``wrong_role``: another kind of document; ``malformed``, ``too_large``,
            ``unsupported_version``. The text names the file, the expected kind, and the file's kind if it is known.
    """
    from protocol.documents.provisioning import MAX_BYTES, parse_provisioning

    raw = read_file(path, SIZE_LIMITS.get(kind, MAX_BYTES))
    try:
        if kind == PROVISIONING:
            parse_provisioning(raw)
        else:
            read_envelope(raw, kind)
    except DocumentError as error:
        problem = error
    else:
        return raw
    found = _kind_of(raw)
    if found in (None, kind):
        raise DocumentError(problem.reason, f"'{path}' is not {_KINDS[kind]}: {problem.detail}")
    raise DocumentError(problem.reason, f"'{path}' is {_KINDS[found]}; {_KINDS[kind]} is expected")


def _kind_of(raw: bytes) -> str | None:
    """Tell the kind of a file from its first bytes; None if it is no file of this project."""
    from protocol.batches.framing import MARK
    from protocol.documents import provisioning

    if raw[2:6] == provisioning.MAGIC.encode():
        return PROVISIONING
    return "batch" if raw.startswith(MARK) else role_of(raw)
