"""``hearsay verify``: check whether a device would accept a file; print the ε that a campaign really spends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn

import click

from aggregator.cli import options
from aggregator.cli.nodes.describe import print_node_sheet, verify_of_dealer, verify_summaries
from aggregator.cli.options import PATH
from aggregator.cli.output import KINDS, as_json, print_json, print_table, say, warn, when, wrong_usage
from aggregator.cli.publishing.show import MAX_FILE_BYTES, shared_facts, uncompressed
from aggregator.cli.totals import verify_total
from aggregator.common.files import read_file
from aggregator.nodes.campaigns.sheet import NodeSheet, node_sheet, warning_of
from aggregator.publishing.privacy import PrivacySheet, privacy_sheet, ratio_text, rounded_up
from aggregator.publishing.signatures import Signatures, follow_roots, verify_signed
from protocol.batches import batch
from protocol.documents import campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.documents.payload import Header, read_payload
from protocol.documents.shared_terms import ROLES
from protocol.epsilon import PrivacyLoss, format_micro, format_pico
from protocol.errors import DocumentError, InputError

_WITH_CAMPAIGN = {"keys": verify_of_dealer, "release": verify_of_dealer, "total": verify_total}
"""Role of a file that is checked with its campaign alone → the check."""


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--trust",
    "trust_files",
    type=PATH,
    required=True,
    multiple=True,
    help="Trust root (.hst). Repeat it for newer roots that follow from the first, in any order.",
)
@click.option("--privacy", is_flag=True, help="Print the exact privacy loss of a campaign, from the file alone.")
@click.option(
    "--campaign", "campaign_file", type=PATH, help="Of summaries, key books, releases, totals: their campaign."
)
@click.option("--nodes", "list_file", type=PATH, help="Of node summaries: the node list (.hsl) that names their keys.")
@options.json
def verify(
    file: Path, trust_files: tuple[Path, ...], campaign_file: Path | None, list_file: Path | None, *, privacy: bool
) -> None:
    """Check a file as a device does: signatures, dates, and every value of a campaign, model or node list.

    The first --trust is trusted as it is. Further roots are followed from it, root by root, as a device does that
    was off for long. The last root reached decides whose signatures count.

    With --privacy: print the worst ratio of an answer's probabilities under two records, per question and in
    total, as an exact fraction and as ε, beside the ε that the campaign declares. Of a campaign for nodes: the exact
    loss of every released vector, for one record more or less and for a changed record. Of a shared campaign: the loss
    of a changed record against one collector and whoever sees the totals.

    A key book (.hsk) or release (.hsd) of masked sums is checked with its campaign, which names the dealer whose key
    must have signed it. So is a total (.hsz) of shared answers: the campaign names the collector that must have signed
    it.

    Summaries of nodes (.hsn) are checked with their campaign and node list: signature, ε, range of every number. That
    proves who sent them, not that they are true.

    \b
    Example:
      hearsay verify c.hsc --trust work/root.hst --privacy
      hearsay verify north.hsn --trust work/root.hst --campaign c.hsc --nodes clinics.hsl
      hearsay verify c.hsc --trust 1.hst --trust 2.hst --trust 3.hst
    """  # noqa: D301
    raw = read_file(file, MAX_FILE_BYTES)
    role = role_of(raw)
    if role is None:
        _refuse_unsigned(file, raw)
    if privacy and role != "campaign":
        raise InputError("not_a_campaign", f"'{file}' is a {KINDS.get(role, role)}; --privacy is about campaigns")
    _check_usage(file, role, campaign_file, list_file)
    now = int(time.time())
    first, *newer = (read_file(path, SIZE_LIMITS["root"]) for path in trust_files)
    state = follow_roots(first, newer, now)
    if role in _WITH_CAMPAIGN and campaign_file is not None:
        say(_WITH_CAMPAIGN[role](raw, role, state, campaign_file, now))
        return
    if campaign_file is not None and list_file is not None:
        verify_summaries(raw, state, campaign_file, list_file, now)
        return
    try:
        found = verify_signed(state, raw, role, now)
    except DocumentError as error:
        if privacy and error.reason == "epsilon_understated":
            _show_understated(read_envelope(raw, role).payload)
        raise
    header, shared = found.header, _shared(raw) if role == "campaign" else None
    result: dict[str, Any] = {"kind": KINDS.get(role, role), "verified": True, "root_version": found.root_version}
    result["signatures"] = found.standing
    if privacy:
        result["privacy"] = _sheet(read_envelope(raw, role).payload).to_json()
    result |= {"name": header.name, "version": header.version, "issued_at": header.issued_at}
    result |= {"not_before": header.not_before, "expires": header.expires}
    if shared is not None and shared.shared is not None:
        terms = shared.shared
        keys = {f"{role}_key": one.key.hex() for role, one in zip(ROLES, terms.collectors, strict=True)}
        result["shared"] = {**keys, "noise": terms.noise, "delta": format_pico(terms.delta_pico)}
    _print_verdict(role, header, result, raw if privacy else None, shared)
    if role == "campaign" and (warning := warning_of(campaign.parse_campaign(read_envelope(raw, role).payload))):
        warn(warning)


def _check_usage(file: Path, role: str, campaign_file: Path | None, list_file: Path | None) -> None:
    given = (campaign_file is not None, list_file is not None)
    if role == "masked":
        raise InputError("wrong_role", f"'{file}' is a file of {KINDS[role]}; hearsay ingest verifies these")
    if role == "node" and given != (True, True):
        raise wrong_usage("a file of node summaries is verified with --campaign and --nodes")
    if role in _WITH_CAMPAIGN and given != (True, False):
        raise wrong_usage(f"a {KINDS[role]} is verified with --campaign alone")
    if role != "node" and role not in _WITH_CAMPAIGN and any(given):
        raise wrong_usage("--campaign and --nodes are for files of nodes, dealers and collectors")


def _refuse_unsigned(file: Path, raw: bytes) -> NoReturn:
    """Raise an error that says what the file is, since it is no signed document."""
    if any(isinstance(piece, batch.Batch) for piece in batch.read_batches(uncompressed(file, raw))):
        raise InputError(
            "not_signed",
            f"'{file}' is a report file; devices do not sign reports, because a signature would tell whose they are. "
            "hearsay show says what is in it",
        )
    raise InputError("unknown_file", f"'{file}' is no trust root, campaign, model, node list or file of node summaries")


def _show_understated(payload: bytes) -> None:
    """Print the privacy sheet of a campaign that is refused because it spends more ε than it declares."""
    sheet = _sheet(payload)
    if as_json():
        refused = {"kind": "campaign", "verified": False, "reason": "epsilon_understated"}
        print_json({**refused, "privacy": sheet.to_json()})
    else:
        print_sheet(sheet)


def _print_verdict(
    role: str, header: Header, result: dict[str, Any], raw: bytes | None, shared: campaign.Campaign | None
) -> None:
    held: Signatures = result["signatures"]
    if as_json():
        print_json({**result, "signatures": held.to_output(as_json=True)})
        return
    click.echo(
        f"verified: {KINDS.get(role, role)} '{header.name}', version {header.version}, until {when(header.expires)}"
    )
    click.echo(f"signed by {len(held.signers)} of {held.keys} keys, {held.needed} needed: {', '.join(held.signers)}")
    if shared is not None:
        for name, words in shared_facts(shared).items():
            click.echo(f"{name}: {words}")
    if raw is not None:
        print_sheet(_sheet(read_envelope(raw, role).payload))


def _shared(raw: bytes) -> campaign.Campaign | None:
    """Return the campaign in a file if its answers are shared by two collectors."""
    found = campaign.parse_campaign(read_envelope(raw, "campaign").payload)
    return None if found.shared is None else found


def _sheet(payload: bytes) -> PrivacySheet | NodeSheet:
    body, _ = read_payload(payload)
    if "nodes" in body:
        return node_sheet(campaign.parse_campaign(payload))
    if "shared" in body:
        found = campaign.parse_campaign(payload)
        return PrivacySheet((), (), (), found.privacy_loss(), found.epsilon_micro, found.answers)
    return privacy_sheet(body)


def print_sheet(sheet: PrivacySheet | NodeSheet) -> None:
    """Print the privacy losses, rounded up to nine decimals, and whether the total is at most the declared ε."""
    if isinstance(sheet, NodeSheet):
        print_node_sheet(sheet)
        return
    per_answer = format_micro(sheet.declared_per_answer_micro)
    rows: list[list[object]] = [
        [name, question.mechanism.name, question.size, question.stratum, _foldable(loss), rounded_up(loss), per_answer]
        for name, question, loss in zip(sheet.names, sheet.questions, sheet.losses, strict=True)
    ]
    total = sheet.total
    rows.append(["total", "", "", "", _foldable(total), rounded_up(total), format_micro(sheet.declared_micro)])
    columns = ["question", "mechanism", "size", "stratum", "worst ratio", "ε", "declared ε"]
    print_table(columns, rows, ["size", "stratum", "ε", "declared ε"])
    if len(sheet.models) == 1:
        click.echo(f"the questions are about what this model reads and predicts: {sheet.models[0].hex()}")
    for number, digest in enumerate(sheet.models if len(sheet.models) > 1 else (), 1):
        click.echo(f"model {number}, which decides what is read and predicted: {digest.hex()}")
    click.echo("the campaign spends no more than it declares" if sheet.holds else "IT SPENDS MORE THAN IT DECLARES")


def _foldable(loss: PrivacyLoss) -> str:
    """Return a worst ratio with spaces around the fraction bar, where a narrow table can then break the line."""
    return ratio_text(loss).replace("/", " / ")
