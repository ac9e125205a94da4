"""``central`` trust: a curator fits the learning part with noise, and a device classifies the test part.

A trial runs what ``hearsay fit`` runs: records are read with the schema's bounds, released by a method with noise, and
signed. There is no budget file, since an analyst may try as often as she likes: no result of a simulation is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggregator.curator.accounting import parse_delta
from aggregator.curator.fitting import SEED_BYTES, cost_of_fit, fit, settled
from aggregator.curator.methods.table import DEFAULT, default_noise, method_of
from aggregator.curator.records import read_records
from aggregator.curator.terms import AUTO, FitTerms
from aggregator.publishing.models import publish_model
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.questions import CHANGE
from simulation.design import Design
from simulation.settings import Settings
from simulation.trust import Lab, Part, Trial, Trust, accuracies, accuracy_on_device, trial_of


class CentralTrust(Trust):
    """A curator sees the records. ``records`` is the number of records in a trial."""

    def __init__(self, settings: Settings, design: Design, records: int) -> None:
        """Check the terms. Raises InputError for terms that no fit can have (:func:`fit_terms`)."""
        self.terms = fit_terms(settings, design, records)
        self._cost = cost_of_fit(design.template_schema(), self.terms)

    def collect(self, lab: Lab, part: Part, shared: None) -> Trial:
        """Fit one learning part, sign the model, and let a device classify the test part. The model is not kept."""
        del shared
        people = part.fleet(lab.settings.devices)
        records = read_records(people, part.schema)
        released = fit(records, self.terms, lab.randomness.entropy(SEED_BYTES)).statistics
        raw = publish_model(lab.workspace, released, None, lab.randomness.now, name="simulation", foretell=None)
        accuracy = accuracy_on_device(lab, raw, part.split.test)
        measured = {"accuracy": accuracy, "devices": records.rows, "reports": 0, "rejected": {}}
        return trial_of(part, people, part.schema, self.terms.fit, **measured)

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return the means of the accuracies, the cost of one fit, and its terms."""
        terms, cost = self.terms, self._cost
        return {
            "trust": "central",
            **accuracies(trials, settings.repeats),
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
            "repeats": settings.repeats,
            "trials": len(trials),
        }


def fit_terms(settings: Settings, design: Design, records: int) -> FitTerms:
    """Return the terms of fits of ``records`` records, from checked settings.

    ``design`` gives a schema like the trials'.

    Raises InputError ``method_unknown`` and all reasons of :func:`aggregator.curator.fitting.cost_of_fit`;
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
