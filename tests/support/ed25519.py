"""Ed25519 in plain integers after RFC 8032. Each check of the verifier can be left out.

For tests alone: slow, and its time depends on secrets.
"""

from hashlib import sha512

from nacl import bindings, exceptions

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)
IDENTITY = (0, 1)
CHECKS = ("scalar", "key order", "point order", "key spelling", "point spelling")
"""The checks of a verifier besides the equation; ``verifies`` can leave out each check."""


def add(one, other):
    (a, b), (c, d) = one, other
    t = D * a * b * c * d % P
    return (a * d + b * c) * pow(1 + t, -1, P) % P, (b * d + a * c) * pow(1 - t, -1, P) % P


def times(number, point):
    found = IDENTITY
    while number:
        if number & 1:
            found = add(found, point)
        point = add(point, point)
        number >>= 1
    return found


def encode(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def decode(raw):
    """The point of 32 bytes, and whether the bytes are its canonical encoding; None if there is no such point."""
    number = int.from_bytes(raw, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P:
        return None
    x = P - x if x & 1 != sign else x
    point = (x % P, y % P)
    return point, encode(point) == raw


BASE = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))[0]


def small(order):
    """A point of order 1, 2, 4 or 8."""
    y = 2
    while True:
        found = decode(y.to_bytes(32, "little"))
        if found is not None:
            point = times(L, found[0])
            if times(4, point) != IDENTITY:
                return times(8 // order, point)
        y += 1


def secret_of(seed):
    raw = sha512(seed).digest()
    return int.from_bytes(raw[:32], "little") & (1 << 254) - 8 | 1 << 254, raw[32:]


def challenge(point, public, message):
    """k = SHA-512(R ‖ A ‖ message) mod L."""
    return int.from_bytes(sha512(point + public + message).digest(), "little") % L


def verifies(public, message, signature, *, without=(), cofactored=False):
    """Verify S·B = R + k·A and all checks except the checks named in ``without``."""
    point, s = signature[:32], int.from_bytes(signature[32:], "little")
    key, r = decode(public), decode(point)
    if key is None or r is None:
        return False
    wrong = {
        "scalar": s >= L,
        "key order": times(8, key[0]) == IDENTITY,
        "point order": times(8, r[0]) == IDENTITY,
        "key spelling": not key[1],
        "point spelling": not r[1],
    }
    if any(wrong[name] for name in CHECKS if name not in without):
        return False
    left, right = times(s, BASE), add(r[0], times(challenge(point, public, message), key[0]))
    return times(8, left) == times(8, right) if cofactored else left == right


def is_signed(public, message, signature):
    try:
        return bindings.crypto_sign_open(signature + message, public) == message
    except exceptions.BadSignatureError:
        return False
