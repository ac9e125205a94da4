"""The trust root, and a pure state machine that decides whether a signed document is obeyed.

Bytes, the state so far and one reading of the wall clock go in; a verdict and the next state come
out, or an error and the old state stays. Nothing here reads a clock, a disk or a network.

Source: docs/formats.md, section 5 (order of acceptance); the roles and versions are those of The
Update Framework, the signed bytes those of DSSE.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.digest import sha256
from protocol.document import HEADER_KEYS, Header, check_understood, read_field, read_integer, read_payload
from protocol.documents.envelope import KEY_BYTES, MAX_SIGNATURES, Envelope, keyid, read_envelope, verified_by
from protocol.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROLES = ("root", "campaign", "model")
UNDERSTOOD = frozenset((*HEADER_KEYS, "keys", "roles"))
"""Payload keys of a root that this reader understands."""


class Role(NamedTuple):
    """Whose signatures count for one kind of document, and how many distinct ones are needed."""

    keys: frozenset[bytes]
    threshold: int


class Root(NamedTuple):
    """A parsed trust root: who may sign what."""

    header: Header
    roles: Mapping[str, Role]

    def to_payload(self) -> dict[str, Any]:
        """The payload that says this."""
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
    """Everything a device must remember to refuse old, foreign and contradictory documents.

    Attributes:
        root_bytes: the envelope of the newest accepted root.
        root: the same, parsed.
        floors: (role, name) → (version, SHA-256 of the payload) of the newest document accepted.
        time_floor: the largest ``issued_at`` of a document accepted in full, in seconds.
    """

    root_bytes: bytes
    root: Root
    floors: Mapping[tuple[str, str], tuple[int, bytes]]
    time_floor: int


class Verdict(NamedTuple):
    """An acceptable document. Becomes true when the caller has stored it together with ``state``.

    Attributes:
        payload: the signed bytes; ``body`` is the same, parsed.
        digest: SHA-256 of the payload; a campaign's id.
        now: the one time by which every date of this acceptance is judged.
        state: the state to store in the same transaction as the document.
    """

    role: str
    header: Header
    payload: bytes
    body: dict[str, Any]
    digest: bytes
    now: int
    state: TrustState


def parse_root(body: dict[str, Any], header: Header) -> Root:
    """The roles of a root payload.

    Raises:
        DocumentError: ``malformed``: a key id that is not its key's, a repeated or absent key id, or a
            threshold that is zero or can not be met.
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
    """Begin to trust a root that the owner has put on the device. Checked against its own root role.

    Args:
        raw: the root file.
        wall_clock: seconds since 1970, however wrong.

    Raises:
        DocumentError: as :func:`verify`; ``bad_signature`` if it does not meet its own threshold.
    """
    root = _read_own_root(raw)
    _check_dates(root.header, max(wall_clock, root.header.issued_at), "root")
    return TrustState(raw, root, {}, root.header.issued_at)


def restore(raw: bytes, floors: Mapping[tuple[str, str], tuple[int, bytes]], time_floor: int) -> TrustState:
    """The state as it was stored; dates were checked when the root was accepted."""
    return TrustState(raw, _read_own_root(raw), floors, time_floor)


@lru_cache(maxsize=4)  # a device asks for the same stored root at every step
def _read_own_root(raw: bytes) -> Root:
    """Parse a root and check it against its own root role.

    The one place that parses before it verifies: a first root is trusted for how it arrived, and the
    signatures show it is whole.
    """
    envelope = read_envelope(raw, "root")
    root = _parse_root_payload(envelope)
    _check_threshold(envelope, root.roles["root"])
    check_understood(root.header, UNDERSTOOD)
    return root


def _parse_root_payload(envelope: Envelope) -> Root:
    body, header = read_payload(envelope.payload)
    return parse_root(body, header)


def install_roots(state: TrustState, raws: Iterable[bytes], wall_clock: int) -> TrustState:
    """Follow a chain of newer roots, given in any order, from the stored one as far as it leads.

    Each step is exactly one version and signed by the thresholds of both the old and the new root, and
    keeps or resets the version floors, so it does not matter how many steps come at once. Dates are
    checked on the last one only. Roots that are not newer, or lead nowhere, are ignored as
    long as one of those given was the stored one, an older one, or a step.

    Raises:
        DocumentError: ``bad_signature``, no root given is known or a next step; ``not_yet_valid`` or
            ``expired``, of the last; ``equivocation``, two different roots of one version.
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
    """As :func:`install_roots` for roots in their order, back to the newest that is in date: each is verified once.

    Returns:
        the state that is reached, ``state`` itself if none leads on; why what comes after it is not followed, None
        if all are.
    """
    reached, chosen = state, state
    late: DocumentError | None = None
    try:
        for raw in raws:
            pending = {raw: read_envelope(raw, "root")}
            step = _next_root(reached.root, reached.root_bytes, pending, _Seen({}, {}))
            if step is None and pending:
                install_roots(reached, [raw], wall_clock)  # which says why not
            elif step is not None:
                reached = TrustState(*step, _kept_floors(reached, step[1]), step[1].header.issued_at)
                late = _late(reached.root.header, max(wall_clock, reached.time_floor))
                chosen = chosen if late is not None else reached
    except DocumentError as error:
        return chosen, late or error
    return chosen, late


def _late(header: Header, now: int) -> DocumentError | None:
    """Why a root is out of date, if it is."""
    try:
        _check_dates(header, now, "root")
    except DocumentError as error:
        return error
    return None


def reconcile_pinned(state: TrustState, raw: bytes, wall_clock: int) -> TrustState:
    """Compare the root that the owner has put on the device with the stored one.

    An older or equal one is ignored: the device has since followed the chain. A newer one must be
    reachable like any other.

    Raises:
        DocumentError: as :func:`install_roots`.
    """
    pinned = _read_own_root(raw)
    if pinned.header.name == state.root.header.name and pinned.header.version < state.root.header.version:
        return state
    return install_roots(state, [raw], wall_clock)


class _Seen(NamedTuple):
    """What was found out about roots on the way along a chain, so that its length costs in proportion.

    Attributes:
        signers: root file and keys → those of the keys that have signed it.
        roots: root file → what it says; only of those that are signed.
    """

    signers: dict[tuple[bytes, frozenset[bytes]], frozenset[bytes]]
    roots: dict[bytes, Root]


def _next_root(
    current: Root, current_raw: bytes, pending: dict[bytes, Envelope], seen: _Seen
) -> tuple[bytes, Root] | None:
    """The successor of ``current`` among ``pending``; drops those that are not newer on the way."""
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
    """Version floors survive unless so few of a role's keys do that its old documents say nothing."""
    kept = {}
    for (role, name), floor in old.floors.items():
        shared = old.root.roles[role].keys & new.roles[role].keys
        if len(shared) >= new.roles[role].threshold:
            kept[role, name] = floor
    return kept


def verify(state: TrustState, raw: bytes, role: str, wall_clock: int, known: frozenset[str]) -> Verdict:
    """Decide whether a campaign or model is signed, current and not older than what is known.

    Follows the order of acceptance up to the dates; value limits and the owner's policy come after,
    and the caller then stores the document and ``Verdict.state`` in one transaction.

    Args:
        raw: the whole file.
        role: ``"campaign"`` or ``"model"``.
        wall_clock: seconds since 1970, however wrong.
        known: the payload keys that the caller understands.

    Raises:
        DocumentError: ``too_large``, ``malformed``, ``unsupported_version``, ``wrong_role``,
            ``bad_signature``, ``unknown_crit``, ``rollback``, ``equivocation``, ``not_yet_valid``,
            ``expired``.
    """
    envelope = read_envelope(raw, role)
    _check_threshold(envelope, state.root.roles[role])
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
    from protocol.dates import date  # imported here, because most documents are in date

    if now < header.not_before:
        raise DocumentError("not_yet_valid", f"the {what} is not valid before {date(header.not_before)}")
    raise DocumentError("expired", f"the {what} expired at {date(header.expires)}")
