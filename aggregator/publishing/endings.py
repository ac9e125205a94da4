"""Ending a campaign by signing a version without questions. Run by the analyst.

Source: docs/formats.md, section 5 (the end of a campaign).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.publishing.naming import find_document
from protocol.document import DAY_SECONDS, Header, read_payload
from protocol.documents import campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace

_LEAST_LIFETIME_SECONDS = 2 * DAY_SECONDS
"""A document expires more than a day after it was issued."""


def end_campaign(workspace: Workspace, name: str, now: int) -> bytes:
    """Sign the version that ends a campaign, and record it.

    That version repeats schema, texts, period and fit of the newest version, but has no questions and ε = 0. It
    expires no earlier than any version of the name: a device that was off for long can learn of the end as long as
    it would still report. A later version may ask questions again.

    Args:
        workspace: the workspace that signed the campaign.
        name: name of the campaign, or another form that :mod:`aggregator.publishing.naming` lists.
        now: seconds since 1970, the time of issue.

    Returns:
        The bytes of the ``.hsc`` file.

    Raises:
        InputError: ``campaign_unknown``: the workspace signed no campaign of that name; ``campaign_ended``: the
            newest version ends the campaign already.
        InputError, DocumentError, StorageError: the version can not be signed or recorded (:meth:`Workspace.publish`);
            ``workspace_damaged`` also if the copy of an earlier version is lost.
    """
    name = find_document(workspace, "campaign", name).name
    versions = [item for item in workspace.history() if (item.role, item.name) == ("campaign", name)]
    payloads = [read_envelope(workspace.copy(item), "campaign").payload for item in versions]
    latest = campaign.parse_campaign(payloads[-1])
    if latest.ended:
        raise InputError("campaign_ended", f"version {latest.header.version} of the campaign ends it already")
    expires = max(now + _LEAST_LIFETIME_SECONDS, *(read_payload(payload)[1].expires for payload in payloads))

    def payload_for(version: int, _before: bytes | None) -> bytes:
        return campaign.build_payload(
            Header(name, version, now, now, expires),
            latest.stated,
            (),
            epsilon_micro=0,
            purpose=latest.purpose,
            contact=latest.contact,
            time_precision=latest.time_precision,
            min_batch_size=latest.min_batch_size,
            fit=latest.fit,
            model=latest.model,
            models=dict(zip(latest.model_names, latest.models, strict=True)),
        )

    return workspace.publish("campaign", name, now, payload_for)
