"""``hearsay-edge``: the device from a shell. Standard library only, so that it starts fast."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edge_sdk.cli import commands
from edge_sdk.cli import sync as sync_command
from protocol.errors import HearsayError
from protocol.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TIMES = frozenset(("wall", "now", "confirmed", "time_floor", "oldest_report_at", "silent_until", "next_period_at"))
"""Results that are seconds since 1970: people get a date."""
RECORD_HELP = "holds one JSON object; - is standard input"

EXAMPLES = """examples:
  hearsay-edge --state /var/lib/hearsay provision root.hst
  hearsay-edge --state /var/lib/hearsay explain mushrooms.hsc
  hearsay-edge --state /var/lib/hearsay explain mushrooms-outcome.hsc --model mushrooms.hsm
  hearsay-edge --state /var/lib/hearsay enrol mushrooms.hsc
  echo '{"odor": "n", "label": "e"}' | hearsay-edge --state /var/lib/hearsay report --campaign mushrooms
  echo '{"odor": "?"}' | hearsay-edge --state /var/lib/hearsay report --campaign mushrooms --check
  hearsay-edge --state /var/lib/hearsay drain today.hsr
  hearsay-edge --state /var/lib/hearsay ack today.hsr
  hearsay-edge --state /var/lib/hearsay install mushrooms.hsm
  echo '{"odor": "f"}' | hearsay-edge --state /var/lib/hearsay predict
  hearsay-edge --state /var/lib/hearsay rotate 3.hst 2.hst
  hearsay-edge --state /var/lib/hearsay sync https://example.org/hearsay --campaign mushrooms
  hearsay-edge --state /var/lib/hearsay sync /media/stick
  hearsay-edge --state /var/lib/hearsay history
  hearsay-edge --state /var/lib/hearsay evidence proof/
  hearsay-edge --state /var/lib/hearsay disable
  hearsay-edge --state /var/lib/hearsay enable
  hearsay-edge --state /var/lib/hearsay reset root.hst --count-budget-as-spent
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
        refusal = "\n".join(shown("{reason}: {step}: {detail}".format(**each)) for each in result.get("refusals", ()))
    except HearsayError as error:
        refusal = shown(str(error))
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


class _Version(argparse.Action):
    """Prints the version of whichever distribution brought this software; looked for only if it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print and stop."""
        from importlib.metadata import PackageNotFoundError, version

        for name in ("hearsay-edge", "hearsay"):
            with suppress(PackageNotFoundError):
                print(f"hearsay-edge {version(name)}")  # noqa: T201
                parser.exit()
        parser.exit(1, "not_installed: this software runs from its source tree; install it\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hearsay-edge",
        description="Answer questions about records privately, keep the reports, classify with signed models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print name and version of this software, and stop")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="this device's own folder")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], Any], help_text: str) -> argparse.ArgumentParser:
        examples = [line for line in EXAMPLES.splitlines() if f" {name}" in line]
        sub = subparsers.add_parser(name, help=help_text, description=help_text, epilog=_example(examples), **_RAW)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(run=run)
        return sub

    def enrolment(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--enrolment", type=Path, metavar="FILE.hsp", help="in a closed fleet: this device's provisioning file"
        )

    sub = command("provision", commands.provision, "pin the trust root that this device obeys")
    sub.add_argument("root", type=Path, metavar="ROOT.hst", help="the file that the owner trusts")
    enrolment(sub)
    sub = command("explain", commands.explain, "say in words what a campaign asks and costs")
    sub.add_argument("campaign", type=Path, metavar="CAMPAIGN.hsc", help="a signed campaign")
    sub.add_argument(
        "--model", type=Path, metavar="M.hsm", help="the model that it evaluates, if that is not installed yet"
    )
    command("enrol", commands.enrol, "accept a campaign, if it is signed and the policy allows it").add_argument(
        "campaign", type=Path, metavar="CAMPAIGN.hsc", help="a signed campaign"
    )
    sub = command("report", commands.report, "answer about one record, at most once per period")
    sub.add_argument("--campaign", required=True, metavar="ID", help="name, or first digits of the id")
    sub.add_argument("--label", help="class of the record; default: the record's own label field")
    sub.add_argument(
        "--check", action="store_true", help="report nothing: name the features that count as missing or unlisted"
    )
    sub.add_argument("record", nargs="?", default="-", metavar="FILE", help=RECORD_HELP)
    command("drain", commands.drain, "seal all reports that were not acknowledged into a new batch file").add_argument(
        "out", type=Path, metavar="OUT.hsr", help="a file that does not exist yet"
    )
    command("ack", commands.ack, "forget the reports of sealed files that have arrived").add_argument(
        "sealed", type=Path, nargs="+", metavar="OUT.hsr", help="where drain put it, or where it is now"
    )
    command("install", commands.install, "verify a model and keep it").add_argument(
        "model", type=Path, metavar="MODEL.hsm", help="a signed model"
    )
    sub = command("predict", commands.predict, "classify one record with the installed model")
    sub.add_argument("--model", help="name, if several are installed")
    sub.add_argument("record", nargs="?", default="-", metavar="FILE", help=RECORD_HELP)
    command("rotate", commands.rotate, "follow newer trust roots, given in any order").add_argument(
        "roots", type=Path, nargs="+", metavar="ROOT.hst", help="the next root, and those after it"
    )
    sync_command.add_arguments(
        command("sync", sync_command.run, "fetch roots, campaigns and models from a source, and send reports to it")
    )
    command("status", commands.status, "what was spent, what waits, what is installed, what the clocks say")
    sub = command("history", commands.history, "what was answered, when and at which ε; never what was said")
    sub.add_argument("--campaign", metavar="ID", help="of this campaign alone: its name, or first digits of an id")
    command(
        "evidence", commands.evidence, "write signed documents that contradict each other into a folder"
    ).add_argument("out", type=Path, metavar="DIR", help="a new or empty folder")
    command("disable", commands.disable, "opt out: delete secret and unsent reports; what was spent stays counted")
    enrolment(command("enable", commands.enable, "take part again after disable, under a new secret"))
    sub = command("reset", commands.reset, "start afresh after a loss, knowingly")
    sub.add_argument("root", type=Path, metavar="ROOT.hst", help="the file that the owner trusts")
    sub.add_argument(
        "--count-budget-as-spent", action="store_true", help="yes: nothing is left of the lifetime ε until it is raised"
    )
    enrolment(sub)
    return parser


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))  # noqa: T201
        return
    result = {key: value for key, value in result.items() if key != "refusals"}
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
    """Rows under their keys, aligned; times as dates."""
    columns = ("campaign", "version", "period", "answered_at", "epsilon")
    cells = [tuple(name.replace("_", " ") for name in columns)]
    for row in rows:
        answered = _date(row["answered_at"])
        cells.append((shown(row["campaign"]), str(row["version"]), str(row["period"]), answered, row["epsilon"]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())  # noqa: T201


def _shown(key: str, value: Any) -> str:
    """A value in words; a time as a date."""
    return _date(value) if key in _TIMES and isinstance(value, int) else _plain(value)


def _date(seconds: int) -> str:
    from edge_sdk.timekeeping.dates import date

    return date(seconds, "%Y-%m-%d %H:%M:%S")


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
