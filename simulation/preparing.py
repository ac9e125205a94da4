"""The preparation of a simulation before the first answer: schema, parameters, division, warnings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.tables import MISSING_TOKENS, check_label, check_text, shorten, typed, unlike_schema
from aggregator.planning.power_analysis.families import best_of_families, only_family, reason_of
from aggregator.publishing.ask_table import Ask, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign, campaign_subjects, parse_answers
from aggregator.publishing.mechanisms.by_variance import choose
from aggregator.publishing.mechanisms.choice import AUTO
from aggregator.publishing.schemas.schema_doubts import doubts
from aggregator.publishing.schemas.schema_draft import draft_schema
from aggregator.publishing.schemas.schema_file import parse_schema_text
from protocol.documents.campaign import DISCRETE
from protocol.epsilon import MAX_ANSWER_MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.asking import Asking
from simulation.curator import PreparedFit, fit_terms
from simulation.design import PILOT_SHARE, Design, Division, parse_reduction
from simulation.experiment import Trial
from simulation.federation.trials import PreparedFederation, check_federation
from simulation.masked.trials import PreparedTotals, check_totals
from simulation.masked.vertical import PreparedVertical, check_vertical
from simulation.running import SIMULATED_NOW, OfRecords, run_simulation, summarise
from simulation.settings import (
    DEFAULT_MECHANISM,
    DEFAULT_TEST_SHARE,
    DISTRIBUTED,
    FEDERATED,
    LEAST_PILOT,
    LOCAL,
    VERTICAL,
    Settings,
    checked,
)


class Prepared(NamedTuple):
    """A simulation that is ready to run.

    Attributes:
        settings: the settings.
        frame: the records, with the value types of the schema (:func:`aggregator.common.tables.typed`).
        design: how to make the schema.
        parameters: of the campaign.
        division: how to choose the test people.
        notes, warnings: texts for the analyst, to be read before the results.
    """

    settings: Settings
    frame: pd.DataFrame
    design: Design
    parameters: CampaignParameters
    division: Division
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation. Returns the summary (:func:`simulation.running.summarise`) and all trials.

        Args:
            split_seed: seed of the random choice of test people, pilots and fleets, if the settings have no seed; None
                for entropy of the operating system.
            progress: called with (repetitions done, repetitions).

        Raises:
            InputError, PolicyError: the records can not be divided, or a trial fails
                (:func:`simulation.running.run_simulation`).
        """
        settings = self.settings
        evaluation_micro = min(self.parameters.epsilon_micro, MAX_ANSWER_MICRO) if settings.evaluate else None
        trials = run_simulation(
            self.frame,
            self.design,
            self.parameters,
            self.division,
            postprocess=settings.postprocess,
            devices=settings.devices,
            engine=settings.engine,
            repeats=settings.repeats,
            seed=settings.seed,
            split_seed=split_seed,
            evaluation_micro=evaluation_micro,
            asking=None if settings.asking is None else Asking.parse(settings.asking),
            progress=progress,
        )
        summary = summarise(
            trials, self.parameters, settings.engine, settings.repeats, evaluation_micro=evaluation_micro
        )
        return summary, trials


def prepare(
    settings: Settings,
    table: pd.DataFrame,
    label: str,
    *,
    schema: Schema | None = None,
    ask: Ask | None = None,
    test: pd.DataFrame | None = None,
    missing: Collection[str] = MISSING_TOKENS,
) -> Prepared | OfRecords:
    """Check settings and records, and prepare the simulation. No device or node answers yet, and no curator fits.

    Args:
        settings: all settings.
        table: records as a table of text from :func:`aggregator.common.tables.read_table`.
        label: name of the column to predict.
        schema: of the records; None drafts a schema from the records.
        ask: what devices are asked about (:mod:`aggregator.publishing.ask_table`); None for all features. For local
        trust only.
        test: a table of test records; None takes a part of the records.
        missing: texts that stand for a missing value.

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
    return Prepared(settings, frame, design, parameters, division, (*notes, *of_variance), tuple(warnings))


def _of_records(
    settings: Settings,
    table: pd.DataFrame,
    design: Design,
    division: Division,
    tested: pd.DataFrame | None,
    ask: Ask | None,
    missing: Collection[str],
) -> OfRecords:
    """Prepare a simulation of a curator or of nodes, who hold many records."""
    if ask:
        raise InputError(
            "setting_invalid", f"ask does not go with {settings.trust} trust; give a schema of these features"
        )
    frame = typed(table, design.schema, missing)
    warnings = tuple(_warnings(settings, table, design, frame, tested, missing))
    if settings.trust == FEDERATED:
        check_federation(settings, design)
        return PreparedFederation(settings, frame, design, division, warnings=warnings)
    if settings.trust == DISTRIBUTED:
        slow = check_totals(settings, design, settings.devices or division.learners(len(frame)))
        return PreparedTotals(settings, frame, design, division, warnings=(*warnings, *slow))
    if settings.trust == VERTICAL:
        tests = len(frame) - division.learners(len(frame)) if tested is None else len(tested)
        slow = check_vertical(settings, design, tests)
        return PreparedVertical(settings, frame, design, division, warnings=(*warnings, *slow))
    terms = fit_terms(settings, design, settings.devices or division.learners(len(frame)))
    return PreparedFit(settings, frame, design, division, warnings=warnings, terms=terms)


def _warnings(
    settings: Settings,
    table: pd.DataFrame,
    design: Design,
    frame: pd.DataFrame,
    tested: pd.DataFrame | None,
    missing: Collection[str],
) -> list[str]:
    """Warnings about records and schema, for every kind of trust. ``frame`` and ``tested`` hold typed values."""
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
    """Test records as typed values. Nothing is learned from these records, so one class is enough.

    Raises:
        InputError: ``label_missing``: the column of the label is missing; ``no_labels``: no record has a class as its
            label.
    """
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
    """Settings with a family and a mechanism, the records that take part, and a note about what ``auto`` chose.

    A tenth of the records, :data:`LEAST_PILOT` or a third of them if that is less, is the pilot by which ``auto``
    chooses. The other records take part in the simulation.

    Args:
        settings: all settings.
        table: all records as text.
        design: how to make the schema.
        division: how to choose the test people.
        ask: what devices are asked about.
        missing: texts that stand for a missing value.
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
    """The campaign's parameters, and notes about the mechanism that ``auto`` chose by its variance.

    Args:
        settings: all settings, with a mechanism.
        described: schema of all features, or of a substitute of each component.
        ask: what devices are asked about.
    """
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
