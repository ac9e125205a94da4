"""The trust root, and a pure state machine that accepts or refuses signed documents.

The bytes of a document, the current state and one reading of the wall clock (seconds since 1970, perhaps wrong) go in;
a verdict and the next state come out. An error leaves the state unchanged. A file that can not be read is refused as
``too_large``, ``malformed``, ``unsupported_version``, ``wrong_role`` or ``unknown_crit``.
Source: docs/formats.md, section 5 (order of acceptance); roles and versions follow The Update Framework.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.documents.envelope import KEY_BYTES, MAX_SIGNATURES, SIGNERS, Envelope, keyid, read_envelope, verified_by
from protocol.documents.payload import HEADER_KEYS, Header, check_understood, read_field, read_integer, read_payload
from protocol.errors import DocumentError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROLES = ("root", "campaign", "model")
UNDERSTOOD = frozenset((*HEADER_KEYS, "keys", "roles"))
"""Payload keys of a root that this reader understands."""


class Role(NamedTuple):
    """The public keys that may sign one kind of document, and the number of them that must sign."""

    keys: frozenset[bytes]
    threshold: int


class Root(NamedTuple):
    """A parsed trust root: which keys may sign which kind of document."""

    header: Header
    roles: Mapping[str, Role]

    def to_payload(self) -> dict[str, Any]:
        """Return the fields of the root's payload: header, keys and roles."""
        publics = sorted(set().union(*(role.keys for role in self.roles.values())))
        return {
            **self.header.to_dict(),
            "keys": {keyid(public).hex(): public for public in publics},
            "roles": {
                name: {"keyids": sorted(keyid(public).hex() for public in role.keys), "threshold": role.threshold}
                for name, role in self.roles.items()
            },
        }


class TrustState(NamedTuple):
    """The memory by which a device refuses old, foreign and contradictory documents.

    Attributes:
        root_bytes: the envelope of the newest accepted root.
        root: the same root, parsed.
        floors: version floors: (role, name) → (version, SHA-256 of the payload) of the newest accepted document. A new
            root may drop the floors of a role, see :func:`install_roots`.
        time_floor: the largest ``issued_at``, in seconds, of the root and of the documents accepted under it. A new
            root sets it to its own ``issued_at``.
    """

    root_bytes: bytes
    root: Root
    floors: Mapping[tuple[str, str], tuple[int, bytes]]
    time_floor: int


class Verdict(NamedTuple):
    """A document that a device may accept. The caller accepts it by storing the document and ``state``.

    Attributes:
        role: ``campaign``, ``model`` or ``nodes``.
        header: name, version and dates of the document.
        payload: the signed bytes.
        body: the parsed payload.
        digest: SHA-256 of the payload; the id of a campaign.
        now: the time, in seconds, with which all dates of this acceptance are compared.
        state: the next state, to be stored in one transaction with the document.
    """

    role: str
    header: Header
    payload: bytes
    body: dict[str, Any]
    digest: bytes
    now: int
    state: TrustState


def parse_root(body: dict[str, Any], header: Header) -> Root:
    """Read the roles from ``body``, the fields of a root's payload; ``header`` becomes the result's header.

    Raises:
        DocumentError: ``malformed``: a key id that does not follow from its key, a repeated or unknown key id, roles
            other than :data:`ROLES`, a role with more than 16 keys, or a threshold of zero or above the number of keys.
    """
    keys = read_field(body, "keys", dict)
    for hint, public in keys.items():
        if not isinstance(public, bytes) or len(public) != KEY_BYTES or keyid(public).hex() != hint:
            raise DocumentError("malformed", "a key id of the root is not that of its key")
    entries = read_field(body, "roles", dict)
    if set(entries) != set(ROLES):
        raise DocumentError("malformed", f"the root's roles are not {', '.join(ROLES)}")
    roles = {}
    for name in ROLES:
        entry = read_field(entries, name, dict)
        keyids = read_field(entry, "keyids", list)
        if len(keyids) > MAX_SIGNATURES:
            raise DocumentError("malformed", f"role {name} has more than {MAX_SIGNATURES} keys")
        if not all(isinstance(hint, str) and hint in keys for hint in keyids) or len(set(keyids)) != len(keyids):
            raise DocumentError("malformed", f"the key ids of role {name} are not distinct keys of the root")
        threshold = read_integer(entry, "threshold", 1, len(keyids))
        roles[name] = Role(frozenset(keys[hint] for hint in keyids), threshold)
    return Root(header, roles)


def pin(raw: bytes, wall_clock: int) -> TrustState:
    """Return the first state of a device: trust in the root file ``raw`` that the owner has put on it.

    Raises:
        DocumentError: the file can not be read; ``bad_signature``: fewer keys have signed the root than the root itself
            demands; ``not_yet_valid``, ``expired``.
    """
    root = _read_own_root(raw)
    _check_dates(root.header, max(wall_clock, root.header.issued_at), "root")
    return TrustState(raw, root, {}, root.header.issued_at)


def restore(raw: bytes, floors: Mapping[tuple[str, str], tuple[int, bytes]], time_floor: int) -> TrustState:
    """Rebuild a device's stored state from the root file, the version floors and the time floor (:class:`TrustState`).

    The root's dates are not checked again.

    Raises:
        DocumentError: the root can not be read; ``bad_signature``: it does not meet its own threshold.
    """
    return TrustState(raw, _read_own_root(raw), floors, time_floor)


@lru_cache(maxsize=4)  # every step on a device reads the same stored root
def _read_own_root(raw: bytes) -> Root:
    """Parse a root and check its signatures against its own root role: the owner vouches for a first root."""
    envelope = read_envelope(raw, "root")
    root = _parse_root_payload(envelope)
    _check_threshold(envelope, root.roles["root"])
    check_understood(root.header, UNDERSTOOD)
    return root


def _parse_root_payload(envelope: Envelope) -> Root:
    body, header = read_payload(envelope.payload)
    return parse_root(body, header)


def install_roots(state: TrustState, raws: Iterable[bytes], wall_clock: int) -> TrustState:
    """Return the state after following a chain of newer roots from the stored root to the newest that can be reached.

    Each step goes to the next version. The new root must be signed by enough of the old root's keys and by enough of
    its own. After each step a role's version floors, the newest accepted versions of its documents, stay if the number
    of its keys that stay reaches its new threshold; else they are dropped. So the number of roots per call does not
    matter. The time floor becomes the ``issued_at`` of the newest root reached, also if that is earlier. Only the
    newest root reached must be in date; without a step no date is checked. Roots that can not be reached are ignored if
    at least one given root was a step, the stored root, or an older root that the keys of the stored or of a reached
    root have signed. ``raws`` holds root files in any order.

    Raises:
        DocumentError: ``bad_signature``: no given root can be reached, or a next root lacks the signatures of its own
            threshold; ``not_yet_valid`` or ``expired``: the newest root reached is not in date; ``equivocation``: two
            different roots of one version; ``rollback``: a root of another workspace, signed by the keys of the stored
            or of a reached root; or a file can not be read.
    """
    pending = {raw: read_envelope(raw, "root") for raw in raws}
    given = len(pending)
    reached = state
    seen = _Seen({}, {})
    while (step := _next_root(reached.root, reached.root_bytes, pending, seen)) is not None:
        raw, root = step
        del pending[raw]
        reached = TrustState(raw, root, _kept_floors(reached, root), root.header.issued_at)
    if pending and len(pending) == given:
        raise DocumentError(
            "bad_signature", "the root is not signed by both its predecessor and itself, or one in between is missing"
        )
    if reached is not state:
        _check_dates(reached.root.header, max(wall_clock, reached.time_floor), "root")
    return reached


def follow_roots(state: TrustState, raws: Iterable[bytes], wall_clock: int) -> tuple[TrustState, DocumentError | None]:
    """Follow a chain of newer roots, given in rising order, to the newest root that is in date. Errors are returned.

    Each root is verified once. The rules of a step are those of :func:`install_roots`.

    Returns:
        the state of that root, or ``state`` itself if no root is a step; and the error by which later roots were not
            followed, or None if all were.
    """
    reached, chosen = state, state
    late: DocumentError | None = None
    try:
        for raw in raws:
            pending = {raw: read_envelope(raw, "root")}
            step = _next_root(reached.root, reached.root_bytes, pending, _Seen({}, {}))
            if step is None and pending:
                # The root can not be reached. This call raises the error that says so.
                install_roots(reached, [raw], wall_clock)
            elif step is not None:
                reached = TrustState(*step, _kept_floors(reached, step[1]), step[1].header.issued_at)
                late = _late(reached.root.header, max(wall_clock, reached.time_floor))
                chosen = chosen if late is not None else reached
    except DocumentError as error:
        return chosen, late or error
    return chosen, late


def _late(header: Header, now: int) -> DocumentError | None:
    """Return the error of a root that is out of date, or None if it is in date."""
    try:
        _check_dates(header, now, "root")
    except DocumentError as error:
        return error
    return None


def reconcile_pinned(state: TrustState, raw: bytes, wall_clock: int) -> TrustState:
    """Return the state after following the root that the owner put on the device, if it is newer than the stored one.

    The stored root itself is ignored. So is an older root of the same name, since the device has followed the chain
    beyond it. A newer root must be a step from the stored root.

    Raises:
        DocumentError: ``bad_signature``: the root does not meet its own threshold, or is no step from the stored root;
            or another reason of :func:`install_roots`.
    """
    pinned = _read_own_root(raw)
    if pinned.header.name == state.root.header.name and pinned.header.version < state.root.header.version:
        return state
    return install_roots(state, [raw], wall_clock)


class _Seen(NamedTuple):
    """Results about the roots of a chain, kept so that the time is proportional to the chain's length.

    ``signers`` maps (root file, keys) to the keys that have signed; ``roots`` has files with enough signatures, parsed.
    """

    signers: dict[tuple[bytes, frozenset[bytes]], frozenset[bytes]]
    roots: dict[bytes, Root]


def _next_root(
    current: Root, current_raw: bytes, pending: dict[bytes, Envelope], seen: _Seen
) -> tuple[bytes, Root] | None:
    """Return the next root after ``current`` among ``pending``, or None. Delete roots from ``pending`` that are old."""
    role = current.roles["root"]
    steps = {}
    for raw, envelope in list(pending.items()):
        if raw == current_raw:
            del pending[raw]
            continue
        if (raw, role.keys) not in seen.signers:
            seen.signers[raw, role.keys] = verified_by(envelope, role.keys)
        if len(seen.signers[raw, role.keys]) < role.threshold:
            continue
        root = seen.roots.get(raw) or seen.roots.setdefault(raw, _parse_root_payload(envelope))
        if root.header.version < current.header.version:
            del pending[raw]
            continue
        _check_same_chain(current, current_raw, root, envelope)
        if root.header.version == current.header.version:
            del pending[raw]
        elif root.header.version == current.header.version + 1:
            _check_threshold(envelope, root.roles["root"])
            check_understood(root.header, UNDERSTOOD)
            steps[envelope.payload] = raw, root
    if len(steps) > 1:
        raise DocumentError("equivocation", "two different next roots are signed by the same keys")
    return next(iter(steps.values()), None)


def _check_same_chain(current: Root, current_raw: bytes, root: Root, envelope: Envelope) -> None:
    if root.header.name != current.header.name:
        raise DocumentError("rollback", "the root is that of another workspace")
    if root.header.version == current.header.version:
        stored = read_envelope(current_raw, "root")
        if stored.payload != envelope.payload:
            raise DocumentError("equivocation", "two different roots of one version are signed by the same keys")


def _kept_floors(old: TrustState, new: Root) -> dict[tuple[str, str], tuple[int, bytes]]:
    """Return the version floors of those roles that keep at least as many old keys as the role's new threshold."""
    kept = {}
    for (role, name), floor in old.floors.items():
        shared = old.root.roles[SIGNERS[role]].keys & new.roles[SIGNERS[role]].keys
        if len(shared) >= new.roles[SIGNERS[role]].threshold:
            kept[role, name] = floor
    return kept


def verify(state: TrustState, raw: bytes, role: str, wall_clock: int, known: frozenset[str]) -> Verdict:
    """Return the verdict on a document that is signed, in date and not older than the newest accepted version.

    These are the steps of the order of acceptance up to the dates. The caller must then check value limits and the
    owner's policy, and store the document and ``Verdict.state`` in one transaction. ``role`` is ``campaign``, ``model``
    or ``nodes``, the list of nodes, which the role ``campaign`` signs; ``known`` are payload keys that the caller
    reads.

    Raises:
        DocumentError: the file can not be read; ``bad_signature``: too few of the role's keys have signed it;
            ``rollback``: a newer version was accepted before; ``equivocation``: another document of this version was
            accepted before; ``not_yet_valid``, ``expired``: the document or the trusted root is not in date.
    """
    envelope = read_envelope(raw, role)
    _check_threshold(envelope, state.root.roles[SIGNERS[role]])
    body, header = read_payload(envelope.payload)
    now = max(wall_clock, state.time_floor, header.issued_at)
    check_understood(header, known)
    digest = sha256(envelope.payload).digest()
    _check_floor(state, role, header, digest)
    _check_dates(state.root.header, now, "trust root")
    _check_dates(header, now, role)
    floors = {**state.floors, (role, header.name): (header.version, digest)}
    time_floor = max(state.time_floor, header.issued_at)
    return Verdict(
        role, header, envelope.payload, body, digest, now, state._replace(floors=floors, time_floor=time_floor)
    )


def _check_threshold(envelope: Envelope, role: Role) -> None:
    signers = verified_by(envelope, role.keys)
    if len(signers) < role.threshold:
        raise DocumentError("bad_signature", f"{len(signers)} of the {role.threshold} needed signatures hold")


def _check_floor(state: TrustState, role: str, header: Header, digest: bytes) -> None:
    floor = state.floors.get((role, header.name))
    if floor is None:
        return
    version, known_digest = floor
    if header.version < version:
        raise DocumentError("rollback", f"version {header.version} is older than version {version}, already accepted")
    if header.version == version and digest != known_digest:
        raise DocumentError(
            "equivocation", f"another version {version} was already accepted; its publisher said two things"
        )


def _check_dates(header: Header, now: int, what: str) -> None:
    if header.not_before <= now < header.expires:
        return
    from protocol.words import date  # imported here, since most documents do not need it

    if now < header.not_before:
        raise DocumentError("not_yet_valid", f"the {what} is not valid before {date(header.not_before)}")
    raise DocumentError("expired", f"the {what} expired at {date(header.expires)}")
