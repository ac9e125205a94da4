"""Shared answers once more, written from docs/formats.md, section 12, and draft-irtf-cfrg-vdaf-20 alone.

It imports nothing of this project, and is written for reading: Keccak by rows and columns as in FIPS 202, polynomials
by Lagrange's formula, no table. Boxes are libsodium's.
"""

import hmac
from functools import cache
from hashlib import sha256, sha512

from nacl import bindings

from vectors.from_text import ByteReader

P = 2**66 * 4611686018427387897 + 1
"""The modulus of Field128."""
GENERATOR = pow(7, 4611686018427387897, P)
"""Of order 2^66."""
ALGORITHM = 0xFFFF4853
MEASUREMENT, PROOF, JOINT, PROVE, QUERY, JOINT_SEED, JOINT_PART = 1, 2, 3, 4, 5, 6, 7
CURVE = 2**255 - 19


# --- TurboSHAKE128 (RFC 9861, FIPS 202)


@cache
def round_constant(number):
    """Step ι's constant of a round of Keccak-f[1600], from the shift register of FIPS 202, section 3.2.5."""
    register, constant = 1, 0
    for step in range(7 * number + 7):
        if step >= 7 * number and register & 1:
            constant |= 1 << (1 << step - 7 * number) - 1
        register <<= 1
        register ^= 0x171 if register & 256 else 0
    return constant


def turned(lane, by):
    by %= 64
    return (lane << by | lane >> 64 - by) & 2**64 - 1


def keccak(state):
    """The last twelve rounds; ``state[x][y]`` is a lane."""
    for number in range(12, 24):
        parity = [a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] for a in state]
        state = [[lane ^ parity[x - 1] ^ turned(parity[(x + 1) % 5], 1) for lane in state[x]] for x in range(5)]
        moved = [[0] * 5 for _ in range(5)]
        x, y, lane = 1, 0, state[1][0]
        moved[0][0] = state[0][0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved[x][y], lane = turned(lane, (t + 1) * (t + 2) // 2), state[x][y]
        state = [
            [moved[x][y] ^ ((moved[(x + 1) % 5][y] ^ 2**64 - 1) & moved[(x + 2) % 5][y]) for y in range(5)]
            for x in range(5)
        ]
        state[0][0] ^= round_constant(number)
    return state


def turbo_shake(message, length, domain=1):
    """So many bytes of TurboSHAKE128."""
    message += bytes([domain])
    message += bytes(-len(message) % 168)
    message = message[:-1] + bytes([message[-1] ^ 0x80])
    state, out = [[0] * 5 for _ in range(5)], b""
    for start in range(0, len(message), 168):
        for lane in range(21):
            at = start + 8 * lane
            state[lane % 5][lane // 5] ^= int.from_bytes(message[at : at + 8], "little")
        state = keccak(state)
    while True:
        out += b"".join(state[lane % 5][lane // 5].to_bytes(8, "little") for lane in range(21))
        if len(out) >= length:
            return out[:length]
        state = keccak(state)


def framed(usage, context, seed, binder):
    """The message of XofTurboShake128 with the tag of a VDAF."""
    tag = bytes([18, 0]) + ALGORITHM.to_bytes(4, "big") + usage.to_bytes(2, "big") + context
    return len(tag).to_bytes(2, "little") + tag + len(seed).to_bytes(1, "little") + seed + binder


def derived(usage, context, seed, binder):
    """A seed."""
    return turbo_shake(framed(usage, context, seed, binder), 32)


def vector_of(usage, context, seed, binder, length):
    """Field elements. One of 2^62 numbers is not below p, so two more than needed are enough here."""
    raw = turbo_shake(framed(usage, context, seed, binder), 16 * length + 32)
    numbers = [int.from_bytes(raw[at : at + 16], "little") for at in range(0, len(raw), 16)]
    return [number for number in numbers if number < P][:length]


def encoded(elements):
    """Their bytes."""
    return b"".join(element.to_bytes(16, "little") for element in elements)


def decoded(raw):
    """The elements; None if one is not below p."""
    found = [int.from_bytes(raw[at : at + 16], "little") for at in range(0, len(raw), 16)]
    return found if max(found) < P else None


# --- the circuit and its proof


def roots(n):
    """1, ω, ω², … of order n."""
    return [pow(GENERATOR, 2**66 // n * k, P) for k in range(n)]


@cache
def lagrange(n, x):
    """The weights of the values at the n-th roots of unity in the value at x."""
    points, weights = roots(n), []
    for i in range(n):
        above = below = 1
        for j in range(n):
            if j != i:
                above, below = above * (x - points[j]) % P, below * (points[i] - points[j]) % P
        weights.append(above * pow(below, -1, P) % P)
    return weights


def value_at(values, x):
    """The value at x of the polynomial with these values at the roots of unity."""
    return sum(weight * value for weight, value in zip(lagrange(len(values), x), values, strict=True)) % P


def gadget(inputs):
    """ParallelSum of Mul."""
    return sum(inputs[k] * inputs[k + 1] for k in range(0, len(inputs), 2)) % P


class Blocks:
    """Sizes of the blocks, and the chunk length."""

    def __init__(self, sizes, chunk):
        self.sizes, self.chunk, self.length = sizes, chunk, sum(sizes)
        self.calls = -(-self.length // chunk)
        self.nodes = 1
        while self.nodes < 1 + self.calls:
            self.nodes *= 2
        self.proof_length = 2 * chunk + 2 * self.nodes - 1

    def evaluated(self, vector, joint, shares, call):
        """1 + Q numbers, all 0 for a permitted vector."""
        part, range_check = pow(shares, -1, P), 0
        for i in range(self.calls):
            inputs = []
            for j in range(self.chunk):
                at = i * self.chunk + j
                element = vector[at] if at < self.length else 0
                inputs += [pow(joint[i], j + 1, P) * element % P, (element - part) % P]
            range_check += call(inputs)
        found, start = [range_check % P], 0
        for size in self.sizes:
            found.append((sum(vector[start : start + size]) - part) % P)
            start += size
        return found

    def proof(self, vector, seeds, joint):
        """Wire seeds ‖ values of the gadget's polynomial at the 2n-th roots of unity, but for the last."""
        calls = []
        self.evaluated(vector, joint, 1, lambda inputs: calls.append(inputs) or gadget(inputs))
        calls += [[0] * len(seeds)] * (self.nodes - 1 - self.calls)
        wires = [[seeds[j], *(inputs[j] for inputs in calls)] for j in range(len(seeds))]
        points = roots(2 * self.nodes)[: 2 * self.nodes - 1]
        return [*seeds, *(gadget([value_at(wire, x) for wire in wires]) for x in points)]

    def verifier(self, vector, proof, joint, random, shares=2):
        """What one collector sends, from its shares."""
        seeds, values = proof[: 2 * self.chunk], proof[2 * self.chunk :]
        # 2n − 1 values say what the polynomial of degree 2n − 2 is. The last follows, since Σ ω^k·p(ω^k) = 0.
        points, calls = roots(2 * self.nodes), []
        last = -sum(x * value for x, value in zip(points, values, strict=False)) * pow(points[-1], -1, P) % P
        values = [*values, last]
        found = self.evaluated(vector, joint, shares, lambda x: calls.append(x) or values[2 * len(calls)])
        calls += [[0] * len(seeds)] * (self.nodes - 1 - self.calls)
        *weights, x = random
        wires = [[seeds[j], *(inputs[j] for inputs in calls)] for j in range(len(seeds))]
        checked = sum(weight * number for weight, number in zip(weights, found, strict=True)) % P
        return [checked, *(value_at(wire, x) for wire in wires), value_at(values, x)]


# --- reports


def context_of(campaign):
    """The application context."""
    return b"hearsay/1/shared" + campaign


def part_of(context, role, blind, share, nonce):
    """A joint randomness part."""
    return derived(JOINT_PART, context, blind, bytes([role]) + nonce + encoded(share))


def joint_of(context, blocks, parts):
    """The joint randomness."""
    seed = derived(JOINT_SEED, context, bytes(32), b"".join(parts))
    return vector_of(JOINT, context, seed, b"\1", blocks.calls)


def helper_share(context, blocks, secret):
    """The helper's vector and proof."""
    vector = vector_of(MEASUREMENT, context, secret, b"\1", blocks.length)
    return vector, vector_of(PROOF, context, secret, b"\1\1", blocks.proof_length)


def sharded(context, blocks, vector, nonce, rand):
    """Public share, and both input shares."""
    helper, helper_blind, leader_blind, prove = (rand[at : at + 32] for at in range(0, 128, 32))
    theirs, their_proof = helper_share(context, blocks, helper)
    ours = [(one - other) % P for one, other in zip(vector, theirs, strict=True)]
    parts = [part_of(context, 0, leader_blind, ours, nonce), part_of(context, 1, helper_blind, theirs, nonce)]
    seeds = vector_of(PROVE, context, prove, b"\1", 2 * blocks.chunk)
    proof = blocks.proof(vector, seeds, joint_of(context, blocks, parts))
    our_proof = [(one - other) % P for one, other in zip(proof, their_proof, strict=True)]
    return b"".join(parts), (encoded(ours + our_proof) + leader_blind, helper + helper_blind)


def box_key(public):
    """The X25519 key that follows from an Ed25519 key: u = (1 + y)/(1 − y)."""
    y = int.from_bytes(public, "little") & 2**255 - 1
    return ((1 + y) * pow(1 - y, -1, CURVE) % CURVE).to_bytes(32, "little")


def box_secret(seed):
    """The X25519 secret that follows from the seed of an Ed25519 key pair."""
    return sha512(seed).digest()[:32]


def one_hot(sizes, cells):
    """The vector of a record's cells."""
    vector = []
    for size, cell in zip(sizes, cells, strict=True):
        vector += [int(number == cell) for number in range(size)]
    return vector


def contents(campaign, terms, sizes, cells, identifier, period, seed):
    """Nonce, public share, secret of the sender, and what the two boxes hold. ``terms``: the map ``shared``."""
    reader, blocks = ByteReader(seed, b"hearsay/1/shared"), Blocks(sizes, terms["chunk"])
    nonce, rand, own = reader.take(16), reader.take(128), reader.take(32)
    public, shares = sharded(context_of(campaign), blocks, one_hot(sizes, cells), nonce, rand)
    digest = sha256(nonce + public).digest()
    begin = campaign + period.to_bytes(4, "big") + identifier
    return nonce, public, sha512(own).digest()[:32], [begin + bytes([r]) + digest + shares[r] for r in (0, 1)]


def answer_field(campaign, terms, sizes, cells, identifier, period, seed):
    """The answer field of a report."""
    nonce, public, secret, parts = contents(campaign, terms, sizes, cells, identifier, period, seed)
    field = nonce + public + bindings.crypto_scalarmult_base(secret)
    for role, content in enumerate(parts):
        key = box_key(terms["collectors"][role]["key"])
        field += bindings.crypto_box(content, bytes([role]) + bytes(23), key, secret)
    return field


def record_length(sizes, chunk):
    """Bytes of a report: ext 16 of msgpack, or ext 8; id, period and question; the answer field."""
    blocks = Blocks(sizes, chunk)
    payload = 14 + 16 + 64 + 32 + 2 * (16 + 77) + 16 * (blocks.length + blocks.proof_length) + 32 + 64
    return payload + (4 if payload > 255 else 3)


def verify_key(seed, keys, salt):
    """The verify key, by the collector with this seed. ``keys``: the Ed25519 keys of leader and helper."""
    own = bindings.crypto_sign_seed_keypair(seed)[0]
    other = keys[1 - keys.index(own)]
    secret = bindings.crypto_box_beforenm(box_key(other), box_secret(seed))
    return hmac.digest(secret, b"hearsay/1/verify-key" + salt + keys[0] + keys[1], "sha256")


def opened(campaign, field, boxes_at, identifier, period, seeds):
    """What the two boxes hold after what binds them, and nonce and public share. ``boxes_at``: where boxes begin."""
    nonce, public, sender = field[:16], field[16:80], field[80:112]
    bound = campaign + period.to_bytes(4, "big") + identifier
    found = []
    for role, (low, high) in enumerate(boxes_at):
        raw = bindings.crypto_box_open(field[low:high], bytes([role]) + bytes(23), sender, box_secret(seeds[role]))
        assert raw[:77] == bound + bytes([role]) + sha256(nonce + public).digest()
        found.append(raw[77:])
    return nonce, public, found


def checked(campaign, terms, sizes, key, nonce, public, shares):
    """Both verifier shares and the verifier message, or the reason why the report is refused; and the vectors' sum."""
    blocks, context = Blocks(sizes, terms["chunk"]), context_of(campaign)
    ours = decoded(shares[0][:-32])
    if ours is None:
        return "value_out_of_domain", None, None
    both = [(ours[: blocks.length], ours[blocks.length :]), helper_share(context, blocks, shares[1][:32])]
    random = vector_of(QUERY, context, key, b"\1" + nonce, 2 + len(sizes))
    verifiers, parts, expected = [], [], []
    for role, (vector, proof) in enumerate(both):
        own = part_of(context, role, shares[role][-32:], vector, nonce)
        known = [public[:32], public[32:]]
        known[role] = own
        parts.append(own)
        expected.append(derived(JOINT_SEED, context, bytes(32), known[0] + known[1]))
        verifiers.append(blocks.verifier(vector, proof, joint_of(context, blocks, known), random))
    total = [sum(pair) % P for pair in zip(*verifiers, strict=True)]
    message = derived(JOINT_SEED, context, bytes(32), parts[0] + parts[1])
    if total[0] or gadget(total[1:-1]) != total[-1] or expected != [message, message]:
        return "proof_invalid", None, None
    sums = [sum(pair) % P for pair in zip(both[0][0], both[1][0], strict=True)]
    return [encoded(each) + part for each, part in zip(verifiers, parts, strict=True)], message, sums
