"""Trials of nodes: records are dealt to N nodes at random, the nodes' noisy sums make a model, a device classifies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from aggregator.estimates.statistics import Statistics
from aggregator.models.baselines import fit_majority, fit_plain_family
from aggregator.models.encoding import MISSING, label_codes, observe
from aggregator.models.scoring import Model
from aggregator.nodes.campaigns.campaigns import NodeParameters, publish_node_campaign
from aggregator.nodes.statistics.robust import parse_rule
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import Workspace
from edge_sdk import Device
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.nodes.terms import GLOBAL, NodeTerms, cost_micro, released_vectors
from protocol.schema import Schema
from protocol.sums.adjacency import ADD_REMOVE, CHANGE, CHANGE_FEATURES
from simulation.design import Design, Split
from simulation.experiment import Trial
from simulation.federation import nodes as real
from simulation.federation import vector
from simulation.running import (
    OfRecords,
    Randomness,
    RunTrial,
    accuracies,
    randomness_of,
    run_prepared,
    simulated_workspace,
)
from simulation.settings import Settings

Sign = Callable[[Workspace, Schema, Settings, int, int, int], bytes]
Gather = Callable[[Workspace, bytes, Campaign, pd.DataFrame, Settings, Randomness], Statistics]


class PreparedFederation(OfRecords):
    """A simulation of nodes that is ready to run. The settings have a number of nodes."""

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation (:meth:`simulation.running.OfRecords.run`)."""
        trials, campaign = run_campaigns(self, _campaign_bytes, _gather, split_seed, progress)
        return self._summary(trials, campaign), trials

    def _summary(self, trials: list[Trial], campaign: Campaign) -> dict[str, Any]:
        """Means of the accuracies, ε of one summary, and the settings.

        ``epsilon_total`` is for neighbours by ``adjacency``. ``epsilon_change`` is for a changed record; with smooth
        sensitivity its label stays.
        """
        assert campaign.nodes is not None
        is_global = campaign.nodes.sensitivity == GLOBAL
        changed = CHANGE if is_global else CHANGE_FEATURES
        return {
            "trust": "federated",
            **accuracies(trials, self.settings.repeats),
            "epsilon_total": campaign.epsilon_micro / MICRO,
            "adjacency": ADD_REMOVE if is_global else CHANGE_FEATURES,
            "epsilon_change": cost_micro(campaign, changed) / MICRO,
            "queries": len(released_vectors(campaign)),
            "sensitivity": campaign.nodes.sensitivity,
            "robust": self.settings.robust,
            **nodes_of(self.settings, trials, campaign),
            "summaries": sum(trial.reports for trial in trials),
        }


def run_campaigns(
    prepared: OfRecords,
    sign: Sign,
    gather: Gather,
    split_seed: int | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Trial], Campaign]:
    """Run all trials of nodes, each with a campaign of its own. Returns the trials and the first campaign.

    Args:
        prepared: the simulation.
        sign: signs the campaign of one trial.
        gather: statistics of what the nodes of one trial send.
        split_seed: seed of the choice of test people and pilots, if the settings have no seed.
        progress: called with (repetitions done, repetitions).
    """
    campaigns: list[Campaign] = []

    def trial_in(workspace: Workspace, randomness: Randomness) -> RunTrial:
        def trial(schema: Schema, split: Split, people: pd.DataFrame, number: int) -> Trial:
            raw = sign(workspace, schema, prepared.settings, len(people), number, randomness.now)
            campaigns.append(parse_campaign(read_envelope(raw, "campaign").payload))
            found = gather(workspace, raw, campaigns[-1], people, prepared.settings, randomness)
            return _trial(
                workspace, raw, campaigns[-1], split._replace(people=people), found, prepared.settings, randomness
            )

        return trial

    trials = run_prepared(prepared, trial_in, split_seed, progress)
    return trials, campaigns[0]


def nodes_of(settings: Settings, trials: list[Trial], campaign: Campaign) -> dict[str, Any]:
    """The entries of a summary about nodes, model and number of records."""
    assert settings.nodes is not None
    rejected: dict[str, int] = {}
    for trial in trials:
        for reason, count in trial.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    records = trials[0].devices
    return {
        "nodes": settings.nodes,
        "node_records": [records // settings.nodes, -(-records // settings.nodes)],
        "postprocess": settings.postprocess,
        "family": campaign.fit.family,
        "engine": settings.engine,
        "records": records,
        "test_records": trials[0].test_records,
        "repeats": settings.repeats,
        "trials": len(trials),
        "rejected": rejected,
    }


def check_federation(settings: Settings, design: Design) -> None:
    """Refuse settings that no campaign for nodes can have. Run before any record is read.

    Raises:
        InputError: ``setting_invalid``: no number of nodes, or a kind of noise that the vector engine can not draw;
            ``robust_invalid``, ``epsilon_invalid``, ``family_unknown``, ``no_numbers``, ``postprocess_unknown``.
    """
    if settings.nodes is None:
        raise InputError("setting_invalid", "federated trust needs a number of nodes (--nodes)")
    if settings.sensitivity != GLOBAL and settings.engine == "vector":
        raise InputError("setting_invalid", "noise for smooth sensitivity goes with engine device only")
    if settings.robust is not None:
        parse_rule(settings.robust)
    randomness = randomness_of(0)
    with simulated_workspace(randomness) as workspace:
        _campaign_bytes(workspace, design.template_schema(), settings, 1, 0, randomness.now)


def _campaign_bytes(
    workspace: Workspace, schema: Schema, settings: Settings, records: int, number: int, now: int
) -> bytes:
    """Sign a campaign with a list of nodes of its own. A node may have twice the records of an equal share.

    Args:
        workspace: signs.
        schema: of the records.
        settings: the settings.
        records: number of records of all nodes.
        number: number of the trial, which names the list.
        now: time of signing.
    """
    assert settings.nodes is not None
    micro = micro_epsilon(settings.epsilon)
    most = 2 * -(-records // settings.nodes)
    parameters = NodeParameters(
        "simulation",
        micro,
        NodeTerms(f"nodes {number}", most, micro, settings.sensitivity),
        settings.family or (GAUSSIAN if schema.numeric else DISCRETE),
        postprocess=settings.postprocess,
    )
    return publish_node_campaign(workspace, schema, parameters, now)


def _trial(
    workspace: Workspace,
    campaign_bytes: bytes,
    campaign: Campaign,
    split: Split,
    found: Statistics,
    settings: Settings,
    randomness: Randomness,
) -> Trial:
    """Make the model of the nodes' sums, and let a device classify the test part.

    Raises:
        InputError: ``no_labels``: no test record has a known label; or no model can be made.
    """
    now = randomness.now
    raw = publish_model(workspace, found, campaign_bytes, now, postprocess=settings.postprocess, foretell=None)
    with Device.open(None, trust=workspace.root_bytes, clock=lambda: now, entropy=randomness.entropy) as device:
        accuracy = Model.of(device.install(raw).model).accuracy(split.test)
    return Trial(
        accuracy=accuracy,
        accuracy_nonprivate=fit_plain_family(split.people, campaign.schema, campaign.fit).accuracy(split.test),
        accuracy_majority=fit_majority(split.people, campaign.schema).accuracy(split.test),
        devices=len(split.people),
        reports=settings.nodes or 0,
        rejected=dict(found.rejected),
        test_records=int((label_codes(split.test, campaign.schema.label) != MISSING).sum()),
    )


def _gather(
    workspace: Workspace,
    campaign_bytes: bytes,
    campaign: Campaign,
    people: pd.DataFrame,
    settings: Settings,
    randomness: Randomness,
) -> Statistics:
    """Deal the learning part to nodes. Returns statistics of their noisy sums, by the engine of the settings.

    Raises:
        PolicyError: ``nodes_too_few``: the robust rule needs more nodes.
    """
    assert settings.nodes is not None
    rule = None if settings.robust is None else parse_rule(settings.robust)
    owners = vector.deal(len(people), settings.nodes, randomness.noise)
    if settings.engine == "device":
        return real.gather(workspace, campaign_bytes, campaign, people, owners, settings.nodes, randomness, rule)
    labels = label_codes(people, campaign.schema.label, substitute=True)
    exact = vector.exact_sums(
        released_vectors(campaign), observe(people, campaign.schema), labels, owners, settings.nodes
    )
    values = vector.released(exact, campaign, randomness.noise)
    return vector.statistics_of(values, campaign, campaign.period_at(randomness.now), rule)
