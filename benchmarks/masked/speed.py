"""Time of masked sums: one node's encryption of 300 counts, and the decryption of 10,000 nodes' totals.

    python -m benchmarks.masked.speed [--json] [--nodes 10000] [--repeats 7] [--cpu]

The baselines are what no implementation can leave out, measured in turns with the rest. Of an encryption: six bare
powers, with bases modulo N² of 4096 bits and one exponent of 4224 bits. Of a decryption: six products of as many
factors as nodes, one product and one remainder modulo N² for each factor, and six such powers. *Encryption* goes from
exact counts to the ciphertexts' bytes; *decryption* from the bytes that a store holds to the totals of all counts, and
includes the six powers of the dealer's release. The noise of the 300 counts is drawn exactly, with ε = 0.1 for each
count, as for 1, 2, 10 and 1000 honest nodes. Each figure is there for gmpy2 and for Python's own integers.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from fractions import Fraction
from functools import partial
from math import isqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from collections.abc import Callable

from harness import Row, arguments, show

from protocol.masked import groups
from protocol.masked.cipher import SECRET_BITS, Unmasking, mask_all, release_elements
from protocol.masked.fields import write_numbers
from protocol.masked.noise import PartyNoise
from protocol.masked.slots import Slots
from protocol.stream import Stream

COUNTS = 300
HONEST = (1, 2, 10, 1000)
SLOTS = Slots(40)
CAMPAIGN = bytes(range(32))
PERIOD = 20_000
MODULUS = (isqrt(3 << 2046) + 537) * (isqrt(5 << 2045) + 1424)
"""2048 bits: the primes that follow √3·2^1023 and √2.5·2^1023. That everybody knows them changes no time."""
SQUARE = MODULUS**2
KINDS = {"gmpy2": groups.fastest(), "pow": groups.PLAIN}


class Node:
    """One node with 300 counts.

    Args:
        generator: of the counts and the key.
    """

    def __init__(self, generator: random.Random) -> None:
        self.counts = [generator.randrange(10_000) for _ in range(COUNTS)]
        self.secret = generator.getrandbits(SECRET_BITS)
        self.bases = [generator.randrange(SQUARE) for _ in range(SLOTS.plaintexts(COUNTS))]
        self.messages = 0

    def bare(self) -> None:
        """Six powers."""
        raise_to = groups.in_use.power
        for base in self.bases:
            raise_to(base, self.secret, SQUARE)

    def encrypt(self) -> bytes:
        """All of a node's work on its counts except noise and signature."""
        plaintexts = SLOTS.pack(self.counts)
        return write_numbers(mask_all(plaintexts, self.secret, CAMPAIGN, PERIOD, MODULUS))

    def encrypt_with_noise(self, honest: int) -> bytes:
        """All of a node's work on its counts except the signature."""
        self.messages += 1
        stream = Stream(self.messages.to_bytes(32, "big"), b"benchmark")
        noise = PartyNoise(Fraction(1, 10), honest)
        drawn = SLOTS.spread([noise.draw(stream) for _ in self.counts])
        plaintexts = [exact + extra for exact, extra in zip(SLOTS.pack(self.counts), drawn, strict=True)]
        return write_numbers(mask_all(plaintexts, self.secret, CAMPAIGN, PERIOD, MODULUS))


class Aggregate:
    """The stored ciphertexts of many nodes.

    All ciphertexts but those of the last node are drawn uniformly: the time of a product does not depend on its
    factors. The last node's are those with which the totals are 300 times 1234.

    Args:
        nodes: number of nodes.
        generator: of the ciphertexts and of the keys' sum.
    """

    def __init__(self, nodes: int, generator: random.Random) -> None:
        count = SLOTS.plaintexts(COUNTS)
        self.keys_sum = generator.getrandbits(SECRET_BITS + nodes.bit_length() - 1)
        self.release = release_elements(self.keys_sum, CAMPAIGN, PERIOD, count, MODULUS)
        drawn = [[generator.randrange(1, SQUARE) for _ in range(count)] for _ in range(nodes - 1)]
        wanted = [1 + total * MODULUS for total in SLOTS.pack([1234] * COUNTS)]
        last = []
        for place, total in enumerate(wanted):
            product = groups.wide(self.release[place])
            for row in drawn:
                product = product * row[place] % SQUARE
            last.append(int(total * groups.power(int(product), -1, SQUARE) % SQUARE))
        self.rows = [*drawn, last]
        self.stored = [write_numbers(row) for row in self.rows]
        self.bases = [generator.randrange(SQUARE) for _ in range(count)]

    def bare(self) -> None:
        """The products and the powers, with factors that are already in the arithmetic's own form."""
        square, raise_to = groups.wide(SQUARE), groups.in_use.power
        for place, column in enumerate(self.columns):
            product = groups.wide(1)
            for factor in column:
                product = product * factor % square
            raise_to(self.bases[place], self.keys_sum, SQUARE)

    def convert(self) -> None:
        """Prepare the factors of :meth:`bare`. Not part of any figure."""
        self.columns = [[groups.wide(row[place]) for row in self.rows] for place in range(len(self.bases))]

    def release_and_decrypt(self) -> list[int]:
        """The dealer's powers, and all that the aggregator does from stored bytes to totals."""
        release = release_elements(self.keys_sum, CAMPAIGN, PERIOD, len(self.bases), MODULUS)
        unmasking = Unmasking(MODULUS, len(self.bases))
        for raw in self.stored:
            unmasking.add_bytes(raw)
        return SLOTS.unpack(unmasking.opened(release), COUNTS)


def compared(
    action: Callable[[], object], bare: Callable[[], object], repeats: int, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Medians of an action's time, of its baseline's, and of the ratio of the two in the same turn."""
    pairs = []
    for _ in range(repeats):
        times = [clock()]
        for each in (bare, action):
            each()
            times.append(clock())
        pairs.append((times[2] - times[1], times[1] - times[0]))
    return (
        statistics.median(taken for taken, _ in pairs),
        statistics.median(least for _, least in pairs),
        statistics.median(taken / least for taken, least in pairs),
    )


def rows(nodes: int, repeats: int, clock: Callable[[], float]) -> list[Row]:
    """All figures, in milliseconds."""
    generator = random.Random(1)
    node, aggregate = Node(generator), Aggregate(nodes, generator)
    assert aggregate.release_and_decrypt() == [1234] * COUNTS
    found = []
    for kind, arithmetic in KINDS.items():
        groups.in_use = arithmetic
        aggregate.convert()
        for name, action, bare, least in (
            ("encryption without noise", node.encrypt, node.bare, "six powers"),
            *(
                (f"with noise, h = {honest}", partial(node.encrypt_with_noise, honest), node.bare, "six powers")
                for honest in HONEST
            ),
            (
                f"decryption of {nodes:,} nodes",
                aggregate.release_and_decrypt,
                aggregate.bare,
                f"{6 * nodes:,} products, six powers",
            ),
        ):
            taken, baseline, ratio = compared(action, bare, repeats, clock)
            if not name.startswith("with"):
                found.append(Row(f"{least}, {kind}", 1000 * baseline, "ms"))
            found.append(Row(f"{name}, {kind}", 1000 * taken, "ms", least, ratio))
    groups.in_use = KINDS["gmpy2"]
    return found


def main() -> None:
    """Measure, and print the table."""
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="processor time, where the machine does other work too")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    title = f"Masked sums: {COUNTS} counts in {SLOTS.plaintexts(COUNTS)} ciphertexts, modulus of 2048 bits"
    show(title, rows(given.nodes, given.repeats, clock), as_json=given.json)


if __name__ == "__main__":
    main()
