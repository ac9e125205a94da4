"""What commands do with the totals of shared campaigns: show, verify, ingest, status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aggregator.cli.inputs import report_files
from aggregator.cli.output import KINDS, as_json, print_facts, print_json, print_table, say, warn_of_end
from aggregator.common.facts import Fact, Facts, said, stated
from aggregator.common.files import read_file
from aggregator.common.periods import shown
from protocol.documents import campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.trust import TrustState, verify
from protocol.errors import InputError

_PERIODS = 31


def total_shown(raw: bytes) -> Facts:
    """Return what a file of a total says, without a check of its signature. Raises DocumentError."""
    from aggregator.collectors.total import ROLE, parse_total

    envelope = read_envelope(raw, ROLE)
    found = parse_total(envelope.payload)
    facts = (
        Fact("campaign", found.campaign, found.campaign.hex()),
        Fact("period", found.period),
        Fact("accepted", found.accepted, label="reports"),
        Fact("numbers", list(found.numbers), f"{len(found.numbers)} noisy counts of cells"),
        *(said(f"set aside: {reason}", count) for reason, count in found.refused.items()),
        stated("refused", dict(found.refused)),
        said("signed by", ", ".join(pair[0].hex() for pair in envelope.signatures)),
    )
    return Facts(KINDS[ROLE], facts)


def collectors_shown(raw: bytes) -> Facts | None:
    """Return what a collector's public file, or the file of a pair, says; None for other bytes."""
    from aggregator.collectors.pair import read_pair, read_public

    try:
        pair = read_pair(raw)
        named = [("leader", pair.collectors[0]), ("helper", pair.collectors[1])]
        verify_key = [Fact("verify_key", pair.verify_key, pair.verify_key.hex(), "digest of the verify key")]
        title = "pair of collectors"
    except InputError:
        try:
            named, verify_key, title = [("collector", read_public(raw))], [], "public file of a collector"
        except InputError:
            return None
    facts = [
        fact
        for role, one in named
        for fact in (
            Fact(role, one.name, f"{one.name} ({one.contact})"),
            stated(f"{role}_contact", one.contact),
            Fact(f"{role}_key", one.key, one.key.hex()),
        )
    ]
    return Facts(title, (*facts, *verify_key))


def verify_total(raw: bytes, role: str, state: TrustState, campaign_file: Path, now: int) -> dict[str, Any]:
    """Check that the leading collector of a campaign has signed a total, and that it fits the campaign.

    Args:
        raw: bytes of the file.
        role: ``total``.
        state: the trust in the root that must have signed the campaign.
        campaign_file: the signed campaign.
        now: seconds since 1970.

    Raises:
        InputError, DocumentError: the campaign can not be read, is refused or is not shared, or the total is refused.
    """
    from aggregator.collectors.total import read_total

    content = read_file(campaign_file, SIZE_LIMITS["campaign"])
    asked = campaign.parse_campaign(verify(state, content, "campaign", now, campaign.UNDERSTOOD).payload)
    found = read_total(raw, asked)
    facts: dict[str, Any] = {"kind": KINDS[role], "verified": True, "campaign": asked.header.name}
    return facts | {"period": found.period, "accepted": found.accepted, "numbers": len(found.numbers)}


def ingest_totals(campaign_bytes: bytes, names: tuple[str, ...], store: Path, *, recursive: bool) -> None:
    """Take in files of totals, and print the numbers.

    Raises InputError ``campaign_shared``: there is no total, or a file has reports of devices. Raises the errors of
    :class:`aggregator.collectors.totals.TotalStore`.

    Args:
        campaign_bytes: the checked campaign file, of a shared campaign.
        names: files, folders, patterns, or ``-``.
        store: folder of the store, which is made if there is none.
        recursive: whether folders in folders are read.
    """
    from aggregator.collectors.totals import TOTALS, ingest_totals
    from aggregator.reports.storage.manifest import TO_COLLECTORS

    given = report_files(names, recursive=recursive, suffixes=TOTALS)
    if not given:
        raise InputError("campaign_shared", f"there is no total among these files; {TO_COLLECTORS}")
    say([Fact(name, value) for name, value in ingest_totals(store, campaign_bytes, given)._asdict().items()])


def print_total_status(store: Path) -> None:
    """Print the reports of each period of a store of totals, and by reason those that the collectors did not count."""
    from aggregator.collectors.totals import TotalStore

    opened = TotalStore(store)
    found = opened.status()
    warn_of_end(opened.campaign)
    if as_json():
        print_json(found.to_json())
        return
    print_facts(
        {
            "campaign": found.name,
            "reports": found.reports,
            "smallest batch": f"{found.min_batch_size} in each period, {'' if found.enough else 'not '}reached",
            "noise of a cell": f"± {found.noise_sd:.4g} devices",
        }
        | {f"set aside: {reason}": count for reason, count in found.rejected.items()}
    )
    if found.periods:
        click.echo()
        rows = [(shown(period, found.time_precision), count) for period, count in found.periods.items()]
        print_table(("period", "reports"), rows[-_PERIODS:], ("reports",))
