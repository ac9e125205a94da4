"""Synchronise a device that is online at times: send batches, acknowledge them, fetch what is new.

Batches are sent first, so that a source that keeps documents waiting does not make the device drop reports. The run can
be repeated after any step. A batch is sealed into ``outbox/`` under a random name, sent under that name, acknowledged,
and removed. While a file waits, it is sent again under its name, and no new file is sealed.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from edge_sdk.arguments import path_of, system_entropy
from edge_sdk.log import INFO, WARNING, note
from edge_sdk.storage.outbox import NAME_BYTES, Fetched, FetchNote, Outbox
from edge_sdk.transport.base import refusals
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.payload import is_text, read_payload
from protocol.errors import DocumentError, HearsayError, InputError, StorageError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edge_sdk.device import Device
    from edge_sdk.transport.base import Found, Transport


class Refusal(NamedTuple):
    """A step of a run that was refused.

    Attributes:
        step: the path of a document at the source; ``outbox`` (sealing, sending, acknowledging); or ``policy``.
        reason, detail: the stable reason (docs/reference/reasons.md), and one sentence on what happened.
        status: exit status of a program that ends with the step's error (docs/reference/output.md).
    """

    step: str
    reason: str
    detail: str
    status: int = 1


class AcceptedDocument(NamedTuple):
    """A newly accepted document."""

    name: str
    version: int


class Outcome(NamedTuple):
    """The results of one run.

    Attributes:
        root_version: version of the root that is trusted now.
        rotated: number of new roots that were accepted in this run.
        campaigns, models, lists, key_books: documents that were accepted in this run; the last two are a node's lists
            of nodes, and its key books by the names of their campaigns.
        unchanged: number of documents that were accepted before and have not changed.
        absent: paths at which the source has no document. A document that an argument of :func:`sync` names is not
            listed here, but refused as ``not_published``.
        sent: number of files that have arrived, including files that were sent again.
        released: number of reports that were acknowledged and deleted.
        disabled: the owner had opted out when the run began, so no campaign was fetched and no file was sent.
    """

    root_version: int
    rotated: int
    campaigns: tuple[AcceptedDocument, ...]
    models: tuple[AcceptedDocument, ...]
    unchanged: int
    absent: tuple[str, ...]
    sent: int
    released: int
    disabled: bool
    refusals: tuple[Refusal, ...]
    lists: tuple[AcceptedDocument, ...] = ()
    key_books: tuple[AcceptedDocument, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as a dictionary for JSON."""
        from edge_sdk.status import as_json

        shown: dict[str, Any] = as_json(self)
        return shown


MAX_ROOTS = 100
"""Most roots that one run fetches at once; the next run continues after them. Only the last root's dates count. If that
root has expired, the same run fetches as many again, up to ten times this number in all."""
_MOST_ROOTS = 10 * MAX_ROOTS
_MAX_ROOT_BYTES = 4 << 20
_WILD = frozenset("*")
_PLACES = {
    "campaign": ("campaigns", "hsc"), "model": ("models", "hsm"), "nodes": ("nodes", "hsl"), "keys": ("keys", "hsk"),
}  # fmt: skip


def sync(
    device: Device,
    transport: Transport,
    *,
    campaigns: Iterable[str] = (),
    models: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    entropy: Callable[[int], bytes] = system_entropy,
) -> Outcome:
    """Send the device's reports to a source, and fetch what is new there. After any failure the run may be repeated.

    The run fetches newer roots, campaigns and models; for a :class:`edge_sdk.Node` also the lists of nodes and the key
    books of its campaigns. These campaigns are fetched: every enrolled campaign; every campaign that a new root ended,
    since it may have been signed again; every name in ``campaigns``, or in the owner's policy without a wildcard. These
    models are fetched: every installed model; every name in ``models``; a model with the name of an enrolled campaign.
    Models come first, since a campaign is refused without the model that it evaluates. A document is accepted only
    under the name by which it was fetched.

    Args:
        device: the device; other threads and processes may use it meanwhile.
        campaigns: names of campaigns to enrol in, if the policy allows them.
        folder: the folder of the outbox; by default the device's state folder.
        entropy: n → n random bytes, for the names of batches.

    Returns:
        The results. Refusals of documents, of the source and of the outbox are listed in it and not raised.

    Raises:
        InputError: ``argument_invalid``: a device in memory needs a folder, or a name is not a printable text of 1 to
            1024 bytes.
        StorageError: the device's status can not be read.
    """
    place = device.folder if folder is None else path_of(folder, "folder")
    if place is None:
        raise InputError("argument_invalid", "a device whose state is in memory needs a folder for what it sends")
    named = {"campaign": tuple(campaigns), "model": tuple(models)}
    if not all(is_text(name) for names in named.values() for name in names):
        raise InputError("argument_invalid", "the name of a campaign or model is a text of 1 to 1024 bytes that prints")
    fetched = Fetched(place, transport.address)
    try:
        return _Run(device, transport, Outbox(place), fetched, entropy).all(named)
    finally:
        fetched.save()


class _Run:
    def __init__(
        self,
        device: Device,
        transport: Transport,
        outbox: Outbox,
        fetched: Fetched,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._device = device
        self._transport = transport
        self._outbox = outbox
        self._fetched = fetched
        self._entropy = entropy
        self._refusals: list[Refusal] = []
        self._taken: dict[str, list[AcceptedDocument]] = {role: [] for role in _PLACES}
        self._absent: list[str] = []
        self._asked: set[str] = set()
        self._unchanged = 0
        self._root_expired_at = 0
        self._sent = 0
        self._released = 0

    def all(self, named: Mapping[str, tuple[str, ...]]) -> Outcome:
        """Send batches, then fetch roots, models and campaigns. A refused step does not stop the others."""
        device = self._device
        before = device.status()
        if not before.disabled:
            with self._step("outbox"):
                self._send()
        self._rotate(before.root_version)
        trusted = device.status()
        self._root_expired_at = trusted.root_expires if trusted.root_expired else 0
        self._renew_models(named["model"])
        if not before.disabled:
            present = device.status()
            enrolled = {campaign.name: campaign.version for campaign in present.campaigns}
            usual = [*enrolled, *present.unsigned, *self._names_allowed()]
            self._renew_all("campaign", enrolled, usual, named["campaign"])
            self._renew_models(())
            self._renew_followed()
        version = device.status().root_version
        return Outcome(
            root_version=version,
            rotated=version - before.root_version,
            campaigns=tuple(self._taken["campaign"]),
            models=tuple(self._taken["model"]),
            unchanged=self._unchanged,
            absent=tuple(self._absent),
            sent=self._sent,
            released=self._released,
            disabled=before.disabled,
            refusals=tuple(self._refusals),
            lists=tuple(self._taken["nodes"]),
            key_books=tuple(self._taken["keys"]),
        )

    def _names_allowed(self) -> list[str]:
        """Return the campaigns that the owner's policy names; none, with a refusal noted, if it can not be read."""
        with self._step("policy"):
            names = self._device.policy.campaigns or ()
            return [name for name in names if is_text(name) and not _WILD.intersection(name)]
        return []

    @contextlib.contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """Add a HearsayError of the body of ``with`` to the refusals."""
        try:
            yield
        except HearsayError as error:
            self._refuse(step, error)

    def _refuse(self, step: str, error: HearsayError) -> None:
        note(WARNING, "sync: %s: %s", step, error)
        self._refusals.append(Refusal(step, error.reason, error.detail, error.status))

    def _fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        with refusals():
            found = self._transport.fetch(place, limit, tag)
            if found is not None and found.content is not None and len(found.content) > limit:
                raise DocumentError("too_large", f"what is at {place} has more than {limit} bytes")
            return found

    def _rotate(self, version: int) -> None:
        """Fetch the roots after ``version`` until there are no more, and let the device accept them."""
        roots: list[bytes] = []
        now = self._device.status().clock.wall
        while self._fetch_roots(version, roots, len(roots) + MAX_ROOTS) and len(roots) < _MOST_ROOTS:
            if not _claims_to_be_expired(roots[-1], now):
                break
        self._follow(version, roots)

    def _fetch_roots(self, version: int, roots: list[bytes], most: int) -> bool:
        """Append roots after ``version`` to ``roots``. Return whether there are ``most``: the source may have more."""
        while len(roots) < most and sum(map(len, roots)) < _MAX_ROOT_BYTES:
            place = _root_place(version + len(roots) + 1)
            content = None
            with self._step(place):
                found = self._fetch(place, SIZE_LIMITS["root"])
                content = None if found is None else found.content
                if content is not None:
                    # Without this check a server with one page for every address would be asked MAX_ROOTS times.
                    read_envelope(content, "root")
            if content is None or self._refused(place):
                return False
            roots.append(content)
        return len(roots) == most

    def _follow(self, version: int, roots: list[bytes]) -> None:
        if roots:
            with self._step(_root_place(version + 1)):
                reached, problem = self._device.follow(roots)
                if problem is not None:
                    self._refuse(_root_place(reached + 1), problem)

    def _refused(self, step: str) -> bool:
        return any(refusal.step == step for refusal in self._refusals)

    def _renew_models(self, named: Iterable[str]) -> None:
        """Fetch models: before campaigns, which may evaluate them, and after, for models named like new campaigns."""
        status = self._device.status()
        installed = {model.name: model.version for model in status.models}
        self._renew_all("model", installed, [*installed, *(campaign.name for campaign in status.campaigns)], named)

    def _renew_followed(self) -> None:
        for each in self._device.followed():
            place = _place(each.role, each.name)
            if place not in self._asked:
                self._asked.add(place)
                with self._step(place):
                    self._renew(*each[:4], asked=False, most_bytes=each.most_bytes)

    def _renew_all(self, role: str, held: Mapping[str, int], usual: Iterable[str], named: Iterable[str]) -> None:
        asked = set(named)
        for name in dict.fromkeys([*usual, *named]):
            place = _place(role, name)
            if place in self._asked:
                continue
            self._asked.add(place)
            with self._step(place):
                accept = partial(self._enrol if role == "campaign" else self._install, name)
                most = SIZE_LIMITS[role]
                self._renew(role, name, held.get(name), accept, asked=name in asked, most_bytes=most)

    def _renew(
        self,
        role: str,
        name: str,
        version: int | None,
        accept: Callable[[bytes], int],
        *,
        asked: bool,
        most_bytes: int,
    ) -> None:
        """Fetch one document unless it is unchanged, and let the device verify and store it by ``accept``."""
        place = _place(role, name)
        known = self._fetched.get(place, version)
        found = self._fetch(place, most_bytes, "" if known is None else known.tag)
        if found is None:
            if asked:
                raise InputError("not_published", f"the source has nothing at {place}")
            self._absent.append(place)
        elif found.content is None:
            self._note_unchanged()
        else:
            digest = sha256(found.content).digest().hex()
            if known is not None and known.digest == digest:
                self._note_unchanged()
            else:
                held, version = version, accept(found.content)
                if version == held:
                    self._unchanged += 1
                else:
                    self._taken[role].append(AcceptedDocument(name, version))
            self._fetched.put(place, FetchNote(version or 0, digest, found.tag))

    def _note_unchanged(self) -> None:
        if self._root_expired_at:
            from protocol.words import date  # imported here, since most runs do not need it

            raise DocumentError("expired", f"the trust root expired at {date(self._root_expired_at)}")
        self._unchanged += 1

    def _enrol(self, name: str, content: bytes) -> int:
        return self._device.enrol(content, name=name).header.version

    def _install(self, name: str, content: bytes) -> int:
        return self._device.install(content, name=name).version

    def _send(self) -> None:
        self._outbox.remove_unfinished()
        for path in self._outbox.waiting():
            self._send_file(path)
        # A file holds one kind of answers. A node that answers both masked and other campaigns needs several files.
        while (ending := self._device.file_ending()) is not None:
            path = self._outbox.new(self._entropy(NAME_BYTES), ending)
            if not self._device.drain(path):
                break
            self._send_file(path)

    def _send_file(self, path: str) -> None:
        try:
            with refusals():
                self._transport.send(f"reports/{os.path.basename(path)}", path)
        except HearsayError:
            if self._outbox.is_whole(path):
                raise
            # Another run has sent and removed it; or it is damaged, and its reports are sealed again.
            self._outbox.remove(path)
            return
        self._sent += 1
        note(INFO, "sync: a file of reports has arrived")
        try:
            self._acknowledge(path)
        except StorageError as error:
            if error.reason != "disk_full":
                raise
            # This frees space on the full disk. The acknowledgement finds a removed file by its path.
            self._outbox.remove(path)
            self._acknowledge(path)
        self._outbox.remove(path)

    def _acknowledge(self, path: str) -> None:
        # A file that was sealed before a reset, or long ago, is unknown to the device: `ack` refuses it. The server has
        # the file all the same, so this is no error.
        with contextlib.suppress(InputError):
            self._released += self._device.ack(path)


def _claims_to_be_expired(root: bytes, now: int) -> bool:
    """Return whether an unverified root states that it has expired. It only decides whether more roots are fetched."""
    with contextlib.suppress(DocumentError):
        return read_payload(read_envelope(root, "root").payload)[1].expires <= now
    return False


def _place(role: str, name: str) -> str:
    folder, suffix = _PLACES[role]
    return f"{folder}/{quote(name, safe='')}.{suffix}"


def _root_place(version: int) -> str:
    return f"roots/{version}.hst"
