"""Cases of what nodes and dealers send, whatever its kind: judged one by one, in files, and in sets."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from support.nodes import PERIOD
from support.publisher import DAY, NOW, key

from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, SigningKey, keyid, pae, write_envelope
from vectors.makers import flipped, packed, signed_by, wild

LAST = (NOW + 365 * DAY - 1) // DAY
"""The last period of the campaigns."""
STRANGER = key(99)
IDS = {
    "campaign_of_31_bytes": {"campaign": bytes(31)},
    "campaign_is_text": {"campaign": "a" * 32},
    "node_of_7_bytes": {"node": bytes(7)},
}
"""Fields that name no campaign and no node."""


def payload_of(raw):
    """The payload in an envelope."""
    return canonical.unpack(raw)[2]


def identity(raw):
    """What tells two documents of one place apart."""
    return sha256(payload_of(raw)).digest()


def place(raw):
    """Campaign, period and node of a document."""
    body = canonical.unpack(payload_of(raw))
    return body["campaign"], body["period"], body["node"]


class Sent(NamedTuple):
    """A good document, from which others are made: its role, its bytes, who signed it, and who did not."""

    role: str
    good: bytes
    signer: SigningKey
    other: SigningKey

    @property
    def kind(self):
        return PAYLOAD_TYPES[self.role]

    @property
    def body(self):
        return canonical.unpack(payload_of(self.good))

    def signed(self, signer=None, **changes):
        """The document with some fields replaced; a field of ``...`` is left out."""
        return self.of_payload(packed(self.body, **changes), signer)

    def of_payload(self, payload, signer=None, role=None):
        """An envelope of any payload."""
        return signed_by(PAYLOAD_TYPES[role or self.role], payload, signer or self.signer)

    def pair(self, named, signer=None, role=None):
        """A signature of the payload under the id of a key, by that or another key, over the type of a role."""
        message = pae(PAYLOAD_TYPES[role or self.role], payload_of(self.good))
        return keyid(named.public), (signer or named).sign(message)

    def paired(self, *pairs, payload=None):
        """The document with other signatures, or another payload under them."""
        return write_envelope(Envelope(self.kind, payload_of(self.good) if payload is None else payload, pairs))

    def lacking(self):
        """The document without each of its fields."""
        return {f"without_{name}": self.signed(**{name: ...}) for name in self.body}

    def payloads(self, others):
        """Signed payloads that cannot be read: faults of every kind of document, then others."""
        payload = payload_of(self.good)
        payloads = {
            "payload_is_empty": b"",
            "payload_is_an_array": b"\x90",
            "payload_with_a_byte_after_it": payload + b"\0",
            "payload_cut": payload[:-1],
            "keys_in_another_order": wild(dict(reversed(self.body.items()))),
        }
        return {name: self.of_payload(raw) for name, raw in (payloads | others).items()}

    def pairs(self):
        """Two signatures where one is due."""
        own, other = self.pair(self.signer), self.pair(self.other)
        return {"two_signatures": self.paired(own, other), "one_signature_twice": self.paired(own, own)}

    def damaged(self, add):
        """Envelopes that cannot be read."""
        add("envelope_with_a_byte_after_it", self.good + b"\0", "malformed")
        add("envelope_cut", self.good[:-1], "malformed")
        add("envelope_of_another_version", self.good.replace(b"hsy1", b"hsy2", 1), "unsupported_version")

    def answered_periods(self, add):
        """The last period, and the one that begins now."""
        add("last_period", self.signed(period=LAST), now=NOW + 365 * DAY)
        add("period_that_begins_now", self.good, now=PERIOD * DAY)

    def other_periods(self, add):
        """Periods that are not answered, or not yet."""
        add("period_at_the_end", self.signed(period=LAST + 1), "report_too_late", now=NOW + 400 * DAY)
        add("period_before_the_beginning", self.signed(period=PERIOD - 2), "report_too_early")
        add("period_of_tomorrow", self.signed(period=PERIOD + 1), "report_too_early")
        add("period_a_second_before_it", self.good, "report_too_early", now=PERIOD * DAY - 1)

    def in_order(self, add, wrong):
        """Of several faults the first of the order counts."""
        unlisted, foreign = keyid(STRANGER.public), {"campaign": bytes(32), **wrong}
        everything = self.signed(STRANGER, **foreign, node=bytes(8), spec="2.0")
        add("wrong_in_everything", everything, "unsupported_version")
        add("wrong_from_the_campaign_on", self.signed(STRANGER, **foreign, node=unlisted), "unrecognized_campaign")
        add("wrong_from_the_node_on", self.signed(STRANGER, **wrong, node=unlisted), "node_not_listed")
        raw = self.signed(**wrong)
        add("wrong_from_the_signature_on", flipped(raw, len(raw) - 1), "bad_signature")


def add_file(cases, kind, name, *stretches):
    """One case: a file of these parts, each found as a stretch of its own, with this reason."""
    found = [(len(part), reason) for part, reason in stretches]
    add_parts(cases, kind, name, [part for part, _ in stretches], found)


def add_parts(cases, kind, name, parts, stretches):
    """One case: a file of these parts, in which stretches of these lengths and reasons are found."""
    offset, found = 0, []
    for length, reason in stretches:
        found.append([offset, length, reason])
        offset += length
    assert offset == sum(map(len, parts)), name
    texts = [
        cases.keep(f"{name}.{number}", part) if len(part) > 99 else part.hex() for number, part in enumerate(parts)
    ]
    cases.case(name, kind, parts=texts, expect=found)


def add_union(cases, kind, name, files, held, **expect):
    """One case: the union of these files holds these documents."""
    content = b"".join(sorted(held, key=lambda raw: (place(raw), identity(raw))))
    texts = [cases.keep(f"{name}.{number}", b"".join(file)) for number, file in enumerate(files)]
    expect = {"bytes": len(content), "sha256": sha256(content).hexdigest(), **expect}
    cases.case(name, kind, files=texts, expect=expect)


def told(places):
    """Places as a case holds them."""
    return [[campaign.hex(), period, node.hex()] for campaign, period, node in sorted(places)]
