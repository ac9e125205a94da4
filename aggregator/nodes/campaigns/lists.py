"""Node lists: the nodes whose summaries count, signed by the campaign role. Run by the publisher.

The newest version that an aggregator was given decides which summaries count. Source: docs/formats.md, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nacl import bindings

from aggregator.common.files import read_file
from aggregator.publishing.keys import MAX_KEY_BYTES, PUBLIC_WORD, parse_public
from aggregator.publishing.naming import SignedDocument, opened
from aggregator.publishing.signatures import header_for, seconds_of
from aggregator.publishing.workspace import Workspace
from protocol.documents import trust
from protocol.documents.envelope import keyid, read_envelope
from protocol.documents.payload import quoted
from protocol.errors import InputError
from protocol.nodes.summary import MAX_NODES, NodeList, build_node_list, parse_node_list

ROLE = "nodes"
"""Role of node lists in envelopes and in the history of a workspace."""
KEY_SUFFIX = ".key.pub"
LIST_DAYS = 365
"""Days until a node list expires, if the publisher names no other number."""
_MAX_FILE_BYTES = MAX_NODES * 128
_LISTED_NAMES = 8


@dataclass(frozen=True, repr=False)
class SignedList(SignedDocument):
    """A signed node list with its file. ``changed`` is the number of nodes that this version adds or removes."""

    document: NodeList
    changed: int

    def _size(self) -> str:
        return f"{len(self.document.nodes)} nodes"


def make_node_list(
    workspace: Workspace | str | Path,
    name: str,
    keys: Iterable[bytes | str | Path],
    *,
    days: int = LIST_DAYS,
    now: int | None = None,
) -> SignedList:
    """``hearsay nodes new``: sign the first version of a node list, and record it in the workspace.

    ``keys``: 32 bytes each, or files and folders (:func:`read_node_keys`). Raises InputError ``list_exists``,
    ``name_invalid``, ``terms_invalid``; also as :func:`read_node_keys` and :func:`check_node_keys`.
    """
    wanted = _as_keys(keys)

    def change(before: NodeList | None) -> list[bytes]:
        if before is not None:
            raise InputError(
                "list_exists",
                f"the workspace has signed version {before.header.version} of the node list {quoted(name)}; change it "
                "with hearsay nodes add or remove, or choose another name",
            )
        return wanted

    return _sign(opened(workspace), name, change, days, now)


def add_nodes(
    workspace: Workspace | str | Path,
    name: str,
    keys: Iterable[bytes | str | Path],
    *,
    days: int = LIST_DAYS,
    now: int | None = None,
) -> SignedList:
    """``hearsay nodes add``: sign the next version of a node list, with more nodes. Arguments: :func:`make_node_list`.

    Raises InputError: ``list_unknown``; ``key_repeated``: a node is on the list already; also those of
    :func:`make_node_list`.
    """
    wanted, signer = _as_keys(keys), opened(workspace)
    return _sign(signer, name, lambda before: [*_listed(signer, before, name), *wanted], days, now)


def remove_nodes(
    workspace: Workspace | str | Path, name: str, nodes: Iterable[str], *, days: int = LIST_DAYS, now: int | None = None
) -> SignedList:
    """``hearsay nodes remove``: sign the next version of a node list, without the nodes of these ids (hexadecimal).

    Raises InputError: ``key_unknown``: the list has no such node; ``nodes_invalid``: no node would be left; also the
    errors of :func:`renew_nodes`.
    """
    leaving, signer = {each.lower() for each in nodes}, opened(workspace)

    def change(before: NodeList | None) -> list[bytes]:
        listed = {keyid(public).hex(): public for public in _listed(signer, before, name)}
        for hint in sorted(leaving - set(listed)):
            raise InputError("key_unknown", f"the list has no node {quoted(hint[:64])}; hearsay nodes show lists them")
        return [public for hint, public in listed.items() if hint not in leaving]

    return _sign(signer, name, change, days, now)


def renew_nodes(
    workspace: Workspace | str | Path, name: str, *, days: int = LIST_DAYS, now: int | None = None
) -> SignedList:
    """``hearsay nodes renew``: sign the next version of a node list with the same nodes and another date of expiry."""
    signer = opened(workspace)
    return _sign(signer, name, lambda before: _listed(signer, before, name), days, now)


def current_list(workspace: Workspace, name: str) -> NodeList | None:
    """Return the newest version of a node list that a workspace signed, or None if it signed none of that name."""
    item = workspace.latest(ROLE, name)
    return None if item is None else parse_node_list(read_envelope(workspace.copy(item), ROLE).payload)


def read_node_keys(path: str | Path) -> list[bytes]:
    """Return the public keys of nodes in a file or folder, 32 bytes each, in the order of files and lines.

    A file has a key on each line, as ``hearsay-edge node key`` writes it; of a folder all files ``*.key.pub`` are read.
    Raises InputError ``key_invalid``: no such file, or no public key; ``wrong_key``: a key is for another role.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob(f"*{KEY_SUFFIX}"))
        if not files:
            raise InputError("key_invalid", f"the folder '{path}' has no file that ends in {KEY_SUFFIX}")
        return [key for file in files for key in read_node_keys(file)]
    lines = read_file(path, _MAX_FILE_BYTES).splitlines()
    return [_parse_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()] or [
        _parse_line(path, 1, b"")
    ]


def _parse_line(path: Path, number: int, line: bytes) -> bytes:
    reason, problem = "", ""
    try:
        return parse_public(line[:MAX_KEY_BYTES], "node")
    except InputError as error:
        reason, problem = error.reason, error.detail
    if reason == "key_invalid":
        problem = f"it is no public key of a node ({PUBLIC_WORD} node …); hearsay-edge node key writes one"
    raise InputError(reason, f"'{path}', line {number}: {problem}")


def check_node_keys(workspace: Workspace, keys: list[bytes]) -> None:
    """Refuse public keys, 32 bytes each, that can not be those of the nodes of one list.

    Raises InputError ``nodes_invalid``: no key, or more than 65536; ``key_repeated``: a key or key id twice;
    ``key_invalid``: it can verify no signature; ``wrong_key``: a key of any trust root of the workspace.
    """
    if not 1 <= len(keys) <= MAX_NODES:
        raise InputError("nodes_invalid", f"a node list names 1 to {MAX_NODES} nodes, and this one {len(keys)}")
    roots = [trust.restore(raw, {}, 0).root for raw in workspace.roots()]
    publishers = {public: name for root in roots for name, role in root.roles.items() for public in role.keys}
    seen: set[bytes] = set()
    for public in keys:
        hint = keyid(public)
        if hint in seen:
            raise InputError("key_repeated", f"the node {hint.hex()} is on the list twice; name each node once")
        seen.add(hint)
        if public in publishers:
            raise InputError(
                "wrong_key",
                f"the key {hint.hex()} is the publisher's own {publishers[public]} key; a node has a key of its own",
            )
        if not bindings.crypto_core_ed25519_is_valid_point(public):
            raise InputError("key_invalid", f"no signature can be valid under the key {hint.hex()}; ask its owner")


def _as_keys(keys: Iterable[bytes | str | Path]) -> list[bytes]:
    return [key for each in keys for key in ([each] if isinstance(each, bytes) else read_node_keys(each))]


def unknown_list(workspace: Workspace, name: str) -> InputError:
    """Return the error ``list_unknown`` for a list that the workspace has not signed. It names the signed lists."""
    signed = sorted({item.name for item in workspace.history() if item.role == ROLE})
    known = f"it signed: {', '.join(map(quoted, signed[:_LISTED_NAMES]))}" if signed else "hearsay nodes new makes one"
    return InputError("list_unknown", f"the workspace has signed no node list {quoted(name)}; {known}")


def _listed(workspace: Workspace, before: NodeList | None, name: str) -> list[bytes]:
    """Return the public keys of ``before``, the newest version of a list. Refuse None, a list that was never signed."""
    if before is None:
        raise unknown_list(workspace, name)
    return list(before.nodes.values())


def _sign(
    workspace: Workspace, name: str, change: Callable[[NodeList | None], list[bytes]], days: int, now: int | None
) -> SignedList:
    """Sign the next version of a list. ``change`` makes its keys from the version before (None before the first)."""
    moment = int(time.time()) if now is None else now
    lifetime = seconds_of(days)
    known: Mapping[bytes, bytes] = {}

    def payload_for(version: int, _before: bytes | None) -> bytes:
        nonlocal known
        before = current_list(workspace, name)
        keys = change(before)
        check_node_keys(workspace, keys)
        known = {} if before is None else before.nodes
        return build_node_list(header_for(name, version, moment, lifetime), keys)

    raw = workspace.publish(ROLE, name, moment, payload_for)
    document = parse_node_list(read_envelope(raw, ROLE).payload)
    return SignedList(raw, document, workspace.standing(ROLE, raw), len(set(known) ^ set(document.nodes)))
