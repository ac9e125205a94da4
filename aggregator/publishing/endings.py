"""The ends of documents: a campaign is ended by a version without questions; what is about to expire is renewed.

Run by the analyst and, from a timer, by the operator. Source: docs/formats.md, section 5 (the end of a campaign).
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aggregator.publishing.naming import find_document
from aggregator.publishing.roots import RootChange, change_root, pending_path
from aggregator.publishing.signatures import header_for
from aggregator.publishing.workspace import Workspace, latest_of_each
from protocol import canonical
from protocol.documents import campaign
from protocol.documents.envelope import SIGNERS, read_envelope
from protocol.documents.payload import DAY_SECONDS, Header, quoted, read_payload
from protocol.errors import InputError
from protocol.words import WARNED_SECONDS, expiry_warning

_LEAST_LIFETIME_SECONDS = 2 * DAY_SECONDS
"""A document expires more than a day after it was issued."""


RENEWABLE = ("root", "nodes", "campaign")
"""Roles of documents that are renewed, in this order. Models are not renewed, but fitted again from newer reports."""
PAST_SECONDS = 30 * DAY_SECONDS
"""How long after it expired a document is still listed, in seconds. Later it counts as over."""
_KINDS = {
    "root": "the trust root",
    "nodes": "the node list",
    "campaign": "the campaign",
    "model": "the model",
    "counts": "the counts",
}
_MEANING = {
    "root": "without a newer one devices accept no document any more; hearsay renew signs it",
    "nodes": "without a newer version no summary counts any more; hearsay renew signs it",
    "campaign": "without a newer version devices answer it no more; hearsay renew signs it, if it is to go on",
    "model": "devices then classify with it, and say that it is old; publish one from newer reports",
    "counts": "no further model is made from these records; hearsay count makes new ones, if their people still agree",
}


class Ending(NamedTuple):
    """A document that has expired or is about to; ``role`` is root, nodes, campaign, model or counts."""

    role: str
    name: str
    version: int
    expires: int
    payload: bytes

    def warning(self, now: int) -> str:
        """Return a sentence that says, at the time ``now``, when the document expires and what follows from that."""
        what = f"{_KINDS[self.role]} {quoted(self.name)}, version {self.version},"
        return expiry_warning(what, self.expires, now, _MEANING[self.role])


class Renewed(NamedTuple):
    """What :func:`renew` did with one document that is about to end.

    ``version``, ``expires`` (seconds since 1970) and ``path`` are those of the new version; None if none was signed.
    ``problem``: why no version was signed, or why it is not in force yet; "" if all is done.
    """

    ending: Ending
    version: int | None = None
    expires: int | None = None
    path: Path | None = None
    problem: str = ""


def ending_of(role: str, payload: bytes, now: int, ahead_seconds: int = WARNED_SECONDS) -> Ending | None:
    """Return the document in a payload if it expires within ``ahead_seconds`` or expired up to 30 days ago; else None.

    A root is returned however long ago it expired. A campaign that its publisher has ended gives None.
    """
    body, header = read_payload(payload)
    past = header.expires <= now - PAST_SECONDS and role != "root"
    ended = role == "campaign" and not body.get("questions")
    if past or ended or header.expires > now + ahead_seconds:
        return None
    return Ending(role, header.name, header.version, header.expires, payload)


def endings(workspace: Workspace, now: int, ahead_seconds: int = WARNED_SECONDS) -> list[Ending]:
    """Return which of root and newest documents expire within ``ahead_seconds``, or expired up to 30 days ago."""
    payloads = [("root", read_envelope(workspace.root_bytes, "root").payload)]
    payloads += [
        (item.role, read_envelope(workspace.copy(item), item.role).payload)
        for item in latest_of_each(workspace.history())
    ]
    found = (ending_of(role, payload, now, ahead_seconds) for role, payload in payloads)
    return [each for each in found if each is not None]


def renew(
    workspace: Workspace,
    now: int,
    ahead_seconds: int = WARNED_SECONDS,
    *,
    roles: Collection[str] = RENEWABLE,
    expired: bool = False,
    dry_run: bool = False,
) -> list[Renewed]:
    """Sign the next version of each root, node list and campaign that is about to expire, with the same lifetime.

    Only version and dates change. The next version of a campaign has an id of its own, and devices answer it anew. A
    masked campaign is not renewed: its dealer's keys and sums belong to one version. Nor is one with memory: devices
    would pay for all of it again. Raises the errors of :meth:`Workspace.publish`; what was signed before stays.

    Args:
        ahead_seconds: what ends within this time is renewed.
        roles: roles of the documents to renew, from :data:`RENEWABLE`.
        expired: also renew what has expired in the last 30 days. The root is renewed whenever it has expired.
        dry_run: sign nothing, and tell what would be done.

    Returns:
        Every document of these roles that expires soon, with what was done. A problem with one does not stop the next.
    """
    found = sorted(
        (each for each in endings(workspace, now, ahead_seconds) if each.role in roles),
        key=lambda each: RENEWABLE.index(each.role),
    )
    done = []
    for each in found:
        problem = _problem(workspace, each, now, expired=expired)
        if problem or dry_run:
            done.append(Renewed(each, problem=problem))
        elif each.role == "root":
            done.append(_renew_root(workspace, each, now))
        else:
            done.append(_renew_document(workspace, each, now))
    return done


def _problem(workspace: Workspace, ending: Ending, now: int, *, expired: bool) -> str:
    """Return why a document is not renewed; "" if nothing speaks against it."""
    here = {each.role for each in workspace.key_files()}
    if ending.role == "root" and pending_path(workspace).exists():
        return "the next root waits for signatures; see hearsay trust show"
    if SIGNERS.get(ending.role, "root") not in here:
        return "its keys are kept elsewhere; see hearsay trust renew --sign-with, and hearsay sign"
    found = campaign.parse_campaign(ending.payload) if ending.role == "campaign" else None
    if found is not None and found.masked is not None:
        return "it is masked: make the next campaign with hearsay nodes campaign, and its dealer makes keys for it"
    if found is not None and found.memory is not None:
        return "its devices would pay the whole cost again: make the next campaign with hearsay campaign --memory"
    if ending.role != "root" and ending.expires <= now and not expired:
        return "it has expired already; say --expired if it is to go on"
    return ""


class _OvertakenError(Exception):
    """Another version of the document was signed after it was listed."""


def _lifetime(ending: Ending) -> int:
    return ending.expires - read_payload(ending.payload)[1].issued_at


def _renew_root(workspace: Workspace, ending: Ending, now: int) -> Renewed:
    made = change_root(workspace, RootChange(), now, _lifetime(ending))
    problem = "" if made.in_force else "it waits for signatures; see hearsay trust show"
    return Renewed(ending, made.root.header.version, made.root.header.expires, made.path, problem)


def _renew_document(workspace: Workspace, ending: Ending, now: int) -> Renewed:
    """Sign the next version of a campaign or node list, unless another version was signed after it was listed."""
    body = canonical.unpack(ending.payload)

    def payload_for(version: int, before: bytes | None) -> bytes:
        if before != sha256(ending.payload).digest():  # compared under the workspace's lock
            raise _OvertakenError
        header = header_for(ending.name, version, now, _lifetime(ending))
        dates = {"issued_at": header.issued_at, "not_before": header.not_before, "expires": header.expires}
        return canonical.pack({**body, "version": version, **dates})

    try:
        raw = workspace.publish(ending.role, ending.name, now, payload_for)
    except _OvertakenError:
        return Renewed(ending, problem="another version was signed meanwhile; run hearsay renew again")
    _, header = read_payload(read_envelope(raw, ending.role).payload)
    item = workspace.latest(ending.role, ending.name)
    assert item is not None
    held = workspace.standing(ending.role, raw)
    problem = "" if held.complete else f"it lacks signatures: it has {held}; see hearsay sign, and hearsay trust gather"
    return Renewed(ending, header.version, header.expires, workspace.copy_path(item), problem)


def end_campaign(workspace: Workspace, name: str, now: int) -> bytes:
    """Sign the version that ends a campaign, record it, and return its file. ``name``: see :func:`find_document`.

    It has no questions and ε = 0, and expires no earlier than any other version, so that a device that was off can
    learn of the end. Raises InputError ``campaign_unknown``; ``campaign_ended``: it has ended already; and as
    :meth:`Workspace.publish`.
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
