"""List all commands of ``hearsay-edge`` with help, arguments and examples, and make the parser of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from edge_sdk.cli import commands, node
from protocol import VERSION
from protocol.epsilon import MICRO, millionths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "hearsay-edge"
_COMMAND = "COMMAND"
_MAX_SECONDS = 86_400.0
_GROUPS = {"node": "what a node does, which holds many people's records"}
"""Word of a group of commands → one line of help."""


class Command(NamedTuple):
    """One command.

    Attributes:
        name: the word on the command line; or two words, of a group and of the command in it.
        run: parsed options → a dictionary to print.
        add_arguments: adds the command's own arguments to its parser.
        examples: complete shell lines, at least one.
        idle: reasons of errors that only mean that the command has nothing to do now, which is no failure.
    """

    name: str
    run: Callable[[argparse.Namespace], dict[str, Any]]
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...]
    idle: frozenset[str] = frozenset()


def _command(
    name: str,
    summary: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    *examples: str,
    idle: frozenset[str] = frozenset(),
) -> Command:
    """Return a command. It runs the function of its name in :mod:`edge_sdk.cli.commands` or its group's module."""
    group, _, word = name.rpartition(" ")
    program = f"{PROGRAM} --state /var/lib/hearsay{'-node' if group else ''}"
    lines = tuple(line.replace("PROGRAM", program) for line in examples)
    return Command(name, getattr(node if group else commands, word), summary, add_arguments, lines, idle)


NO_ANSWER_DUE = frozenset((
    "period_answered", "series_answered", "series_begun", "series_not_member", "expired", "not_yet_valid",
    "campaign_ended", "budget_paused", "disabled",
))  # fmt: skip
"""Reasons for which no answer is due now. They are nobody's mistake, and there is nothing to mend."""


def _folder(text: str) -> Path:
    """Return a folder's path. An empty text, like an unset variable, would be the present folder, and is refused."""
    if not text:
        raise argparse.ArgumentTypeError
    return Path(text)


def _no_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments of its own."""


def _file(name: str, metavar: str, text: str, **more: Any) -> Callable[[argparse.ArgumentParser], None]:

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(name, type=Path, metavar=metavar, help=text, **more)

    return add


_enrolment = _file("--enrolment", "FILE.hsp", "in a closed fleet: this device's provisioning file")
_machine_id = _file(
    "--machine-id", "FILE", "its content tells this machine from others, and no update changes it; default: system ids"
)
_root = _file("root", "ROOT.hst", "the file that the owner trusts")
_campaign = _file("campaign", "CAMPAIGN.hsc", "a signed campaign")


def _new_enrolment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--enrolment", type=Path, metavar="FILE.hsp", help="in a closed fleet: a new provisioning file for this device"
    )
    group.add_argument(
        "--leave-fleet", action="store_true", help="leave the closed fleet: take part under a random secret"
    )


def _record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "record", nargs="?", default="-", metavar="FILE", help="holds one JSON object; - is standard input"
    )


def _check(parser: argparse.ArgumentParser, instead: str) -> None:
    text = f"{instead}: name the features that count as missing or unlisted; status 1 if there are any"
    parser.add_argument("--check", action="store_true", help=text)


def _provision(parser: argparse.ArgumentParser) -> None:
    for add in (_root, _enrolment, _machine_id):
        add(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    _file("document", "FILE", "a signed campaign (.hsc) or model (.hsm)")(parser)
    text = "a model that it evaluates, if that is not installed yet; may be repeated"
    _file("--model", "M.hsm", text, action="append", default=[])(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--campaign", required=True, metavar="ID", help="name, or first digits of the id")
    parser.add_argument("--label", help="class of the record; default: the record's own label field")
    _check(parser, "report nothing")
    parser.add_argument(
        "--measure",
        metavar="PROGRAM",
        help="run this program and report the JSON object that it prints; if it fails, the empty record",
    )
    _record(parser)


def _predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="name, if several are installed")
    _check(parser, "classify nothing")
    _record(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--campaign", metavar="ID", help="of this campaign alone: its name, or first digits of an id")


def _reset(parser: argparse.ArgumentParser) -> None:
    _root(parser)
    parser.add_argument(
        "--count-budget-as-spent", action="store_true", help="yes: nothing is left of the lifetime ε until it is raised"
    )
    _new_enrolment(parser)
    _machine_id(parser)


def _sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="URL|DIR", help="where the source's tree begins: https://…, or a folder")
    parser.add_argument(
        "--campaign", action="append", default=[], metavar="NAME", help="enrol in this campaign; may be repeated"
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="install this model; may be repeated"
    )
    parser.add_argument("--post", action="store_true", help="send by POST instead of PUT")
    parser.add_argument("--token", type=Path, metavar="FILE", help="holds what to show the server as bearer of")
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="longest time for one document or batch over the web; 300"
    )


def _seconds(text: str) -> float:
    seconds = (millionths(text) or 0) / MICRO
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError
    return seconds


COMMANDS = (
    _command(
        "provision",
        "make a new device, which obeys this trust root; or say that there is one",
        _provision,
        "PROGRAM provision root.hst",
        "PROGRAM provision root.hst --machine-id /proc/device-tree/serial-number",
    ),
    _command(
        "explain",
        "say in words what a campaign asks and costs, or how a model was made",
        _explain,
        "PROGRAM explain mushrooms.hsc",
        "PROGRAM explain mushrooms-outcome.hsc --model mushrooms.hsm",
        "PROGRAM explain mushrooms.hsm",
    ),
    _command(
        "enrol", "accept a campaign, if it is signed and the policy allows it", _campaign, "PROGRAM enrol mushrooms.hsc"
    ),
    _command(
        "report",
        "answer about one record, at most once per period",
        _report,
        """echo '{"odor": "n", "label": "e"}' | PROGRAM report --campaign mushrooms""",
        """echo '{"odor": "?"}' | PROGRAM report --campaign mushrooms --check""",
        "PROGRAM report --campaign mushrooms --measure /etc/hearsay/measure",
        idle=NO_ANSWER_DUE,
    ),
    _command(
        "drain",
        "seal all reports that were not acknowledged into a new batch file",
        _file("out", "OUT.hsr", "a file that does not exist yet"),
        'PROGRAM drain "$(date -I).hsr"',
    ),
    _command(
        "ack",
        "forget the reports of sealed files that have arrived",
        _file("sealed", "OUT.hsr", "where drain put it, or where it is now", nargs="+"),
        "PROGRAM ack 2026-11-22.hsr",
    ),
    _command(
        "install",
        "verify a model and keep it",
        _file("model", "MODEL.hsm", "a signed model"),
        "PROGRAM install mushrooms.hsm",
    ),
    _command(
        "predict",
        "classify one record with the installed model",
        _predict,
        """echo '{"odor": "f"}' | PROGRAM predict""",
        """echo '{"odor": "F "}' | PROGRAM predict --check""",
    ),
    _command(
        "rotate",
        "follow newer trust roots, given in any order",
        _file("roots", "ROOT.hst", "the next root, and those after it", nargs="+"),
        "PROGRAM rotate 3.hst 2.hst",
    ),
    _command(
        "sync",
        "send reports to a source, and fetch roots, campaigns, models, node lists and key books from it",
        _sync,
        "PROGRAM sync https://example.org/hearsay --campaign mushrooms",
        "PROGRAM sync /media/stick",
    ),
    _command(
        "node key",
        "write the public key of a node, for the publisher's list of nodes",
        node.add_key_arguments,
        "PROGRAM node key clinic.key.pub",
    ),
    _command(
        "node summarise",
        "send one summary of noisy sums of many records, at most once per period",
        node.add_summarise_arguments,
        "PROGRAM node summarise --campaign hospital patients.csv",
        "PROGRAM node summarise --campaign hospital --sqlite ward.db --table patients --epsilon 0.5",
        idle=NO_ANSWER_DUE,
    ),
    _command(
        "node encrypt",
        "send noisy sums encrypted; only the total of many nodes can be read, if the dealer of the keys is honest",
        node.add_encrypt_arguments,
        "PROGRAM node encrypt --campaign hospitals --keys book.hsk patients.csv",
        "PROGRAM node encrypt --campaign hospitals --keys book.hsk --check patients.csv",
        idle=NO_ANSWER_DUE,
    ),
    _command(
        "node exchange",
        "unite the verified summaries of peers with this node's own file, without an aggregator",
        node.add_exchange_arguments,
        "PROGRAM node exchange --campaign hospital --nodes clinics.hsl --set all.hsn peer.hsn /media/stick",
    ),
    _command(
        "status",
        "what was spent, what waits, what is installed, what the clocks say",
        _no_arguments,
        "PROGRAM status --json",
    ),
    _command("history", "what was answered, when and at which ε; never what was said", _history, "PROGRAM history"),
    _command(
        "evidence",
        "write signed documents that contradict each other into a folder",
        _file("out", "DIR", "a new or empty folder"),
        "PROGRAM evidence proof/",
    ),
    _command(
        "disable",
        "opt out: delete secret and unsent reports; what was spent stays counted",
        _no_arguments,
        "PROGRAM disable",
    ),
    _command("enable", "take part again after disable, under a new secret", _new_enrolment, "PROGRAM enable"),
    _command("reset", "start afresh after a loss, knowingly", _reset, "PROGRAM reset root.hst --count-budget-as-spent"),
)
"""All commands, in the order in which a device needs them."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors do not quote arguments, since an argument may be a record."""

    def error(self, message: str) -> NoReturn:
        detail = message
        if message.startswith(("unrecognized", "ambiguous")):
            detail = "there is an argument that this command does not take"
        elif message.startswith("argument "):
            name = message.removeprefix("argument ").partition(":")[0]
            detail = f"{name} has no value, one that it can not have, or another argument that excludes it"
            if name == _COMMAND:
                detail = "there is no such command"
        self.exit(2, f"usage: {detail}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Make the parser. Its options have ``run``, ``state``, ``json``, ``idle``, and the command's own arguments."""
    parser = _Parser(
        prog=PROGRAM,
        description="Answer questions about records privately, keep the reports, classify with signed models.",
        epilog=_listed("examples", [line for command in COMMANDS for line in command.examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"{PROGRAM} {VERSION}",
        help="print name and version of this software, and stop",
    )
    parser.add_argument("--state", type=_folder, required=True, metavar="DIR", help="this device's own folder")
    subparsers = parser.add_subparsers(required=True, metavar=_COMMAND)
    groups: dict[str, Any] = {"": subparsers}
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        if group not in groups:
            inner = subparsers.add_parser(group, help=_GROUPS[group], description=_GROUPS[group])
            groups[group] = inner.add_subparsers(required=True, metavar=_COMMAND)
        own = groups[group].add_parser(
            name,
            help=command.summary,
            description=command.summary,
            epilog=_listed("example", command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        own.add_argument("--json", action="store_true", help="print one JSON object")
        own.set_defaults(run=command.run, idle=command.idle)
        command.add_arguments(own)
    return parser


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])
