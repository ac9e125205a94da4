"""Make campaigns in Python: the work of the commands between reading options and printing.

    work = aggregator.open_workspace("work")
    made = aggregator.make_campaign(work, "schema.toml", epsilon=1, mechanism="direct")
    made.save("c.hsc")

The commands call these functions, so both write the same bytes. Times are arguments (``now``, seconds since
1970); without one the clock is asked. A workspace is one that is open, or its folder; a passphrase belongs to the
open one (:func:`aggregator.open_workspace`). Documents are bytes, paths, or names and ids that the workspace knows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.files import read_file, write_output
from aggregator.notebooks import facts
from aggregator.planning.expected import AUTO_FAMILY, candidates, choose, settle_family
from aggregator.publishing import endings
from aggregator.publishing.campaigns import (
    CampaignParameters,
    campaign_subjects,
    gaussian_fields,
    parse_answers,
    parse_duration,
    publish_campaign,
)
from aggregator.publishing.evaluations import EvaluationParameters, publish_evaluation
from aggregator.publishing.lifetimes import seconds_of
from aggregator.publishing.naming import document_bytes
from aggregator.publishing.privacy import epsilon_warning, pace_warning, refusal_warning
from aggregator.publishing.projection_file import load_projection
from aggregator.publishing.workspace import Workspace, open_workspace, signed_campaign
from aggregator.schema_doubts import alike_in
from aggregator.schema_file import SchemaFile, load_schema
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.epsilon import format_micro, micro_epsilon
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.planning.expected import Candidate
    from aggregator.publishing.signatures import Standing
    from protocol.schema import Schema

    Document = bytes | str | Path


class Planned(NamedTuple):
    """A campaign that can be signed.

    Attributes:
        schema: the schema, with its projection.
        terms: the parameters of the campaign.
        why: the candidates that ``auto`` compared, the chosen one first; empty without ``auto``.
        warnings: sentences for the signer.
        notes: what an argument came to mean.
    """

    schema: Schema
    terms: CampaignParameters
    why: tuple[Candidate, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()


class SignedCampaign(NamedTuple):
    """A campaign that was signed.

    Attributes:
        raw: the bytes of the ``.hsc`` file.
        campaign: the parsed campaign.
        standing: its signatures. Devices refuse a campaign that lacks some.
        why, warnings: as of :class:`Planned`.
    """

    raw: bytes
    campaign: Campaign
    standing: Standing
    why: tuple[Candidate, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        header = self.campaign.header
        return f"SignedCampaign({header.name!r}, version {header.version}, {len(self.raw)} bytes)"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the file; as :func:`aggregator.files.write_output`."""
        write_output(Path(path), self.raw, force=force)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"name": self.campaign.header.name, "version": self.campaign.header.version}
        about |= {"id": self.campaign.id.hex(), "questions": len(self.campaign.questions)}
        about |= {"ε per period": format_micro(self.campaign.epsilon_micro), "signatures": str(self.standing)}
        return facts("Campaign", {**about, **{f"warning {n}": each for n, each in enumerate(self.warnings, 1)}})


def plan_campaign(
    schema: SchemaFile | Schema | str | Path,
    *,
    epsilon: str | float,
    mechanism: str,
    name: str | None = None,
    answers: str | int = "one",
    family: str = "discrete",
    approach: int | None = None,
    projection: str | Path | None = None,
    theta: str | None = None,
    variance_floor: str | None = None,
    split: str | None = None,
    purpose: str = "",
    contact: str = "not stated",
    period: str | int = "1d",
    days: int = 30,
    min_batch_size: int = 1,
    postprocess: str = "simplex",
) -> Planned:
    """Decide the whole content of a campaign without signing it. Arguments as ``hearsay campaign --help``.

    Args:
        schema: a schema file, its path, or a schema, which then needs a ``name``.
        epsilon: total of a device in one period.
        projection: a file of ``hearsay projection``, to embed.

    Raises:
        InputError: as :func:`aggregator.publishing.campaigns.publish_campaign` and the loaders of the files;
            ``name_invalid``: there is no name.
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    named, asked = (schema.name, schema.schema) if isinstance(schema, SchemaFile) else ("", schema)
    if not (name or named):
        raise InputError("name_invalid", "a campaign of a schema without a file needs a name")
    warning = refusal_warning(asked)
    if projection is not None:
        asked = load_projection(Path(projection), asked)
    micro = micro_epsilon(epsilon)
    given, family = family, settle_family(family, mechanism)
    chosen = choose(asked, family, mechanism, approach, micro)
    why = () if chosen is None else tuple(candidates(asked, micro))
    if chosen is not None:
        family, mechanism, approach = chosen.family, chosen.mechanism, chosen.approach
    parameters = CampaignParameters(
        name=name or named,
        epsilon_micro=micro,
        mechanism=mechanism,
        answers=parse_answers(str(answers), len(campaign_subjects(asked, family, mechanism, approach)), micro),
        purpose=purpose,
        contact=contact,
        period_seconds=parse_duration(str(period)),
        lifetime_seconds=seconds_of(days),
        min_batch_size=min_batch_size,
        postprocess=postprocess,
        options={} if theta is None else {"theta": theta},
        family=family,
        approach=approach,
        **gaussian_fields(family, variance_floor, split),
    )
    pace = pace_warning(micro, parameters.period_seconds, parameters.lifetime_seconds)
    notes = () if given == family else (AUTO_FAMILY,)
    warnings = tuple(filter(None, (parameters.warning, pace, warning, alike_in(asked))))
    return Planned(asked, parameters, why, warnings, notes)


def sign_campaign(workspace: Workspace | str | Path, planned: Planned, *, now: int | None = None) -> SignedCampaign:
    """Sign a planned campaign as the next version of its name, and record it in the workspace.

    Raises:
        InputError, DocumentError, StorageError: as :func:`aggregator.publishing.campaigns.publish_campaign`.
    """
    signer = opened(workspace)
    raw = publish_campaign(signer, planned.schema, planned.terms, present(now))
    return _signed(signer, raw)._replace(why=planned.why, warnings=planned.warnings)


def make_campaign(
    workspace: Workspace | str | Path,
    schema: SchemaFile | Schema | str | Path,
    *,
    now: int | None = None,
    **arguments: Any,
) -> SignedCampaign:
    """``hearsay campaign``: :func:`plan_campaign` with these arguments, then :func:`sign_campaign`."""
    return sign_campaign(workspace, plan_campaign(schema, **arguments), now=now)


def end_campaign(workspace: Workspace | str | Path, name: str, *, now: int | None = None) -> SignedCampaign:
    """``hearsay campaign --end``: sign the version that ends a campaign, by its name or id.

    Raises:
        InputError, DocumentError, StorageError: as :func:`aggregator.publishing.endings.end_campaign`.
    """
    signer = opened(workspace)
    return _signed(signer, endings.end_campaign(signer, name, present(now)))


def make_evaluation(
    workspace: Workspace | str | Path,
    model: Document,
    *,
    epsilon: str | float,
    name: str | None = None,
    contact: str = "not stated",
    period: str | int = "1d",
    days: int = 30,
    min_batch_size: int = 1,
    now: int | None = None,
) -> SignedCampaign:
    """``hearsay evaluate ask``: the campaign that asks devices how often a model is right.

    Raises:
        InputError, DocumentError, StorageError: as :func:`aggregator.publishing.evaluations.publish_evaluation`.
    """
    signer = opened(workspace)
    micro = micro_epsilon(epsilon)
    parameters = EvaluationParameters(
        micro, name, contact, parse_duration(str(period)), seconds_of(days), min_batch_size
    )
    raw = publish_evaluation(signer, _bytes("model", model, signer), parameters, present(now))
    pace = pace_warning(micro, parameters.period_seconds, parameters.lifetime_seconds)
    return _signed(signer, raw)._replace(warnings=tuple(filter(None, (epsilon_warning(micro), pace))))


def check_campaign(
    campaign: Document, *, workspace: Workspace | str | Path | None = None, trust: bytes | str | Path | None = None
) -> bytes:
    """The bytes of a campaign, checked against the signatures of the workspace or trust root if one is given.

    Raises:
        InputError: ``trust_ambiguous``; those of reading.
        DocumentError: ``bad_signature`` and the other reasons of a foreign or damaged file.
    """
    if workspace is not None and trust is not None:
        raise InputError("trust_ambiguous", "give --trust or --workspace, not both")
    signer = None if workspace is None else opened(workspace)
    raw = _bytes("campaign", campaign, signer)
    if signer is not None:
        signer.check_signed(raw)
    elif trust is not None:
        signed_campaign(trust if isinstance(trust, bytes) else read_file(trust, SIZE_LIMITS["root"]), raw)
    return raw


def opened(workspace: Workspace | str | Path) -> Workspace:
    """The given workspace, or the workspace in the given folder."""
    return workspace if isinstance(workspace, Workspace) else open_workspace(workspace)


def present(now: int | None) -> int:
    """The given time, or the present time."""
    return int(time.time()) if now is None else now


def _bytes(role: str, document: Document, workspace: Workspace | None) -> bytes:
    return document if isinstance(document, bytes) else document_bytes(role, document, workspace)


def _signed(signer: Workspace, raw: bytes) -> SignedCampaign:
    parsed = parse_campaign(read_envelope(raw, "campaign").payload)
    return SignedCampaign(raw, parsed, signer.standing("campaign", raw))
