"""Verify a device's campaigns, models and trust roots, store the accepted ones, and find them again."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from edge_sdk.arguments import check_bytes
from edge_sdk.storage.documents import DEVICE, NODE
from protocol.documents import campaign as campaigns
from protocol.documents import trust
from protocol.documents.envelope import role_of
from protocol.documents.payload import quoted
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edge_sdk.answering.reporting import Reporting
    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.timekeeping import Timekeeper
    from protocol.documents.campaign import Campaign
    from protocol.documents.model import Model
    from protocol.documents.trust import TrustState, Verdict
    from protocol.nodes.summary import NodeList


class Acceptance:
    """Judges documents by the stored trust root, the clock and the owner's policy, and stores the accepted ones."""

    def __init__(self, state: State, documents: Documents, time: Timekeeper, reporting: Reporting) -> None:
        self._state = state
        self._documents = documents
        self._time = time
        self._reporting = reporting

    def _trust(self) -> TrustState:
        stored = self._documents.trust()
        if stored is None:
            raise StorageError("not_provisioned", "this device has no trust root yet; provision it with a .hst file")
        return stored

    def _judge_campaign(self, raw: bytes) -> tuple[Verdict, Campaign]:
        """Verify a campaign's signature, dates and values. The owner's policy is checked later."""
        check_bytes(raw, "a campaign")
        verdict = trust.verify(self._trust(), raw, "campaign", self._time.wall(), campaigns.UNDERSTOOD)
        return verdict, campaigns.parse_campaign(verdict.payload)

    def _judge_model(self, raw: bytes) -> Verdict:
        from protocol.documents.model import UNDERSTOOD

        check_bytes(raw, "a model")
        return trust.verify(self._trust(), raw, "model", self._time.wall(), UNDERSTOOD)

    def explain(self, raw: bytes, models: Sequence[bytes]) -> str:
        """Return the words of :meth:`edge_sdk.Device.explain` on the campaign or model file ``raw``."""
        if isinstance(raw, bytes) and role_of(raw) == "model":
            return self._explain_model(raw, models)
        from edge_sdk.explaining import as_text, explain

        verdict, campaign = self._judge_campaign(raw)
        given = [self._judge_model(model).payload for model in models]
        evaluated = self._reporting.models.evaluated(campaign, given)
        return as_text(explain(campaign, self._reporting.account(campaign), verdict.now, evaluated))

    def _explain_model(self, raw: bytes, models: Sequence[bytes]) -> str:
        """Return an explanation of the model file ``raw``. ``models`` must be empty: they are for campaigns only."""
        from edge_sdk.explaining import as_text, model_in_words
        from protocol.documents.model import parse_model

        if models:
            raise InputError("argument_invalid", "a model is explained alone; further models are for a campaign")
        verdict = self._judge_model(raw)
        return as_text(model_in_words(parse_model(verdict.payload), verdict.digest))

    def enrol(self, raw: bytes, name: str | None) -> Campaign:
        """Verify a campaign, check it against the policy and store it (:meth:`edge_sdk.Device.enrol`)."""
        with self._keeping_evidence("campaign", raw), self._state.transaction():
            self._reporting.secret()
            verdict, campaign = self._judge_campaign(raw)
            _check_name(verdict, name)
            self._check_kind(campaign)
            self._reporting.allowed().check_campaign(campaign, self._reporting.models.evaluated(campaign))
            self._store(verdict, raw)
        return campaign

    def _check_kind(self, campaign: Campaign) -> None:
        if campaign.ended:
            return
        kind, held = DEVICE if campaign.nodes is None else NODE, self._documents.kind()
        if held not in (None, kind):
            raise InputError(
                "campaign_for_devices" if kind == DEVICE else "campaign_for_nodes",
                f"this campaign is for {kind}s, and this state is a {held}'s since its first campaign; "
                f"provision a state of its own for the {kind}",
            )
        self._documents.write_kind(kind)

    def install(self, raw: bytes, name: str | None) -> Model:
        """Verify a model, store it and return it (:meth:`edge_sdk.Device.install`)."""
        from protocol.documents.model import parse_model

        with self._keeping_evidence("model", raw), self._state.transaction():
            verdict = self._judge_model(raw)
            _check_name(verdict, name)
            model = parse_model(verdict.payload)
            self._store(verdict, raw)
        return model

    def accept_nodes(self, raw: bytes, name: str) -> NodeList:
        """Verify the list of nodes ``raw`` called ``name`` and store it, so that no older list is accepted later.

        Raises InputError ``argument_invalid``; DocumentError ``other_name``, ``invalid_nodes`` and the reasons of
        :func:`protocol.documents.trust.verify`.
        """
        from protocol.nodes.summary import LIST_ROLE, UNDERSTOOD, parse_node_list

        check_bytes(raw, "a list of nodes")
        with self._keeping_evidence(LIST_ROLE, raw), self._state.transaction():
            verdict = trust.verify(self._trust(), raw, LIST_ROLE, self._time.wall(), UNDERSTOOD)
            _check_name(verdict, name)
            nodes = parse_node_list(verdict.payload)
            self._store(verdict, raw)
        return nodes

    def listed_version(self, name: str) -> int | None:
        """Return the version of the stored list of nodes called ``name``; None if no list of this name was accepted."""
        try:
            return self.nodes(name).header.version
        except InputError:
            return None

    def nodes(self, name: str) -> NodeList:
        """Return the stored list of nodes called ``name``. Raise InputError ``nodes_unknown`` if there is none."""
        from protocol.nodes.summary import LIST_ROLE, parse_node_list

        for called, _, payload in self._documents.all(LIST_ROLE):
            if called == name:
                return parse_node_list(payload)
        raise InputError("nodes_unknown", f"no list of nodes called {quoted(name)} was accepted yet; give its file")

    def present(self) -> int:
        """Return the later of the wall clock and the latest date of a signed document, in seconds since 1970."""
        return max(self._time.wall(), self._trust().time_floor)

    def _store(self, verdict: Verdict, raw: bytes) -> None:
        self._documents.write(verdict.role, verdict.header.name, verdict.digest, raw)
        self._documents.write_trust(verdict.state)
        self._time.note_document(verdict.header.issued_at)

    def rotate(self, roots: Iterable[bytes]) -> int:
        """Accept newer roots, given in any order, and return the trusted version (:meth:`edge_sdk.Device.rotate`)."""
        given = _as_roots(roots)
        with self._keeping_evidence("root", *given), self._state.transaction():
            before = self._trust()
            reached = trust.install_roots(before, given, self._time.wall())
            self._store_trust(before, reached)
        return reached.root.header.version

    def follow(self, roots: Iterable[bytes]) -> tuple[int, DocumentError | None]:
        """Accept newer roots, given in the order of their versions (:meth:`edge_sdk.Device.follow`)."""
        given = _as_roots(roots)
        with self._state.transaction():
            before = self._trust()
            reached, problem = trust.follow_roots(before, given, self._time.wall())
            self._store_trust(before, reached)
            if problem is not None and problem.reason == "equivocation":
                self._documents.keep_contradictions("root", given)
        return reached.root.header.version, problem

    def _store_trust(self, before: TrustState, reached: TrustState) -> None:
        """Store the trust ``reached``, unless it is ``before``, and delete campaigns that its keys have not signed."""
        if reached is not before:
            self._documents.write_trust(reached)
            for role in ("campaign", "nodes"):
                self._documents.end_unsigned(role, reached.root.roles["campaign"])
            self._time.note_document(reached.root.header.issued_at)

    @contextmanager
    def _keeping_evidence(self, role: str, *raws: bytes) -> Iterator[None]:
        """Context manager: if its body raises ``equivocation``, store ``raws`` as evidence, and let the error pass."""
        try:
            yield
        except DocumentError as error:
            if error.reason == "equivocation":
                with suppress(StorageError), self._state.transaction():
                    self._documents.keep_contradictions(role, raws)
            raise


def _check_name(verdict: Verdict, name: str | None) -> None:
    if name is not None and verdict.header.name != name:
        raise DocumentError("other_name", f"the {verdict.role} has another name than the one that was asked for")


def _as_roots(roots: Iterable[bytes]) -> list[bytes]:
    given = list(roots)
    for raw in given:
        check_bytes(raw, "a root")
    return given
