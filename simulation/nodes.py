"""``federated`` trust: records are dealt to nodes, each node sends one summary, and the noisy sums make a model.

The engine ``device`` runs real nodes in memory: each one enrols, summarises its records and signs, and a store checks
every signature against the signed list of nodes. ``vector`` draws numbers of the same distribution
(:mod:`simulation.drawn`).
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import label_codes, observe
from aggregator.nodes.campaigns.campaigns import NODE_FIELDS
from aggregator.nodes.campaigns.lists import make_node_list
from aggregator.nodes.statistics.robust import Rule, parse_rule
from aggregator.nodes.store.opening import make_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from edge_sdk import Node
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.masked_terms import MaskedTerms
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.nodes.terms import GLOBAL, NodeTerms, cost_micro, released_vectors
from protocol.questions import ADD_REMOVE, CHANGE, CHANGE_FEATURES
from protocol.schema import Schema
from simulation.design import Design
from simulation.drawn import deal, exact_sums, released, statistics_of
from simulation.fleet import PERMISSIVE
from simulation.local import records_of
from simulation.settings import Settings
from simulation.trust import (
    Lab,
    Part,
    Randomness,
    Trial,
    Trust,
    accuracies,
    accuracy_on_device,
    randomness_of,
    rejections,
    simulated_workspace,
    trial_of,
)

PER_FILE = 100
"""Number of nodes whose messages are in one file."""


class OfNodes(Trust):
    """Trust in which the sums of many nodes make the model of a trial, each trial with a campaign of its own."""

    def check(self, settings: Settings, design: Design, records: int) -> Campaign:
        """Check the settings before any record is read, and return a campaign like the trials'."""
        randomness = randomness_of(0)
        with simulated_workspace(randomness) as workspace:
            lab = Lab(settings, workspace, randomness)
            return _parsed(self.sign(lab, design.template_schema(), records, 0, None))

    def sign(self, lab: Lab, schema: Schema, records: int, number: int, shared: Any) -> bytes:
        """Sign a campaign with its own list of nodes. ``number``, the trial's, is part of the list's name."""
        settings, micro = lab.settings, micro_epsilon(lab.settings.epsilon)
        family = settings.family or (GAUSSIAN if schema.numeric else DISCRETE)
        nodes, masked = self.terms(lab, schema, family, records, number, shared)
        fields = NODE_FIELDS | {"postprocess": settings.postprocess}
        parameters = CampaignParameters("simulation", micro, family=family, nodes=nodes, masked=masked, **fields)
        return publish_campaign(lab.workspace, schema, parameters, lab.randomness.now)

    @abstractmethod
    def terms(
        self, lab: Lab, schema: Schema, family: str, records: int, number: int, shared: Any
    ) -> tuple[NodeTerms, MaskedTerms | None]:
        """Return the terms of a campaign about ``records`` records, and how it masks sums, None for clear sums."""

    @abstractmethod
    def gather(self, lab: Lab, raw: bytes, campaign: Campaign, people: pd.DataFrame, shared: Any) -> Statistics:
        """Return statistics of what the nodes send about ``people``. ``raw``: the bytes of the campaign's file."""

    def collect(self, lab: Lab, part: Part, shared: Any) -> Trial:
        """Make a model from the nodes' sums, and let a device classify the test part (:meth:`Trust.collect`)."""
        settings, people = lab.settings, part.fleet(lab.settings.devices)
        raw = self.sign(lab, part.schema, len(people), part.number, shared)
        campaign = _parsed(raw)
        found = self.gather(lab, raw, campaign, people, shared)
        now, process = lab.randomness.now, settings.postprocess
        model = publish_model(lab.workspace, found, raw, now, postprocess=process, foretell=None)
        return trial_of(
            part,
            people,
            campaign.schema,
            campaign.fit,
            accuracy=accuracy_on_device(lab, model, part.split.test),
            devices=len(people),
            reports=settings.nodes or 0,
            rejected=dict(found.rejected),
            campaign=campaign,
        )


class FederatedTrust(OfNodes):
    """Nodes see the records of their people, and send noisy sums. The settings must have a number of nodes."""

    def __init__(self, settings: Settings, design: Design, records: int) -> None:
        """Check the settings.

        Raises InputError ``setting_invalid``: no number of nodes, or a kind of noise that the vector engine can not
        draw; ``robust_invalid``, ``epsilon_invalid``, ``family_unknown``, ``no_numbers``, ``postprocess_unknown``.
        """
        del records
        if settings.nodes is None:
            raise InputError("setting_invalid", "federated trust needs a number of nodes (--nodes)")
        if settings.sensitivity != GLOBAL and settings.engine == "vector":
            raise InputError("setting_invalid", "noise for smooth sensitivity goes with engine device only")
        self._rule = None if settings.robust is None else parse_rule(settings.robust)
        self.check(settings, design, 1)

    def terms(
        self, lab: Lab, schema: Schema, family: str, records: int, number: int, shared: Any
    ) -> tuple[NodeTerms, None]:
        """Return the terms of a campaign (:meth:`OfNodes.terms`).

        A node may have twice an equal share of the records.
        """
        del schema, family, shared
        most = 2 * -(-records // (lab.settings.nodes or 1))
        micro = micro_epsilon(lab.settings.epsilon)
        return NodeTerms(f"nodes {number}", most, micro, lab.settings.sensitivity), None

    def gather(self, lab: Lab, raw: bytes, campaign: Campaign, people: pd.DataFrame, shared: Any) -> Statistics:
        """Return the statistics of the nodes' noisy sums (:meth:`OfNodes.gather`).

        Raises PolicyError ``nodes_too_few``: the robust rule needs more nodes.
        """
        del shared
        nodes, randomness = lab.settings.nodes or 0, lab.randomness
        owners = deal(len(people), nodes, randomness.noise)
        if lab.settings.engine == "device":
            return summarised(lab, raw, campaign, people, owners, self._rule)
        labels = label_codes(people, campaign.schema.label, substitute=True)
        exact = exact_sums(released_vectors(campaign), observe(people, campaign.schema), labels, owners, nodes)
        values = released(exact, campaign, randomness.noise)
        return statistics_of(values, campaign, campaign.period_at(randomness.now), self._rule)

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return the means of the accuracies, ε of one summary, and the settings.

        ``epsilon_total`` is for neighbours by ``adjacency``. ``epsilon_change`` is for a changed record; with smooth
        sensitivity its label stays.
        """
        campaign = trials[0].campaign
        assert campaign is not None
        assert campaign.nodes is not None
        is_global = campaign.nodes.sensitivity == GLOBAL
        changed = CHANGE if is_global else CHANGE_FEATURES
        return {
            "trust": "federated",
            **accuracies(trials, settings.repeats),
            "epsilon_total": campaign.epsilon_micro / MICRO,
            "adjacency": ADD_REMOVE if is_global else CHANGE_FEATURES,
            "epsilon_change": cost_micro(campaign, changed) / MICRO,
            "queries": len(released_vectors(campaign)),
            "sensitivity": campaign.nodes.sensitivity,
            "robust": settings.robust,
            **nodes_of(settings, trials),
            "summaries": sum(trial.reports for trial in trials),
        }


def nodes_of(settings: Settings, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the entries of a trust's summary about nodes, model and number of records."""
    records, campaign = trials[0].devices, trials[0].campaign
    assert settings.nodes is not None
    assert campaign is not None
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
        "rejected": rejections(trials),
    }


def _parsed(raw: bytes) -> Campaign:
    return parse_campaign(read_envelope(raw, "campaign").payload)


def summarised(
    lab: Lab, campaign_bytes: bytes, campaign: Campaign, frame: pd.DataFrame, owners: Integers, rule: Rule | None
) -> Statistics:
    """Let every node summarise its records once, take the files into a new store, and return the store's statistics.

    Args:
        lab: the run. Its workspace must not have signed a node list of the name that the campaign states.
        owners: shape (n,) int64, the node of every record. A node without records takes part with noise alone.
        rule: a robust rule; None for plain addition.
    """
    workspace, randomness = lab.workspace, lab.randomness
    assert campaign.nodes is not None
    parts = records_by_owner(frame, owners, lab.settings.nodes or 0)
    sent = [_summary(workspace.root_bytes, campaign_bytes, campaign, part, randomness) for part in parts]
    listed = make_node_list(workspace, campaign.nodes.list_name, [key for key, _ in sent], now=randomness.now)
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        store = make_envelope_store(NodeStore, folder / "store", campaign_bytes)
        store.give_list(listed.raw)
        store.ingest(message_files(folder, [raw for _, raw in sent], store.suffix), now=randomness.now)
        return store.statistics(rule=rule)


def _summary(
    root: bytes, campaign_bytes: bytes, campaign: Campaign, part: pd.DataFrame, randomness: Randomness
) -> tuple[bytes, bytes]:
    assert campaign.nodes is not None
    # A simulated owner allows every ε, so only the adjacency matters here: the noise must cover it.
    covered = ADD_REMOVE if campaign.nodes.sensitivity == GLOBAL else CHANGE_FEATURES
    policy = PERMISSIVE._replace(node_adjacency=covered)
    clock = lambda: randomness.now  # noqa: E731 - one line
    with Node.open(None, trust=root, policy=policy, clock=clock, entropy=randomness.entropy) as node:
        records = labelled_records(part, campaign.schema.label.name)
        return node.public_key, node.summarise(node.enrol(campaign_bytes).id, records).raw


def records_by_owner(frame: pd.DataFrame, owners: Integers, nodes: int) -> list[pd.DataFrame]:
    """Return the records of every node. ``owners``: shape (n,) int64, the node of every record."""
    order = owners.argsort(kind="stable")
    ends = [0, *(owners[order].searchsorted(range(nodes), side="right")).tolist()]
    return [frame.iloc[order[first:last]] for first, last in pairwise(ends)]


def labelled_records(frame: pd.DataFrame, label: str) -> Iterator[dict[str, object]]:
    """Return the rows as records that hold their label, as nodes take them."""
    return ({**record, label: value} for record, value in records_of(frame, label))


def message_files(folder: Path, messages: Sequence[bytes], suffix: str) -> list[Path]:
    """Write signed messages into files of at most :data:`PER_FILE` messages. Return the files' paths."""
    files: list[Path] = []
    for start in range(0, len(messages), PER_FILE):
        files.append(folder / f"{len(files):04d}{suffix}")
        files[-1].write_bytes(b"".join(messages[start : start + PER_FILE]))
    return files
