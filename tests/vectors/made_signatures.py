"""Vectors of signatures that only a verifier's own checks can refuse: the equation holds for most of them.

Source: docs/formats.md, section 5 ("Ed25519"). A second implementation that leaves one of the checks out accepts one
of these; tests/protocol/test_vectors.py shows it.
"""

from support.ed25519 import BASE, L, P, add, challenge, encode, secret_of, small, times
from support.publisher import CAMPAIGN_KEY

from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, keyid, pae, write_envelope
from vectors.makers import PUBLISHER, Collection, root_with

KIND = PAYLOAD_TYPES["campaign"]
PAYLOAD = PUBLISHER.campaign_payload()
MESSAGE = pae(KIND, PAYLOAD)
SECRET, _ = secret_of(CAMPAIGN_KEY.seed)
REASON = "bad_signature"


def _document(public, point, s):
    pair = (keyid(public), point + s.to_bytes(32, "little"))
    return write_envelope(Envelope(KIND, PAYLOAD, (pair,)))


def _nonces(public, modulus, rest):
    for r in range(1, 1 << 20):
        point = encode(times(r, BASE))
        if challenge(point, public, MESSAGE) % modulus == rest:
            yield point, r


cases = Collection()

signature = CAMPAIGN_KEY.sign(MESSAGE)
point, s = signature[:32], int.from_bytes(signature[32:], "little")
cases.add("s_below_the_order", _document(CAMPAIGN_KEY.public, point, s))
for times_l in (1, 2, 8, 14):
    name = f"s_plus_{times_l}_times_the_order"
    cases.add(name, _document(CAMPAIGN_KEY.public, point, s + times_l * L), reason=REASON)

spellings = {f"key_of_order_{order}": (order, encode(small(order))) for order in (1, 2, 4, 8)}
for name, (order, raw) in list(spellings.items()):
    spellings[f"{name}_with_the_other_sign"] = order, raw[:31] + bytes([raw[31] ^ 0x80])
spellings["key_of_order_1_spelled_with_p_added"] = 1, (P + 1).to_bytes(32, "little")
spellings["key_of_order_4_spelled_with_p_added"] = 4, P.to_bytes(32, "little")
for name, (order, public) in spellings.items():
    point, r = next(_nonces(public, order, 0))
    cases.add(name, _document(public, point, r), root=root_with([public]), reason=REASON)
mixed = encode(add(times(SECRET, BASE), small(8)))
for rest, name, reason in (
    (0, "key_with_a_part_of_small_order", None),
    (1, "key_whose_part_of_small_order_is_left_over", REASON),
):
    point, r = next(_nonces(mixed, 8, rest))
    s = (r + challenge(point, mixed, MESSAGE) * SECRET) % L
    cases.add(name, _document(mixed, point, s), root=root_with([mixed]), reason=reason)

points = {f"point_of_order_{order}": encode(small(order)) for order in (1, 2, 4, 8)}
points["point_of_order_1_with_the_other_sign"] = points["point_of_order_1"][:31] + b"\x80"
points["point_of_order_1_spelled_with_p_added"] = (P + 1).to_bytes(32, "little")
for name, point in points.items():
    s = challenge(point, CAMPAIGN_KEY.public, MESSAGE) * SECRET % L
    cases.add(name, _document(CAMPAIGN_KEY.public, point, s), reason=REASON)
point = encode(add(times(5, BASE), small(8)))
s = (5 + challenge(point, CAMPAIGN_KEY.public, MESSAGE) * SECRET) % L
cases.add("point_with_a_part_of_small_order", _document(CAMPAIGN_KEY.public, point, s), reason=REASON)
