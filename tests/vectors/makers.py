"""Collects the cases of one generated file, and spells documents that no honest publisher writes."""

import struct
from hashlib import sha256

from support.publisher import DAY, MODEL_KEY, NOW, ROOT_KEY, Publisher

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import Envelope, keyid, pae, read_envelope, write_envelope
from protocol.documents.trust import Role, Root
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

PUBLISHER = Publisher()
THREE_CLASSES = Publisher(
    schema=build_schema(
        Label("label", ["e", "p", "q"]),
        [Categorical("odor", ["a", "n"]), Numeric("width", "0", "10", [0], substitute=None)],
    )
)
"""Three classes, and a number that may be missing: five vectors of a Gaussian campaign, 3 + 9 + 6 + 3 + 3 numbers."""
END = {"questions": [], "answers": 0, "epsilon_micro": 0}
"""The fields of a version that asks nothing and so ends those before it."""


class Collection:
    """Cases, and the documents that they share by name."""

    def __init__(self):
        self.documents = {}
        self.cases = []
        self._names = {}
        self.root = self.keep("root", PUBLISHER.root())

    def keep(self, name, data):
        """Store a document once; returns how cases refer to it."""
        if data not in self._names:
            if name in self.documents:
                raise ValueError(f"two documents are called {name}")
            self._names[data] = name
            self.documents[name] = data.hex()
        return "@" + self._names[data]

    def add(
        self,
        name,
        data,
        *,
        reason=None,
        role="campaign",
        root=None,
        before=(),
        clock=NOW,
        time_floor=NOW,
        floors=None,
        root_version=1,
        notes=None,
    ):
        """One case: what happens to ``data`` at a device with this root that has accepted ``before``.

        Args:
            reason: why it is refused; None if it is accepted.
            time_floor, floors, root_version: the state after acceptance; ``floors`` maps ``"role name"``
                to the document that holds it, by default just the new one.
        """
        inputs = {"notes": notes} if notes else {}
        inputs["root"] = self.root if root is None else self.keep(f"{name}.root", root)
        inputs["before"] = [
            [kind, self.keep(f"{name}.before{number}", document), at]
            for number, (kind, document, at) in enumerate(before)
        ]
        inputs |= {"role": role, "data": self.keep(name, data), "wall_clock": clock}
        if reason is not None:
            inputs["reason"] = reason
        else:
            held = floors
            if held is None:
                held = {} if role == "root" else {f"{role} {_body(role, data)['name']}": data}
            inputs["expect"] = {
                "root_version": root_version,
                "time_floor": time_floor,
                "floors": {key: _floor(key, document) for key, document in held.items()},
            }
        self.case(name, "document", spec="formats 5", **inputs)

    def case(self, name, kind, *, spec="formats 6", **fields):
        """One case of any kind; ``fields``: its inputs, and what must come out."""
        self.cases.append({"name": name, "spec": spec, "kind": kind, **fields})

    def older(self, key, refused, accepted):
        """Readers that do not know a key of ``crit`` refuse what names it, and accept the rest, told by its name."""
        outcomes = {name: (data, {"reason": "unknown_crit"}) for name, data in refused.items()}
        outcomes |= {name: (data, {"expect": called}) for name, (data, called) in accepted.items()}
        for name, (data, outcome) in outcomes.items():
            inputs = {"root": self.root, "data": self.keep(name, data), "wall_clock": NOW, "unknown": [key]}
            self.case(name, "campaign_of_older_reader", spec="formats 5", **inputs, **outcome)

    def pin(self, name, root, reason=None, clock=NOW):
        """One case: the owner puts ``root`` on a new device."""
        expect = {"root_version": 1, "time_floor": NOW, "floors": {}}
        outcome = {"expect": expect} if reason is None else {"reason": reason}
        self.case(name, "pinned", spec="formats 5", root=self.keep(name, root), wall_clock=clock, **outcome)


def _body(role, data):
    return canonical.unpack(read_envelope(data, role).payload)


def _floor(key, data):
    role = key.split(maxsplit=1)[0]
    payload = read_envelope(data, role).payload
    return [_body(role, data)["version"], sha256(payload).hexdigest()]


def changed(entry, **changes):
    """The same map with some values replaced; one of ``...`` is left out."""
    return {name: value for name, value in {**entry, **changes}.items() if value is not ...}


def packed(body, **changes):
    """A payload with some fields replaced; one of ``...`` is left out."""
    return canonical.pack(changed(body, **changes))


def campaign(body, **changes):
    """A signed campaign with some fields replaced; one of ``...`` is left out."""
    return PUBLISHER.sign("campaign", packed(body, **changes))


def many(body, features):
    """Fields of a discrete campaign with 256 classes and as many codes per feature: 2^16 numbers per feature."""
    label = {**body["label"], "classes": [str(number) for number in range(256)]}
    entry = {**body["features"][1], "edges": [*range(255)]}
    entries = [{**entry, "name": f"width {number}"} for number in range(features)]
    return {"label": label, "features": entries, "fit": {"family": DISCRETE, "postprocess": "posterior"}}


def root_with(campaign_keys, threshold=1):
    """A root whose campaign role has these public keys."""
    roles = {
        "root": Role(frozenset([ROOT_KEY.public]), 1),
        "campaign": Role(frozenset(campaign_keys), threshold),
        "model": Role(frozenset([MODEL_KEY.public]), 1),
    }
    payload = Root(PUBLISHER.header("workspace", lifetime=3650 * DAY), roles).to_payload()
    return PUBLISHER.sign("root", canonical.pack(payload))


def signed_by(payload_type, payload, *keys):
    """An envelope with one signature per key given, repeated keys included."""
    message = pae(payload_type, payload)
    pairs = tuple((keyid(key.public), key.sign(message)) for key in keys)
    return write_envelope(Envelope(payload_type, payload, pairs))


def flipped(data, position, bit=0):
    """The same bytes with one bit changed."""
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def wild(value):
    """Msgpack without the rules: dicts in their own order, floats, tuples of pairs as maps with repeated keys."""
    if isinstance(value, bytes):
        return value  # already msgpack
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, tuple):
        count = len(value)
        head = bytes([0x80 | count]) if count < 16 else b"\xde" + count.to_bytes(2, "big")
        return head + b"".join(canonical.pack(key) + wild(item) for key, item in value)
    return canonical.pack(value)
