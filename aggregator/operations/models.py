"""Ingest reports and make models in Python: the work of the commands between reading options and printing.

:mod:`aggregator.operations.campaigns` describes the forms of workspaces, documents and ``now``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.cards.card import full_card
from aggregator.collectors.statistics import of_models
from aggregator.collectors.totals import TOTALS, TotalsIngest, TotalStore, ingest_totals, is_total_store
from aggregator.common.files import read_file
from aggregator.common.periods import parse_span
from aggregator.curator.counting import open_counts, untrusting
from aggregator.estimates.homogeneity import Homogeneity
from aggregator.estimates.joining import join
from aggregator.estimates.source import newest_campaign
from aggregator.estimates.statistics import Statistics
from aggregator.models.measured_accuracy import Evaluation, Ranking, rank
from aggregator.models.measured_accuracy import evaluate as evaluate_statistics
from aggregator.nodes.statistics.robust import parse_rule
from aggregator.nodes.store.envelope_store import EnvelopeIngest, EnvelopeStore
from aggregator.nodes.store.node_list import check_list
from aggregator.nodes.store.opening import is_node_store, kind_of, new_or_open, open_node_store
from aggregator.operations.campaigns import present
from aggregator.operations.report_store import Store, create_store, open_store
from aggregator.publishing.decisions import kept_of
from aggregator.publishing.models import SignedModel, publish_model
from aggregator.publishing.naming import Document, check_campaign, opened
from aggregator.publishing.signatures import seconds_of
from aggregator.publishing.workspace import Workspace
from aggregator.reports.fleet import Roster
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.finding import find_files
from aggregator.reports.intake.remote import all_unreadable
from aggregator.reports.intake.sources import expand
from aggregator.reports.intake.transaction import IngestSummary
from aggregator.reports.storage.manifest import BUCKETS, FILE_NAME, TO_COLLECTORS
from aggregator.reports.tally.scope import scope_of
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError

OpenStore = Store | EnvelopeStore | TotalStore
"""An open store of reports, of nodes' messages or of totals."""
AnyStore = OpenStore | str | Path
"""An open store, or its folder."""


def ingest(
    campaign: Document,
    files: str | Path | Iterable[str | os.PathLike[str]],
    store: str | os.PathLike[str],
    *,
    workspace: Workspace | str | Path | None = None,
    trust: bytes | str | Path | None = None,
    enrolled: Enrolled | None = None,
    nodes: bytes | str | Path | None = None,
    keys: bytes | str | Path | None = None,
    buckets: int = BUCKETS,
    recursive: bool = False,
    now: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IngestSummary | EnvelopeIngest | TotalsIngest:
    """``hearsay ingest``: add files of reports, of nodes' summaries or of masked messages to a store, or make one.

    Raises InputError: ``campaign_for_devices``: ``nodes`` or ``keys`` is given, and the campaign is for devices;
    ``nodes_unknown``, ``keys_unknown``: no list of nodes, or no key book, was ever given; ``campaign_not_masked``:
    ``keys`` is given, and the campaign has no masked sums; ``unreadable``: there is no store yet, and none of the files
    can be read. Raises InputError, DocumentError, PolicyError, StorageError: the campaign is refused, the store can not
    be made (:func:`create_store`), or the ingest fails (:meth:`Store.ingest`).

    Args:
        campaign: the campaign of the reports; checked as by :func:`check_campaign`.
        files: one or several names of files, folders whose report files are taken, patterns with ``*`` or ``?``, URLs.
        workspace, trust: whose signatures the campaign must have; without them signatures are not checked.
        enrolled: the ids of a closed fleet; reports with other ids are refused.
        nodes: only for a campaign for nodes: the signed list of nodes, a path or bytes, checked as the campaign is.
            None takes the newest list that the store has.
        keys: only for a masked campaign: a version of the dealer's key book, a path or bytes, signed by the campaign's
            dealer. None takes the versions that the store has.
        buckets: number of buckets of a new store, a power of two.
        recursive: whether folders in a folder are searched too.
        progress: called after each file with (files finished, files given).

    Returns:
        Counts of the accepted and refused reports, or summaries, of the given files.
    """
    raw = check_campaign(campaign, workspace=workspace, trust=trust)
    listed = [files] if isinstance(files, str | Path) else files
    parsed = parse_campaign(read_envelope(raw, "campaign").payload)
    if parsed.shared is not None:
        totals = find_files((str(file) for file in listed), recursive=recursive, suffixes=TOTALS).files
        if not totals:
            raise InputError("campaign_shared", f"there is no total among these files; {TO_COLLECTORS}")
        return ingest_totals(store, raw, totals)
    if parsed.nodes is not None:
        names = find_files(
            (str(file) for file in listed), recursive=recursive, suffixes=kind_of(parsed).suffixes()
        ).files
        signed = None if nodes is None else check_list(nodes, workspace=workspace, trusted=trust)
        book = read_file(keys, SIZE_LIMITS["keys"]) if isinstance(keys, str | Path) else keys
        return new_or_open(store, raw, signed, names, book).ingest(names, now=present(now), progress=progress)
    if nodes is not None or keys is not None:
        raise InputError("campaign_for_devices", "this campaign asks devices; lists and key books are of nodes")
    given = find_files((str(file) for file in listed), recursive=recursive).files
    if not (Path(store) / FILE_NAME).exists() and (not given or all_unreadable(expand(given))):
        why = f"none of the {len(given)} files can be read" if given else "there is no report file"
        raise InputError("unreadable", f"{why}; no store was made")
    kept = create_store(store, raw, buckets=buckets)
    return kept.ingest(given, now=present(now), enrolled=enrolled, progress=progress)


def count(
    store: AnyStore,
    periods: str | range | None = None,
    *,
    proven_only: bool = False,
    rosters: Sequence[Roster] = (),
    robust: str | None = None,
) -> Statistics:
    """``hearsay estimate``: return the statistics of a store's reports, or of a store of nodes' summaries.

    Raises InputError: ``argument_invalid``: ``periods`` has another type; ``periods_invalid``, ``periods_absent``;
    ``robust_invalid``: no such rule, or the store has reports; ``robust_unequal``; ``fleet_incomplete``,
    ``reports_forgotten``: the rosters do not tell the devices of all reports. Raises PolicyError: ``batch_too_small``:
    there is no summary; ``nodes_too_few``: the robust rule needs more nodes. Raises StorageError: the store can not be
    opened or counted (:meth:`Store.tally_report`).

    Args:
        store: an open store, whose ``memory_bytes`` and ``cluster`` are used, or its folder.
        periods: for example ``2026-11-01..2026-11-30``, or numbers of periods; None for all.
        proven_only: leave out reports of damaged files.
        rosters: fleet lists, which tell the number of answers of each device.
        robust: a robust rule for summaries of nodes, for example ``trimmed-mean:0.1``; None for plain addition.
    """
    if not (periods is None or isinstance(periods, str | range)):
        raise InputError("argument_invalid", "periods are given as text (2026-11-01..2026-11-30), as a range, or None")
    kept = open_any(store)
    chosen = parse_span(periods).of(kept.campaign.time_precision) if isinstance(periods, str) else periods
    scope = scope_of(chosen, proven_only=proven_only)
    if isinstance(kept, TotalStore):
        return kept.statistics(scope)
    if isinstance(kept, EnvelopeStore):
        return kept.statistics(scope, None if robust is None else parse_rule(robust))
    if robust is not None:
        raise InputError("robust_invalid", "a robust rule is for summaries of nodes; this store has reports")
    return kept.statistics(scope, rosters=rosters)


def open_any(store: AnyStore) -> OpenStore:
    """Return a store that is open, or open the store in a folder, of whatever kind it is."""
    if isinstance(store, OpenStore):
        return store
    if is_total_store(store):
        return TotalStore(store)
    return open_node_store(store) if is_node_store(store) else open_store(store)


class JoinedStatistics(NamedTuple):
    """Statistics of one or several stores together, and the test whether several are of one population; else None."""

    statistics: Statistics
    homogeneity: Homogeneity | None


def counts_of(
    given: Sequence[bytes | str | Path],
    campaigns: Sequence[bytes],
    *,
    weight: float = 1.0,
    workspace: Workspace | str | Path | None = None,
    trust: bytes | str | Path | None = None,
    now: int | None = None,
) -> list[Statistics]:
    """Return the statistics of signed counts of records (``hearsay count``), for :func:`together`.

    ``campaigns``: the campaign files of the stores. The other arguments and the errors are those of
    :func:`aggregator.curator.counting.open_counts`.
    """
    if not given:
        return []
    parsed = [parse_campaign(read_envelope(raw, "campaign").payload) for raw in campaigns]
    signer = None if workspace is None else opened(workspace)
    root = read_file(trust, SIZE_LIMITS["root"]) if isinstance(trust, str | Path) else trust
    keys: dict[str, Any] = {"workspace": signer, "trust": root, "weight": weight}
    return [open_counts(each, parsed, present(now), **keys) for each in given]


def together(
    parts: Sequence[Statistics], *, one_population: bool = False, disjoint: bool = False, postprocess: str | None = None
) -> JoinedStatistics:
    """Join the statistics of several stores, and of counts of records, as those of one population.

    Those of one store are returned unchanged. The test of one population takes all records, whatever their weight.

    ``one_population``, ``disjoint``: the analyst's declarations about several stores. ``postprocess``: by default that
    of the campaign issued last. Raises the errors of :func:`aggregator.estimates.joining.join`.
    """
    if len(parts) == 1:
        return JoinedStatistics(parts[0], None)
    sources = [source for part in parts for source in part.sources]
    if postprocess is None and sources:
        postprocess = newest_campaign(sources).fit.postprocess
    declared: dict[str, Any] = {"one_population": one_population, "disjoint": disjoint, "postprocess": postprocess}
    found, whole = join(parts, **declared), [untrusting(part) for part in parts]
    if all(one is other for one, other in zip(parts, whole, strict=True)):
        return JoinedStatistics(*found)
    tested = join(whole, **declared).homogeneity
    return JoinedStatistics(replace(found.statistics, homogeneity=tested), tested)


def sign_model(
    workspace: Workspace | str | Path,
    statistics: Statistics,
    campaign: bytes | Sequence[bytes],
    *,
    postprocess: str | None = None,
    name: str | None = None,
    days: int = 365,
    now: int | None = None,
) -> SignedModel:
    """Fit, sign and record a model of statistics.

    ``campaign``: the bytes of the source's campaign file, or of all sources' files. ``postprocess``, ``name``: by
    default those of the campaign. ``days``: lifetime of the model. Raises InputError ``terms_invalid``: ``days`` is no
    whole number, or less than 1; and the errors of :func:`aggregator.publishing.models.publish_model`.
    """
    signer = opened(workspace)
    raw = publish_model(
        signer,
        statistics,
        campaign,
        present(now),
        postprocess=postprocess,
        name=name,
        lifetime_seconds=seconds_of(days),
        card=partial(full_card, chosen=kept_of(signer.path, statistics.sources)),
    )
    document = parse_model(read_envelope(raw, "model").payload)
    return SignedModel(raw, document, signer.standing("model", raw))


def make_model(
    workspace: Workspace | str | Path,
    store: AnyStore | Sequence[AnyStore],
    *,
    periods: str | range | None = None,
    proven_only: bool = False,
    one_population: bool = False,
    disjoint: bool = False,
    robust: str | None = None,
    counts: Sequence[bytes | str | Path] = (),
    weight: float = 1.0,
    **options: Any,
) -> SignedModel:
    """``hearsay publish``: count reports of a store, then fit, sign and record a model.

    ``store``: an open store or its folder; or several, whose statistics are joined. ``robust``: a robust rule for those
    stores that have summaries of nodes; None for plain addition. ``counts``: signed counts of records, joined with the
    share of trust ``weight``. The other arguments and all errors are those of :func:`count`, :func:`counts_of`,
    :func:`together` and :func:`sign_model` (``options``).
    """
    given = [store] if isinstance(store, AnyStore) else list(store)
    kept = [open_any(each) for each in given]
    if robust is not None and not any(isinstance(each, EnvelopeStore) for each in kept):
        raise InputError("robust_invalid", "a robust rule is for summaries of nodes; these stores have reports")
    parts = [
        count(each, periods, proven_only=proven_only, robust=robust if isinstance(each, EnvelopeStore) else None)
        for each in kept
    ]
    signer, raws = opened(workspace), [each.campaign_bytes for each in kept]
    parts += counts_of(counts, raws, weight=weight, workspace=signer, now=options.get("now"))
    statistics = together(
        parts, one_population=one_population, disjoint=disjoint, postprocess=options.get("postprocess")
    ).statistics
    return sign_model(signer, statistics, raws, **options)


def evaluate(
    store: Store | TotalStore | str | Path | Sequence[Store | TotalStore | str | Path],
    periods: str | range | None = None,
    *,
    proven_only: bool = False,
    rosters: Sequence[Roster] = (),
    one_population: bool = False,
    disjoint: bool = False,
) -> Evaluation | Ranking:
    """``hearsay evaluate show``: return a model's accuracy, or the ranking of several, from an evaluation's reports.

    If several stores are given, their answers about one model add up. The other arguments are those of :func:`count`
    and :func:`together`. Stores of one series need neither ``one_population`` nor ``disjoint``. Raises InputError:
    ``not_an_evaluation``, ``mechanism_unknown``: the answers give no accuracy; ``argument_invalid``: no store is given;
    ``population_undeclared`` and other reasons of stores that do not fit together. Raises PolicyError
    ``batch_too_small``: fewer reports than the campaign's minimum batch size, or none. Raises InputError, StorageError:
    the reports can not be counted (:func:`count`).
    """
    stores = [store] if isinstance(store, Store | TotalStore | str | Path) else store
    parts = [of_models(count(each, periods, proven_only=proven_only, rosters=rosters)) for each in stores]
    if any(part.campaign.models for part in parts):
        return rank(*parts, one_population=one_population, disjoint=disjoint)
    return evaluate_statistics(together(parts, one_population=one_population, disjoint=disjoint).statistics)
