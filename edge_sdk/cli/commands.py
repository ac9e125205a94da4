"""Run the commands of ``hearsay-edge``. Each function takes the parsed options and returns a dictionary to print.

Each function raises the errors of opening the device, of the :class:`edge_sdk.Device` methods that it calls, and of
:func:`edge_sdk.cli.files.read_document` for the files that it reads.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.arguments import path_of
from edge_sdk.cli import node
from edge_sdk.cli.files import (
    PROVISIONING,
    print_note,
    read_document,
    read_file,
    read_record,
    run_program,
    write_file,
    writing,
)
from edge_sdk.device import Device
from edge_sdk.storage.documents import DEVICE
from protocol.documents.envelope import role_of
from protocol.documents.payload import quoted
from protocol.epsilon import format_micro, format_pico
from protocol.errors import InputError
from protocol.schema import FROM_RECORD
from protocol.words import to_words

if TYPE_CHECKING:
    import argparse

    from edge_sdk.status import Status
    from protocol.schema import Check


MAX_RECORD_BYTES = 16 << 20
_MAX_TOKEN_BYTES = 8192
_BEGINNING = 79
"""A signed document's kind is told from its first bytes: this number and one more."""
_REPEATED = "number of keys that the record has more than once: {}; the last value of each counts"


def open_device(options: argparse.Namespace) -> Device:
    """Open the device in the state folder ``options.state``. The caller closes it."""
    return Device.open(options.state)


def provision(options: argparse.Namespace) -> dict[str, Any]:
    """Make the state of a new device in ``options.state``, or check the device that is there.

    Return the folder, whether a new device was made, and the version of the trusted root. A device that does not know
    its machine by the given file is refused (``already_provisioned``).
    """
    root, enrolment, made = read_document(options.root, "root"), _enrolment(options), True
    try:
        device = Device.provision(options.state, root, enrolment=enrolment, machine_id=options.machine_id)
    except InputError as error:
        if error.reason != "already_provisioned":
            raise
        with open_device(options) as device:
            known = device.status().machine
        if options.machine_id is not None and known != path_of(options.machine_id, "machine_id"):
            raise
        device, made = Device.open(options.state, root, enrolment=enrolment), False
    with device:
        status = device.status()
    _note_machine(status)
    _note_inside(status.machine, options.state)
    return {"provisioned": str(options.state), "new_device": made, "root_version": status.root_version}


def _note_machine(status: Status) -> None:
    if status.copied:
        print_note("this state was made on another machine, so it answers nothing here")
    elif status.machine == "none":
        print_note(
            "this system has no machine id, so a copy of this state, as in a container, may not be noticed. "
            "Provision with --machine-id FILE; do not provision in an image that is built for many machines"
        )


def _note_inside(machine_id: str | Path, folder: Path) -> None:
    """Print a note if the file of the machine's id is in the state folder: a copy of the folder has the same id."""
    file, state = Path(machine_id), folder.resolve()
    # Neither the words of a status nor a relative path begin with a slash; the file may be reached through a link.
    if file.is_absolute() and state in (*file.parents, *file.resolve().parents):
        print_note(
            "the file of --machine-id is in the state folder, so a copy of the folder has the same id and is not "
            "noticed. Name a file outside of it"
        )


def _enrolment(options: argparse.Namespace) -> bytes | None:
    return None if options.enrolment is None else read_document(options.enrolment, PROVISIONING)


def explain(options: argparse.Namespace) -> dict[str, Any]:
    """Return a text on the file ``options.document``: what a campaign asks and costs, or how a model was made."""
    kind = "model" if role_of(read_file(options.document, _BEGINNING)) == "model" else "campaign"
    raw = read_document(options.document, kind)
    models = [read_document(path, "model") for path in options.model]
    with open_device(options) as device:
        return {"explanation": device.explain(raw, model=models)}


def enrol(options: argparse.Namespace) -> dict[str, Any]:
    """Verify the campaign in the file ``options.campaign``, check it against the owner's policy, and store it."""
    raw = read_document(options.campaign, "campaign")
    with open_device(options) as device:
        campaign = device.enrol(raw)
    return {
        "enrolled": campaign.header.name,
        "version": campaign.header.version,
        "id": campaign.id.hex(),
        "words": to_words(campaign.id),
        "epsilon_per_period": format_micro(campaign.epsilon_micro),
        **({} if campaign.nodes is None else node.shown_costs(campaign)),
        "ended": campaign.ended,
    }


def report(options: argparse.Namespace) -> dict[str, Any]:
    """Answer about one record. Return the reports, the period, and when the next begins.

    With ``options.check`` nothing is answered: return which features count as missing or unlisted. With
    ``options.measure``, a program, the record is what the program prints. If the program fails, the empty record is
    reported, since whether there is a report must not depend on the record; the failure is then listed as a refusal,
    with status 0 if the period was answered before. With ``options.check`` it is an error (``measure_failed``).
    """
    if options.measure is not None and options.record != "-":
        raise InputError("argument_invalid", "--measure takes the place of the record's file; leave that out")
    failure = ""
    with open_device(options) as device:
        campaign = device.campaign(options.campaign)
        if options.measure is None:
            record, repeated = _read_record(options.record)
        else:
            try:
                record, repeated = _parsed(run_program(options.measure, MAX_RECORD_BYTES))
            except InputError:
                failure = "the program failed, ran too long, or printed no JSON object of features"
                if options.check:
                    raise InputError("measure_failed", failure) from None
                record, repeated = {}, 0
        label = FROM_RECORD if options.label is None else options.label
        found = device.check(campaign.id, record, label=label)
        if options.check:
            return {"campaign": campaign.header.name, **_shown_check(found, repeated)}
        said = device.answer(campaign.id, record, label=label)
    _note_keys(found.ignored, repeated)
    return {
        "report": said.reports.hex(),
        "campaign": campaign.header.name,
        "period": said.period,
        "answered_before": said.repeated,
        "next_period_at": said.next_at,
        **({"refusals": [_measure_failed(failure, before=said.repeated)]} if failure else {}),
    }


def _measure_failed(problem: str, *, before: bool) -> dict[str, Any]:
    """Return the refusal for a measuring program that failed; with status 0 if the period was answered ``before``."""
    outcome = "this period was answered before, and that answer stays" if before else "the empty record is reported"
    refusal = _refusal("measure", InputError("measure_failed", f"{problem}; {outcome}"))
    return {**refusal, "status": 0} if before else refusal


def _shown_check(found: Check, repeated: int) -> dict[str, Any]:
    """Return what a check has found. Its problems are listed as refusals, too; ignored keys are no problem."""
    hints = [*found.hints, *([_REPEATED.format(repeated)] if repeated else [])]
    numbers = {"missing": len(found.missing), "unlisted": len(found.unlisted), "with a hint": len(hints)}
    problems = ", ".join(f"{number} {what}" for what, number in numbers.items() if number)
    return {
        "missing": list(found.missing),
        "unlisted": list(found.unlisted),
        "ignored": found.ignored,
        "hints": hints,
        "refusals": [_refusal("check", InputError("record_doubtful", problems))] if problems else [],
    }


def _refusal(step: str, error: InputError) -> dict[str, Any]:
    """Return a step that was not done as asked, in the form of the refusals of ``sync``."""
    return {"step": step, "reason": error.reason, "detail": error.detail, "status": error.status}


def _note_keys(ignored: int, repeated: int, unlisted: int = 0) -> None:
    """Print how many keys are ignored or repeated, and how many values are unknown. The keys and values are private."""
    if ignored:
        print_note(f"{ignored} of the record's keys are no features here and were ignored")
    if repeated:
        print_note(_REPEATED.format(repeated))
    if unlisted:
        print_note(f"{unlisted} of the record's values are unknown to the model; --check names them")


def drain(options: argparse.Namespace) -> dict[str, Any]:
    """Write the unacknowledged reports into the new file ``options.out``. Return their number and the file, if any."""
    with open_device(options) as device:
        count = device.drain(options.out)
    return {"reports": count, "file": str(options.out) if count else None}


def ack(options: argparse.Namespace) -> dict[str, Any]:
    """Forget the reports of the sealed files ``options.sealed``, up to the first unknown file. Return their number."""
    with open_device(options) as device:
        return {"acknowledged": sum(device.ack(path) for path in options.sealed)}


def rotate(options: argparse.Namespace) -> dict[str, Any]:
    """Trust the newest of the root files ``options.roots``. Return its version, and the campaigns that ended."""
    roots = [read_document(path, "root") for path in options.roots]
    with open_device(options) as device:
        before = {campaign.header.name for campaign in device.campaigns()}
        version = device.rotate(roots)
        ended = sorted(before - {campaign.header.name for campaign in device.campaigns()})
    return {"root_version": version, "ended_campaigns": ended}


def install(options: argparse.Namespace) -> dict[str, Any]:
    """Verify the model in the file ``options.model`` and store it. Return its name, version and classes."""
    raw = read_document(options.model, "model")
    with open_device(options) as device:
        model = device.install(raw)
    return {"installed": model.name, "version": model.version, "classes": list(model.classes)}


def predict(options: argparse.Namespace) -> dict[str, Any]:
    """Classify one record with the model ``options.model`` or the only installed one.

    Return the class, the probabilities and the model's name; with ``options.check`` the features that count as missing
    or unlisted.
    """
    with open_device(options) as device:
        model = device.model(options.model)
        named = f"{quoted(model.name)} version {model.version}"
        record, repeated = _read_record(options.record)
        found = model.check(record)
        if options.check:
            return {"model": named, **_shown_check(found, repeated)}
        _note_keys(found.ignored, repeated, len(found.unlisted))
        return {
            "class": model.predict(record),
            "probabilities": {name: round(p, 6) for name, p in model.predict_proba(record).items()},
            "model": named + (" (expired)" if model.expired else ""),
        }


def sync(options: argparse.Namespace) -> dict[str, Any]:
    """Send reports to the source ``options.source``, and fetch newer documents. Return the outcome of the run."""
    from edge_sdk.carriers import open_transport, read_token
    from edge_sdk.sync import sync as run_sync

    token = None if options.token is None else read_token(read_file(options.token, _MAX_TOKEN_BYTES))
    method = "POST" if options.post else "PUT"
    transport = open_transport(options.source, method=method, token=token, seconds=options.seconds)
    with open_device(options) as device:
        is_device = device.status().kind == DEVICE
    # A state without a campaign may accept its first campaign in this run, and that may be for nodes.
    with (open_device if is_device else node.open_node)(options) as device:
        done = run_sync(device, transport, campaigns=options.campaign, models=options.model).to_json()
        status = device.status()
    for each in done["refusals"]:
        # An expired document at the source is no fault of the device, which will accept the next one. But if the root
        # has expired, the device accepts nothing more.
        if each["reason"] == "expired" and not status.root_expired:
            each["status"] = 0
    return {**done, "warnings": list(status.warnings)}


def status(options: argparse.Namespace) -> dict[str, Any]:
    """Return the status of the device in ``options.state``: spent ε, waiting reports, installed documents, clocks."""
    with open_device(options) as device:
        shown = device.status().to_json()
    # These counts begin when a program starts. This program has just started, so they are always empty.
    del shown["unread"]
    return shown


def history(options: argparse.Namespace) -> dict[str, Any]:
    """Return the list of answered periods, with times and ε, and the ε that was spent in all."""
    with open_device(options) as device:
        lines = device.history(options.campaign)
        status = device.status()
    answers = [
        {
            "campaign": line.campaign or "counted as spent when the state was reset",
            "version": line.version,
            "id": line.id.hex(),
            "period": line.period,
            "period_start": line.period_start,
            "answered_at": line.answered_at,
            "epsilon": format_micro(line.epsilon_micro),
            "delta": format_pico(line.delta_pico),
            "series": line.series or None,
        }
        for line in lines
    ]
    of_node = {} if status.adjacency is None else {"epsilon_counted_for": status.adjacency}
    if status.delta_spent_pico:
        of_node["delta_spent"] = format_pico(status.delta_spent_pico)
    return {"answers": answers, "epsilon_spent": format_micro(status.spent_micro), **of_node}


def evidence(options: argparse.Namespace) -> dict[str, Any]:
    """Write the pairs of contradicting documents into the folder ``options.out``, which is made if needed.

    Return the number of pairs and the folder. If the folder has such files, StorageError ``file_exists``.
    """
    extensions = {"root": ".hst", "campaign": ".hsc", "model": ".hsm", "nodes": ".hsl"}
    with open_device(options) as device:
        pairs = device.evidence()
    with writing("the evidence", "the folder holds evidence already; choose another"):
        options.out.mkdir(parents=True, exist_ok=True)
        for number, (role, *files) in enumerate(pairs, 1):
            for name, raw in zip(("accepted", "refused"), files, strict=True):
                write_file(options.out / f"{number}-{name}{extensions[role]}", raw)
    return {"pairs": len(pairs), "folder": str(options.out) if pairs else None}


def disable(options: argparse.Namespace) -> dict[str, Any]:
    """Opt out the device in ``options.state``: delete its secret and unsent reports. Return the ε that stays spent."""
    with open_device(options) as device:
        device.disable()
        return {"disabled": True, "epsilon_spent": format_micro(device.status().spent_micro)}


def enable(options: argparse.Namespace) -> dict[str, Any]:
    """Take part again after an opt-out, under a new secret. Return the ε that is left."""
    enrolment = _enrolment(options)
    with open_device(options) as device:
        device.enable(enrolment, leave_fleet=options.leave_fleet)
        return {"disabled": False, "epsilon_left": format_micro(device.status().left_micro)}


def reset(options: argparse.Namespace) -> dict[str, Any]:
    """Replace a lost or copied state by a new one, and count the old budget as spent. Return the ε that was counted.

    Without the option ``--count-budget-as-spent`` it is refused (``reset_unconfirmed``).
    """
    root = read_document(options.root, "root")
    if not options.count_budget_as_spent:
        raise InputError(
            "reset_unconfirmed",
            "this makes a new secret, forgets campaigns, models and unsent reports, and counts the whole "
            "lifetime ε as spent; periods that the old state can still name stay answered, and where it can name none "
            "the present one may be paid for once more; say --count-budget-as-spent to do it",
        )
    more = {"leave_fleet": options.leave_fleet, "machine_id": options.machine_id}
    spent = Device.reset(options.state, root, enrolment=_enrolment(options), **more)
    if options.machine_id is not None:
        _note_inside(options.machine_id.absolute(), options.state)
    return {
        "reset": str(options.state),
        "epsilon_counted_as_spent": format_micro(spent),
        "next": "to answer again, raise epsilon_lifetime in policy.toml above that; "
        "campaigns of series that have begun are not answered any more",
    }


def _read_record(source: str) -> tuple[dict[str, Any], int]:
    """Read a record, a JSON object, from the file ``source`` or standard input (``-``). Errors do not quote it."""
    raw = None
    # The error is dropped: its text quotes the argument, which may be a record instead of a path.
    with contextlib.suppress(InputError):
        raw = (
            sys.stdin.buffer.read(MAX_RECORD_BYTES + 1) if source == "-" else read_file(Path(source), MAX_RECORD_BYTES)
        )
    if raw is None:
        raise InputError("file_unreadable", "the record file can not be read; use - to give a record on standard input")
    return _parsed(raw)


def _parsed(raw: bytes) -> tuple[dict[str, Any], int]:
    record: Any = None
    repeated: set[str] = set()
    try:
        if len(raw) <= MAX_RECORD_BYTES:
            record = read_record(raw, repeated)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InputError("record_invalid", 'the record is not one JSON object of features, for example {"odor": "n"}')
    return record, len(repeated)
