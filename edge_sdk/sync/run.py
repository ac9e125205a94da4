"""One command for a device that is online now and then: fetch roots, campaigns and models, send, acknowledge.

Every step leaves a state from which the whole may be begun again, so a crash, a power cut or a lost
connection costs a repetition and never a report. One document that is refused does not keep the rest from
happening: refusals are gathered and returned.

How batches leave: they are sealed into ``outbox/`` below the state's folder under a random name, sent under that
name, acknowledged, removed, in this order. A file that is still there was perhaps sent: it goes again, under
the same name, before anything new is sealed. While one waits nothing is sealed, since it would be sealed again.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from edge_sdk.entropy import system_entropy
from edge_sdk.log import INFO, WARNING, note
from edge_sdk.storage.fetched import Fetched, Known
from edge_sdk.storage.outbox import NAME_BYTES, Outbox
from edge_sdk.transport.base import Guarded
from protocol.digest import sha256
from protocol.document import is_text, read_payload
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.errors import DocumentError, HearsayError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edge_sdk.device import Device
    from edge_sdk.transport.base import Transport

MAX_ROOTS = 100
"""Roots that are followed in one run; the next run goes on from there. Dates count on the last one only, so where
that has expired as many again are fetched, up to ten times."""
_MOST_ROOTS = 10 * MAX_ROOTS
_MAX_ROOT_BYTES = 4 << 20
_WILD = frozenset("*")
_PLACES = {"campaign": ("campaigns", "hsc"), "model": ("models", "hsm")}


class Refusal(NamedTuple):
    """A step that was not done: a place, or ``outbox``; the stable reason; a sentence."""

    step: str
    reason: str
    detail: str


class Taken(NamedTuple):
    """A document that was accepted and had not been before."""

    name: str
    version: int


class Outcome(NamedTuple):
    """What one run did.

    Attributes:
        root_version: of the root that is trusted now; ``rotated`` says over how many roots it was reached.
        campaigns, models: accepted in this run.
        unchanged: documents that were accepted before and have not changed.
        absent: places where the source has nothing and need not have.
        sent: files that have arrived.
        released: reports that need not be kept any more.
        disabled: the owner has opted out; no campaign was fetched and nothing was sent.
        refusals: what was not done, and why.
    """

    root_version: int
    rotated: int
    campaigns: tuple[Taken, ...]
    models: tuple[Taken, ...]
    unchanged: int
    absent: tuple[str, ...]
    sent: int
    released: int
    disabled: bool
    refusals: tuple[Refusal, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **self._asdict(),
            "campaigns": [each._asdict() for each in self.campaigns],
            "models": [each._asdict() for each in self.models],
            "absent": list(self.absent),
            "refusals": [each._asdict() for each in self.refusals],
        }


def sync(
    device: Device,
    transport: Transport,
    *,
    campaigns: Iterable[str] = (),
    models: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    entropy: Callable[[int], bytes] = system_entropy,
) -> Outcome:
    """Bring a device and a source up to date with each other. Run it again after whatever happened.

    Fetched are: newer roots, one by one; the campaigns that the device is enrolled in, those that a new root ended
    (they may have been signed again), those that are named here, or that the owner's policy names without a
    wildcard; the models that are installed, named here, or of an enrolled campaign's name. Models come first: a
    campaign that evaluates one is refused without it. A document is accepted only under the name it was asked for.

    Args:
        device: it may be in use by others meanwhile.
        transport: how to reach the source.
        campaigns: names of campaigns to enrol in, if the policy allows them.
        models: names of models to install.
        folder: where to keep what waits to be sent; by default the device's own folder.
        entropy: n → n random bytes, for the names of batches.

    Returns:
        what was done and what was not. Refusals of documents, of the source and of storage are in it.

    Raises:
        InputError: ``argument_invalid``: a device in memory needs a folder, or a name is none.
        StorageError: the state or the folder can not be used at all.
    """
    place = device.folder if folder is None else os.fspath(folder)
    if place is None:
        raise InputError("argument_invalid", "a device whose state is in memory needs a folder for what it sends")
    named = {"campaign": tuple(campaigns), "model": tuple(models)}
    if not all(is_text(name) for names in named.values() for name in names):
        raise InputError("argument_invalid", "the name of a campaign or model is a text of 1 to 1024 bytes that prints")
    fetched = Fetched(place, transport.address)
    try:
        return _Run(device, Guarded(transport), Outbox(place), fetched, entropy).all(named)
    finally:
        fetched.save()


class _Run:
    """One run: what is done, step by step, and what came of it."""

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
        self._taken: dict[str, list[Taken]] = {"campaign": [], "model": []}
        self._absent: list[str] = []
        self._asked: set[str] = set()
        self._unchanged = 0
        self._sent = 0
        self._released = 0

    def all(self, named: Mapping[str, tuple[str, ...]]) -> Outcome:
        """The steps in their order: trust first, what depends on it next, sending whatever came before."""
        device = self._device
        before = device.status()
        self._rotate(before.root_version)
        self._renew_models(named["model"])
        if not before.disabled:
            present = device.status()
            enrolled = {campaign.name: campaign.version for campaign in present.campaigns}
            allowed = [name for name in device.policy.campaigns or () if is_text(name) and not _WILD.intersection(name)]
            self._renew_all("campaign", enrolled, [*enrolled, *present.unsigned, *allowed], named["campaign"])
            self._renew_models(())
        if not before.disabled:
            with self._step("outbox"):
                self._send()
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
        )

    @contextlib.contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """What is refused inside is noted, and the run goes on after it."""
        try:
            yield
        except HearsayError as error:
            self._refuse(step, error)

    def _refuse(self, step: str, error: HearsayError) -> None:
        note(WARNING, "sync: %s: %s", step, error)
        self._refusals.append(Refusal(step, error.reason, error.detail))

    # Documents ------------------------------------------------------------------------------------

    def _rotate(self, version: int) -> None:
        """Fetch the roots after a version until there is none, and follow them as far as they lead."""
        roots: list[bytes] = []
        now = self._device.status().clock.wall
        while self._fetch_roots(version, roots, len(roots) + MAX_ROOTS) and len(roots) < _MOST_ROOTS:
            if not _claims_to_be_late(roots[-1], now):
                break
        self._follow(version, roots)

    def _fetch_roots(self, version: int, roots: list[bytes], most: int) -> bool:
        """Fetch more roots; returns whether it was the number that ended it, so that there may be more."""
        while len(roots) < most and sum(map(len, roots)) < _MAX_ROOT_BYTES:
            place = _root_place(version + len(roots) + 1)
            content = None
            with self._step(place):
                found = self._transport.fetch(place, SIZE_LIMITS["root"])
                content = None if found is None else found.content
                if content is not None:
                    read_envelope(content, "root")  # a page that is served for everything is not read a hundred times
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
        """Models come before campaigns, since a campaign may evaluate one, and after them for names that are new."""
        status = self._device.status()
        installed = {model.name: model.version for model in status.models}
        self._renew_all("model", installed, [*installed, *(campaign.name for campaign in status.campaigns)], named)

    def _renew_all(self, role: str, held: Mapping[str, int], usual: Iterable[str], named: Iterable[str]) -> None:
        asked = set(named)
        for name in dict.fromkeys([*usual, *named]):
            folder, suffix = _PLACES[role]
            place = f"{folder}/{quote(name, safe='')}.{suffix}"
            if place in self._asked:
                continue
            self._asked.add(place)
            with self._step(place):
                self._renew(role, name, place, held.get(name), asked=name in asked)

    def _renew(self, role: str, name: str, place: str, version: int | None, *, asked: bool) -> None:
        """Fetch one document unless it is unchanged, and have the device judge it."""
        known = self._fetched.get(place, version)
        found = self._transport.fetch(place, SIZE_LIMITS[role], "" if known is None else known.tag)
        if found is None:
            if asked:
                raise InputError("not_published", f"the source has nothing at {place}")
            self._absent.append(place)
        elif found.content is None:
            self._unchanged += 1
        else:
            digest = sha256(found.content).digest().hex()
            if known is not None and known.digest == digest:
                self._unchanged += 1
            else:
                version = self._accept(role, found.content, name, version)
            self._fetched.put(place, Known(version or 0, digest, found.tag))

    def _accept(self, role: str, content: bytes, name: str, held: int | None) -> int:
        device = self._device
        if role == "campaign":
            version = device.enrol(content, name=name).header.version
        else:
            version = device.install(content, name=name).version
        if version == held:
            self._unchanged += 1
        else:
            self._taken[role].append(Taken(name, version))
        return version

    # Reports --------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what waits; then seal what is new, and send that.

        Raises:
            HearsayError: as the transport, the drain or the acknowledgement; what waits goes on waiting.
        """
        for path in self._outbox.waiting():
            self._send_file(path)
        path = self._outbox.new(self._entropy(NAME_BYTES))
        if self._device.drain(path):
            self._send_file(path)

    def _send_file(self, path: str) -> None:
        try:
            self._transport.send(f"reports/{os.path.basename(path)}", path)
        except HearsayError:
            if self._outbox.is_whole(path):
                raise
            self._outbox.remove(path)  # another run has sent it, or it can not be read: then it is sealed anew
            return
        self._sent += 1
        note(INFO, "sync: a file of reports has arrived")
        try:
            self._acknowledge(path)
        except StorageError as error:
            if error.reason != "disk_full":
                raise
            self._outbox.remove(path)  # which makes room to note that it has arrived; it is known by its path too
            self._acknowledge(path)
        self._outbox.remove(path)

    def _acknowledge(self, path: str) -> None:
        with contextlib.suppress(InputError):  # sealed by a state before this one, or long ago: it has arrived anyway
            self._released += self._device.ack(path)


def _claims_to_be_late(root: bytes, now: int) -> bool:
    """Whether a root says that it has expired. Nothing is believed: it only decides whether more roots are fetched."""
    with contextlib.suppress(DocumentError):
        return read_payload(read_envelope(root, "root").payload)[1].expires <= now
    return False


def _root_place(version: int) -> str:
    return f"roots/{version}.hst"
