"""Simulations of a trusted curator: the learning part is fitted with noise, and a device classifies the test part.

A trial runs what ``hearsay fit`` runs: records are read with the schema's bounds, released by a method with noise, and
signed (:mod:`aggregator.curator.fitting`, :mod:`aggregator.publishing.models`). A device verifies the model. There is
no budget file, since an analyst may try as often as she likes: no result of a simulation is private.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from aggregator.curator.accounting import parse_delta
from aggregator.curator.fitting import SEED_BYTES, cost_of_fit, fit, settled
from aggregator.curator.methods.table import DEFAULT, default_noise, method_of
from aggregator.curator.records import read_records
from aggregator.curator.terms import AUTO, FitTerms
from aggregator.models.baselines import fit_majority, fit_plain_family
from aggregator.models.encoding import MISSING, label_codes
from aggregator.models.scoring import Model
from aggregator.publishing.models import sign_statistics
from aggregator.publishing.workspace import Workspace
from edge_sdk import Device
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.schema import Schema
from protocol.sums.adjacency import CHANGE
from simulation.design import Design, Split
from simulation.experiment import Trial
from simulation.running import OfRecords, Randomness, RunTrial, accuracies, run_prepared
from simulation.settings import Settings


@dataclass(frozen=True, eq=False)
class PreparedFit(OfRecords):
    """A simulation of a curator that is ready to run.

    Attributes:
        terms: the public terms of every fit.
    """

    terms: FitTerms = field(kw_only=True)

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation (:meth:`simulation.running.OfRecords.run`)."""

        def trial_in(workspace: Workspace, randomness: Randomness) -> RunTrial:
            def trial(schema: Schema, split: Split, people: pd.DataFrame, _: int) -> Trial:
                return _trial(workspace, schema, self.terms, split._replace(people=people), randomness)

            return trial

        trials = run_prepared(self, trial_in, split_seed, progress)
        return self._summary(trials), trials

    def _summary(self, trials: list[Trial]) -> dict[str, Any]:
        """Means of the accuracies, the cost of one fit, and the terms."""
        terms = self.terms
        cost = cost_of_fit(self.design.template_schema(), terms)
        return {
            "trust": "central",
            **accuracies(trials, self.settings.repeats),
            "epsilon_total": terms.epsilon_micro / MICRO,
            "epsilon_paid": cost.epsilon_micro / MICRO,
            "delta": float(cost.delta),
            "rho": None if cost.rho is None else float(cost.rho),
            "mechanism": terms.method,
            "adjacency": terms.adjacency,
            "division": terms.division,
            "noise": terms.to_dict()["noise"],
            "family": terms.family,
            "records": trials[0].devices,
            "test_records": trials[0].test_records,
            "repeats": self.settings.repeats,
            "trials": len(trials),
        }


def fit_terms(settings: Settings, design: Design, records: int) -> FitTerms:
    """The terms of the fits of so many records, from checked settings. The design gives a schema of the right kind.

    Raises:
        InputError: ``method_unknown`` and all reasons of :func:`aggregator.curator.fitting.cost_of_fit`;
            ``epsilon_invalid``, ``delta_invalid``; ``setting_invalid``: the trimmed share is no number.
    """
    schema = design.template_schema()
    method = method_of(settings.mechanism or DEFAULT)
    given: dict[str, Any] = {"division": settings.division, "trim_micro": _micro(settings.trim)}
    terms = FitTerms(
        method.name,
        micro_epsilon(settings.epsilon),
        parse_delta("0" if settings.delta is None else str(settings.delta)),
        settings.adjacency or (CHANGE if CHANGE in method.adjacencies else method.adjacencies[0]),
        noise=settings.noise or default_noise(method.name),
        family=settings.family or AUTO,
        postprocess=settings.postprocess,
        **{name: value for name, value in given.items() if value is not None},
    )
    terms = settled(terms, schema, records).terms
    cost_of_fit(schema, terms)
    return terms


def _micro(share: float | None) -> int | None:
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise InputError("setting_invalid", "trim is a number from 0 to below 0.5")
    return round(share * MICRO)


def _trial(workspace: Workspace, schema: Schema, terms: FitTerms, split: Split, randomness: Randomness) -> Trial:
    """Fit one learning part, sign the model, and let a device classify the test part. The model is not kept.

    Raises:
        InputError: ``no_labels``: no test record has a known label; or the fit fails.
    """
    records = read_records(split.people, schema)
    now, entropy = randomness.now, randomness.entropy
    released = fit(records, terms, entropy(SEED_BYTES)).statistics
    raw = sign_statistics(workspace, released, now, name="simulation", foretell=None)
    with Device.open(None, trust=workspace.root_bytes, clock=lambda: now, entropy=entropy) as device:
        accuracy = Model.of(device.install(raw).model).accuracy(split.test)
    return Trial(
        accuracy=accuracy,
        accuracy_nonprivate=fit_plain_family(split.people, schema, terms.fit).accuracy(split.test),
        accuracy_majority=fit_majority(split.people, schema).accuracy(split.test),
        devices=records.rows,
        reports=0,
        rejected={},
        test_records=int((label_codes(split.test, schema.label) != MISSING).sum()),
    )
