"""``hearsay design`` and ``hearsay refine`` as Python functions: the work between reading options and printing.

The commands call these functions. :mod:`aggregator.operations.campaigns` describes the forms of workspaces and ``now``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from aggregator.collectors.campaigns import checked_delta
from aggregator.collectors.draws import LOCAL, SHARED, SharedNoise
from aggregator.collectors.totals import TotalStore
from aggregator.common.tables import MISSING_TOKENS, read_table
from aggregator.models.population import check_pilot
from aggregator.operations.campaigns import present
from aggregator.operations.models import AnyStore, open_any
from aggregator.operations.report_store import Store
from aggregator.planning.feature_selection import from_answers, from_pilot
from aggregator.planning.feature_selection.from_answers import Refinement
from aggregator.planning.feature_selection.from_pilot import PilotDesign, of_design
from aggregator.planning.feature_selection.steps import SeriesFleet
from aggregator.publishing.ask_table import resolve
from aggregator.publishing.naming import opened
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from aggregator.publishing.workspace import Workspace
from protocol.documents.asked import plain
from protocol.epsilon import check_answer_micro, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.schema import Schema

MOST_DEVICES = 10**15
"""Largest size of a fleet."""


def design(
    pilot: str | Path | pd.DataFrame,
    schema: SchemaFile | Schema | str | Path,
    *,
    epsilon: str | float,
    devices: int,
    missing: Collection[str] = MISSING_TOKENS,
    seed: int = 0,
    judge: bool = True,
    trust: str = LOCAL,
    delta: str | float = "0",
) -> PilotDesign:
    """``hearsay design``: choose features, groups of values and bins for a campaign.

    The result's ``file`` is the schema with its tables ``[ask]`` and ``[decision]``, for
    :func:`aggregator.make_campaign`. Raises InputError: ``argument_invalid``: ``devices`` is out of range;
    ``epsilon_invalid``; the schema or the pilot can not be read or used
    (:func:`aggregator.planning.feature_selection.from_pilot.design`).

    Args:
        pilot: a CSV file of records with their label, or a table of text from :func:`aggregator.read_table`.
        schema: a schema file, its path, or a schema. The table ``[ask]`` of a file is replaced.
        epsilon: ε of the one answer of a device.
        devices: size of the fleet, 1 to 10¹⁵.
        seed: number from which the simulated answers are drawn.
        judge: whether the accuracies of the whole procedure and of the pilot alone are measured: most of the work.
        trust, delta: as for :func:`refine`.
    """
    fleet = _fleet(devices, epsilon, trust, delta)
    file = _file(schema)
    table = read_table(Path(pilot)) if isinstance(pilot, str | Path) else pilot
    records = check_pilot(table, file.schema, missing)
    found = from_pilot.design(records, file, fleet.epsilon_micro, devices, seed=seed, judge=judge, noise=fleet.noise)
    decision = of_design(found, plain(file.schema), fleet.epsilon_micro, devices, seed)
    return found._replace(file=found.file._replace(decision=decision))


def refine(
    stores: Sequence[AnyStore] = (),
    evaluations: Sequence[AnyStore] = (),
    *,
    devices: int,
    epsilon: str | float,
    schema: SchemaFile | Schema | str | Path | None = None,
    series: str | None = None,
    trust: str = LOCAL,
    delta: str | float = "0",
    same_devices: bool = False,
) -> Refinement:
    """``hearsay refine``: choose the next step of a series of campaigns from its private answers alone.

    The result's ``ask`` and ``share.shown`` are the arguments ``ask`` and ``share`` of the next
    :func:`aggregator.make_campaign`. If it has ``candidates``, :func:`sign_candidates` makes their models, for
    :func:`aggregator.make_evaluation` with the same share. Raises InputError: ``argument_invalid``: arguments that do
    not go together, or ``devices`` out of range; ``epsilon_invalid``; ``refine_invalid`` and the other reasons of
    :func:`aggregator.planning.feature_selection.from_answers.refine`. Raises PolicyError ``batch_too_small``: a store
    has fewer reports than its campaign's smallest batch. Raises StorageError: a store can not be opened or counted.

    Args:
        stores: stores of the campaigns that asked about features, open or their folders; none for the first step.
        evaluations: stores of the evaluations of the series, in any order.
        devices: size of the fleet, 1 to 10¹⁵; the same at each step.
        epsilon: ε of the one answer of a device in the series.
        schema: only for the first step: a schema file, its path, or a schema. The table ``[ask]`` of a file says which
            features the series may ask about, and their groups.
        series: name of the series, only for the first step; later the campaigns name it. With ``same_devices`` for all.
        trust: ``local``, or ``shared`` if two collectors make totals of the answers.
        delta: δ of all answers of a device to two collectors; 0 for Laplace noise.
        same_devices: whether each step asks all devices for two collectors, with a part of ε and δ, in place of a part
            of the devices.
    """
    fleet = _fleet(devices, epsilon, trust, delta)
    if same_devices and fleet.noise is None:
        raise InputError(
            "argument_invalid", "a device answers once in a series, unless two collectors share its answers"
        )
    fleet = fleet._replace(is_same=same_devices)
    named = series is not None
    if (
        (schema is None) == (not stores)
        or named != (schema is not None or same_devices)
        or (evaluations and not stores)
    ):
        raise InputError("argument_invalid", "give a schema and the name of a series for the first step, then stores")
    if schema is not None and series is not None:
        file = _file(schema)
        found = from_answers.first_step(resolve(file.schema, file.ask).schema, series, fleet)
    else:
        asked, compared = ([_of_trust(one, trust).statistics() for one in part] for part in (stores, evaluations))
        found = from_answers.refine(asked, compared, fleet, series)
    return found._replace(decision=found.record(fleet))


def _of_trust(store: AnyStore, trust: str) -> Store | TotalStore:
    kept = open_any(store)
    if not isinstance(kept, Store if trust == LOCAL else TotalStore):
        wanted = "devices' reports" if trust == LOCAL else "two collectors' totals"
        raise InputError(
            "refine_invalid",
            f"with --trust {trust} the stores of a series have {wanted}; this one has others, or sums of nodes",
        )
    return kept


def sign_candidates(
    workspace: Workspace | str | Path, step: Refinement, stores: Sequence[AnyStore], *, now: int | None = None
) -> dict[str, bytes]:
    """Sign the candidate models of a step of :func:`refine`, or take those that the workspace has signed before.

    ``stores`` are the same as for :func:`refine`. Return name → bytes of the ``.hsm`` file, in the order of
    :func:`aggregator.make_evaluation`; empty without candidates. Raises if a store can not be opened, or a model not
    made.
    """
    if not step.candidates:
        return {}
    campaigns = [open_any(one).campaign_bytes for one in stores]
    return from_answers.sign_candidates(opened(workspace), step, campaigns, present(now))


def _fleet(devices: int, epsilon: str | float, trust: str, delta: str | float) -> SeriesFleet:
    """Return the size and ε of a fleet, and the noise of two collectors if they share its answers."""
    if not 1 <= devices <= MOST_DEVICES:
        raise InputError("argument_invalid", f"devices is a number from 1 to {MOST_DEVICES}")
    micro, delta_pico = micro_epsilon(epsilon), pico_delta(delta)
    if trust not in (LOCAL, SHARED):
        raise InputError("argument_invalid", f"trust is {LOCAL} or {SHARED}")
    if trust == SHARED:
        return SeriesFleet(devices, micro, SharedNoise(micro, checked_delta(delta_pico)))
    if delta_pico:
        raise InputError("argument_invalid", "only answers that two collectors share have a δ")
    check_answer_micro(micro)
    return SeriesFleet(devices, micro)


def _file(schema: SchemaFile | Schema | str | Path) -> SchemaFile:
    """Return a schema file: ``schema`` itself, the file at its path, or one made of a schema, which has no name."""
    if isinstance(schema, str | Path):
        return load_schema(schema)
    return schema if isinstance(schema, SchemaFile) else SchemaFile("", schema)
