"""Records of what ``hearsay design`` and ``hearsay refine`` decided, and why: texts, integers and small tables.

It is for people, in a schema file (table ``[decision]``), a workspace (``decisions/ID.toml``) and a model's card.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aggregator.common.files import read_file, storage_errors, write_output
from aggregator.estimates.source import Source
from protocol import canonical
from protocol.documents.payload import is_printable
from protocol.errors import InputError, StorageError

Decision = Mapping[str, Any]


MOST_BYTES = 16 << 10
"""Size of the largest record, in bytes of its canonical form."""
MOST_ROWS = 40
MOST_KEYS = 24
MOST_TEXT = 1000
"""Most characters of a text."""
MOST_INTEGER = 1 << 53
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LEFT_OUT = "_left_out"


def bounded(record: Decision) -> dict[str, Any]:
    """Return ``record`` shortened and escaped for :func:`parse_decision`; ``TABLE_left_out`` counts lost rows."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, list):
            found[key] = [{name: _cut(cell, MOST_TEXT) for name, cell in row.items()} for row in value]
            _leave_out(found, key, len(value) - MOST_ROWS)
        else:
            found[key] = _cut(value, MOST_TEXT)
    most = MOST_TEXT
    while len(canonical.pack(found)) > MOST_BYTES:
        tables = [key for key, value in found.items() if isinstance(value, list) and len(value) > 1]
        if tables:
            largest = max(tables, key=lambda key: len(canonical.pack(found[key])))
            _leave_out(found, largest, (len(found[largest]) + 1) // 2)
        else:
            most //= 2
            found = {
                key: [{name: _cut(cell, most) for name, cell in row.items()} for row in value]
                if isinstance(value, list)
                else _cut(value, most)
                for key, value in found.items()
            }
    return found


def parse_decision(body: object) -> dict[str, Any]:
    """Return the record of a decision that was read from a file. Raises ``schema_invalid`` for another form or size."""
    if not isinstance(body, dict) or not _is_flat(body, tables=True):
        raise InputError(
            "schema_invalid",
            f"[decision] holds texts of at most {MOST_TEXT} printable characters, whole numbers, and tables of these "
            f"with at most {MOST_ROWS} rows; correct it, or delete it",
        )
    if len(canonical.pack(body)) > MOST_BYTES:
        raise InputError("schema_invalid", f"[decision] is larger than {MOST_BYTES} bytes; shorten or delete it")
    return body


def decision_text(record: Decision) -> str:
    """Return the record as TOML, to be appended to the text of a schema file. Empty for an empty record."""
    if not record:
        return ""
    plain = {key: value for key, value in record.items() if not isinstance(value, list)}
    lines = ["", "[decision]", *map(_line, plain.items())]
    for key, rows in record.items():
        for row in rows if isinstance(rows, list) else ():
            lines += ["", f"[[decision.{key}]]", *map(_line, row.items())]
    return "".join(f"{line}\n" for line in lines)


def _line(entry: tuple[str, object]) -> str:
    key, value = entry
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"


def _leave_out(found: dict[str, Any], key: str, number: int) -> None:
    if number > 0:
        found[key] = found[key][: len(found[key]) - number]
        found[key + _LEFT_OUT] = found.get(key + _LEFT_OUT, 0) + number


def _cut(value: object, most: int) -> object:
    """Return a text of at most ``most`` characters, all printable; an integer unchanged."""
    if isinstance(value, int):
        return int(value)
    text = str(value)[: most + 1]
    seen = "".join(each if is_printable(each) else each.encode("unicode_escape").decode() for each in text)
    return seen if len(seen) <= most else seen[: most - 1] + "…"


def _is_flat(body: dict[Any, Any], *, tables: bool) -> bool:
    """Return whether a map has valid keys and values; ``tables``: whether a value may be a list of such maps."""
    return len(body) <= MOST_KEYS and all(
        isinstance(key, str) and _KEY.fullmatch(key) is not None and (_is_plain(value) or (tables and _is_rows(value)))
        for key, value in body.items()
    )


def _is_rows(value: object) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= MOST_ROWS
        and all(isinstance(row, dict) and row and _is_flat(row, tables=False) for row in value)
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_TEXT and (not value or is_printable(value))
    return type(value) is int and abs(value) <= MOST_INTEGER


FOLDER = "decisions"
_MOST_FILE_BYTES = 1 << 17


def keep(workspace: Path, campaign: bytes, decision: Decision) -> None:
    """Write the record of a decision about a campaign (id: 32 bytes) into the workspace, unless it is empty."""
    if not decision:
        return
    with storage_errors(f"'{workspace / FOLDER}' could not be made"):
        (workspace / FOLDER).mkdir(exist_ok=True)
    write_output(_file(workspace, campaign), decision_text(decision).encode(), force=True)


def kept(workspace: Path, campaign: bytes) -> dict[str, Any]:
    """Return why a campaign asks what it asks; empty if the workspace has no record. Raises ``workspace_damaged``."""
    path = _file(workspace, campaign)
    if not path.is_file():
        return {}
    problem = ""
    try:
        return parse_decision(tomllib.loads(read_file(path, _MOST_FILE_BYTES).decode()).get("decision"))
    except InputError as error:
        problem = error.detail
    except (ValueError, RecursionError):  # UnicodeDecodeError and TOMLDecodeError are ValueErrors.
        problem = "it is not TOML"
    raise StorageError(
        "workspace_damaged",
        f"'{FOLDER}/{path.name}' can not be used: {problem}; restore or delete it",
    )


def kept_of(workspace: Path, sources: Sequence[Source]) -> dict[str, Any]:
    """Return the newest record of the sources' campaigns; its table ``steps`` names the earlier ones with a record."""
    origins = sorted((source.origin for source in sources), key=lambda origin: (origin.issued_at, origin.id))
    pairs = [(origin, kept(workspace, origin.id)) for origin in origins]
    found = [(origin, record) for origin, record in pairs if record]
    if not found:
        return {}
    earlier = [
        {"campaign": f"{origin.name}, version {origin.version}", "why": str(record.get("why", ""))}
        for origin, record in found[:-1]
    ]
    return bounded({**found[-1][1], **({"steps": earlier} if earlier else {})})


def _file(workspace: Path, campaign: bytes) -> Path:
    return workspace / FOLDER / f"{campaign.hex()}.toml"
