"""Signatures of one document: verifying, counting and adding them, and joining the signatures of copies.

Several people may have to sign one document: they pass the file on, or each signs a copy and the copies are joined. A
key counts once. A document that nobody has signed yet holds :data:`UNSIGNED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from protocol import canonical
from protocol.documents import campaign, counts, model, trust
from protocol.documents.envelope import (
    KEYID_BYTES,
    MAX_SIGNATURES,
    PAYLOAD_TYPES,
    SIGNATURE_BYTES,
    SIGNERS,
    SIZE_LIMITS,
    Envelope,
    SigningKey,
    keyid,
    pae,
    read_envelope,
    verified_by,
    write_envelope,
)
from protocol.documents.payload import DAY_SECONDS, Header, check_understood, read_payload
from protocol.documents.trust import Role, Root
from protocol.errors import DocumentError, InputError
from protocol.nodes import summary as node_list

MAX_DAYS = 36_500
"""Longest lifetime, in days, of a campaign that is not an evaluation. No command takes a longer one."""

LEAST_SECONDS = DAY_SECONDS + 1
"""Shortest lifetime, in seconds: a document expires more than a day after its issue (docs/formats.md, section 5)."""


def seconds_of(days: int) -> int:
    """Return a lifetime of ``days`` in seconds. Raises InputError ``terms_invalid``: no whole number above 0."""
    if type(days) is not int or days < 1:
        raise InputError("terms_invalid", "days is a whole number, at least 1")
    return days * DAY_SECONDS


def header_for(name: str, version: int, now: int, lifetime_seconds: int) -> Header:
    """Return the header of a document that is issued at ``now`` and valid from ``now`` on.

    A lifetime of one day gets one second more (``issued_at`` + 1 day < ``expires``). Raises ``terms_invalid`` for less.
    """
    if lifetime_seconds < DAY_SECONDS:
        raise InputError("terms_invalid", "a document lives for at least a day, 86400 seconds")
    return Header(name, version, now, now, now + max(lifetime_seconds, LEAST_SECONDS))


UNSIGNED = (bytes(KEYID_BYTES), bytes(SIGNATURE_BYTES))
"""Key id and signature in a document that nobody has signed."""
UNDERSTOOD = {
    "root": trust.UNDERSTOOD,
    "campaign": campaign.UNDERSTOOD,
    "model": model.UNDERSTOOD,
    "nodes": node_list.UNDERSTOOD,
    "counts": counts.UNDERSTOOD,
}
"""Role of a document → the names in ``crit`` that this software understands."""
_PARSERS: dict[str, Callable[[bytes], object]] = {
    "campaign": campaign.parse_campaign,
    "model": model.parse_model,
    "nodes": node_list.parse_node_list,
    "counts": counts.parse_counts,
}
_WORDS = {"nodes": "list of nodes", "counts": "counts of records"}
DOCUMENTS = frozenset(UNDERSTOOD)
"""Roles of the documents that a trust root's keys sign, and of the root itself."""


class Signatures(NamedTuple):
    """Valid ``signers`` of a document (key ids in hex), number of the role's ``keys``, and how many are ``needed``."""

    signers: tuple[str, ...]
    keys: int
    needed: int

    @property
    def complete(self) -> bool:
        """Whether the document has as many valid signatures as its role needs."""
        return len(self.signers) >= self.needed

    def to_output(self, *, as_json: bool) -> object:
        """Return signers, number of keys and threshold: with ``as_json`` as a map, else as one line for people."""
        return {**self._asdict(), "complete": self.complete} if as_json else str(self)

    def __str__(self) -> str:
        held = f"{len(self.signers)} of {self.needed} needed signatures"
        return f"{held}: {', '.join(self.signers)}" if self.signers else held


class Verified(NamedTuple):
    """A signed document that a device would accept, and the number of the root whose keys verified its signatures."""

    role: str
    header: Header
    root_version: int
    standing: Signatures


def standing(envelope: Envelope, role: Role) -> Signatures:
    """Verify the signatures of an envelope with the keys of a role, and count the valid ones."""
    signers = sorted(keyid(public).hex() for public in verified_by(envelope, role.keys))
    return Signatures(tuple(signers), len(role.keys), role.threshold)


def draft(payload_type: str, payload: bytes, keys: Iterable[SigningKey] = ()) -> Envelope:
    """Make an envelope of a payload, signed with at most 16 keys; without keys it holds only :data:`UNSIGNED`."""
    envelope = Envelope(payload_type, payload, (UNSIGNED,))
    for key in keys:
        envelope = signed(envelope, key)
    return envelope


def signed(envelope: Envelope, key: SigningKey) -> Envelope:
    """Add the signature of a key to an envelope. An envelope with a valid signature of the key is returned unchanged.

    An invalid signature under the key's id is replaced. Raises InputError ``signatures_invalid``: it has 16 others
    already.
    """
    if key.public in verified_by(envelope, [key.public]):
        return envelope
    hint = keyid(key.public)
    others = [pair for pair in envelope.signatures if pair != UNSIGNED and pair[0] != hint]
    if len(others) >= MAX_SIGNATURES:
        raise InputError("signatures_invalid", f"the document carries {MAX_SIGNATURES} signatures already")
    pair = (hint, key.sign(pae(envelope.payload_type, envelope.payload)))
    return envelope._replace(signatures=(*others, pair))


def signed_root(before: Root, root: Root, keys: Iterable[SigningKey]) -> Envelope:
    """Make the envelope of a new root, signed by those of ``keys`` that the root before or the new root names.

    Keys that both roots name sign first. An envelope holds at most 16 signatures: keys after the first 16 do not sign.
    """
    old, new = before.roles["root"].keys, root.roles["root"].keys
    counting = [key for key in dict.fromkeys(keys) if key.public in old | new]
    counting.sort(key=lambda key: (key.public in old) + (key.public in new), reverse=True)
    return draft(PAYLOAD_TYPES["root"], canonical.pack(root.to_payload()), counting[:MAX_SIGNATURES])


def joined(copies: Iterable[Envelope], keys: Iterable[bytes]) -> Envelope:
    """Return one envelope with the valid signatures of several copies, sorted by key id, one per key, at most 16.

    ``keys``: public keys whose signatures are kept. If no signature is valid, the envelope holds :data:`UNSIGNED`
    alone.
    """
    copies = list(copies)
    keys = list(keys)
    held: dict[bytes, bytes] = {}
    for envelope in copies:
        valid = {keyid(public) for public in verified_by(envelope, keys)}
        for hint, signature in envelope.signatures:
            one = envelope._replace(signatures=((hint, signature),))
            if hint in valid and hint not in held and verified_by(one, keys):
                held[hint] = signature
    pairs = tuple(sorted(held.items())[:MAX_SIGNATURES])
    return copies[0]._replace(signatures=pairs or (UNSIGNED,))


def to_bytes(envelope: Envelope, role: str) -> bytes:
    """Return the bytes of a document's file. Raises ``too_large`` for its role, and ``signatures_invalid``."""
    raw = write_envelope(envelope)
    if len(raw) > SIZE_LIMITS[role]:
        raise DocumentError("too_large", f"a {role} document has at most {SIZE_LIMITS[role]} bytes")
    return raw


def check_payload(envelope: Envelope, role: str) -> Header:
    """Check a payload before it is signed, also that a campaign's mechanisms are complete, and return its header.

    Signatures, dates and the file's size are not checked. Raises DocumentError; InputError ``mechanism_incomplete``.
    """
    # Imported here, since it imports numpy, which hearsay show does not need.
    from aggregator.publishing.mechanisms.completeness import check_complete

    body, header = read_payload(envelope.payload)
    check_understood(header, UNDERSTOOD[role])
    if role == "root":
        trust.parse_root(body, header)
    elif role == "campaign":
        check_complete(campaign.parse_campaign(envelope.payload).questions)
    else:
        _PARSERS[role](envelope.payload)
    return header


def root_of(envelope: Envelope) -> Root:
    """Return the root in an envelope. Signatures are not checked. Raises DocumentError as :func:`check_payload`."""
    header = check_payload(envelope, "root")
    return trust.parse_root(read_payload(envelope.payload)[0], header)


def successor(root: Root, raw: bytes) -> Root:
    """Return the root in a file, if it is the next one after ``root``. Dates are not checked.

    Raises DocumentError ``bad_signature``: fewer signatures than the threshold of either root; ``rollback``: another
    name, or not the next number; ``unknown_crit``; or the bytes are no signed document.
    """
    envelope = read_envelope(raw, "root")
    needed = standing(envelope, root.roles["root"])
    if not needed.complete:
        raise DocumentError("bad_signature", f"{needed}, of the root before")
    following = trust.restore(raw, {}, 0).root
    if (following.header.name, following.header.version) != (root.header.name, root.header.version + 1):
        raise DocumentError("rollback", f"it is not version {root.header.version + 1} of the root of this workspace")
    return following


def signed_campaign(root_bytes: bytes, raw: bytes) -> campaign.Campaign:
    """Parse the campaign file ``raw`` if the campaign keys of the trust root ``root_bytes`` signed it.

    Dates are not checked: the aggregator counts reports, and makes models, after a campaign has expired. Raises
    DocumentError: the file is not signed (``bad_signature``), or can not be parsed.
    """
    return campaign.parse_campaign(_signed(root_bytes, raw, "campaign"))


def signed_list(root_bytes: bytes, raw: bytes) -> node_list.NodeList:
    """Parse the list of nodes ``raw`` as :func:`signed_campaign` parses a campaign, and without its dates.

    The newest list names the nodes of summaries that come after it has expired (decision 74).
    """
    return node_list.parse_node_list(_signed(root_bytes, raw, "nodes"))


def check_signatures(root_bytes: bytes, raw: bytes, role: str) -> None:
    """Raise DocumentError unless a root's keys signed the document of this role, and it can be parsed."""
    _PARSERS[role](_signed(root_bytes, raw, role))


def _signed(root_bytes: bytes, raw: bytes, role: str) -> bytes:
    envelope = read_envelope(raw, role)
    found = standing(envelope, trust.restore(root_bytes, {}, 0).root.roles[SIGNERS[role]])
    if not found.complete:
        what = _WORDS.get(role, role)
        raise DocumentError(
            "bad_signature", f"{len(found.signers)} of the {found.needed} needed signatures hold, of the {what}"
        )
    check_understood(read_payload(envelope.payload)[1], UNDERSTOOD[role])
    return envelope.payload


def follow_roots(first: bytes, newer: Sequence[bytes], now: int) -> trust.TrustState:
    """Return the trust state of a device that pinned the first root and then got newer roots, in any order.

    Only the dates of the last of these roots are checked. Raises the errors of :func:`protocol.documents.trust.pin` and
    :func:`protocol.documents.trust.install_roots`.
    """
    state = trust.restore(first, {}, 0)
    state = state._replace(time_floor=state.root.header.issued_at)
    reached = trust.install_roots(state, newer, now)
    return trust.pin(first, now) if reached is state else reached


def verify_signed(state: trust.TrustState, raw: bytes, role: str, now: int) -> Verified:
    """Check a document as a device with the trust ``state`` does: signatures, dates and every value.

    Raises DocumentError: devices would refuse it (:func:`protocol.documents.trust.verify`), or a value is wrong; of a
    root also ``rollback``: the trusted root has replaced it.
    """
    envelope = read_envelope(raw, role)
    version = state.root.header.version
    if role == "root":
        header = _verified_root(state, raw, now)
        return Verified(role, header, version, standing(envelope, root_of(envelope).roles[role]))
    verdict = trust.verify(state, raw, role, now, UNDERSTOOD[role])
    _PARSERS[role](verdict.payload)
    return Verified(role, verdict.header, version, standing(envelope, state.root.roles[SIGNERS[role]]))


def _verified_root(state: trust.TrustState, raw: bytes, now: int) -> Header:
    after = trust.install_roots(state, [raw], now)
    if after.root_bytes == raw:
        return after.root.header
    envelope = read_envelope(raw, "root")
    if envelope.payload != read_envelope(state.root_bytes, "root").payload:
        raise DocumentError("rollback", "the root is older than the one it is compared with")
    held = standing(envelope, state.root.roles["root"])
    if not held.complete:
        raise DocumentError("bad_signature", f"it is the trusted root with too few signatures: {held}")
    return state.root.header
