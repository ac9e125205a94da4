"""``hearsay fleet``: the secrets of a closed fleet, its report ids, and whose reports are in conflict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli import options
from aggregator.cli.inputs import campaign_of, rosters_of
from aggregator.cli.options import PATH, existing_passphrase, new_passphrase
from aggregator.cli.output import (
    as_json,
    check_files,
    forced,
    note,
    print_json,
    print_table,
    progress,
    say,
    working,
    write_file,
)
from aggregator.common.facts import Fact, said, stated
from aggregator.common.files import PRIVATE, open_output, read_file
from aggregator.common.periods import Span, of_campaign, shown, shown_range
from aggregator.reports.tally.scope import EVERYTHING
from protocol.documents.provisioning import SECRET_BYTES
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.reports.fleet import Roster

MAX_NAMES_BYTES = 256 << 20


@click.group()
def fleet() -> None:
    """Closed fleets: only devices that you enrolled can add to the counts, each once per period.

    Without a closed fleet, anybody who can reach the inbox can send any number of reports.

    \b
    Example:
      hearsay fleet new names.txt -o orchard
      hearsay fleet ids c.hsc --fleet orchard/fleet.hsf --periods 2026-11-01..2026-11-30 -o ids.hsi
      hearsay ingest c.hsc inbox/*.hsr --store store --enrolled ids.hsi
      hearsay fleet conflicts --store store --fleet orchard/fleet.hsf
      hearsay fleet replace orchard/fleet.hsf "gate 7" -o orchard-2
    """  # noqa: D301


@fleet.command()
@click.argument("names", type=PATH, metavar="NAMES.txt")
@click.option("-o", "--output", "out", type=PATH, required=True, help="Folder to make.")
@click.option("--name", help="Name of the fleet; by default that of the file.")
@options.passphrase
@options.no_passphrase
@options.json
def new(names: Path, out: Path, name: str | None) -> None:
    """Make enrolment secrets for the devices that NAMES.txt lists, one name a line.

    The folder devices/ holds one provisioning file per device. These files are not encrypted, because nobody types a
    passphrase on a device. Take each to its device (hearsay-edge provision --enrolment FILE) and delete it here.
    fleet.hsf is the list of all devices, encrypted except with --no-passphrase. Keep it and its passphrase: no
    device can be counted without them. For more devices later, make a further list.

    \b
    Example:
      hearsay fleet new names.txt -o orchard --passphrase-file secret.txt
    """  # noqa: D301
    from aggregator.reports.fleet import DEVICES, LIST_FILE, new_roster, write_roster

    roster = new_roster(names.stem if name is None else name, _device_names(read_file(names, MAX_NAMES_BYTES)))
    passphrase = new_passphrase(what="the fleet list")
    with working("writing provisioning files"):
        write_roster(out, roster, passphrase)
    _say_list(roster, out / LIST_FILE, encrypted=passphrase is not None, provisioning=str(out / DEVICES))
    if not as_json():
        note("delete each provisioning file once it is on its device; the list can open without them")


def _say_list(roster: Roster, file: Path, *, provisioning: str | None = None, **facts: object) -> None:
    first = [Fact("fleet", roster.fleet), Fact("devices", len(roster.devices))]
    encrypted = [Fact("encrypted", facts.pop("encrypted"))] if "encrypted" in facts else []
    added = [] if provisioning is None else [Fact("provisioning", provisioning, label="provisioning files")]
    say([*first, *map(Fact, facts, facts.values()), Fact("list", str(file)), *encrypted, *added])


def _device_names(raw: bytes) -> list[str]:
    """Return the names in a file, one a line, without empty lines and without the space around a name."""
    text = ""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("not_utf8", f"the list of names is not UTF-8 at byte {error.start}") from None
    return [line.strip() for line in text.split("\n") if line.strip()]


@fleet.command()
@click.argument("listed", type=PATH, metavar="LIST.hsf")
@click.argument("names", nargs=-1, required=True, metavar="DEVICE...")
@options.output
@options.force
@options.passphrase
@options.json
def revoke(listed: Path, names: tuple[str, ...], output: Path) -> None:
    """Write a list without some devices: their reports no longer count, and everybody else's go on.

    Give the new list in place of the old one from now on, and make the files of ids again: as long as a command is
    given the old list, the devices count. Reports that a store has taken stay. The new list has the passphrase of the
    old one.

    \b
    Example:
      hearsay fleet revoke orchard/fleet.hsf "gate 7" -o orchard/fleet-2.hsf
    """  # noqa: D301
    from aggregator.reports.fleet import list_bytes, open_roster

    check_files(output, inputs=[listed])
    roster, passphrase = open_roster(listed, existing_passphrase("the fleet list"))
    rest = roster.without(names)
    with working("encrypting the list"):
        write_file(output, list_bytes(rest, passphrase), mode=PRIVATE)
    _say_list(rest, output, revoked=len(roster.devices) - len(rest.devices))
    note(f"use '{output}' in place of '{listed}' from now on, and make files of enrolled ids again")


@fleet.command()
@click.argument("listed", type=PATH, metavar="LIST.hsf")
@click.argument("names", nargs=-1, required=True, metavar="DEVICE...")
@click.option("-o", "--output", "out", type=PATH, required=True, help="Folder to make.")
@options.passphrase
@options.json
def replace(listed: Path, names: tuple[str, ...], out: Path) -> None:
    """Give devices new secrets: after a loss, a reset, a repair, or because two devices had one secret.

    The new folder holds the whole list, with the other devices' secrets unchanged, and a provisioning file for each
    device that is replaced. Reports under the old secrets no longer count, also late ones: ingest what has arrived
    first. A device that has answered in the present period answers it again under its new secret, if it takes the new
    one before the period ends and forgot the old one.

    \b
    Example:
      hearsay fleet replace orchard/fleet.hsf "gate 7" -o orchard-2
      hearsay-edge --state state enable --enrolment "gate 7.hsp"     # on the device, after disable or a reset
    """  # noqa: D301
    from aggregator.reports.fleet import DEVICES, LIST_FILE, open_roster, write_roster

    roster, passphrase = open_roster(listed, existing_passphrase("the fleet list"))
    renewed = roster.renewed(names)
    with working("writing provisioning files"):
        write_roster(out, renewed, passphrase, devices=set(names))
    _say_list(renewed, out / LIST_FILE, provisioning=str(out / DEVICES), replaced=len(set(names)))
    note(f"use '{out / LIST_FILE}' in place of '{listed}' from now on, and make files of enrolled ids again")


@fleet.command()
@options.store
@options.fleet_lists("Fleet list (.hsf); several together are one fleet.", required=True)
@options.periods()
@options.passphrase
@options.json
def conflicts(store: Path, lists: tuple[Path, ...], periods: Span | None) -> None:
    """Name the devices whose reports are in conflict: different answers under one id, of which none counts.

    A conflict means that a device was copied with its secret (an image, a backup), that it lost its memory and answered
    again, or that somebody else has its secret. fleet replace gives it a new one.

    \b
    Example:
      hearsay fleet conflicts --store store --fleet orchard/fleet.hsf
    """  # noqa: D301
    from aggregator.operations.report_store import open_store

    reports = open_store(store)
    rosters = rosters_of(lists)
    precision = reports.campaign.time_precision
    scope = EVERYTHING
    if periods is not None:
        wanted = periods.of(precision)
        scope = scope._replace(first=wanted[0], last=wanted[-1])
    found = reports.conflicts(rosters, scope)
    if as_json():
        print_json({"conflicts": [one._asdict() for one in found]})
        return
    rows = [(one.device, one.fleet, shown(one.period, precision), one.records) for one in found]
    if rows:
        print_table(["device", "fleet", "period", "reports"], rows, ["reports"])
    else:
        note("no device of these lists has reports in conflict")


@fleet.command()
@click.argument("campaign_file", type=PATH, metavar="CAMPAIGN")
@options.fleet_lists("Fleet list (.hsf); several together are one fleet.", required=True)
@options.periods(required=True)
@options.naming_workspace
@options.output
@options.force
@click.option("--processes", type=click.IntRange(1, 256), help="Number of processes; by default one per core.")
@options.passphrase
@options.json
def ids(
    campaign_file: Path,
    lists: tuple[Path, ...],
    periods: Span,
    workspace: Path | None,
    output: Path,
    processes: int | None,
) -> None:
    """Compute a digest of every report id that a fleet's devices have in some periods of a campaign.

    Of a campaign of a series these are the devices in its share, in every period: a device answers in one of them.

    With this file, ingest (--enrolled IDS.hsi) refuses the reports of all other devices and needs no secret. The file
    holds no name, does not tell which ids belong to one device, and holds no id with which anybody could report.

    \b
    Example:
      hearsay fleet ids c.hsc --fleet orchard/fleet.hsf --periods 2026-11-01..2026-11-30 -o ids.hsi
    """  # noqa: D301
    from aggregator.reports.fleet import distinct_secrets, fleet_ids, members, write_ids

    check_files(output)
    campaign = campaign_of(campaign_file, workspace)
    wanted = of_campaign(campaign, periods.of(campaign.time_precision))
    rosters = rosters_of(lists)
    found = fleet_ids(rosters, campaign, wanted, processes=processes or os.cpu_count() or 1)
    with progress("computing ids", len(wanted)) as step, open_output(output, force=forced(), mode=PRIVATE) as sink:
        written = write_ids(sink, campaign, wanted, found, lambda done: step(done, len(wanted)) if step else None)
    devices = len(members(distinct_secrets(rosters), campaign)) // SECRET_BYTES
    say(
        [
            Fact("devices", devices),
            stated("first_period", wanted[0]),
            stated("last_period", wanted[-1]),
            said("periods", shown_range(wanted, campaign.time_precision)),
            Fact("ids", written),
            Fact("output", str(output), label="written"),
        ]
    )
