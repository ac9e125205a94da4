"""What a simulation is told, and what follows from it before anybody answers: schema, terms, division, warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.planning.expected import AUTO_FAMILY, choose, settle_family
from aggregator.publishing.campaigns import CampaignParameters, build_campaign, campaign_subjects, parse_answers
from aggregator.schema_doubts import doubts
from aggregator.schema_draft import DEFAULT_BINS, DEFAULT_MAX_VALUES, draft_schema
from aggregator.schema_file import parse_schema_text
from aggregator.tables import MISSING_TOKENS, typed, without_meaning
from protocol.epsilon import MAX_ANSWER_MICRO, micro_epsilon
from protocol.errors import InputError
from simulation.design import Design, parse_reduction
from simulation.running import SIMULATED_NOW, run_simulation, summarise
from simulation.splits import Division

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from protocol.schema import Schema
    from simulation.experiment import Trial

DEFAULT_TEST_SHARE = 0.2


class Settings(NamedTuple):
    """All that a simulation is told, besides its records. What is None takes its default.

    Attributes:
        epsilon: total per device, as text or number.
        mechanism, answers, family, approach, theta: of the campaign.
        bins, max_values, drop: of a drafted schema; bins of components too.
        reduce, reduce_fit, ridge: ``none``, ``pca:K`` or ``dca:K``; ``pilot`` or ``train``; ρ of DCA.
        postprocess: how estimates become probabilities.
        test_share, folds: how people are kept for the test, where no test file is given.
        devices: a fleet drawn with replacement; None is everybody once.
        engine: ``device`` or ``vector``.
        repeats, seed: how often; what fixes splits and noise.
        evaluate: also let the test people's devices evaluate the model privately.
    """

    epsilon: str | float
    mechanism: str = "direct"
    answers: str = "one"
    family: str = "discrete"
    approach: int | None = None
    theta: str | None = None
    bins: int = DEFAULT_BINS
    max_values: int = DEFAULT_MAX_VALUES
    drop: tuple[str, ...] = ()
    reduce: str = "none"
    reduce_fit: str = "pilot"
    ridge: float = 1e-3
    postprocess: str = "simplex"
    test_share: float | None = None
    folds: int | None = None
    devices: int | None = None
    engine: str = "device"
    repeats: int = 1
    seed: int | None = None
    evaluate: bool = False


class Prepared(NamedTuple):
    """A simulation that can be run.

    Attributes:
        settings: what it was told.
        frame: typed records.
        design, terms, division: see :func:`simulation.running.run_simulation`.
        notes, warnings: what the analyst should know before she reads results.
    """

    settings: Settings
    frame: pd.DataFrame
    design: Design
    terms: CampaignParameters
    division: Division
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run it: the summary, and the trials that it is made of."""
        told = self.settings
        trials = run_simulation(
            self.frame,
            self.design,
            self.terms,
            self.division,
            postprocess=told.postprocess,
            devices=told.devices,
            engine=told.engine,
            repeats=told.repeats,
            seed=told.seed,
            split_seed=split_seed,
            evaluation_micro=min(self.terms.epsilon_micro, MAX_ANSWER_MICRO) if told.evaluate else None,
            progress=progress,
        )
        return summarise(trials, self.terms, told.engine, told.repeats), trials


def prepare(
    settings: Settings,
    table: pd.DataFrame,
    label: str,
    *,
    schema: Schema | None = None,
    test: pd.DataFrame | None = None,
) -> Prepared:
    """Everything that can be decided, and refused, before the first device answers.

    Args:
        settings: see :class:`Settings`.
        table: records as text, as :func:`aggregator.tables.read_table` returns them.
        label: the column to predict.
        schema: as a schema file states it; None drafts one from the records.
        test: a table of test records; None keeps a part of the records.

    Raises:
        InputError: a setting, or how settings and records fit together; see ``docs/reasons.md``.
    """
    method, components = parse_reduction(settings.reduce)
    drafted = schema is None
    if schema is None:
        draft = draft_schema(
            table, label, name="simulation", bins=settings.bins, max_values=settings.max_values, drop=settings.drop
        )
        schema = parse_schema_text(draft).schema
    if schema.label.name != label:
        raise InputError("label_missing", f"the schema predicts '{schema.label.name}', not '{label}'")
    design = Design(schema, settings.bins, drafted, method, components, settings.ridge, settings.reduce_fit)
    terms, notes = _terms(settings, design.stand_in())
    build_campaign(design.stand_in(), terms._replace(postprocess=settings.postprocess), 1, SIMULATED_NOW)  # or refused
    frame = typed(table, schema)
    share = DEFAULT_TEST_SHARE if settings.test_share is None else settings.test_share
    division = Division(None if test is None else typed(test, schema), settings.folds, share)
    warnings = doubts(table, label, MISSING_TOKENS, settings.drop) if drafted else without_meaning(frame, schema)
    if design.needs_pilot and settings.reduce_fit == "train":
        warnings.append("bounds and projection are fitted on the very people who take part: outside the guarantee")
    if terms.warning:
        warnings.append(terms.warning)
    return Prepared(settings, frame, design, terms, division, tuple(notes), tuple(warnings))


def _terms(settings: Settings, schema: Schema) -> tuple[CampaignParameters, list[str]]:
    """The campaign's terms; what ``auto`` chose is noted."""
    notes = []
    terms = CampaignParameters(
        "simulation",
        micro_epsilon(settings.epsilon),
        settings.mechanism,
        options={} if settings.theta is None else {"theta": settings.theta},
        family=settle_family(settings.family, settings.mechanism),
        approach=settings.approach,
    )
    if terms.family != settings.family:
        notes.append(AUTO_FAMILY)
    chosen = choose(schema, terms.family, settings.mechanism, settings.approach, terms.epsilon_micro)
    if chosen is not None:
        terms = terms._replace(family=chosen.family, mechanism=chosen.mechanism, approach=chosen.approach)
        notes.append(
            f"{chosen.family} by {chosen.mechanism}: the smallest variance that theory gives for this schema and ε"
        )
    questions = len(campaign_subjects(schema, terms.family, terms.mechanism, terms.approach))
    return terms._replace(answers=parse_answers(settings.answers, questions, terms.epsilon_micro)), notes
