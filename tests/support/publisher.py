"""A publisher in memory that signs any document, for tests of the device."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from protocol import canonical, mechanisms
from protocol.documents import campaign, model
from protocol.documents.envelope import PAYLOAD_TYPES, SigningKey, read_envelope, seal
from protocol.documents.masked_terms import NodeTerms
from protocol.documents.payload import Header
from protocol.documents.trust import Role, Root
from protocol.errors import StorageError
from protocol.features import Categorical, Numeric
from protocol.questions import build_questions, discrete_subjects, outcome_subjects, right_subjects
from protocol.schema import Label, Schema, build_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.documents.campaign import Series

DAY = 86_400
NOW = 1_800_000_000
"""The current time of the tests, in seconds since 1970."""


def key(number: int) -> SigningKey:
    """A fixed signing key."""
    return SigningKey.from_seed(bytes([number]) * 32)


ROOT_KEY, CAMPAIGN_KEY, MODEL_KEY = key(1), key(2), key(3)


def small_schema() -> Schema:
    """A schema with two classes, a categorical feature of three values and *missing*, a numeric feature of two bins."""
    return build_schema(
        Label("label", ["e", "p"]), [Categorical("odor", ["a", "n", "f"]), Numeric("width", "0", "10", [0])]
    )


@dataclass
class Publisher:
    """Signs roots, campaigns and models with fixed keys; any payload field can be overridden."""

    now: int = NOW
    schema: Schema = field(default_factory=small_schema)

    def header(self, name: str, version: int = 1, lifetime: int = 365 * DAY) -> Header:
        return Header(name, version, self.now, self.now, self.now + lifetime)

    def root(self, version: int = 1, lifetime: int = 3650 * DAY) -> bytes:
        roles = {
            "root": Role(frozenset([ROOT_KEY.public]), 1),
            "campaign": Role(frozenset([CAMPAIGN_KEY.public]), 1),
            "model": Role(frozenset([MODEL_KEY.public]), 1),
        }
        payload = Root(self.header("workspace", version, lifetime), roles).to_payload()
        return seal(PAYLOAD_TYPES["root"], canonical.pack(payload), [ROOT_KEY])

    def _payload(
        self, header: Header, questions: Any, micro: int, fit: campaign.Fit, changes: Any = None, **more: Any
    ) -> bytes:
        """The payload of a campaign. ``changes`` overwrites fields after the checks."""
        terms = {"purpose": "tell edible from poisonous", "contact": "someone@example.org"} | more
        terms = {"time_precision": DAY, "min_batch_size": 1} | terms
        payload = campaign.build_payload(header, self.schema, questions, epsilon_micro=micro, fit=fit, **terms)
        return canonical.pack({**canonical.unpack(payload), **changes}) if changes else payload

    def campaign_payload(
        self,
        *,
        name: str = "mushrooms",
        version: int = 1,
        epsilon_micro: int = 1_000_000,
        mechanism: str = "direct",
        answers: int = 1,
        lifetime: int = 365 * DAY,
        **terms: Any,
    ) -> bytes:
        """The payload of a campaign for devices. ``terms``: ``time_precision``, ``min_batch_size``, ``series``."""
        questions = build_questions(
            discrete_subjects(self.schema),
            answers,
            lambda subject: mechanisms.from_micro(mechanism, epsilon_micro // answers, subject.size),
        )
        fit = campaign.Fit("discrete", "simplex")
        return self._payload(self.header(name, version, lifetime), questions, epsilon_micro, fit, **terms)

    def node_payload(
        self,
        *,
        name: str = "clinics",
        version: int = 1,
        epsilon_micro: int = 1_000_000,
        least_epsilon_micro: int | None = None,
        max_records: int = 1_000_000,
        sensitivity: str = "global",
        family: str = "discrete",
        postprocess: str = "floored",
        lifetime: int = 365 * DAY,
        **terms: Any,
    ) -> bytes:
        """The payload of a campaign for the nodes of the list ``clinics``."""
        least = epsilon_micro if least_epsilon_micro is None else least_epsilon_micro
        fit = campaign.Fit(family, postprocess, 0 if family == "discrete" else 10_000)
        nodes = NodeTerms("clinics", max_records, least, sensitivity)
        return self._payload(self.header(name, version, lifetime), (), epsilon_micro, fit, nodes=nodes, **terms)

    def node_campaign(self, **options: Any) -> bytes:
        """A signed campaign for nodes; ``options`` as for :meth:`node_payload`."""
        return self.sign("campaign", self.node_payload(**options))

    def evaluation_payload(self, model_file: bytes, micro: int = 1_000_000, **changes: Any) -> bytes:
        """The payload of a campaign that evaluates a model. ``changes`` overwrites fields after the checks."""
        subjects = outcome_subjects(self.schema)
        questions = build_questions(subjects, 1, lambda subject: mechanisms.from_micro("direct", micro, subject.size))
        digest, fit = sha256(read_envelope(model_file, "model").payload).digest(), campaign.Fit("outcome", "none")
        said = {"purpose": "is it right?", "contact": "someone", "model": digest}
        return self._payload(self.header("outcome"), questions, micro, fit, changes, **said)

    def comparison_payload(
        self,
        models: Mapping[str, bytes],
        micro: int = 1_000_000,
        *,
        weights: list[int] | None = None,
        series: Series | None = None,
        **changes: Any,
    ) -> bytes:
        """The payload of a campaign that compares models, given by name and file. ``changes`` as before."""
        subjects, fit = right_subjects(len(models)), campaign.Fit("outcome", "none")
        questions = build_questions(subjects, 1, lambda _: mechanisms.from_micro("direct", micro, 2), weights)
        digests = {name: sha256(read_envelope(file, "model").payload).digest() for name, file in models.items()}
        said = {"purpose": "which is right most often?", "contact": "someone", "models": digests, "series": series}
        return self._payload(self.header("comparison"), questions, micro, fit, changes, **said)

    def campaign(self, changes: dict[str, Any] | None = None, **options: Any) -> bytes:
        """A signed campaign. ``changes`` overwrites payload fields after the checks of ``build_payload``."""
        payload = self.campaign_payload(**options)
        if changes:
            payload = canonical.pack({**canonical.unpack(payload), **changes})
        return self.sign("campaign", payload)

    def model(self, *, name: str = "mushrooms", version: int = 1, lifetime: int = 365 * DAY) -> bytes:
        """A signed model: odor n makes class e likely, odor f makes class p likely."""
        third = math.log(1 / 3)
        likelihood = []
        for feature in self.schema.observed:
            rows = [(third, third)] * feature.size
            if feature.name == "odor":
                rows[1], rows[2] = (math.log(0.8), math.log(0.1)), (math.log(0.1), math.log(0.8))
            likelihood.append(tuple(rows))
        document = model.DiscreteModel(
            header=self.header(name, version, lifetime),
            campaign=bytes(32),
            schema=self.schema,
            log_prior=(math.log(0.5), math.log(0.5)),
            log_likelihood=tuple(likelihood),
            statistics_id=bytes(32),
            previous=None,
            card={"note": "made up for a test"},
        )
        return self.sign("model", model.build_payload(document))

    def sign(self, role: str, payload: bytes, *keys: SigningKey) -> bytes:
        """An envelope of any payload, signed by ``keys`` or by default by the role's key."""
        own = {"root": ROOT_KEY, "campaign": CAMPAIGN_KEY, "nodes": CAMPAIGN_KEY}.get(role, MODEL_KEY)
        return seal(PAYLOAD_TYPES[role], payload, keys or (own,))


def installed(kind: Any, folder: Any, trust: bytes, **options: Any) -> Any:
    """Open a device or node (``kind``) in ``folder``; provision it first if no installation there was finished."""
    try:
        return kind.open(folder, trust, **options)
    except StorageError as error:
        if error.reason != "not_provisioned":
            raise
    return kind.provision(folder, trust, **options)
