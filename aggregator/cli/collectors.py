"""``hearsay collector``: the two collectors of a shared campaign, from their keys to the signed total of a period."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.counting import workers_of
from aggregator.cli.inputs import enrolled_ids, signer_of
from aggregator.cli.options import PATH, POSTPROCESSINGS, existing_passphrase, glossary, new_passphrase
from aggregator.cli.output import (
    as_json,
    check_files,
    forced,
    note,
    print_facts,
    print_json,
    print_table,
    progress,
    say,
    signed_facts,
    warn,
    warn_of_signed,
    when,
    working,
    write_file,
)
from aggregator.common.facts import Fact
from aggregator.common.files import PRIVATE, read_file
from aggregator.common.periods import parse_start, shown
from aggregator.estimates.sums import OF_SUMS
from protocol.documents.envelope import SIZE_LIMITS
from protocol.documents.shared_terms import GAUSSIAN, LAPLACE, NOISES, ROLES
from protocol.epsilon import format_micro, format_pico, pico_delta

if TYPE_CHECKING:
    from aggregator.collectors.collector import CollectorFolder, Sent
    from protocol.documents.campaign import Campaign

FOLDER = click.argument("folder", metavar="COLLECTOR", type=PATH)
CAMPAIGN = click.argument("campaign", metavar="C.hsc", type=PATH)
TRUST = click.option(
    "--trust", "trusted", type=PATH, required=True, help="Trust root that must have signed the campaign."
)
REPORTS = click.argument(
    "reports", metavar="REPORTS…", nargs=-1, required=True, callback=lambda *given: _found(given[2])
)


def _found(names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the report files that are given, and those in given folders."""
    from aggregator.reports.intake.finding import find_files

    return tuple(map(Path, find_files(names).files))


@click.group()
def collector() -> None:
    """Shared answers: two collectors learn the total of what devices say, and neither learns what one device says.

    Each device splits its record into two shares, one for each collector. Together the shares are the record, so two
    collectors that work together see everything. Run them by two organisations, on two machines, with a written
    agreement. Files go to and fro by any way. The leader collects the devices' report files:

    \b
    Example:
      hearsay collector new leader --name "City hospital" --contact a@city.example
      hearsay collector new helper --name "University" --contact b@uni.example
      hearsay collector pair leader helper/collector.pub -o ward.pair
      hearsay collector campaign ward.toml --workspace work --epsilon 1 --pair ward.pair -o c.hsc
      hearsay collector check leader c.hsc inbox --trust root.hst --period 2026-11-01 -o ask.hsx
      hearsay collector answer helper c.hsc ask.hsx --trust root.hst -o said.hsx
      hearsay collector finish leader c.hsc said.hsx --trust root.hst -o ward.hsz
      hearsay ingest c.hsc ward.hsz --store totals --trust root.hst
    """  # noqa: D301


@collector.command()
@FOLDER
@click.option("--name", required=True, help="Who runs this collector; owners of devices read it.")
@click.option("--contact", required=True, help="Where to reach them.")
@options.passphrase
@options.no_passphrase
@options.json
def new(folder: Path, name: str, contact: str) -> None:
    """Make a collector: a secret key, and the public file collector.pub for the other collector.

    The folder must not exist, or be empty. Keep it on a machine that the other collector can not reach. The key is
    encrypted under a passphrase, which is asked for.

    \b
    Example:
      hearsay collector new leader --name "City hospital" --contact a@city.example
    """  # noqa: D301
    from aggregator.collectors.collector import PUBLIC_FILE, CollectorFolder

    passphrase = new_passphrase(what="the collector")
    with CollectorFolder.create(folder, name, contact, passphrase=passphrase) as made:
        facts = [Fact("collector", str(folder)), Fact("public_file", str(folder / PUBLIC_FILE))]
        facts += [Fact("key", made.public.key, made.public.key.hex()), Fact("encrypted", passphrase is not None)]
    say(facts)
    note(f"give {PUBLIC_FILE} to the other, compare the key by telephone, and never use two copies of the folder")


@collector.command()
@FOLDER
@click.argument("other", metavar="COLLECTOR.pub", type=PATH)
@options.output
@options.passphrase
@options.force
@options.json
def pair(folder: Path, other: Path, output: Path) -> None:
    """Make the file of a pair, for one campaign: this collector leads, and the other one helps.

    Give the file to the publisher of the campaign (hearsay collector campaign --pair). It holds no secret.

    \b
    Example:
      hearsay collector pair leader helper/collector.pub -o ward.pair
    """  # noqa: D301
    from aggregator.collectors.collector import CollectorFolder
    from aggregator.collectors.pair import MAX_BYTES, read_pair

    check_files(output, inputs=[other])
    with CollectorFolder.open(folder, existing_passphrase()) as opened:
        raw = opened.pair_with(read_file(other, MAX_BYTES))
    write_file(output, raw)
    found = read_pair(raw)
    facts = [Fact("file", str(output))]
    for role, one in zip(ROLES, found.collectors, strict=True):
        facts += [Fact(role, one.name), Fact(f"{role}_key", one.key, one.key.hex())]
    say(facts)


@collector.command(epilog=glossary(post_processings=POSTPROCESSINGS))
@click.argument("schema_file", type=PATH, metavar="SCHEMA.toml")
@options.workspace
@click.option("--pair", type=PATH, required=True, metavar="P.pair", help="The two collectors (hearsay collector pair).")
@click.option("--epsilon", required=True, help="ε of one report, for a changed record, for example 1.0.")
@click.option("--delta", default="0", show_default=True, help="δ of one report; with δ the noise may be Gaussian.")
@click.option("--noise", type=click.Choice(NOISES), help="Kind of noise; default: that of the smaller variance.")
@click.option("--projection", type=PATH, help="File made by hearsay projection, to embed.")
@click.option(
    "--evaluate", type=PATH, multiple=True, metavar="MODEL", help="Model to evaluate too: one, or several to compare."
)
@click.option("--ask", help="Features or components to ask about; default: the table [ask] of SCHEMA.toml, or all.")
@options.output
@options.term("device")
@options.series
@options.min_batch("reports")
@click.option("--postprocess", default=OF_SUMS, show_default=True, help="How sums become probabilities.")
@options.passphrase
@options.force
@options.json
def campaign(schema_file: Path, workspace: Path, output: Path, **terms: Any) -> None:
    """Sign a shared campaign: which features devices split for which two collectors, at what ε.

    ε is what the total tells about one device to readers and to one dishonest collector. It covers every asked feature
    at once, so ask about the right ones: twice the features take twice the noise. An evaluated model counts as one more
    feature; hearsay evaluate ask --pair evaluates models alone. A device answers only if its owner
    names both collectors' keys in the device's policy.

    \b
    Example:
      hearsay collector campaign ward.toml --workspace work --epsilon 1 --pair ward.pair -o c.hsc
    """  # noqa: D301
    from aggregator.collectors.campaigns import make_shared_campaign
    from aggregator.collectors.noise import COLLECTORS, cell_variance

    check_files(output)
    made = make_shared_campaign(signer_of(workspace), schema_file, now=int(time.time()), **terms)
    made.save(output, force=forced())
    shared = made.campaign.shared
    assert shared is not None
    facts = [Fact(*pair) for pair in signed_facts(made.campaign, output).items()]
    for role, one in zip(ROLES, shared.collectors, strict=True):
        facts += [Fact(role, one.name), Fact(f"{role}_key", one.key, one.key.hex())]
    blocks = len(made.campaign.blocks)
    compared = {
        kind: COLLECTORS * cell_variance(kind, blocks, made.campaign.epsilon_micro, delta)
        for kind, delta in ((LAPLACE, 0), (GAUSSIAN, pico_delta(terms["delta"])))
        if kind == LAPLACE or delta
    }
    facts += [
        Fact("epsilon", format_micro(made.campaign.epsilon_micro)),
        Fact("delta", format_pico(shared.delta_pico)),
        Fact("noise", shared.noise),
        Fact("noise_of_a_cell", compared[shared.noise] ** 0.5, f"± {compared[shared.noise] ** 0.5:.0f} devices"),
        Fact("variances", compared, ", ".join(f"{kind} {each:.4g}" for kind, each in compared.items())),
        Fact("cells", sum(subject.size for subject in made.campaign.blocks)),
        Fact("report_bytes", made.campaign.layout.record_length),
    ]
    say(facts)
    warn_of_signed(made, output)


@collector.command()
@FOLDER
@CAMPAIGN
@REPORTS
@TRUST
@click.option("--period", metavar="P", required=True, help="Date or number of a period that has ended.")
@options.enrolment
@options.cluster
@options.output
@options.force
@options.json
def check(
    folder: Path,
    campaign: Path,
    reports: tuple[Path, ...],
    trusted: Path,
    period: str,
    enrolled: Path | None,
    lists: tuple[Path, ...],
    cluster: str | None,
    output: Path,
) -> None:
    """Leader: check the shares of one period's reports, and write the request for the helper.

    REPORTS are files or folders. A period is sent once. Wait until all reports that you hope for are there: later ones
    count as batch_released. The same call again writes the same file.

    In a closed fleet give --enrolled IDS.hsi (hearsay fleet ids) or --fleet LIST.hsf: only listed devices count then,
    and the others are refused as id_not_enrolled.

    The workers of a cluster get the leader's shares and what checks them, so they must be the leader's own machines.

    \b
    Example:
      hearsay collector check leader c.hsc inbox --trust root.hst --period 2026-11-01 -o ask.hsx
    """  # noqa: D301
    check_files(output, inputs=[campaign, trusted, *reports])
    with _opened(folder) as opened, workers_of(cluster) as opened.cluster, progress("checking shares", 1) as bar:
        raw, root, found = _documents(campaign, trusted)
        ids = enrolled_ids(found, enrolled, lists)
        first = parse_start(period).first(found.time_precision)
        sent = opened.check(raw, root, first, reports, output, bar, ids)
    _say(sent, found, output)


@collector.command()
@FOLDER
@CAMPAIGN
@click.argument("request", metavar="ASK.hsx", type=PATH)
@TRUST
@options.cluster
@options.enrolment
@options.output
@options.force
@options.json
def answer(
    folder: Path,
    campaign: Path,
    request: Path,
    trusted: Path,
    cluster: str | None,
    enrolled: Path | None,
    lists: tuple[Path, ...],
    output: Path,
) -> None:
    """Helper: check the shares of a request, and write verdicts and noisy sums for the leader.

    One request is answered for each period. The same request again gets the same answer; another one is refused, since
    the difference of two totals could be one device's record. The workers of a cluster get the helper's shares and what
    checks them, so they must be the helper's own machines.

    In a closed fleet give --enrolled or --fleet as the leader does, with files that do not come from the leader: else
    it could fill the smallest batch with devices that it made up.

    \b
    Example:
      hearsay collector answer helper c.hsc ask.hsx --trust root.hst -o said.hsx
    """  # noqa: D301
    check_files(output, inputs=[campaign, trusted, request])
    with _opened(folder) as opened, workers_of(cluster) as opened.cluster, progress("checking shares", 1) as bar:
        raw, root, found = _documents(campaign, trusted)
        sent = opened.answer(raw, root, request, output, bar, enrolled_ids(found, enrolled, lists))
    _say(sent, found, output)


@collector.command()
@FOLDER
@CAMPAIGN
@click.argument("said", metavar="SAID.hsx", type=PATH)
@TRUST
@options.output
@options.passphrase
@options.force
@options.json
def finish(folder: Path, campaign: Path, said: Path, trusted: Path, output: Path) -> None:
    """Leader: add both collectors' noisy sums, and write the signed total of the period.

    Give the total to whoever publishes models: hearsay ingest takes it.

    \b
    Example:
      hearsay collector finish leader c.hsc said.hsx --trust root.hst -o ward.hsz
    """  # noqa: D301
    check_files(output, inputs=[campaign, trusted, said])
    with _opened(folder) as opened, working("adding"):
        raw, root, found = _documents(campaign, trusted)
        total = opened.finish(raw, root, said, output)
    say(
        [
            Fact("file", str(output)),
            Fact("period", total.period, shown(total.period, found.time_precision)),
            Fact("accepted", total.accepted),
            Fact("numbers", len(total.numbers)),
            Fact("refused", dict(total.refused), _counts(total.refused)),
        ]
    )


@collector.command()
@FOLDER
@CAMPAIGN
@REPORTS
@TRUST
@click.option("--period", metavar="P", required=True, help="Date or number of a period.")
@options.output
@options.passphrase
@options.force
@options.json
def export(folder: Path, campaign: Path, reports: tuple[Path, ...], trusted: Path, period: str, output: Path) -> None:
    """Write this collector's own shares of a period as JSON, for another program of the draft to check.

    The form is that of the test vectors of draft-irtf-cfrg-vdaf-20. The file holds the verify key and shares, so keep
    it as secret as COLLECTOR, and never give it to the other collector: the shares of both are the records.

    \b
    Example:
      hearsay collector export leader c.hsc inbox --trust root.hst --period 2026-11-01 -o shares.json
    """  # noqa: D301
    check_files(output, inputs=[campaign, trusted, *reports])
    with _opened(folder) as opened, working("computing"):
        raw, root, found = _documents(campaign, trusted)
        first = parse_start(period).first(found.time_precision)
        made = opened.export(raw, root, first, reports)
    write_file(output, json.dumps(made.document, indent=1).encode() + b"\n", mode=PRIVATE)
    say(
        [
            Fact("file", str(output)),
            Fact("period", first, shown(first, found.time_precision)),
            Fact("reports", len(made.document["reports"])),
            Fact("refused", made.refused, _counts(made.refused)),
        ]
    )


@collector.command()
@FOLDER
@options.json
def adopt(folder: Path) -> None:
    """Go on with a copy of a collector's folder: a restored backup, or a folder that was moved to another disk.

    Only if no other copy is in use any more, and this computer's clock is right. What the other copy released since is
    not known here, so this copy releases nothing new for periods that have begun.

    \b
    Example:
      hearsay collector adopt leader
    """  # noqa: D301
    from aggregator.collectors.collector import CollectorFolder

    with CollectorFolder.adopt(folder) as opened:
        periods = opened.periods()
    say([Fact("collector", str(folder)), Fact("periods", len(periods))])


@collector.command()
@FOLDER
@options.json
def show(folder: Path) -> None:
    """Show a collector: its public key, and every period for which something left.

    \b
    Example:
      hearsay collector show leader
    """  # noqa: D301
    from aggregator.collectors.collector import CollectorFolder

    with CollectorFolder.open(folder) as opened:
        public, rows = opened.public, opened.periods()
    periods: list[dict[str, Any]] = [
        {
            "campaign": row.campaign,
            "period": row.period,
            "role": ROLES[row.role],
            "reports": row.reports,
            "finished": bool(row.total),
            "made_at": row.made_at,
        }
        for row in rows
    ]
    if as_json():
        print_json({"name": public.name, "contact": public.contact, "key": public.key, "periods": periods})
        return
    print_facts({"collector": public.name, "contact": public.contact, "key": public.key.hex()})
    if periods:
        print_table(
            ("campaign", "period", "role", "reports", "total", "made"),
            [
                (
                    row.campaign.hex()[:16],
                    row.period,
                    ROLES[row.role],
                    row.reports,
                    "yes" if row.total else "",
                    when(row.made_at),
                )
                for row in rows
            ],
            numeric=("period", "reports"),
        )


def _opened(folder: Path) -> CollectorFolder:
    from aggregator.collectors.collector import CollectorFolder

    return CollectorFolder.open(folder, existing_passphrase())


def _documents(campaign: Path, trusted: Path) -> tuple[bytes, bytes, Campaign]:
    from aggregator.publishing.signatures import signed_campaign

    raw, root = read_file(campaign, SIZE_LIMITS["campaign"]), read_file(trusted, SIZE_LIMITS["root"])
    return raw, root, signed_campaign(root, raw)


def _say(sent: Sent, campaign: Campaign, output: Path) -> None:
    say(
        [
            Fact("file", str(output)),
            Fact("period", sent.period, shown(sent.period, campaign.time_precision)),
            Fact("reports", sent.reports),
            Fact("refused", sent.refused, _counts(sent.refused)),
            Fact("repeated", sent.again, "yes: the same bytes as before" if sent.again else "no"),
        ]
    )
    late = sent.refused.get("batch_released", 0)
    if late:
        warn(f"{late} reports came after the request had left; they are in no total, for ever")


def _counts(refused: Any) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items())) or "none"
