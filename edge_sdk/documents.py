"""What the device believes and from whom: trust root, version floors, accepted documents, evidence.

Documents are kept as they came, with their signatures, so that two that contradict each other are
proof against whoever signed both.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from edge_sdk.state import checked, damaged
from protocol.digest import sha256
from protocol.document import read_payload
from protocol.envelope import read_envelope, verified_by
from protocol.errors import HearsayError
from protocol.stream import SEED_BYTES
from protocol.trust import TrustState, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edge_sdk.state import State
    from protocol.trust import Role

_PROVISIONED = frozenset(("root", "time_floor"))
_SECRETS = frozenset(("secret", "disabled"))
_MAX_DIGITS = 20
_ENDED = "ended:"
"""Before the name of a campaign that a new root ended: it may come back under another signature."""
_MAX_EVIDENCE = 8


class Documents:
    """Reads and writes of trust and documents. Methods that write are called inside a transaction."""

    def __init__(self, state: State) -> None:
        self._state = state

    def trust(self) -> TrustState | None:
        """The trust state; None in a new state.

        Raises:
            StorageError: ``state_damaged``: the stored root is not one that could have been accepted, or
                some of what provisioning wrote is gone.
        """
        meta = dict(self._state.run("SELECT key, value FROM meta"))
        if not meta:
            return None
        if not meta.keys() >= _PROVISIONED or not meta.keys() & _SECRETS:
            raise damaged()
        if "secret" in meta and len(checked(meta["secret"], bytes)) != SEED_BYTES:
            raise damaged()
        root = checked(meta["root"], bytes)
        floors = {}
        for role, name, version, digest in self._state.run("SELECT role, name, version, digest FROM floors"):
            floors[checked(role, str), checked(name, str)] = checked(version, int), checked(digest, bytes)
        floor = _floor(meta["time_floor"])
        restored = None
        with suppress(HearsayError):
            restored = restore(root, floors, floor)
        if restored is None:
            raise damaged()
        return restored

    def time_floor(self) -> int:
        """The earliest time it can be, whatever the wall clock says."""
        text = self._state.meta("time_floor")
        return 0 if text is None else _floor(text)

    def write_trust(self, trust: TrustState) -> None:
        """Replace the trust state."""
        self._state.write_meta("root", trust.root_bytes)
        self._state.write_meta("time_floor", b"%d" % trust.time_floor)
        self._state.run("DELETE FROM floors")
        rows = [(role, name, version, digest) for (role, name), (version, digest) in trust.floors.items()]
        self._state.run_many("INSERT INTO floors VALUES (?, ?, ?, ?)", rows)

    def all(self, role: str) -> list[tuple[str, bytes, bytes]]:
        """Name, digest and payload of the accepted documents of a role, by name.

        Raises:
            StorageError: ``state_damaged``: a payload is not the one that was accepted.
        """
        rows = self._state.run("SELECT name, digest, envelope FROM documents WHERE role = ? ORDER BY name", (role,))
        return [(checked(name, str), digest, _whole(role, envelope, digest)) for name, digest, envelope in rows]

    def payload(self, role: str, digest: bytes) -> bytes | None:
        """The payload of one accepted document, by its digest.

        Raises:
            StorageError: ``state_damaged``: it is not the one that was accepted.
        """
        statement = "SELECT envelope FROM documents WHERE role = ? AND digest = ?"
        for (envelope,) in self._state.run(statement, (role, digest)):
            return _whole(role, envelope, digest)
        return None

    def write(self, role: str, name: str, digest: bytes, envelope: bytes) -> None:
        """Store an accepted document; it replaces the one of the same name."""
        self._state.run("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", (role, name, digest, envelope))
        self._state.remove_meta(_ended_key(role, name))

    def end_unsigned(self, role: str, now_trusted: Role) -> list[str]:
        """Forget the documents that the role's present keys have not signed; their names and version floors stay.

        Returns:
            the names of those that ended.
        """
        ended = []
        for name, envelope in self._state.run("SELECT name, envelope FROM documents WHERE role = ?", (role,)):
            signers = verified_by(read_envelope(checked(envelope, bytes), role), now_trusted.keys)
            if len(signers) < now_trusted.threshold:
                self._state.run("DELETE FROM documents WHERE role = ? AND name = ?", (role, checked(name, str)))
                self._state.write_meta(_ended_key(role, name), b"1")
                ended.append(name)
        return ended

    def ended_unsigned(self, role: str) -> list[str]:
        """Names of the documents that :meth:`end_unsigned` forgot and that have not come back since."""
        prefix = _ended_key(role, "")
        keys = [checked(key, str) for (key,) in self._state.run("SELECT key FROM meta ORDER BY key")]
        return [key[len(prefix) :] for key in keys if key.startswith(prefix)]

    def keep_contradictions(self, role: str, refused: Iterable[bytes]) -> None:
        """Keep signed documents beside those that they contradict: an accepted one, or another next root."""
        if role == "root":
            pairs = list(self._contradicting_roots(refused))
        else:
            pairs = [(accepted, raw) for raw in refused if (accepted := self._accepted_beside(role, raw)) is not None]
        for first, second in pairs:
            if first != second:
                self._keep_pair(role, first, second)

    def _contradicting_roots(self, raws: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Pairs of different roots of one version, the trusted root or signed by its keys; the trusted one first."""
        trusted = self.trust()
        if trusted is None:
            return
        role = trusted.root.roles["root"]
        known = {trusted.root.header.version: trusted.root_bytes}
        for raw in raws:
            envelope = read_envelope(raw, "root")
            if len(verified_by(envelope, role.keys)) < role.threshold:
                continue
            _, header = read_payload(envelope.payload)
            first = known.setdefault(header.version, raw)
            if read_envelope(first, "root").payload != envelope.payload:
                yield first, raw

    def _accepted_beside(self, role: str, raw: bytes) -> bytes | None:
        """The accepted document of the same name as a signed one."""
        _, header = read_payload(read_envelope(raw, role).payload)
        for (envelope,) in self._state.run(
            "SELECT envelope FROM documents WHERE role = ? AND name = ?", (role, header.name)
        ):
            return checked(envelope, bytes)
        return None

    def _keep_pair(self, role: str, accepted: bytes, refused: bytes) -> None:
        """Each pair once, eight pairs at most: whoever has the keys must not fill the disk."""
        statement = "SELECT count(*), coalesce(max(refused = ?), 0) FROM evidence"
        ((count, known),) = self._state.run(statement, (refused,))
        if count < _MAX_EVIDENCE and not known:
            values = (role, accepted, refused)
            self._state.run("INSERT INTO evidence (role, accepted, refused) VALUES (?, ?, ?)", values)

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Pairs of signed documents that contradict each other: role, the accepted, the refused envelope."""
        rows = self._state.run("SELECT role, accepted, refused FROM evidence ORDER BY sequence")
        return [(checked(role, str), checked(first, bytes), checked(second, bytes)) for role, first, second in rows]


def _ended_key(role: str, name: str) -> str:
    return f"{_ENDED}{role}:{name}"


def _floor(stored: object) -> int:
    text = checked(stored, bytes)
    if not text.isdigit() or len(text) > _MAX_DIGITS:
        raise damaged()
    return int(text)


def _whole(role: str, envelope: object, digest: object) -> bytes:
    """The payload of a stored document, if it still is the one that was accepted."""
    payload = None
    with suppress(HearsayError):
        payload = read_envelope(checked(envelope, bytes), role).payload
    if payload is None or sha256(payload).digest() != digest:
        raise damaged()
    return payload
