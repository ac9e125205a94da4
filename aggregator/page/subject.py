"""What a page is about: one or several stores, or a model. Files are read and signatures checked here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aggregator.collectors.totals import TotalStore
from aggregator.common.files import read_file
from aggregator.estimates.statistics import Statistics
from aggregator.models.measured_accuracy import Evaluation, Ranking
from aggregator.nodes.store.envelope_store import EnvelopeStore
from aggregator.operations.models import AnyStore, OpenStore, count, evaluate, open_any, together
from aggregator.publishing.naming import check_campaign, document_bytes, opened
from aggregator.publishing.workspace import Workspace
from protocol.documents.campaign import EVALUATION, Campaign, parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.documents.model import UNDERSTOOD, parse_model
from protocol.documents.model import Model as ModelDocument
from protocol.documents.trust import pin, verify
from protocol.errors import InputError, PolicyError


class StoreSubject(NamedTuple):
    """Stores, and what their reports say together.

    ``statistics``: of all stores together; None before each has its campaign's smallest batch of reports. ``obstacle``:
    why there are no statistics, in words; else empty. ``periods``: as the caller wrote them; None for all.
    """

    stores: tuple[OpenStore, ...]
    statistics: Statistics | None
    obstacle: str
    periods: str | None

    @property
    def campaigns(self) -> list[Campaign]:
        """The campaigns of the stores."""
        return [store.campaign for store in self.stores]


class ModelSubject(NamedTuple):
    """A signed model.

    ``digest``: SHA-256 of its payload, the model's id. ``campaigns``: those that it comes from, as far as a workspace
    has them. ``card``: how it was made; anybody who signs models can write anything in it.
    """

    file: str
    digest: bytes
    document: ModelDocument
    campaigns: tuple[tuple[Campaign, bytes], ...]
    card: dict[str, object]


class Measured(NamedTuple):
    """What one evaluation measured.

    ``result``: accuracy or ranking; None if there are not enough answers, and then ``obstacle`` says why. ``about``:
    which models it is about, in a sentence.
    """

    name: str
    result: Evaluation | Ranking | None
    obstacle: str
    about: str


def open_stores(
    given: Sequence[AnyStore],
    periods: str | None,
    *,
    workspace: Workspace | None,
    trust: bytes | None,
    one_population: bool,
    disjoint: bool,
    counts: Callable[[Sequence[bytes]], Sequence[Statistics]],
) -> StoreSubject:
    """Open stores, check their campaigns' signatures if ``workspace`` or ``trust`` is given, and count their reports.

    The arguments are those of :func:`aggregator.report`; ``counts`` opens the counts of records, given the campaigns'
    files. Raises the errors of opening, counting and joining, and
    DocumentError if the root does not accept a campaign.
    """
    stores = tuple(open_any(each) for each in given)
    for store in stores:
        check_campaign(store.campaign_bytes, workspace=workspace, trust=trust)
    try:
        parts = [count(store, periods) for store in stores]
        parts += counts([store.campaign_bytes for store in stores])
        found = together(parts, one_population=one_population, disjoint=disjoint).statistics
        found.check_publishable()
    except PolicyError as error:
        return StoreSubject(stores, None, error.detail, periods)
    if not found.reports:
        return StoreSubject(stores, None, "there are no reports yet", periods)
    return StoreSubject(stores, found, "", periods)


def records_of(subject: StoreSubject) -> list[str]:
    """Return a sentence for each counts of records in the statistics, as a model's card has it."""
    sources = () if subject.statistics is None else subject.statistics.sources
    return [str(line) for source in sources for line in source.card().get("records", ())]


def open_model(given: str | Path, workspace: Workspace | None, trust: bytes | None, now: int) -> ModelSubject:
    """Read a model file, or with a workspace a name, NAME@VERSION or id of a model, and check its signatures.

    ``workspace`` or ``trust`` says whose must be valid at ``now``; without both none is checked. Raises InputError
    ``not_reportable``: it is another document; and the errors of reading and verifying.
    """
    path = Path(given)
    raw = document_bytes("model", path, workspace)
    if role_of(raw) != "model":
        raise InputError("not_reportable", f"'{path}' is no model; give a .hsm file, or the folder of a store")
    payload = read_envelope(raw, "model").payload
    root = workspace.root_bytes if workspace is not None else trust
    if root is not None:
        payload = verify(pin(root, now), raw, "model", now, UNDERSTOOD).payload
    document = parse_model(payload)
    found = () if workspace is None else _campaigns(document, workspace)
    return ModelSubject(str(given), sha256(payload).digest(), document, found, dict(document.card))


def _campaigns(document: ModelDocument, workspace: Workspace) -> tuple[tuple[Campaign, bytes], ...]:
    for item in workspace.history():
        if item.role == "campaign" and item.digest == document.campaign:
            raw = workspace.copy(item)
            return ((parse_campaign(read_envelope(raw, "campaign").payload), raw),)
    return ()


def open_evaluations(
    given: Sequence[AnyStore], about: StoreSubject | ModelSubject, *, workspace: Workspace | None, trust: bytes | None
) -> list[Measured]:
    """Count the stores of evaluations, each for itself, and check that they evaluate what the page is ``about``.

    Raises InputError: ``other_model``: an evaluation is of another model, or of a model from another campaign;
    ``not_an_evaluation``: a store's campaign evaluates nothing. Raises the errors of :func:`open_stores`.
    """
    found = []
    for each in given:
        store = open_any(each)
        check_campaign(store.campaign_bytes, workspace=workspace, trust=trust)
        said = _whose(store.campaign, about, workspace)
        found.append(_measured(store, said))
    return found


def measured_of(subject: StoreSubject) -> list[Measured]:
    """Return what the stores of a page themselves measured; empty if their campaigns evaluate nothing."""
    return [
        _measured(store, _evaluated(store.campaign))
        for store in subject.stores
        if store.campaign.fit.family == EVALUATION
    ]


def _measured(store: OpenStore, about: str, periods: str | None = None) -> Measured:
    name = store.campaign.header.name
    if isinstance(store, EnvelopeStore):
        raise InputError("not_an_evaluation", "the store has summaries of nodes; an evaluation asks devices")
    if isinstance(store, TotalStore):
        raise InputError("not_an_evaluation", "the store has totals; an evaluation asks devices (hearsay evaluate ask)")
    try:
        return Measured(name, evaluate(store, periods), "", about)
    except PolicyError as error:
        return Measured(name, None, error.detail, about)


def _evaluated(campaign: Campaign) -> str:
    return f"Evaluated: {', '.join(digest.hex() for digest in campaign.evaluated)} (digests of models)."


def _whose(campaign: Campaign, about: StoreSubject | ModelSubject, workspace: Workspace | None) -> str:
    """Return a sentence that says which model a campaign evaluates, and how that is known."""
    if isinstance(about, ModelSubject):
        if about.digest not in campaign.evaluated:
            raise InputError("other_model", f"the evaluation '{campaign.header.name}' is of another model")
        return "Evaluated: exactly this model." if len(campaign.evaluated) == 1 else "Evaluated: this model and others."
    if workspace is None:
        return f"{_evaluated(campaign)} Without --workspace nobody can tell whether they were made from these reports."
    known = {item.digest: item for item in workspace.history() if item.role == "model"}
    ids = {one.id for one in about.campaigns}
    models = [
        parse_model(read_envelope(workspace.copy(known[digest]), "model").payload)
        for digest in campaign.evaluated
        if digest in known
    ]
    if not any(one.campaign in ids for one in models):
        raise InputError("other_model", f"the evaluation '{campaign.header.name}' is of no model from this campaign")
    same = about.statistics is not None and any(one.statistics_id == about.statistics.statistics_id for one in models)
    made = "made from exactly these reports" if same else "made from this campaign, but not from exactly these reports"
    return f"{_evaluated(campaign)} It was {made}."


def is_store(given: AnyStore) -> bool:
    """Return whether a page of the given thing is about a store: an open store, or a folder."""
    return isinstance(given, OpenStore) or Path(given).is_dir()


def trusted(
    workspace: Workspace | str | Path | None, trust: bytes | str | Path | None
) -> tuple[Workspace | None, bytes | None]:
    """Return the open workspace or the bytes of the trust root; both None if both arguments are.

    Raises InputError ``trust_ambiguous``: both are given. Raises InputError, StorageError: the file or the workspace
    can not be read.
    """
    if workspace is not None and trust is not None:
        raise InputError("trust_ambiguous", "give --trust or --workspace, not both")
    if workspace is not None:
        return opened(workspace), None
    return None, read_file(trust, SIZE_LIMITS["root"]) if isinstance(trust, str | Path) else trust
