"""The mechanisms once more, written from docs/formats.md and docs/math.md alone.

It imports nothing of this project and is written for reading, not for speed: one loop per sentence of
the text. The accumulated vectors were computed with it, and a test holds the project's code against it.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from hashlib import sha256
from math import ceil, floor

TWO_32 = 2**32
M = 1024
S = 65536
N = 4096
OF_NUMBERS = ("bit", "bits", "piecewise", "hybrid", "laplace", "duchi")
ACCUMULATED_SEED = b"\x41" * 32
ACCUMULATED_TAG = b"hearsay/1/accumulated"


class ByteReader:
    """Block i = SHA-256(len(tag) ‖ tag ‖ seed ‖ i as u32); bytes are read in order (formats 1)."""

    def __init__(self, seed, tag):
        self.start = bytes([len(tag)]) + tag + seed
        self.waiting = b""
        self.block = 0

    def take(self, count):
        """The next bytes; what is left of a block is kept."""
        while len(self.waiting) < count:
            self.waiting += sha256(self.start + self.block.to_bytes(4, "big")).digest()
            self.block += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def below(self, b):
        """Words of four bytes, or of eight for b above 2^32, until one is below the largest multiple of b."""
        width = 4 if b <= TWO_32 else 8
        span = 256**width
        while True:
            word = int.from_bytes(self.take(width), "big")
            if word < span - span % b:
                return word % b

    def coin(self, t):
        """One word below t."""
        return int.from_bytes(self.take(4), "big") < t


def exp(exponent):
    """e to a fraction, to 90 digits: far beyond what any rounded integer below depends on."""
    with localcontext(prec=90):
        return Fraction((Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def parameters(mechanism, epsilon, size, theta="0.25", delta=None):
    """The tables of math 1 and 2."""
    e, cut = Fraction(epsilon), Fraction(theta)
    if mechanism == "direct":
        return {"keep": floor(TWO_32 * exp(e) / (exp(e) + size - 1))}
    if mechanism == "oue":
        return {"p": 2**31, "q": ceil(TWO_32 / (1 + exp(e)))}
    if mechanism == "sue":
        p = floor(TWO_32 * exp(e / 2) / (1 + exp(e / 2)))
        return {"p": p, "q": TWO_32 - p}
    if mechanism == "the":
        p = floor(TWO_32 * (1 - exp(-(e / 2) * (1 - cut)) / 2))
        return {"p": p, "q": ceil(TWO_32 * exp(-e * cut / 2) / 2)}
    if mechanism == "subset":
        least = max(1, floor(size / (exp(e) + 1)))
        w = min((least, min(least + 1, size - 1)), key=lambda w: (w * exp(e) + size - w) ** 2 / (w * (size - w)))
        return {"w": w, "p": floor(TWO_32 * w * exp(e) / (w * exp(e) + size - w))}
    if mechanism == "she":
        rate = e / (2 * M)
        return {"s": rate.numerator, "t": rate.denominator}
    if mechanism in ("bit", "bits", "duchi"):
        return {"threshold": floor(TWO_32 * exp(e) / (1 + exp(e)))}
    if mechanism == "piecewise":
        c = (exp(e / 2) + 1) / (exp(e / 2) - 1)
        w = round(N * (c - 1) / (2 * c))
        return {"window": w, "threshold": floor(TWO_32 * exp(e) * w / (exp(e) * w + N - w))}
    if mechanism == "hybrid":
        near = parameters("piecewise", epsilon, 1)
        share = floor(TWO_32 * (1 - exp(-e / 2))) if e > Fraction("0.61") else 0
        coin = parameters("bit", epsilon, 1)["threshold"]
        return {
            "share": share,
            "window": near["window"],
            "piecewise_threshold": near["threshold"],
            "bit_threshold": coin,
        }
    if mechanism == "laplace":
        sensitivity = 2 * size if delta is None else delta
        rate = e / (sensitivity * M)
        return {"delta": sensitivity, "s": rate.numerator, "t": rate.denominator}
    raise ValueError(mechanism)


def perturbed(mechanism, integers, size, value, seed):
    """The column "reads the stream" of math 1: an integer, or a list of bits or integers."""
    if mechanism == "direct":
        reader = ByteReader(seed, b"hearsay/1/direct")
        if reader.coin(integers["keep"]):
            return value
        other = reader.below(size - 1)
        return other + 1 if other >= value else other
    if mechanism == "subset":
        reader = ByteReader(seed, b"hearsay/1/subset")
        chosen = {value} if reader.coin(integers["p"]) else set()
        others = [j for j in range(size) if j != value]
        while len(chosen) < integers["w"]:
            place = reader.below(len(others))
            chosen.add(others[place])
            others[place] = others[-1]
            others.pop()
        return [1 if j in chosen else 0 for j in range(size)]
    if mechanism == "she":
        reader = ByteReader(seed, b"hearsay/1/histogram")
        answer = []
        for j in range(size):
            noisy = (M if j == value else 0) + laplace(reader, integers["s"], integers["t"])
            answer.append(max(-farthest(integers), min(noisy, M + farthest(integers))))
        return answer
    reader = ByteReader(seed, b"hearsay/1/unary")
    answer = []
    for j in range(size):
        answer.append(1 if reader.coin(integers["p"] if j == value else integers["q"]) else 0)
    return answer


def numbers(mechanism, integers, size, value, seed):
    """The column "reads the stream, answers" of math 2; a single number is a list of one, and so is its answer."""
    reader = ByteReader(seed, b"hearsay/1/" + mechanism.encode())
    if mechanism in ("bit", "bits"):
        return [one_bit(reader, x, integers["threshold"]) for x in value]
    if mechanism == "piecewise":
        return [one_cell(reader, value[0], integers["window"], integers["threshold"])]
    if mechanism == "hybrid":
        if reader.coin(integers["share"]):
            return [one_cell(reader, value[0], integers["window"], integers["piecewise_threshold"])]
        return [N + one_bit(reader, value[0], integers["bit_threshold"])]
    answer = []
    if mechanism == "laplace":
        for x in value:
            a, r = divmod(x * M, S)
            if reader.below(S) < r:
                a += 1
            a += laplace(reader, integers["s"], integers["t"])
            answer.append(max(-M - farthest(integers), min(a, M + farthest(integers))))
        return answer
    longer = list(value) if size % 2 == 1 else [*value, 0]
    v = [1 if reader.below(2 * S) < x + S else -1 for x in longer]
    h = reader.coin(integers["threshold"])
    while True:
        t = [1 if reader.coin(2**31) else -1 for _ in longer]
        product = 0
        for one, other in zip(t, v, strict=True):
            product += one * other
        if (product > 0) == h:
            return [1 if part == 1 else 0 for part in t[:size]]


def one_bit(reader, x, threshold):
    """u = coin(2^31 + ⌊x(T − 2^31)/S⌋)."""
    return 1 if reader.coin(2**31 + floor(Fraction(x * (threshold - 2**31), S))) else 0


def one_cell(reader, x, w, threshold):
    """A cell of ``piecewise``."""
    a = (x + S) * (N - w)
    s = floor(Fraction(a, 2 * S))
    if reader.below(2 * S) < a % (2 * S):
        s += 1
    if reader.coin(threshold):
        return s + reader.below(w)
    o = reader.below(N - w)
    return o if o < s else o + w


def odd_run(reader, a, b):
    """B(a, b)."""
    k = 1
    while reader.below(b * k) < a:
        k += 1
    return k % 2 == 1


def farthest(integers):
    """H of math 1."""
    return ceil(Fraction(64 * integers["t"], integers["s"]))


def laplace(reader, s, t):
    """Noise, steps (1) to (6)."""
    while True:
        u = reader.below(t)
        if odd_run(reader, u, t):
            v = 0
            while odd_run(reader, 1, 1):
                v += 1
            y = (u + t * v) // s
            g = reader.below(2)
            if not (g == 1 and y == 0):
                return -y if g == 1 else y


def answer_field(mechanism, answer):
    """The answer in the layout of its own mechanism (formats 3)."""
    if isinstance(answer, int):
        return bytes([answer // 256, answer % 256])
    if mechanism in ("she", "laplace"):
        return b"".join((part % TWO_32).to_bytes(4, "big") for part in answer)
    digits = "".join(map(str, answer))
    digits += "0" * (-len(digits) % 8)
    return int(digits, 2).to_bytes(len(digits) // 8, "big")


def accumulated(mechanism, epsilon, size, cases, theta="0.25", delta=None):
    """First 16 bytes of the SHA-256 over the answer fields of many cases, which come from one stream.

    The value is below(size); of a numeric mechanism x = below(2S + 1) − S for each coordinate, or, where at most one
    entry may differ from 0 (``bits``, and ``laplace`` with Δ = 2), for the place below(size). The seed is the next 32
    bytes.
    """
    inputs = ByteReader(ACCUMULATED_SEED, ACCUMULATED_TAG)
    integers = parameters(mechanism, epsilon, size, theta, delta)
    total = sha256()
    for _ in range(cases):
        if mechanism in OF_NUMBERS:
            value = [0] * size
            for place in [inputs.below(size)] if mechanism == "bits" or delta == 2 else range(size):
                value[place] = inputs.below(2 * S + 1) - S
            answer = numbers(mechanism, integers, size, value, inputs.take(32))
            answer = answer[0] if mechanism in ("bit", "piecewise", "hybrid") else answer
        else:
            value = inputs.below(size)
            answer = perturbed(mechanism, integers, size, value, inputs.take(32))
        total.update(answer_field(mechanism, answer))
    return total.hexdigest()[:32]


def sums(mechanism, answers):
    """The counts of one question in the tally bytes (formats 4)."""
    found = [0] * len(answers[0])
    for answer in answers:
        for place, part in enumerate(answer):
            found[place] += max(0, min(part, M)) if mechanism == "she" else part
    return found


def held(epsilon, n, totals):
    """The estimates of ``she`` (math 1), with the mean of a component summed term by term instead of in closed form."""
    integers = parameters("she", epsilon, 2)
    rate = Fraction(integers["s"], integers["t"])
    q = exp(-rate)
    mean = sum(min(k, M) * exp(-rate * k) * (1 - q) / (1 + q) for k in range(1, M)) + M * exp(-rate * M) / (1 + q)
    return [(total - n * mean) / (M - 2 * mean) for total in totals]
