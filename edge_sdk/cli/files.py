"""Read for the command line: documents within a limit and of the expected kind, and records as JSON, tolerantly.

Whether a device reports must not depend on its record. So every text with the structure of one JSON value is read,
whatever its encoding, numbers and depth. Features treat odd values as unlisted, and NaN as missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print(f"note: {text}", file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def writing(what: str, taken: str) -> Iterator[None]:
    """Turn OSErrors of the body, which writes files, into StorageErrors. ``file_exists`` gets the text ``taken``."""
    from edge_sdk.storage.atomic_files import os_errors

    with os_errors(f"{what} can not be written"):
        try:
            yield
        except FileExistsError:
            raise StorageError("file_exists", taken) from None


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` to a new file, completely or not at all. Raises FileExistsError and other OSErrors."""
    from edge_sdk.storage.atomic_files import write_new

    write_new(str(path), lambda file: file.write(content))


def read_file(path: Path, limit: int) -> bytes:
    """Return the file at ``path``, but at most ``limit`` + 1 bytes. More than ``limit`` bytes: it is too large.

    Raise InputError ``file_unreadable`` if the file can not be read.
    """
    problem = ""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        problem = error.strerror or "it can not be read"
    raise InputError("file_unreadable", f"'{path}' can not be read: {problem}")


def read_document(path: Path, kind: str) -> bytes:
    """Return the file's bytes if it is of this kind: ``root``, ``campaign``, … Signature and contents are not checked.

    Raise InputError ``file_unreadable``, or DocumentError ``wrong_role``, ``malformed``, ``too_large`` or
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
    from protocol.batches.framing import MARK
    from protocol.documents import provisioning

    if raw[2:6] == provisioning.MAGIC.encode():
        return PROVISIONING
    return "batch" if raw.startswith(MARK) else role_of(raw)


MAX_INTEGER_DIGITS = 4300
"""Most digits of an integer. A number with more digits exceeds every listed value and all bounds."""
_ALWAYS_CONVERTED = 640
"""Number of digits that ``int`` converts under every limit that the interpreter can have."""

MEASURE_SECONDS = 240.0
"""Longest time of a measurement in seconds: less than systemd gives the unit that reports it."""

_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
"""Strings and brackets of JSON. The repeats are possessive: otherwise matching a string with many escapes would need
forty times its size in memory for backtracking."""


def read_record(raw: bytes, repeated: set[str] | None = None) -> Any:
    """Parse ``raw``, a JSON text, into Python objects. In a very deeply nested text, inner values become empty lists.

    Of a key that an object has more than once, the last value counts. The set ``repeated`` is filled with the keys that
    the outermost object has more than once. A text that is not JSON raises a ValueError, which may quote it.
    """
    found: set[str] = set() if repeated is None else repeated

    def joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The outermost object ends last, so its keys are those that stay in the set.
        record = dict(pairs)
        found.clear()
        if len(record) < len(pairs):
            found.update(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return record

    text = raw.decode(json.detect_encoding(raw), "replace")
    read = json.JSONDecoder(strict=False, parse_int=_integer, object_pairs_hook=joined).decode
    try:
        return read(text)
    except RecursionError:
        pass
    return read(_flattened(text))


def run_program(program: str, most: int, seconds: float = MEASURE_SECONDS) -> bytes:
    """Run a program without arguments and input, and return what it prints, at most ``most`` + 1 bytes.

    The program and all that it has started end with this call, after ``seconds`` at the latest. Raise InputError
    ``measure_failed`` if the program can not be run, ends with another status than 0, takes too long, or prints
    more than ``most`` bytes. The error's text holds nothing of what it prints.
    """
    import selectors
    import signal
    import subprocess
    import time

    printed = bytearray()
    status: int | None = None
    end = time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
    except (OSError, ValueError):
        raise InputError("measure_failed", "the program can not be run") from None
    with process, selectors.DefaultSelector() as ready:
        assert process.stdout is not None
        ready.register(process.stdout, selectors.EVENT_READ)
        try:
            while len(printed) <= most and ready.select(max(0.0, end - time.monotonic())):
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    status = process.wait(max(0.0, end - time.monotonic()))
                    break
                printed += part
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status != 0:
        raise InputError("measure_failed", "the program has failed, ran too long or printed too much")
    return bytes(printed)


def _integer(digits: str) -> int | float:
    """Return digits as an integer, or as infinity if there are too many: a feature treats both alike."""
    if len(digits) <= _ALWAYS_CONVERTED:
        return int(digits)
    return int(Decimal(digits)) if len(digits.lstrip("-")) <= MAX_INTEGER_DIGITS else float(digits)


def _flattened(text: str) -> str:
    """Replace each inner list or object of a JSON text by []. Return "" if brackets do not match."""
    parts, depth, start = [], 0, 0
    for found in _TOKENS.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth == 2:
                parts.append(text[start : found.start()])
        elif found[0] in "]}":
            depth -= 1
            if depth == 1:
                parts.append("[]")
                start = found.end()
    return "".join((*parts, text[start:])) if depth == 0 else ""
