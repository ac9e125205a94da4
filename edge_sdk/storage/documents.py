"""Store the trust root, the lowest versions that may be accepted (floors), documents, and contradictions.

Documents are stored with their signatures, so two contradictory ones prove that one publisher signed both.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from edge_sdk.storage.rows import DOCUMENTS, EVIDENCE, FLOORS, PARTY_KEYS, Rows, damaged, number_in
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope, verified_by
from protocol.documents.payload import read_payload
from protocol.documents.trust import TrustState, restore
from protocol.errors import HearsayError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edge_sdk.storage.database import State
    from protocol.documents.trust import Role

_PROVISIONED = frozenset(("root", "time_floor"))
_SECRETS = frozenset(("secret", "disabled"))
_ENDED = "ended:"
"""Prefix of the key that notes a campaign that a new root ended. The campaign may return under a new signature."""
_MAX_EVIDENCE = 8
DEVICE, NODE = "device", "node"
"""Kinds of a state: it accepts either campaigns for devices or campaigns for nodes, never both."""
_KIND = "kind"


class Documents:
    """Reads and writes trust and documents. For methods that write, the caller must have opened a transaction.

    Methods that read raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) for a row that was changed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._floors = Rows(state, FLOORS)
        self._documents = Rows(state, DOCUMENTS)
        self._evidence = Rows(state, EVIDENCE)
        self._books = Rows(state, PARTY_KEYS)

    def kind(self) -> str | None:
        """Return which campaigns the state accepts: :data:`DEVICE` or :data:`NODE`; None before the first campaign.

        Older software, which knew devices only, has not stored the kind.
        """
        stored = self._state.meta(_KIND)
        if stored is not None:
            if stored.decode(errors="replace") not in (DEVICE, NODE):
                raise damaged()
            return stored.decode()
        if self._state.run("SELECT 1 FROM spool LIMIT 1"):
            return DEVICE
        payloads = (payload for _, _, payload in self.all("campaign"))
        return None if all(parse_campaign(payload).ended for payload in payloads) else DEVICE

    def write_kind(self, kind: str) -> None:
        """Store which campaigns the state accepts, :data:`DEVICE` or :data:`NODE`, until a reset makes a new state."""
        self._state.write_meta(_KIND, kind.encode())

    def trust(self) -> TrustState | None:
        """Return the stored trust root, version floors and time floor; None in a state that is not provisioned yet.

        Raise ``state_damaged`` if the stored root could not have been accepted, or if an entry that provisioning writes
        is missing or malformed.
        """
        with self._state.reading():
            meta, known = self._state.all_meta(), self._floors.all()
        if not meta:
            return None
        if not meta.keys() >= _PROVISIONED or not meta.keys() & _SECRETS:
            raise damaged()
        if "secret" in meta and len(meta["secret"]) != SEED_BYTES:
            raise damaged()
        root = meta["root"]
        floors = {(role, name): (version, digest) for _, role, name, version, digest in known}
        floor = number_in(meta["time_floor"])
        restored = None
        with suppress(HearsayError):
            restored = restore(root, floors, floor)
        if restored is None:
            raise damaged()
        return restored

    def time_floor(self) -> int:
        """Return the earliest possible time by signed documents' dates, in seconds since 1970; 0 in a new state."""
        text = self._state.meta("time_floor")
        return 0 if text is None else number_in(text)

    def write_trust(self, trust: TrustState) -> None:
        """Replace the stored root, time floor (latest date of documents) and version floors by those of ``trust``."""
        self._state.write_meta("root", trust.root_bytes)
        self._state.write_meta("time_floor", b"%d" % trust.time_floor)
        self._floors.rewrite([(*name, *floor) for name, floor in sorted(trust.floors.items())])

    def all(self, role: str) -> list[tuple[str, bytes, bytes]]:
        """Return name, digest and payload of each accepted document of ``role`` (``campaign``, …), sorted by name."""
        with self._state.reading():
            return sorted((name, digest, self._payload(number, role)) for number, name, digest in self._of(role))

    def _of(self, role: str) -> list[tuple[int, str, bytes]]:
        """Return number, name and digest of each document of a role."""
        return [(number, name, digest) for number, of, name, digest in self._documents.all() if of == role]

    def _payload(self, number: int, role: str) -> bytes:
        return _payload(self._documents.body(number), role)

    def payload(self, role: str, digest: bytes) -> bytes | None:
        """Return the payload of the accepted document of ``role`` with this ``digest``; None if there is none."""
        with self._state.reading():
            for number, *_ in self._documents.some("WHERE digest = ? AND role = ?", (digest, role)):
                return self._payload(number, role)
            # No row was found. This reads and checks all rows, so it raises if one is damaged or missing.
            self._of(role)
        return None

    def write(self, role: str, name: str, digest: bytes, envelope: bytes) -> None:
        """Store an accepted document, a whole file, in place of an older one of the same role and name."""
        for number, known, _ in self._of(role):
            if known == name:
                self._documents.replace((number, role, name, digest), envelope)
                break
        else:
            self._documents.add((None, role, name, digest), envelope)
        self._state.remove_meta(_ended_key(role, name))

    def end_unsigned(self, role: str, now_trusted: Role) -> list[str]:
        """Delete the documents of ``role`` that too few of the keys ``now_trusted`` have signed. Return their names.

        The names are stored, for :meth:`ended_unsigned`. Version floors stay.
        """
        ended = []
        for number, name, _ in self._of(role):
            signers = verified_by(read_envelope(self._documents.body(number), role), now_trusted.keys)
            if len(signers) < now_trusted.threshold:
                ended.append((number, name))
        numbers = {number for number, _ in ended}
        self._documents.remove(lambda row: row[0] in numbers)
        for _, name in ended:
            self._state.write_meta(_ended_key(role, name), b"1")
        return [name for _, name in ended]

    def ended_unsigned(self, role: str) -> list[str]:
        """Return the names of documents of ``role`` that ended because a new root's keys had not signed them.

        A name is left out once a document of this name is accepted again.
        """
        prefix = _ended_key(role, "")
        return [key.removeprefix(prefix) for key in self._state.all_meta() if key.startswith(prefix)]

    def key_books(self) -> dict[str, int]:
        """Return id of each masked campaign in hexadecimal digits → version of its newest accepted key book."""
        return {row[0]: row[1] for row in self._books.all()}

    def keep_contradictions(self, role: str, refused: Iterable[bytes]) -> None:
        """Store ``refused`` documents as evidence, each with the document that it contradicts; eight pairs at most.

        A campaign or model is stored with the accepted one of its name, if the two differ. Roots are compared with the
        trusted root and with each other.
        """
        if role == "root":
            pairs = list(self._contradicting_roots(refused))
        else:
            pairs = [(accepted, raw) for raw in refused if (accepted := self._accepted_beside(role, raw)) is not None]
        for first, second in pairs:
            if first != second:
                self._keep_pair(role, first, second)

    def _contradicting_roots(self, raws: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs of different roots of one version. Each root is the trusted one, or signed by its keys."""
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
        """Return the accepted document with the same name as the signed document ``raw``; None if there is none."""
        _, header = read_payload(read_envelope(raw, role).payload)
        for number, name, _ in self._of(role):
            if name == header.name:
                return self._documents.body(number)
        return None

    def _keep_pair(self, role: str, accepted: bytes, refused: bytes) -> None:
        """Store a pair of files, unless it is stored already or eight are: a publisher must not fill the disk."""
        known = self.evidence()
        if len(known) < _MAX_EVIDENCE and all(refused != kept for _, _, kept in known):
            self._evidence.add((None, role, accepted, refused))

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Return the stored pairs of contradicting documents: role, file that came first, refused file."""
        return [(role, accepted, refused) for _, role, accepted, refused in self._evidence.all()]


@lru_cache(maxsize=4)  # every report reads the same campaign
def _payload(envelope: bytes, role: str) -> bytes:
    return read_envelope(envelope, role).payload


def _ended_key(role: str, name: str) -> str:
    return f"{_ENDED}{role}:{name}"
