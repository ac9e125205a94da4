"""The options by which an ingest learns which devices are enrolled: ``--enrolled IDS`` and ``--fleet LIST``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.output import note
from aggregator.cli.passphrase import asked, passphrase_option
from aggregator.periods import shown
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.intake.enrolment import Enrolled
    from protocol.documents.campaign import Campaign


def campaign_of(given: Path, workspace: Path | None) -> Campaign:
    """The campaign of a file or, in a workspace, of a name or id. Its signature is not checked.

    Raises:
        InputError, DocumentError, StorageError: as :func:`aggregator.publishing.naming.document_bytes`.
    """
    from aggregator.publishing.naming import document_bytes
    from aggregator.publishing.workspace import open_workspace
    from protocol.documents.campaign import parse_campaign
    from protocol.documents.envelope import read_envelope

    signer = None if workspace is None else open_workspace(workspace)
    return parse_campaign(read_envelope(document_bytes("campaign", given, signer), "campaign").payload)


def enrolment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``enrolled``, ``lists`` and ``passphrase_file``: what :func:`enrolled_ids` takes."""
    path = click.Path(path_type=Path)
    text = "Ids of a closed fleet, from hearsay fleet ids: all other reports are refused."
    enrolled = click.option("--enrolled", type=path, metavar="IDS.hsi", help=text)
    text = "The same from a fleet list (.hsf); several are one fleet."
    lists = click.option("--fleet", "lists", type=path, multiple=True, metavar="LIST.hsf", help=text)
    return enrolled(lists(passphrase_option(command)))


def note_missing_ids(campaign: Campaign, ids: Enrolled | None, now: int) -> None:
    """Say so if the ids are not for the present: what devices send now would be refused."""
    period = campaign.period_at(now)
    if ids is not None and not ids.covers(period):
        now_is = shown(period, campaign.time_precision)
        note(
            f"the enrolled ids are not for period {now_is}, which is now: its reports are refused as id_not_enrolled "
            "until their files are ingested again with its ids"
        )


def enrolled_ids(
    campaign: Campaign, enrolled: Path | None, lists: tuple[Path, ...], passphrase_file: Path | None
) -> Enrolled | None:
    """The ids that these options name; None for an open fleet.

    Raises:
        InputError: ``enrolment_ambiguous``, both options are given; ``ids_invalid``, ``other_campaign``, and
            the reasons of a fleet list that does not open.
    """
    if enrolled is not None and lists:
        raise InputError("enrolment_ambiguous", "give --enrolled or --fleet, not both")
    if enrolled is not None:
        from aggregator.fleet.ids import IdReader
        from aggregator.intake.enrolment import enrolled_from_file

        return enrolled_from_file(campaign, IdReader(enrolled))
    if lists:
        from aggregator.fleet.roster import read_roster
        from aggregator.intake.enrolment import enrolled_from_rosters

        passphrase = asked(passphrase_file, "the fleet list")
        return enrolled_from_rosters(campaign, [read_roster(path, passphrase) for path in lists])
    return None
