"""Kinds for files: batches, canonical msgpack, envelopes, signed documents."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from protocol import canonical
from protocol.batches.batch import Batch, Header, read_batches, write_batch
from protocol.batches.report import Layout
from protocol.documents import campaign as campaigns
from protocol.documents import model as models
from protocol.documents import trust
from protocol.documents.envelope import SigningKey, keyid, pae, seal
from protocol.documents.provisioning import Provisioning, build_provisioning, parse_provisioning
from protocol.errors import HearsayError
from protocol.nodes import summary as node_list
from vectors.runner import UnfitVectorError, kind


@kind
def batch_write(campaign: str, layout: int, record_length: int, records: list[str]) -> dict[str, Any]:
    """A whole batch: its header, its trailer, its length and the digest of the whole."""
    header = Header(bytes.fromhex(campaign), layout, record_length)
    data = write_batch(header, [bytes.fromhex(record) for record in records])
    return {
        "header": header.to_bytes().hex(),
        "trailer": data[-44:].hex(),
        "bytes": len(data),
        "sha256": sha256(data).hexdigest(),
    }


@kind
def batch_read(parts: list[str]) -> list[dict[str, Any]]:
    """What a reader finds in a file, given in parts for the reader's eye."""
    data = bytes.fromhex("".join(parts))
    return [_found(data, item) for item in read_batches(data)]


@kind
def batch_read_known(parts: list[str], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same by a reader that knows campaigns: ``campaign``, ``layout`` and ``answer_bytes`` of each.

    Of a batch also ``stated``: how the digest begins that its trailer states.
    """
    data = bytes.fromhex("".join(parts))
    layouts = {bytes.fromhex(each["campaign"]): Layout(each["layout"], each["answer_bytes"]) for each in known}
    return [
        _found(data, item) | ({"stated": item.digest.hex()[:8]} if isinstance(item, Batch) else {})
        for item in read_batches(data, layouts)
    ]


def _found(data: bytes, item: Any) -> dict[str, Any]:
    if not isinstance(item, Batch):
        return {"damage": item.reason, "position": item.position, "length": item.length}
    length = item.header.record_length
    records = [
        data[start + number * length : start + (number + 1) * length].hex()
        for start, count in item.spans
        for number in range(count)
    ]
    return {
        "campaign": item.header.campaign.hex()[:8],
        "layout": item.header.layout,
        "records": records,
        "proven": item.proven,
        "truncated": item.truncated,
    }


@kind
def provisioning_write(fleet: str, device: str, secret: str) -> str:
    """The bytes of a provisioning file."""
    return build_provisioning(Provisioning(fleet, device, bytes.fromhex(secret))).hex()


@kind
def provisioning_read(data: str) -> dict[str, Any]:
    """What a provisioning file says."""
    found = parse_provisioning(bytes.fromhex(data))
    return {**found._asdict(), "secret": found.secret.hex()}


@kind
def pack(value: Any) -> str:
    """Canonical bytes of a JSON value."""
    return canonical.pack(value).hex()


@kind
def unpack(data: str) -> str:
    """The bytes are canonical: they come out as they went in."""
    return canonical.pack(canonical.unpack(bytes.fromhex(data))).hex()


@kind
def pre_authentication(payload_type: str, payload: str) -> str:
    """The bytes that a signature covers."""
    return pae(payload_type, bytes.fromhex(payload)).hex()


@kind
def signature(seed: str, payload_type: str, payload: str) -> dict[str, Any]:
    """Keys and envelope of a seed and a payload."""
    key = SigningKey.from_seed(bytes.fromhex(seed))
    envelope = seal(payload_type, bytes.fromhex(payload), [key])
    return {
        "public": key.public.hex(),
        "keyid": keyid(key.public).hex(),
        "signature": key.sign(pae(payload_type, bytes.fromhex(payload))).hex(),
        "envelope_bytes": len(envelope),
        "envelope": envelope.hex(),
    }


@kind
def pinned(root: str, wall_clock: int) -> dict[str, Any]:
    """A first root, put on the device by its owner."""
    return _state(trust.pin(bytes.fromhex(root), wall_clock))


@kind
def document(root: str, before: list[list[Any]], role: str, data: str, wall_clock: int) -> dict[str, Any]:
    """A document that arrives after the root was pinned and others were accepted, each [role, data, clock].

    The expected reason is that of the last document: a failure before it is a fault of the case.
    """
    try:
        state = trust.pin(bytes.fromhex(root), 0)
        for earlier_role, earlier, clock in before:
            state = _accept(state, earlier_role, bytes.fromhex(earlier), clock)
    except HearsayError as error:
        raise UnfitVectorError(f"a document before the tested one is refused: {error}") from error
    return _state(_accept(state, role, bytes.fromhex(data), wall_clock))


@kind
def campaign_of_older_reader(root: str, data: str, wall_clock: int, unknown: list[str]) -> str:
    """The name of a campaign that a reader accepts which does not know the payload keys ``unknown``."""
    state = trust.pin(bytes.fromhex(root), 0)
    understood = campaigns.UNDERSTOOD - set(unknown)
    return trust.verify(state, bytes.fromhex(data), "campaign", wall_clock, understood).header.name


def _accept(state: trust.TrustState, role: str, data: bytes, wall_clock: int) -> trust.TrustState:
    """What a reader does with a document: a device up to its owner's policy; of a list of nodes also an aggregator."""
    if role == "root":
        return trust.install_roots(state, [data], wall_clock)
    understood = {"campaign": campaigns.UNDERSTOOD, "model": models.UNDERSTOOD, "nodes": node_list.UNDERSTOOD}[role]
    verdict = trust.verify(state, data, role, wall_clock, understood)
    if role == "campaign":
        assert campaigns.parse_campaign(verdict.payload).id == verdict.digest
    elif role == "nodes":
        node_list.parse_node_list(verdict.payload)
    else:
        models.parse_model(verdict.payload)
    return verdict.state


def _state(state: trust.TrustState) -> dict[str, Any]:
    """The parts of a trust state that a vector states."""
    return {
        "root_version": state.root.header.version,
        "time_floor": state.time_floor,
        "floors": {
            f"{role} {name}": [version, digest.hex()] for (role, name), (version, digest) in state.floors.items()
        },
    }
