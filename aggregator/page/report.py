"""``hearsay report``: the page of stores or of a model, in Python: ``aggregator.report("store").save("page.html")``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aggregator.cards.card import full_card
from aggregator.collectors.totals import TotalStore
from aggregator.common.files import write_output
from aggregator.estimates.statistics import Statistics
from aggregator.models.foresight import foresee
from aggregator.nodes.store.status import status as node_status
from aggregator.operations.campaigns import present
from aggregator.operations.models import AnyStore, OpenStore, counts_of
from aggregator.operations.report_store import Store
from aggregator.operations.status import status as store_status
from aggregator.page import subject as subjects
from aggregator.page.blocks import Paragraph, Section
from aggregator.page.entries import influence_of
from aggregator.page.rendering import Page
from aggregator.page.sections import about, accuracy, asked, checking, choices, counts, influence, promises, results
from aggregator.page.subject import Measured, ModelSubject, StoreSubject
from aggregator.publishing.decisions import Decision, kept_of
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from aggregator.publishing.workspace import Workspace
from protocol.documents.payload import quoted
from protocol.errors import InputError
from protocol.words import date

UNVERIFIED = Paragraph(
    "UNVERIFIED: no signature was checked. This page repeats what the files say, whoever wrote them.", "warning"
)
VERIFIED = Paragraph(
    "Verified: the documents on this page are signed by the keys of the trust root that was given.", "good"
)


class Report(NamedTuple):
    """A page about a store or a model (``kind``), with the titles of its sections and its HTML text."""

    kind: str
    title: str
    verified: bool
    sections: tuple[str, ...]
    html: str

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page to a file. With ``force`` an existing file is replaced."""
        write_output(Path(path), self.html.encode(), force=force)


def report(
    given: AnyStore | Sequence[AnyStore],
    *,
    evaluation: Sequence[AnyStore] = (),
    workspace: Workspace | str | Path | None = None,
    trust: bytes | str | Path | None = None,
    schema: SchemaFile | str | Path | None = None,
    periods: str | None = None,
    one_population: bool = False,
    disjoint: bool = False,
    counts: Sequence[bytes | str | Path] = (),
    weight: float = 1.0,
    now: int | None = None,
) -> Report:
    """``hearsay report``: describe stores, or a model, on one HTML page. Run by analysts and privacy officers.

    Raises InputError: ``not_reportable``: a file is no model, or several models are given; ``trust_ambiguous``;
    ``other_model``: an evaluation is not of the page's model; ``schema_differs``: the schema file is not that of the
    stores' campaigns. Raises InputError, DocumentError, StorageError: a store or file can not be read, or is not signed
    by trusted keys.

    Args:
        given: a store or several, open or as folders; or the file of one model.
        evaluation: stores of evaluations of the model, each of which is counted for itself.
        workspace, trust: whose signatures the campaigns or the model must have; without them the page says
            "UNVERIFIED".
        schema: of a store: the schema file that ``hearsay design`` or ``refine`` wrote, whose decision is shown; None
            takes the decision that the workspace kept. A model's decision is in its card.
        periods: the periods to count, such as ``2026-11-01..2026-11-30``; None for all. Only for stores.
        one_population, disjoint: the analyst's declarations: all stores are of one population; no device is in two.
        counts, weight: signed counts of records that are joined with the stores, and the share of trust in them.
        now: the present, in seconds since 1970; None asks the clock.
    """
    clock = present(now)
    listed = [given] if isinstance(given, AnyStore) else list(given)
    signer, root = subjects.trusted(workspace, trust)
    is_verified = signer is not None or root is not None
    if len(listed) == 1 and not subjects.is_store(listed[0]):
        if periods is not None or schema is not None or counts:
            raise InputError(
                "not_reportable",
                "periods, counts and a schema are for a store's reports, and this page is about a model",
            )
        model = subjects.open_model(str(listed[0]), signer, root, clock)
        measured = subjects.open_evaluations(evaluation, model, workspace=signer, trust=root)
        return _of_model(model, measured, clock, is_verified=is_verified)
    if not listed or not all(map(subjects.is_store, listed)):
        raise InputError("not_reportable", "a page is about stores or about one model; give folders, or one .hsm file")
    found = subjects.open_stores(
        listed,
        periods,
        workspace=signer,
        trust=root,
        one_population=one_population,
        disjoint=disjoint,
        counts=partial(counts_of, counts, weight=weight, workspace=signer, trust=root, now=clock),
    )
    measured = subjects.open_evaluations(evaluation, found, workspace=signer, trust=root)
    decision = {} if schema is None else _decision(schema, found)
    if not decision and signer is not None and found.statistics is not None:
        decision = kept_of(signer.path, found.statistics.sources)
    return _of_stores(found, measured, decision, clock, is_verified=is_verified)


def _of_stores(
    found: StoreSubject, measured: list[Measured], decision: Decision, now: int, *, is_verified: bool
) -> Report:
    names = ", ".join(dict.fromkeys(quoted(campaign.header.name) for campaign in found.campaigns))
    counted = [_status(store) for store in found.stores]
    sheets = [
        promises.sheet_of(store.campaign, store.campaign_bytes, status)
        for store, status in zip(found.stores, counted, strict=True)
    ]
    raws = [store.campaign_bytes for store in found.stores]
    sections = [
        about.of_stores(found),
        asked.of_campaigns(list(zip(found.campaigns, raws, sheets, strict=True))),
        counts.of_stores(list(zip(found.stores, counted, strict=True)), subjects.records_of(found)),
    ]
    own = subjects.measured_of(found)
    if own:
        sections.append(accuracy.section(None, own))
    elif found.statistics is not None and found.statistics.schema.observed:
        card = _card(found.statistics, decision)
        influences = {name: bits for name, (bits, _) in influence_of(card).items()}
        sections += [
            results.of_statistics(found.statistics, influences),
            influence.section(card),
            accuracy.section(card, measured),
            choices.section(card.get("chosen")),
        ]
    sections += [
        promises.of_campaigns(list(zip(found.campaigns, sheets, counted, strict=True))),
        checking.of_stores(found),
    ]
    return _made("store", f"Campaign {names}", sections, now, is_verified=is_verified)


def _status(store: OpenStore) -> counts.AnyStatus:
    if isinstance(store, TotalStore):
        return store.status()
    return store_status(store) if isinstance(store, Store) else node_status(store)


def _of_model(found: ModelSubject, measured: list[Measured], now: int, *, is_verified: bool) -> Report:
    card = found.card
    influences = {name: bits for name, (bits, _) in influence_of(card).items()}
    sheets = [promises.sheet_of(campaign, raw, None) for campaign, raw in found.campaigns]
    named = [(campaign, raw, words) for (campaign, raw), words in zip(found.campaigns, sheets, strict=True)]
    sections = [
        about.of_model(found),
        asked.of_campaigns(named) if named else asked.of_card(card),
        counts.of_card(card),
        results.of_model(found, influences),
        influence.section(card),
        accuracy.section(card, measured),
        choices.section(card.get("chosen")),
        promises.of_campaigns([(campaign, words, None) for campaign, _, words in named])
        if named
        else promises.of_card(card),
        checking.of_model(found),
    ]
    return _made("model", f"Model {quoted(found.document.header.name)}", sections, now, is_verified=is_verified)


def _card(found: Statistics, decision: Decision) -> dict[str, object]:
    postprocess = found.fit.postprocess
    return {**full_card(found, postprocess, chosen=decision), **foresee(found, postprocess).to_card()}


def _decision(schema: SchemaFile | str | Path, found: StoreSubject) -> Decision:
    """Return what ``hearsay design`` or ``refine`` decided, from the schema file that the campaigns are made from."""
    file = load_schema(schema) if isinstance(schema, str | Path) else schema
    names = {feature.name for feature in file.schema.features}
    for campaign in found.campaigns:
        label = campaign.schema.label
        same = (label.name, label.classes) == (file.schema.label.name, file.schema.label.classes)
        if not same or not names.issuperset(feature.name for feature in campaign.schema.features):
            raise InputError(
                "schema_differs",
                f"campaign {quoted(campaign.header.name)} is not made from this schema file: it has another label or "
                "other features; give the file that was made into the campaign",
            )
    return file.decision


def _made(kind: str, title: str, sections: Sequence[Section], now: int, *, is_verified: bool) -> Report:
    page = Page(
        title,
        VERIFIED if is_verified else UNVERIFIED,
        f"Report of Hearsay, made {date(now)}.",
        tuple(sections),
        "This page is one file: no script, nothing loaded from elsewhere.",
    )
    return Report(kind, title, is_verified, tuple(section.title for section in sections), page.html())
