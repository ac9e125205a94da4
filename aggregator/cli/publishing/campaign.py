"""``hearsay campaign``: sign a campaign, or the version that ends it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import MECHANISMS, PATH, POSTPROCESSINGS, glossary
from aggregator.cli.output import (
    as_json,
    check_files,
    forced,
    note,
    print_table,
    say,
    signed_facts,
    warn_of_signed,
    when,
    wrong_usage,
)
from aggregator.common.facts import Fact, stated
from aggregator.publishing.privacy import memory_facts, periods
from aggregator.publishing.series import series_facts
from protocol.epsilon import format_micro
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.operations.campaigns import Planned
    from aggregator.publishing.naming import SignedCampaign
    from aggregator.publishing.workspace import Workspace


@click.command(epilog=glossary(mechanisms=MECHANISMS, post_processings=POSTPROCESSINGS))
@click.argument("schema_file", type=PATH, metavar="SCHEMA.toml", required=False)
@options.workspace
@click.option("--epsilon", help="Total privacy cost of a device in one period, for example 1.0.")
@click.option("--mechanism", help="How answers are perturbed; see above.")
@click.option("--end", "ending", metavar="NAME", help="End the campaign of that name or id; takes no SCHEMA.toml.")
@click.option(
    "--family",
    default="discrete",
    show_default=True,
    help="Model: discrete or gaussian; auto: the one of the larger expected accuracy at --devices.",
)
@click.option("--pilot", type=PATH, help="Records with their label for family auto; default: assume an effect.")
@click.option("--devices", type=click.IntRange(1), help="Fleet size, for what auto compares and prints.")
@click.option("--approach", type=int, help="How laplace asks for moments: 1 all at once, 3 one number (default).")
@click.option("--variance-floor", help="Gaussian: smallest variance of a number in [-1, 1]; default 0.01.")
@click.option("--split", help="Gaussian: proportion of questions about classes, numbers and squares, like 1:2:2.")
@click.option("--projection", type=PATH, help="File made by hearsay projection, to embed.")
@click.option(
    "--ask",
    help="Features or components to ask about, like odor,gill-size, each value by itself; default: as the table [ask] "
    "of SCHEMA.toml says, or all.",
)
@click.option("--theta", help="Threshold of 'the', between 0 and 1; default 0.25.")
@options.output
@click.option("--answers", default="one", show_default=True, help="Per device and period: one, all, auto, a number.")
@options.term("device")
@options.series
@click.option(
    "--memory",
    type=click.IntRange(0),
    metavar="RENEWALS",
    help="Devices keep a noisy answer, draw another one so many times, and send it with fresh noise in every period.",
)
@click.option("--report-epsilon", help="With --memory: ε of one report by itself; default: half of --epsilon.")
@options.min_batch("reports")
@click.option("--postprocess", default="posterior", show_default=True, help="How estimates become probabilities.")
@click.option(
    "--class-question/--no-class-question", default=True, show_default=True, help="Also ask for the class alone."
)
@options.passphrase
@options.force
@options.json
@click.pass_context
def campaign(
    context: click.Context, /, schema_file: Path | None, workspace: Path, ending: str | None, output: Path, **terms: Any
) -> None:
    """Sign a campaign: what devices are asked, at what ε, for how long.

    ε is the total that one device spends in one period, over all its answers. Discrete models take the
    mechanisms direct (GRR, k-ary randomised response), oue, sue, subset, the, she or auto, which chooses direct, oue or
    subset for each question; direct+oue chooses one of these two. Gaussian models take bit, bits, piecewise, hybrid,
    laplace or duchi. --answers auto gives one answer for each 2.5 of ε.

    With --series: a device answers once in all campaigns of that series, so asking in steps costs each device one ε.
    --share divides the devices among the campaigns of a series; 0:0.01 asks one device in a hundred.

    With --memory: a device has one question for the whole campaign. --epsilon is for one kept answer and all its
    reports. A device pays 1 + RENEWALS times as much with its first report, and nothing later. A changed record shows
    from the next kept answer on. Mechanisms are direct, oue or auto.

    A schema says what devices observe; --ask, or the table [ask] of SCHEMA.toml, says which features this campaign asks
    about. Devices do not read the others, and the model is of the asked ones. The table may also put values into
    groups, which are asked about as one (values that no group names are the last group), and give shares: [ask.odor]
    with groups = [["a", "l"], ["n"]] and share = 2; of a number bins = [2, 1, 1] says how many adjacent bins each
    group has. Two or three features with " × " between their names are asked about as one: --ask "odor × ring,cap".

    Nodes that hold many records have campaigns of their own: hearsay nodes campaign.

    With --end: sign the version that ends a campaign. Devices that get it no longer report under that name.

    \b
    Example:
      hearsay campaign schema.toml --workspace work --epsilon 1 --mechanism oue -o c.hsc
      hearsay campaign schema.toml --workspace work --epsilon 1 --family gaussian --mechanism bits \\
        --projection p.json -o c.hsc
      hearsay campaign schema.toml --workspace work --epsilon 1 --mechanism oue --ask odor,gill-size -o c2.hsc
      hearsay campaign --end mushrooms --workspace work -o end.hsc
    """  # noqa: D301
    from aggregator.operations.campaigns import plan_campaign, sign_campaign

    check_files(output)
    if ending is not None:
        _check_only_ending(context)
        _end(signer_of(workspace), ending, output)
        return
    needed = {"SCHEMA.toml": schema_file, "--epsilon": terms["epsilon"], "--mechanism": terms["mechanism"]}
    for parameter in (name for name, value in needed.items() if value is None):
        raise wrong_usage(f"Missing '{parameter}'.")
    assert schema_file is not None
    planned = plan_campaign(schema_file, **terms)
    if terms["devices"] is not None and not planned.why and planned.forecast is None:
        raise InputError(
            "devices_unused", "--devices is for --mechanism auto with --family auto or gaussian; leave it out"
        )
    made = sign_campaign(signer_of(workspace), planned, now=int(time.time()))
    made.save(output, force=forced())
    say(_facts(made, planned, output))
    if not as_json():
        _print_compared(made, planned, terms["devices"])
    for text in planned.notes:
        note(text)
    warn_of_signed(made, output)


_OF_ENDINGS = {"workspace", "ending", "output", "passphrase_file", "force", "as_json"}


def _check_only_ending(context: click.Context) -> None:
    """Raise ``UsageError`` for options that describe a campaign beside ``--end``, which copies the version before."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _OF_ENDINGS and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            named = parameter.human_readable_name if name == "schema_file" else parameter.opts[0]
            raise wrong_usage(f"--end takes no {named}")


def _end(signer: Workspace, name: str, output: Path) -> None:
    from aggregator.operations.campaigns import end_campaign

    made = end_campaign(signer, name, now=int(time.time()))
    made.save(output, force=forced())
    header = made.campaign.header
    facts = {"campaign": str(output), "name": header.name, "version": header.version, "id": made.campaign.id.hex()}
    facts["ends"] = f"all versions below {header.version}"
    say([*map(Fact, facts, facts.values()), Fact("expires", header.expires, when(header.expires))])
    warn_of_signed(made, output)


def _print_compared(made: SignedCampaign, planned: Planned, devices: int | None) -> None:
    from aggregator.planning.power_analysis.plan import COLUMNS

    if made.why:
        click.echo()
        columns = ["family", "mechanism", "approach", "questions", "variance per device"]
        rows = [[c.family, c.mechanism, c.approach or "", c.questions, c.variance] for c in made.why]
        if devices is not None:
            columns.append(f"standard error at {devices}")
            rows = [[*row, c.standard_error(devices)] for row, c in zip(rows, made.why, strict=True)]
        print_table(columns, rows, numeric=columns[2:])
    if planned.forecast is not None:
        click.echo()
        print_table(COLUMNS, planned.forecast.rows(), numeric=COLUMNS[1:])


def _facts(signed: SignedCampaign, planned: Planned, output: Path) -> list[Fact]:
    made = signed.campaign
    facts = {
        **signed_facts(made, output),
        "asked": f"{len(made.schema.ungrouped)} of {len(made.stated.observed)} features",
        "questions": len(made.questions),
        "answers_per_device": made.answers,
        "epsilon_total": format_micro(made.epsilon_micro),
        "epsilon_per_answer": format_micro(made.epsilon_per_answer_micro),
        "epsilon_over_its_life": format_micro(made.life_micro(periods(made))),
        "periods": periods(made),
        **memory_facts(made),
        **series_facts(made.series),
        "report_bytes": made.layout.record_length,
    }
    why = [stated("why", [candidate._asdict() for candidate in signed.why])] if signed.why else []
    designs = [] if planned.forecast is None else [stated("designs", planned.forecast.to_json()["designs"])]
    return [*map(Fact, facts, facts.values()), *why, *designs]
