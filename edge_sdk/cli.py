"""``hearsay-edge``: the device from a shell. Standard library only, so that it starts fast."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edge_sdk.device import Device
from edge_sdk.records import read_record
from protocol.envelope import SIZE_LIMITS
from protocol.epsilon import format_micro
from protocol.errors import HearsayError, InputError
from protocol.words import to_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.campaign import Campaign
    from protocol.schema import Schema

MAX_RECORD_BYTES = 16 << 20
RECORD_HELP = "holds one JSON object; - is standard input"

EXAMPLES = """examples:
  hearsay-edge --state /var/lib/hearsay provision root.hst
  hearsay-edge --state /var/lib/hearsay explain mushrooms.hsc
  hearsay-edge --state /var/lib/hearsay enrol mushrooms.hsc
  echo '{"odor": "n", "label": "e"}' | hearsay-edge --state /var/lib/hearsay report --campaign mushrooms
  hearsay-edge --state /var/lib/hearsay drain outbox/today.hsr
  hearsay-edge --state /var/lib/hearsay install mushrooms.hsm
  echo '{"odor": "f"}' | hearsay-edge --state /var/lib/hearsay predict
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 refused (reason on standard error), 2 usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an old terminal's encoding may lack ε
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    refusal = ""
    try:
        result = options.run(options)
        _show(result, as_json=options.json)
        sys.stdout.flush()
    except HearsayError as error:
        refusal = str(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a traceback could show a record
        if os.environ.get("HEARSAY_DEBUG"):
            raise
        refusal = f"internal_error: {_where(error)}; please report this"
    if refusal:
        print(refusal, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _where(error: Exception) -> str:
    """Type and place of an unexpected error, without its text, which may hold a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} at {place}"


_RAW: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}


def _example(lines: Sequence[str]) -> str:
    return "\n".join(["example:", *(lines or ["  hearsay-edge --state /var/lib/hearsay status --json"])])


class _Parser(argparse.ArgumentParser):
    """Says what is wrong without quoting the arguments: one of them may be a record."""

    def error(self, message: str) -> NoReturn:
        quoted = message.startswith(("unrecognized", "argument"))
        detail = "there is an argument that this command does not take" if quoted else message
        self.exit(2, f"usage: {detail}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hearsay-edge",
        description="Answer questions about records privately, keep the reports, classify with signed models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="this device's own folder")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], Any], help_text: str) -> argparse.ArgumentParser:
        examples = [line for line in EXAMPLES.splitlines() if f" {name}" in line]
        sub = commands.add_parser(name, help=help_text, description=help_text, epilog=_example(examples), **_RAW)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(run=run)
        return sub

    command("provision", _provision, "pin the trust root that this device obeys").add_argument(
        "root", type=Path, metavar="ROOT.hst", help="the file that the owner trusts"
    )
    command("explain", _explain, "say in words what a campaign asks and costs").add_argument(
        "campaign", type=Path, metavar="CAMPAIGN.hsc", help="a signed campaign"
    )
    command("enrol", _enrol, "accept a campaign, if it is signed and the policy allows it").add_argument(
        "campaign", type=Path, metavar="CAMPAIGN.hsc", help="a signed campaign"
    )
    report = command("report", _report, "answer about one record, at most once per period")
    report.add_argument("--campaign", required=True, metavar="ID", help="name, or first digits of the id")
    report.add_argument("--label", help="class of the record; default: the record's own label field")
    report.add_argument(
        "record", nargs="?", default="-", metavar="FILE", help="holds one JSON object; - is standard input"
    )
    command("drain", _drain, "seal unsent reports into a new batch file").add_argument(
        "out", type=Path, metavar="OUT.hsr", help="a file that does not exist yet"
    )
    command("install", _install, "verify a model and keep it").add_argument(
        "model", type=Path, metavar="MODEL.hsm", help="a signed model"
    )
    predict = command("predict", _predict, "classify one record with the installed model")
    predict.add_argument("--model", help="name, if several are installed")
    predict.add_argument(
        "record", nargs="?", default="-", metavar="FILE", help="holds one JSON object; - is standard input"
    )
    command("status", _status, "what was spent, what waits, what is installed")
    return parser


def _open(options: argparse.Namespace) -> Device:
    return Device.open(options.state)


def _provision(options: argparse.Namespace) -> dict[str, Any]:
    with Device.open(options.state, trust=_read(options.root, SIZE_LIMITS["root"])) as device:
        return {"provisioned": str(options.state), "root_version": device.status().root_version}


def _explain(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        return {"explanation": device.explain(_read(options.campaign, SIZE_LIMITS["campaign"]))}


def _enrol(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        campaign = device.enrol(_read(options.campaign, SIZE_LIMITS["campaign"]))
    return {
        "enrolled": campaign.header.name,
        "version": campaign.header.version,
        "id": campaign.id.hex(),
        "words": to_words(campaign.id),
        "epsilon_per_period": format_micro(campaign.epsilon_micro),
    }


def _report(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        campaign = _find(device.campaigns(), options.campaign)
        record = _read_record(options.record)
        label = options.label if options.label is not None else record.get(campaign.schema.label.name)
        report = device.report(campaign.id, record, label=label)
        _note_strangers(record, {*_names(campaign.schema), campaign.schema.label.name})
    return {"report": report.hex(), "campaign": campaign.header.name}


def _names(schema: Schema) -> list[str]:
    return [feature.name for feature in schema.features]


def _note_strangers(record: dict[str, Any], known: set[str]) -> None:
    """Say that keys were ignored, without naming them: a typing error should not go unseen."""
    strangers = len(set(record) - known)
    if strangers:
        print(f"note: {strangers} of the record's keys are no features here and were ignored", file=sys.stderr)  # noqa: T201


def _find(campaigns: Sequence[Campaign], wanted: str) -> Campaign:
    found = [c for c in campaigns if c.header.name == wanted or (wanted and c.id.hex().startswith(wanted.lower()))]
    if len(found) != 1:
        known = ", ".join(f"{c.header.name} ({c.id.hex()[:8]})" for c in campaigns) or "none; enrol in one first"
        raise InputError("campaign_unknown", f"name one accepted campaign: {known}")
    return found[0]


def _drain(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        count = device.drain(options.out)
    return {"reports": count, "file": str(options.out) if count else None}


def _install(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        model = device.install(_read(options.model, SIZE_LIMITS["model"]))
    return {"installed": model.name, "version": model.version, "classes": list(model.classes)}


def _predict(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        model = device.model(options.model)
        record = _read_record(options.record)
        _note_strangers(record, {*_names(model.model.schema), model.model.schema.label.name})
        return {
            "class": model.predict(record),
            "probabilities": {name: round(p, 6) for name, p in model.predict_proba(record).items()},
            "model": f"{model.name} version {model.version}{' (expired)' if model.expired else ''}",
        }


def _status(options: argparse.Namespace) -> dict[str, Any]:
    with _open(options) as device:
        status = device.status()
    return {
        "epsilon_spent": format_micro(status.spent_micro),
        "epsilon_left": format_micro(status.left_micro),
        "unsent_reports": status.spooled,
        "campaigns": [{"name": n, "version": v, "id": i} for n, v, i in status.campaigns],
        "models": [{"name": n, "version": v, "expired": e} for n, v, e in status.models],
        "root_version": status.root_version,
        "root_expired": status.root_expired,
    }


def _read(path: Path, limit: int) -> bytes:
    """A file's bytes; one byte over the limit is enough to know that it is too large."""
    problem = ""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        problem = error.strerror or "it can not be read"
    raise InputError("file_unreadable", f"'{path}' can not be read: {problem}")


def _read_record(source: str) -> dict[str, Any]:
    """A JSON object from a file or standard input. Error texts never quote it.

    What is no JSON object at all, or above 16 MiB, is refused: there the calling program is at fault.
    """
    raw = None
    with contextlib.suppress(InputError):  # its text names the file, which may be a record meant for standard input
        raw = sys.stdin.buffer.read(MAX_RECORD_BYTES + 1) if source == "-" else _read(Path(source), MAX_RECORD_BYTES)
    if raw is None:
        raise InputError("file_unreadable", "the record file can not be read; use - to give a record on standard input")
    record: Any = None
    try:
        if len(raw) <= MAX_RECORD_BYTES:
            record = read_record(raw)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InputError("record_invalid", 'the record is not one JSON object of features, for example {"odor": "n"}')
    return record


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))  # noqa: T201
        return
    width = max(map(len, result))
    for key, value in result.items():
        if key == "explanation":
            print(value)  # noqa: T201
        else:
            print(f"{key.replace('_', ' '):<{width}}  {_plain(value)}")  # noqa: T201


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "  ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(item) for item in value) or "none"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
