"""Run ``hearsay-edge``: one command, whose result or refusal is printed, and an exit status."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.documents.payload import quoted, shown
from protocol.errors import HearsayError, StorageError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

_TIMES = frozenset((
    "wall", "now", "confirmed", "time_floor", "earliest", "limit_time", "oldest_report_at", "silent_until",
    "next_period_at",
))  # fmt: skip
"""Keys of results that are seconds since 1970. They are printed as dates; JSON has the number."""

_NAMES = frozenset((
    "name", "enrolled", "campaign", "missing", "unlisted", "unsigned_campaigns", "ended_campaigns", "installed",
    "class", "classes", "missing_models", "series", "fleet", "device",
))  # fmt: skip
"""Keys of results that are texts of documents. They are printed in quotes, since they may look like other output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and print its result or its refusal.

    Args:
        arguments: the words after the program's name; None for those of this process.

    Returns:
        The exit status. 0: done, or nothing is to be done now. 1, 3, 4, 5: refused, by the class of the error
        (:attr:`protocol.errors.HearsayError.status`); reasons are on standard error, and if there are several, the
        first decides. 1: also an unexpected error, or the reader of the output has ended. 130: interrupted. With
        ``--json`` a refusal is one JSON object on standard output as well.

    Raises:
        SystemExit: status 2 for wrong usage; 0 after ``--help`` and ``--version``.
        Exception: an unexpected error, only if the environment variable ``HEARSAY_DEBUG`` is set. Otherwise the error
            is printed as the refusal ``internal_error``.
    """
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    from edge_sdk.cli.table import build_parser  # here, so that an interruption while it is loaded is none of a program

    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # An old terminal's encoding may lack ε. A replacement is then printed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    options = build_parser().parse_args(arguments)
    try:
        try:
            result = options.run(options)
        except HearsayError as error:
            result = _refused(error, options.idle)
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as error:  # a traceback could show a record, so none is printed
            if os.environ.get("HEARSAY_DEBUG"):
                raise
            result = _refused(HearsayError("internal_error", f"{_where(error)}; please report this"))
        return _told(result, as_json=options.json, idle=options.idle)
    except StorageError as error:
        print(shown(str(error)), file=sys.stderr)  # noqa: T201
        return error.status
    except BrokenPipeError:
        _discard_output()
        return 1


def _refused(error: HearsayError, idle: Container[str] = ()) -> dict[str, Any]:
    """Return the result of a refused command; or, if ``idle`` has the reason, of one that had nothing to do."""
    if error.reason in idle:
        return {"nothing_to_do": error.reason, "detail": error.detail}
    return {"reason": error.reason, "detail": error.detail, "status": error.status}


def _told(result: dict[str, Any], *, as_json: bool, idle: Container[str]) -> int:
    """Print a result; print its refusals and warnings on standard error. Return the exit status."""
    refusals = result.get("refusals", ())
    if as_json or "reason" not in result:
        _print(result, as_json=as_json)
    if "reason" in result:
        print(shown(f"{result['reason']}: {result['detail']}"), file=sys.stderr)  # noqa: T201
        return int(result["status"])
    for each in result.get("warnings", ()):
        print(shown(f"warning: {each}"), file=sys.stderr)  # noqa: T201
    for each in refusals:
        print(shown("{reason}: {step}: {detail}".format(**each)), file=sys.stderr)  # noqa: T201
    return next((int(each["status"]) for each in refusals if each["status"] and each["reason"] not in idle), 0)


def _open_closed_streams() -> None:
    """Replace closed standard streams, whose numbers the next opened files would get."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            stream: io.TextIOWrapper
            try:
                opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is ``number``
                stream = os.fdopen(opened, "r" if number == 0 else "w", encoding="utf-8")
            except OSError:  # no null device, as in some containers: a folder holds the number, and memory the text
                os.open(os.sep, os.O_RDONLY)
                stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
            setattr(sys, name, stream)


def _discard_output() -> None:
    """Discard what is still to be printed, which Python would write, and fail once more, at the end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # the null device can not be opened: Python leaves a closed stream alone
        with contextlib.suppress(OSError):
            sys.stdout.close()


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result. If it can not be printed, the command is done all the same."""
    problem = ""
    try:
        _show(result, as_json=as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = error.strerror or "the system refused it"
    if problem:
        _discard_output()
        raise StorageError(
            "output_failed", f"the command was carried out, and its output can not be written: {problem}"
        )


def _where(error: Exception) -> str:
    """Return type and place of an unexpected error without its text, which may contain a value of a record."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} at {place}"


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))  # noqa: T201
        return
    result = {key: value for key, value in result.items() if key not in ("refusals", "warnings")}
    answers = result.pop("answers", None)
    if answers is not None:
        _show_table(answers)
    width = max(map(len, result))
    for key, value in result.items():
        if key == "explanation":
            print(value)  # noqa: T201
        else:
            print(f"{key.replace('_', ' '):<{width}}  {shown(_shown(key, value))}")  # noqa: T201


def _show_table(rows: list[dict[str, Any]]) -> None:
    # Only masked campaigns with diluted noise and shared ones with Gaussian noise have a δ.
    of_delta = ("delta",) if any(row["delta"] != "0" for row in rows) else ()
    columns = ("campaign", "version", "period", "answered_at", "epsilon", *of_delta)
    cells = [tuple(name.replace("_", " ") for name in columns)]
    for row in rows:
        called = quoted(row["campaign"]) if row["id"] else row["campaign"]
        shown_row = {**row, "campaign": called, "answered_at": _date(row["answered_at"])}
        cells.append(tuple(str(shown_row[name]) for name in columns))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())  # noqa: T201


def _shown(key: str, value: Any) -> str:
    if key in _TIMES and isinstance(value, int):
        return _date(value)
    if key in _NAMES and isinstance(value, str):
        return quoted(value)
    if key in _NAMES and isinstance(value, list):
        return "; ".join(map(quoted, value)) or "none"
    if key == "probabilities":  # its keys are texts of documents
        return "  ".join(f"{quoted(name)} {_plain(item)}" for name, item in value.items())
    return _plain(value)


def _date(seconds: int) -> str:
    from protocol.words import date

    return date(seconds, "%Y-%m-%d %H:%M:%S UTC")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "  ".join(f"{key.replace('_', ' ')} {_shown(key, item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(_plain(item) for item in value) or "none"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
