"""Opening the campaigns, fleet lists and enrolled ids that options of a command name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.cli.output import note
from aggregator.cli.passphrase import existing_passphrase
from aggregator.common.periods import shown
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.reports.fleet import Roster
    from aggregator.reports.intake.enrolment import Enrolled


def campaign_of(given: Path, workspace: Path | None) -> Campaign:
    """Read the campaign for devices that a command names. Its signatures are not checked.

    Args:
        given: a file or, with a workspace, also a name or id.
        workspace: folder of the workspace that knows names and ids; None for files only.

    Raises:
        InputError: ``file_not_found``, ``unreadable``, ``too_large``; ``campaign_unknown``: the workspace has no
            campaign of that name or id; ``campaign_for_nodes``: nodes have keys of their own and no report ids.
        DocumentError: the file is no campaign, or has a wrong value.
        StorageError: the workspace can not be opened or read.
    """
    from aggregator.publishing.naming import document_bytes
    from aggregator.publishing.workspace import open_workspace
    from protocol.documents.campaign import parse_campaign
    from protocol.documents.envelope import read_envelope

    signer = None if workspace is None else open_workspace(workspace)
    found = parse_campaign(read_envelope(document_bytes("campaign", given, signer), "campaign").payload)
    if found.nodes is not None:
        raise InputError(
            "campaign_for_nodes",
            f"'{given}' asks nodes for summaries, which have no report ids; the list of its nodes says who counts "
            "(hearsay nodes), and hearsay ingest takes files of summaries as they are",
        )
    return found


def rosters_of(lists: tuple[Path, ...], passphrase_file: Path | None) -> list[Roster]:
    """Read the fleet lists at the paths ``lists``; an empty list if there is no path.

    ``passphrase_file`` holds the passphrase of all lists. Without it the user is asked once, if a list is encrypted.

    Raises:
        InputError, StorageError: a list can not be opened; :func:`aggregator.reports.fleet.read_roster` lists
            the reasons.
    """
    if not lists:
        return []
    from aggregator.reports.fleet import read_roster

    passphrase = existing_passphrase(passphrase_file, "the fleet list")
    return [read_roster(path, passphrase) for path in lists]


def enrolled_ids(
    campaign: Campaign, enrolled: Path | None, lists: tuple[Path, ...], passphrase_file: Path | None
) -> Enrolled | None:
    """The ids of the enrolled devices of a campaign; None if the command names none.

    Args:
        campaign: the campaign of the reports.
        enrolled: file of ids, from ``--enrolled``; None without it.
        lists: fleet lists, from ``--fleet``; empty without it.
        passphrase_file: file with the passphrase of the lists; None asks the user.

    Raises:
        InputError: ``enrolment_ambiguous``, both options are given; ``ids_invalid``, ``other_campaign``, and
            the reasons of a fleet list that can not be opened.
    """
    if enrolled is not None and lists:
        raise InputError("enrolment_ambiguous", "give --enrolled or --fleet, not both")
    if enrolled is not None:
        from aggregator.reports.fleet import IdReader
        from aggregator.reports.intake.enrolment import enrolled_from_file

        return enrolled_from_file(campaign, IdReader(enrolled))
    if lists:
        from aggregator.reports.intake.enrolment import enrolled_from_rosters

        return enrolled_from_rosters(campaign, rosters_of(lists, passphrase_file))
    return None


def note_missing_ids(campaign: Campaign, ids: Enrolled | None, now: int) -> None:
    """Print a note if the ids do not cover the period at ``now``, because reports of that period would be refused."""
    period = campaign.period_at(now)
    if ids is not None and not ids.covers(period):
        now_is = shown(period, campaign.time_precision)
        note(
            f"the enrolled ids are not for period {now_is}, which is now: its reports are refused as id_not_enrolled "
            "until their files are ingested again with its ids"
        )
