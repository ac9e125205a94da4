"""``hearsay refine``: the next step of a series of campaigns that finds out what to ask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, note, print_facts, print_json, print_table, write_file
from aggregator.collectors.draws import SHARED, SharedNoise
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import listed
from aggregator.publishing.decisions import decision_text
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema, toml_array, toml_text
from protocol.documents.asked import plain
from protocol.documents.campaign import PilotCost
from protocol.epsilon import format_micro, format_pico, micro_epsilon, pico_delta
from protocol.schema import Schema

if TYPE_CHECKING:
    from aggregator.operations.models import AnyStore
    from aggregator.planning.feature_selection.from_answers import Refinement


@click.command()
@click.argument("schema_file", type=PATH, metavar="[SCHEMA.toml]", required=False)
@options.several_stores()
@click.option(
    "--evaluation", "evaluations", type=PATH, multiple=True, help="Store of an evaluation of this series; repeatable."
)
@click.option("--series", help="Name of the series; only for the first step, or with --same-devices for all.")
@click.option("--devices", type=click.IntRange(1), required=True, help="Size of the fleet.")
@click.option("--epsilon", required=True, help="ε of the one answer of a device in the series.")
@options.shared_answers
@click.option(
    "--same-devices", is_flag=True, help="Shared: each step asks all devices, with a part of ε, and not some of them."
)
@options.output
@click.option("--workspace", type=PATH, help="Workspace that signs the candidates, or has signed them.")
@click.option("--models", type=PATH, help="Folder to write the candidates' files into.")
@options.passphrase
@options.force
@options.json
def refine(
    schema_file: Path | None,
    stores: tuple[Path, ...],
    evaluations: tuple[Path, ...],
    series: str | None,
    devices: int,
    epsilon: str,
    output: Path,
    workspace: Path | None,
    models: Path | None,
    **trust: Any,
) -> None:
    """Say what a series of campaigns should ask next, from the private answers so far.

    One step at a time: ask a part of the fleet about all features, then about the strongest; evaluate candidate
    models of some features; and, when the choice is made, ask the rest of the fleet about the chosen ones. The output
    is the schema with what to ask in its table [ask], for hearsay campaign; for an evaluation it lists the candidates,
    which are signed with --workspace and written with --models. The step depends on the given stores alone.

    A device answers once in the whole series. Give all stores of the series at each step, and the same --devices.

    With --trust shared two collectors make totals (hearsay collector): one round about all features, evaluations of
    candidates, and the rest about the chosen ones. Each step asks another part of the devices; or, with --same-devices,
    all of them with that part of ε.

    \b
    Example:
      hearsay refine schema.toml --series chess --devices 100000 --epsilon 1 -o next.toml
      hearsay refine --store s1 --store s2 --devices 100000 --epsilon 1 -o next.toml
      hearsay refine --store s1 --store s2 --store s3 --store s4 --evaluation e1 --devices 100000 --epsilon 1 \\
        --workspace work --models candidates -o next.toml
      hearsay refine schema.toml --trust shared --series ward --devices 30000 --epsilon 1 -o next.toml
    """  # noqa: D301
    from aggregator.operations.designs import refine as next_step
    from aggregator.operations.models import open_any

    check_files(output)
    if (schema_file is None) == (not stores):
        raise click.UsageError("give SCHEMA.toml for the first step, or the stores so far (--store)")
    if (series is None) == (not stores or trust["same_devices"]):
        raise click.UsageError("--series names the series at the first step; later the campaigns name it")
    if models is not None and workspace is None:
        raise click.UsageError("--models writes signed candidates: give --workspace")
    if evaluations and not stores:
        raise click.UsageError("--evaluation needs the stores that its candidates were made of (--store)")
    file = None if schema_file is None else load_schema(schema_file)
    opened = [open_any(store) for store in stores]
    found = next_step(opened, evaluations, devices=devices, epsilon=epsilon, schema=file, series=series, **trust)
    # The first campaign asked about all features; later ones of two collectors state fewer.
    known = [one.campaign.stated for one in opened] if file is None else [file.schema]
    stated = max(known, key=lambda one: len(one.features))
    pilots = opened[0].campaign.pilots if file is None else file.pilots
    file_name = found.series if file is None else file.name
    files = _signed(found, workspace, models, opened)
    write_file(output, next_text(found, file_name, stated, pilots).encode())
    if as_json():
        print_json({**found.to_json(), "output": str(output), "models": [str(file) for file in files]})
        return
    _print(found, output, files, 1 + len(stores) + len(evaluations), epsilon, **trust)


def next_text(found: Refinement, name: str, stated: Schema, pilots: tuple[PilotCost, ...]) -> str:
    """Return the text of the output file: reason and share as comments, then the schema, or the candidates.

    Args:
        found: the next step of the series.
        name: name of the schema file.
        stated: all features that the series' campaigns state.
        pilots: private results of pilots (bins, choices) that went into ``stated``, with their cost.
    """
    share = found.share
    head = [f"# {found.step.kind}: {found.step.why}"]
    head += [] if share is None else [f"# --series {quote(found.series)} --share {share.shown}"]
    if found.ask:
        file = SchemaFile(name, plain(stated), found.ask, pilots, found.decision)
        return "\n".join(head) + "\n\n" + schema_text(file)
    lines = [*head, "", f"step = {toml_text(found.step.kind)}", f"series = {toml_text(found.series)}"]
    if share is not None:
        lines.append(f"share = {toml_text(share.shown)}")
    if found.step.features is not None:
        lines.append(f"features = {toml_array(found.named(found.step.features))}")
    if found.candidates:
        lines += ["", "[candidates]"]
        lines += [f"{toml_text(each)} = {toml_array(features)}" for each, features in found.candidates.items()]
    return "\n".join(lines) + "\n" + decision_text(found.decision)


def _signed(found: Refinement, workspace: Path | None, folder: Path | None, stores: Sequence[AnyStore]) -> list[Path]:
    from aggregator.operations.designs import sign_candidates
    from aggregator.publishing.tree import file_name

    if workspace is None or not found.candidates:
        return []
    signer = signer_of(workspace)
    signed = sign_candidates(signer, found, stores, now=int(time.time()))
    if folder is None:
        return []
    folder.mkdir(exist_ok=True)
    files = []
    for name, raw in signed.items():
        file = folder / PurePath(file_name("model", name)).name
        if not file.exists() or file.read_bytes() != raw:
            write_file(file, raw)
        files.append(file)
    return files


def _print(
    found: Refinement,
    output: Path,
    files: Sequence[Path],
    number: int,
    epsilon: str,
    *,
    trust: str,
    delta: str,
    same_devices: bool,
) -> None:
    """Print the next step, and the command that makes its campaign, the campaign ``number`` of the series."""
    share = found.share
    facts: dict[str, object] = {"step": found.step.kind, "why": found.step.why, "series": found.series}
    of = "ε" if same_devices else "the devices"
    facts["asked so far"] = f"{found.used:.1%} of {of}"
    if share is not None:
        facts["share"] = f"{share.shown} ({share.part:.1%} of {of})"
    if found.ask:
        facts["ask"] = ", ".join(name + (f" ×{one.share}" if one.share > 1 else "") for name, one in found.ask.items()
                                 if one.share)  # fmt: skip
    if found.step.features is not None:
        facts["features of the model"] = listed(found.named(found.step.features))
    print_facts({**facts, "written": output})
    if found.candidates:
        click.echo()
        print_table(["candidate", "features"], [(name, listed(each)) for name, each in found.candidates.items()])
    if share is None:
        declared = " --one-population" if same_devices else ""
        note(
            f"no device is left; publish the model of these features: hearsay publish --store … --features …{declared}"
        )
        return
    # A new name: a campaign with the name of an earlier one would be its next version, and end it.
    names = f"--name {quote(f'{found.series}-{number}')} --series {quote(found.series)}"
    placed = f"--epsilon {epsilon} {names} --share {share.shown}"
    how, command = "--mechanism auto --no-class-question ", "campaign"
    if trust == SHARED:
        how, command = "--pair P.pair ", "collector campaign"
        if same_devices:
            part = SharedNoise(micro_epsilon(epsilon), pico_delta(delta)).of_part(share.part)
            epsilon, delta = format_micro(part.epsilon_micro), format_pico(part.delta_pico)
            placed = f"--epsilon {epsilon} --name {quote(f'{found.series}-{number}')}"
        placed += "" if delta == "0" else f" --delta {delta}"
    if found.ask:
        note(f"next: hearsay {command} {quote(str(output))} --workspace WORK {how}{placed} -o C.hsc")
    elif files:
        named, how = " ".join(quote(str(file)) for file in files), how if trust == SHARED else ""
        note(f"next: hearsay evaluate ask {named} --workspace WORK {how}{placed} -o E.hsc")
    else:
        note("the candidates are not signed yet: add --workspace WORK --models FOLDER")
