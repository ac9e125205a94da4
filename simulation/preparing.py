"""The preparation of a simulation before the first answer: schema, parameters, division of the records, warnings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.notebooks import facts
from aggregator.common.tables import MISSING_TOKENS, check_label, check_text, read_table, shorten, typed, unlike_schema
from aggregator.planning.power_analysis.families import best_of_families, only_family, reason_of
from aggregator.publishing.ask_table import Ask, ask_of, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign, campaign_subjects, parse_answers
from aggregator.publishing.mechanisms.choice import AUTO, choose
from aggregator.publishing.schemas.schema_doubts import doubts
from aggregator.publishing.schemas.schema_draft import draft_schema
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema, parse_schema_text
from protocol.documents.campaign import DISCRETE
from protocol.epsilon import micro_epsilon
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.asking import AskingTrust
from simulation.collectors import SharedTrust
from simulation.curator import CentralTrust
from simulation.design import PILOT_SHARE, Design, Division, parse_reduction
from simulation.local import LocalTrust
from simulation.nodes import FederatedTrust
from simulation.parties import DistributedTrust
from simulation.settings import (
    CENTRAL,
    DEFAULT_MECHANISM,
    DEFAULT_TEST_SHARE,
    DISTRIBUTED,
    FEDERATED,
    LEAST_PILOT,
    LOCAL,
    SHARED,
    VERTICAL,
    Settings,
    checked,
)
from simulation.trust import SIMULATED_NOW, Simulation, Trial, Trust
from simulation.vertical import VerticalTrust


def prepare(
    settings: Settings,
    table: pd.DataFrame,
    label: str,
    *,
    schema: Schema | None = None,
    ask: Ask | None = None,
    test: pd.DataFrame | None = None,
    missing: Collection[str] = MISSING_TOKENS,
) -> Simulation:
    """Check settings and records, and prepare the simulation. Nobody answers yet, and nothing is fitted.

    Args:
        table: records as a table of text from :func:`aggregator.common.tables.read_table`.
        schema: of the records; None drafts a schema from the records.
        ask: with local or shared trust, what devices are asked about (:mod:`aggregator.publishing.ask_table`); None
            for all features.
        test: a table of test records; None takes a part of the records.

    Raises:
        InputError: a wrong setting (:func:`checked`), or settings that do not fit the records; see
            ``docs/reference/reasons.md``.
    """
    settings = checked(settings)
    check_text(table)
    check_label(table, label, missing)
    if sum(given is not None for given in (test, settings.folds, settings.test_share)) > 1:
        raise InputError("split_invalid", "give one of folds, test and test_share")
    if test is not None:
        check_text(test)
    method, components = parse_reduction(settings.reduce)
    drafted = schema is None
    if schema is None:
        draft = draft_schema(
            table,
            label,
            name="simulation",
            bins=settings.bins,
            max_values=settings.max_values,
            missing=missing,
            drop=settings.drop,
        )
        schema = parse_schema_text(draft).schema
    if schema.label.name != label:
        raise InputError("label_missing", f"the schema predicts '{schema.label.name}', not '{label}'")
    design = Design(schema, settings.bins, drafted, method, components, settings.ridge, settings.reduce_fit)
    share = DEFAULT_TEST_SHARE if settings.test_share is None else settings.test_share
    tested = None if test is None else _test_records(test, schema, missing)
    division = Division(tested, settings.folds, share)
    if settings.trust != LOCAL:
        return _of_records(settings, table, design, division, tested, ask, missing)
    settings, used, notes = _settled(settings, table, design, division, ask or {}, missing)
    parameters, of_variance = _parameters(settings, design.template_schema(), ask or {})
    build_campaign(
        design.template_schema(), parameters._replace(postprocess=settings.postprocess), 1, SIMULATED_NOW
    )  # The result is not needed: the call raises if these settings make no valid campaign.
    frame = typed(used, schema, missing)
    warnings = _warnings(settings, table, design, frame, tested, missing)
    if parameters.warning:
        warnings.append(parameters.warning)
    trust = (LocalTrust if settings.asking is None else AskingTrust)(settings, design, parameters)
    return Simulation(settings, frame, design, division, trust, (*notes, *of_variance), tuple(warnings))


def _of_records(
    settings: Settings,
    table: pd.DataFrame,
    design: Design,
    division: Division,
    tested: pd.DataFrame | None,
    ask: Ask | None,
    missing: Collection[str],
) -> Simulation:
    if ask and settings.trust != SHARED:
        raise InputError(
            "setting_invalid", f"ask does not go with {settings.trust} trust; give a schema of these features"
        )
    frame = typed(table, design.schema, missing)
    warnings = _warnings(settings, table, design, frame, tested, missing)
    learners = division.learners(len(frame))
    if settings.trust == SHARED:
        trust: Trust = SharedTrust(settings, design, settings.devices or learners, ask)
    elif settings.trust == VERTICAL:
        trust = VerticalTrust(settings, design, len(frame) - learners if tested is None else len(tested))
    else:
        trust = _OF_RECORDS[settings.trust](settings, design, settings.devices or learners)
    return Simulation(settings, frame, design, division, trust, (), (*warnings, *trust.warnings))


_OF_RECORDS: dict[str, Callable[[Settings, Design, int], Trust]] = {
    CENTRAL: CentralTrust,
    FEDERATED: FederatedTrust,
    DISTRIBUTED: DistributedTrust,
}
"""Kind of trust → its class, made of the settings, the design and the number of records that take part in a trial."""


def _warnings(
    settings: Settings,
    table: pd.DataFrame,
    design: Design,
    frame: pd.DataFrame,
    tested: pd.DataFrame | None,
    missing: Collection[str],
) -> list[str]:
    """Return warnings about records and schema, for every kind of trust. ``frame`` and ``tested`` hold typed values."""
    schema, label = design.schema, design.schema.label.name
    found = (
        doubts(table, label, missing, settings.drop)
        if design.fit_bounds
        else unlike_schema(frame, schema, table.columns)
    )
    if tested is not None:
        found += [f"test records: {text}" for text in unlike_schema(tested, schema)]
    if design.needs_pilot and settings.reduce_fit == "train":
        found.append("bounds and projection are fitted on the very people who take part: outside the guarantee")
    return found


def _test_records(test: pd.DataFrame, schema: Schema, missing: Collection[str]) -> pd.DataFrame:
    """Return test records as typed values. Nothing is learned from these records, so one class is enough."""
    name = schema.label.name
    if name not in test.columns:
        raise InputError(
            "label_missing", f"the test records have no column '{name}'; their columns are {shorten(test.columns)}"
        )
    found = typed(test, schema, missing)
    if not any(schema.label.known_code(cell) is not None for cell in set(found[name])):
        raise InputError("no_labels", f"no test record has one of the classes in its column '{name}'")
    return found


def _settled(
    settings: Settings,
    table: pd.DataFrame,
    design: Design,
    division: Division,
    ask: Ask,
    missing: Collection[str],
) -> tuple[Settings, pd.DataFrame, list[str]]:
    """Return settings with a family and a mechanism, the records that take part, and notes about what ``auto`` chose.

    The pilot by which ``auto`` chooses has a tenth of the records, or :data:`LEAST_PILOT` if a tenth is fewer; but then
    no more than a third of them. The other records take part in the simulation.
    """
    mechanism = settings.mechanism or (AUTO if settings.family == AUTO else DEFAULT_MECHANISM)
    described = resolve(design.template_schema(), ask).schema
    family = only_family(described, settings.family or DISCRETE, mechanism, class_question=settings.class_question)
    if family is not None:
        return settings._replace(family=family, mechanism=mechanism), table, []
    order = np.random.default_rng(settings.seed).permutation(len(table))
    count = max(round(PILOT_SHARE * len(table)), min(LEAST_PILOT, len(table) // 3))
    pilot, used = table.iloc[np.sort(order[:count])], table.iloc[np.sort(order[count:])]
    found = best_of_families(
        resolve(design.schema, ask).schema if design.method == "none" else design.schema,
        epsilon=settings.epsilon,
        devices=settings.devices or division.learners(len(used)),
        pilot=pilot,
        missing=missing,
        answers=settings.answers,
        postprocess=settings.postprocess,
        ask=ask if design.method == "none" else {},
        coding="schema" if design.method == "none" else settings.reduce,
        fixed=(settings.theta, settings.approach),
        seed=settings.seed or 0,
    )
    best = found.ranked[0].design
    chosen = settings._replace(
        family=best.family, mechanism=best.mechanism, approach=best.approach, answers=str(best.answers)
    )
    return chosen, used, [f"{reason_of(found)}, which take no further part"]


def _parameters(settings: Settings, described: Schema, ask: Ask) -> tuple[CampaignParameters, list[str]]:
    """Return the campaign's parameters, and notes about the mechanism that ``auto`` chose by its variance."""
    assert settings.mechanism is not None
    notes = []
    schema = resolve(described, ask).schema
    joint = len(schema.numeric) == len(described.numeric)
    parameters = CampaignParameters(
        "simulation",
        micro_epsilon(settings.epsilon),
        settings.mechanism,
        options={} if settings.theta is None else {"theta": settings.theta},
        family=settings.family or DISCRETE,
        approach=settings.approach,
        class_question=settings.class_question,
        ask=ask,
    )
    chosen = choose(
        schema, parameters.family, settings.mechanism, settings.approach, parameters.epsilon_micro, joint=joint
    )
    if chosen is not None:
        parameters = parameters._replace(family=chosen.family, mechanism=chosen.mechanism, approach=chosen.approach)
        notes.append(
            f"{chosen.family} by {chosen.mechanism}: the smallest variance that theory gives for this schema and ε"
        )
    family, mechanism, approach = parameters.family, parameters.mechanism, parameters.approach
    subjects = campaign_subjects(schema, family, mechanism, approach, class_question=settings.class_question)
    answers = parse_answers(str(settings.answers), len(subjects), parameters.epsilon_micro)
    return parameters._replace(answers=answers), notes


class Simulated(NamedTuple):
    """The results of a simulation.

    ``result`` is what ``hearsay simulate --json`` prints. The first trial has its signed model, unless a curator fits.
    ``notes`` and ``warnings`` are the texts that the command prints before the summary.
    """

    result: dict[str, Any]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        warnings = {f"warning {number}": text for number, text in enumerate(self.warnings, 1)}
        return facts("Simulation", {**self.result, **warnings})


def simulate_campaign(
    data: str | Path | pd.DataFrame,
    label: str | None = None,
    *,
    schema: SchemaFile | Schema | str | Path | None = None,
    ask: str | Sequence[str] | Ask | None = None,
    test: str | Path | pd.DataFrame | None = None,
    missing: Collection[str] = MISSING_TOKENS,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Simulated:
    """Simulate a campaign on the analyst's own records, as ``hearsay simulate`` does.

    Args:
        data: a CSV file, or a table of text from :func:`aggregator.common.tables.read_table`.
        label: name of the column to predict; None takes that of the schema.
        schema: of the records: a schema, or the path of a schema file; None drafts a schema from the records.
        ask: the features to ask about, as :func:`aggregator.operations.campaigns.plan_campaign` takes them.
        test: records to test on, in the forms of ``data``; None takes a part of the data.
        settings: the fields of :class:`Settings`; ``epsilon`` is required.

    Raises:
        InputError: ``label_missing``: neither a label nor a schema; an unreadable file, a wrong setting, or settings
            that do not fit the records; see ``docs/reference/reasons.md``.
        TypeError: ``epsilon`` is missing, or a keyword is no field of :class:`Settings`.
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    table, tested = _table(data), None if test is None else _table(test)
    described, table_of_file = (schema.schema, schema.ask) if isinstance(schema, SchemaFile) else (schema, {})
    asked = ask_of(ask, table_of_file)
    if label is None:
        if described is None:
            raise InputError("label_missing", "name the column to predict, or give a schema, which says it")
        label = described.label.name
    prepared = prepare(Settings(**settings), table, label, schema=described, ask=asked, test=tested, missing=missing)
    result, trials = prepared.run(progress=progress)
    return Simulated(result, tuple(trials), prepared.notes, prepared.warnings)


def _table(data: str | Path | pd.DataFrame) -> pd.DataFrame:
    return read_table(data) if isinstance(data, str | Path) else data
