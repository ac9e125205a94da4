"""Commands that make and sign something: ``init``, ``schema``, ``campaign``, ``publish``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.clusters import cluster_option, working_on
from aggregator.cli.output import counted, note, print_facts, print_json, print_table, warn, when, working
from aggregator.cli.periods import periods_option
from aggregator.files import check_output, write_output
from protocol.document import DAY_SECONDS
from protocol.envelope import keyid
from protocol.epsilon import format_micro, micro_epsilon
from protocol.errors import InputError
from protocol.words import to_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.planning.expected import Candidate

output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write; must not exist."
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
workspace_option = click.option(
    "--workspace", type=click.Path(path_type=Path), required=True, help="Folder made by hearsay init."
)


def say(facts: dict[str, Any], *, as_json: bool) -> None:
    """Print facts as JSON, or aligned for people with their names in words."""
    if as_json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the trust root; default: the folder's name.")
@click.option("--days", type=click.IntRange(1, 36_500), default=3650, show_default=True, help="Life of the root.")
@json_option
def init(folder: Path, name: str | None, days: int, *, as_json: bool) -> None:
    """Make a workspace: signing keys and the trust root that devices pin.

    The folder must not exist, or be empty. Whoever can read its keys can sign for you; back it up.

    \b
    Example:
      hearsay init work
    """  # noqa: D301
    from aggregator.publishing.workspace import create_workspace

    now = int(time.time())
    lifetime = days * DAY_SECONDS
    workspace = create_workspace(folder, name=name or folder.absolute().name, now=now, lifetime_seconds=lifetime)
    keys = {role: keyid(next(iter(entry.keys))).hex() for role, entry in workspace.root.roles.items()}
    facts: dict[str, Any] = {"workspace": str(folder), "trust_root": str(folder / "root.hst")}
    facts["name"] = workspace.root.header.name
    facts.update({f"{role}_key": key for role, key in keys.items()})
    expires = workspace.root.header.expires
    facts["expires"] = expires if as_json else when(expires)
    say(facts, as_json=as_json)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--label", required=True, help="Column to predict.")
@output_option
@click.option("--name", help="Name of campaigns made from it; default: the file's name.")
@click.option("--bins", type=int, default=4, show_default=True, help="Bins of a numeric feature.")
@click.option("--equal-frequency", is_flag=True, help="Bin edges at the pilot's quantiles, not of equal width.")
@click.option("--max-values", type=int, default=12, show_default=True, help="Integers with more values become numeric.")
@click.option("--missing", multiple=True, help="Cell that means missing; repeatable; default: empty and ?.")
@click.option("--drop", multiple=True, help="Column to leave out; repeatable.")
@force_option
@json_option
def schema(
    data: Path,
    label: str,
    output: Path,
    name: str | None,
    bins: int,
    equal_frequency: bool,  # noqa: FBT001 - click passes options by name
    max_values: int,
    missing: tuple[str, ...],
    drop: tuple[str, ...],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Draft a schema from a pilot file (CSV, plain or .gz) whose people agreed to be seen.

    Read and correct the draft: its values and bounds become public with the campaign.

    \b
    Example:
      hearsay schema pilot.csv --label class --drop id -o schema.toml
    """  # noqa: D301
    from aggregator.schema_draft import draft_schema
    from aggregator.schema_file import parse_schema_text
    from aggregator.tables import MISSING_TOKENS, read_table, unlabelled

    check_output(output, force=force)
    with working("reading the pilot"):
        pilot = read_table(data)
        text = draft_schema(
            pilot,
            label,
            name=name or data.name.split(".")[0] or "campaign",
            bins=bins,
            equal_frequency=equal_frequency,
            max_values=max_values,
            missing=missing or MISSING_TOKENS,
            drop=drop,
        )
    write_output(output, text.encode(), force=force)
    drafted = parse_schema_text(text)
    kinds = [feature.kind for feature in drafted.schema.features]
    facts: dict[str, Any] = {
        "schema": str(output),
        "name": drafted.name,
        "label": label,
        "classes": len(drafted.schema.label.classes),
        "categorical": kinds.count("categorical"),
        "numeric": kinds.count("numeric"),
    }
    say(facts, as_json=as_json)
    without = unlabelled(pilot, label, missing or MISSING_TOKENS)
    if without:
        note(f"{counted(without, 'record')} {'has' if without == 1 else 'have'} no label")
    if "numeric" in kinds:
        note("bounds of numeric features came from the pilot; replace them by bounds that are known without data")


@click.command()
@click.argument("schema_file", type=click.Path(path_type=Path), metavar="SCHEMA.toml")
@workspace_option
@click.option("--epsilon", required=True, help="Total privacy cost of a device in one period, for example 1.0.")
@click.option("--mechanism", required=True, help="How answers are perturbed; see above.")
@click.option("--family", default="discrete", show_default=True, help="Model: discrete, gaussian, or auto.")
@click.option("--devices", type=click.IntRange(1), help="Fleet size, for the table that auto prints.")
@click.option("--approach", type=int, help="How laplace asks for moments: 1 all at once, 3 one number (default).")
@click.option("--variance-floor", help="Gaussian: smallest variance of a number in [-1, 1]; default 0.01.")
@click.option("--split", help="Gaussian: how often classes, numbers and squares are asked for an answer, like 1:2:2.")
@click.option("--projection", type=click.Path(path_type=Path), help="File made by hearsay projection, to embed.")
@click.option("--theta", help="Threshold of 'the', between 0 and 1; default 0.25.")
@output_option
@click.option("--answers", default="one", show_default=True, help="Per device and period: one, all, auto, a number.")
@click.option("--name", help="Default: the schema's name. Versions rise per name.")
@click.option("--purpose", default="", help="Why, in words, for the owner of a device.")
@click.option("--contact", default="not stated", help="Whom the owner of a device can ask.")
@click.option("--period", default="1d", show_default=True, help="A device answers once in it: seconds, 90m, 12h, 1d.")
@click.option("--days", type=click.IntRange(1, 36_500), default=30, show_default=True, help="Life of the campaign.")
@click.option(
    "--min-batch-size",
    type=click.IntRange(1, (1 << 32) - 1),
    default=1,
    show_default=True,
    help="Publish nothing from fewer reports.",
)
@click.option("--postprocess", default="simplex", show_default=True, help="How estimates become probabilities.")
@force_option
@json_option
def campaign(
    schema_file: Path,
    workspace: Path,
    epsilon: str,
    mechanism: str,
    family: str,
    devices: int | None,
    approach: int | None,
    variance_floor: str | None,
    split: str | None,
    projection: Path | None,
    theta: str | None,
    output: Path,
    answers: str,
    name: str | None,
    purpose: str,
    contact: str,
    period: str,
    days: int,
    min_batch_size: int,
    postprocess: str,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Sign a campaign: what devices are asked, at what ε, for how long.

    ε is the total that one device spends in one period, over all its answers. Discrete models take the
    mechanisms direct, oue, sue, the, she or auto; gaussian ones bit, bits, piecewise, hybrid, laplace or duchi.
    Answers auto gives one answer for each 2.5 of ε.

    \b
    Example:
      hearsay campaign schema.toml --workspace work --epsilon 1 --mechanism oue -o c.hsc
      hearsay campaign schema.toml --workspace work --epsilon 1 --family gaussian --mechanism bits \\
        --projection p.json -o c.hsc
    """  # noqa: D301
    from aggregator.planning.expected import candidates, choose
    from aggregator.publishing.campaigns import (
        Terms,
        campaign_subjects,
        gaussian_terms,
        parse_answers,
        parse_duration,
        publish_campaign,
    )
    from aggregator.publishing.privacy import refusal_warning
    from aggregator.publishing.projection_file import load_projection
    from aggregator.publishing.workspace import open_workspace
    from aggregator.schema_file import load_schema

    check_output(output, force=force)
    loaded = load_schema(schema_file)
    asked = loaded.schema if projection is None else load_projection(projection, loaded.schema)
    micro = micro_epsilon(epsilon)
    chosen = choose(asked, family, mechanism, approach, micro)
    if devices is not None and chosen is None:
        raise InputError("devices_unused", "--devices is for the table of auto, and nothing is left to auto here")
    why = [] if chosen is None else candidates(asked, micro)
    if chosen is not None:
        family, mechanism, approach = chosen.family, chosen.mechanism, chosen.approach
    questions = len(campaign_subjects(asked, family, mechanism, approach))
    terms = Terms(
        name=name or loaded.name,
        epsilon_micro=micro,
        mechanism=mechanism,
        answers=parse_answers(answers, questions, micro),
        purpose=purpose,
        contact=contact,
        period_seconds=parse_duration(period),
        lifetime_seconds=days * DAY_SECONDS,
        min_batch_size=min_batch_size,
        postprocess=postprocess,
        options={} if theta is None else {"theta": theta},
        family=family,
        approach=approach,
        **gaussian_terms(family, variance_floor, split),
    )
    raw = publish_campaign(open_workspace(workspace), asked, terms, int(time.time()))
    write_output(output, raw, force=force)
    facts = _campaign_facts(raw, output)
    if why and as_json:
        facts["why"] = [candidate._asdict() for candidate in why]
    say(facts, as_json=as_json)
    if why and not as_json:
        _print_why(why, devices)
    for warning in filter(None, (terms.warning, refusal_warning(loaded.schema))):
        warn(warning)


def _print_why(why: Sequence[Candidate], devices: int | None) -> None:
    """The candidates that auto compared, the chosen one first."""
    click.echo()
    columns = ["family", "mechanism", "approach", "questions", "variance per device"]
    rows = [[c.family, c.mechanism, c.approach or "", c.questions, c.variance] for c in why]
    if devices is not None:
        columns.append(f"standard error at {devices}")
        rows = [[*row, c.standard_error(devices)] for row, c in zip(rows, why, strict=True)]
    print_table(columns, rows, numeric=columns[2:])


def _campaign_facts(raw: bytes, output: Path) -> dict[str, Any]:
    from aggregator.publishing.privacy import periods
    from protocol.campaign import parse_campaign
    from protocol.envelope import read_envelope

    made = parse_campaign(read_envelope(raw, "campaign").payload)
    lived = periods(made)
    return {
        "campaign": str(output),
        "name": made.header.name,
        "version": made.header.version,
        "id": made.id.hex(),
        "id_in_words": to_words(made.id),
        "family": made.fit.family,
        "questions": len(made.questions),
        "answers_per_device": made.answers,
        "epsilon_total": format_micro(made.epsilon_micro),
        "epsilon_per_answer": format_micro(made.epsilon_per_answer_micro),
        "epsilon_over_its_life": format_micro(made.epsilon_micro * lived),
        "periods": lived,
        "report_bytes": made.layout.record_length,
    }


@click.command()
@click.option("--store", type=click.Path(path_type=Path), required=True, help="Folder made by hearsay ingest.")
@workspace_option
@output_option
@click.option("--postprocess", help="How estimates become probabilities; default: the campaign's choice.")
@click.option("--name", help="Default: the campaign's name. Versions rise per name.")
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True, help="Life of the model.")
@periods_option()
@cluster_option
@force_option
@json_option
def publish(
    store: Path,
    workspace: Path,
    output: Path,
    postprocess: str | None,
    name: str | None,
    days: int,
    periods: range | None,
    cluster: str | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Fit a model to a store's reports and sign it. The workspace must have signed the campaign.

    \b
    Example:
      hearsay publish --store store --workspace work -o m.hsm
    """  # noqa: D301
    from aggregator.intake.store import open_store, scope_of
    from aggregator.publishing.models import publish_model
    from aggregator.publishing.workspace import open_workspace
    from protocol.envelope import read_envelope
    from protocol.model import parse_model

    check_output(output, force=force)
    opened, signer = open_store(store), open_workspace(workspace)
    with working_on(opened, cluster), working("counting reports"):
        statistics = opened.statistics(scope_of(periods))
    raw = publish_model(
        signer,
        statistics,
        opened.campaign_bytes,
        int(time.time()),
        postprocess=postprocess,
        name=name,
        lifetime_seconds=days * DAY_SECONDS,
    )
    write_output(output, raw, force=force)
    made = parse_model(read_envelope(raw, "model").payload)
    facts: dict[str, Any] = {
        "model": str(output),
        "name": made.header.name,
        "version": made.header.version,
        "reports": made.card["reports"],
        "epsilon_total": made.card["epsilon_total"],
        "postprocess": made.card["postprocess"],
        "statistics_id": made.statistics_id.hex(),
        "expires": made.header.expires if as_json else when(made.header.expires),
    }
    say(facts, as_json=as_json)
