"""Time of ``hearsay masked decrypt``: from the messages in a store on disk to the totals of 290 counts.

    python -m benchmarks.masked.stored [--json] [--nodes 10000] [--cpu]

Beside the arithmetic that ``speed`` measures, a store reads every message from SQLite, compares it with its digest, and
compares the sum of all digests. The baseline is that of ``speed``: six bare products of as many factors as nodes, and
six powers. Ciphertexts and boxes of the key book are random; the last message makes the totals right.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from collections.abc import Callable

from harness import Row, arguments, interleaved_seconds, show
from support.masked import DEALER, MODULUS, NODES, TERMS, masked_payload
from support.node_fleets import keys, list_of
from support.nodes import PERIOD
from support.publisher import DAY, NOW, Publisher

from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.opening import make_envelope_store
from protocol.documents.campaign import DISCRETE, parse_campaign
from protocol.documents.envelope import keyid
from protocol.features import Categorical
from protocol.masked import groups
from protocol.masked.cipher import SECRET_BITS, release_elements
from protocol.masked.keys import PartyKey, build_key_book, seal_key
from protocol.masked.message import build_message
from protocol.masked.release import Request, build_release, read_release
from protocol.masked.slots import Slots
from protocol.masked.terms import ciphertexts_of
from protocol.nodes.terms import released_vectors
from protocol.schema import Label, build_schema

REPEATS = 5
SQUARE = MODULUS**2
SCHEMA = build_schema(
    Label("label", ["no", "yes"]),
    [Categorical(f"feature {number}", [f"value {value}" for value in range(23)]) for number in range(6)],
)


class Fleet:
    """A masked campaign with one message of each node in a store, and a release for all of them.

    Args:
        nodes: number of nodes.
        folder: an empty folder.
    """

    def __init__(self, nodes: int, folder: Path) -> None:
        generator, publisher, holders = random.Random(1), Publisher(schema=SCHEMA), keys(nodes)
        payload = masked_payload(publisher, DISCRETE, masked=TERMS._replace(most_parties=1 << 16), terms=NODES)
        campaign = self.campaign = parse_campaign(payload)
        count = ciphertexts_of(campaign)
        box = seal_key(holders[0].public, campaign.id, keyid(holders[0].public), 1 << 16, nodes, 0)
        serials = {keyid(holder.public): (1 << 16) + number for number, holder in enumerate(holders)}
        book = build_key_book(
            campaign, DEALER, 1, 1, {node: PartyKey(serial, nodes, box) for node, serial in serials.items()}
        )
        self.total = generator.getrandbits(SECRET_BITS + nodes.bit_length() - 1)
        elements = release_elements(self.total, campaign.id, PERIOD, count, MODULUS)
        self.rows = [[generator.randrange(1, SQUARE) for _ in range(count)] for _ in range(nodes - 1)]
        self.rows.append(self._last(elements))
        file = folder / "all.hse"
        file.write_bytes(
            b"".join(
                build_message(campaign, holder, PERIOD, serials[keyid(holder.public)], row)
                for holder, row in zip(holders, self.rows, strict=True)
            )
        )
        self.store = make_envelope_store(MaskedStore, folder / "store", publisher.sign("campaign", payload))
        self.store.give_list(list_of(publisher, holders))
        self.store.give_book(book)
        assert self.store.ingest([file], now=NOW + 2 * DAY).accepted == nodes
        raw = build_release(campaign, DEALER, Request(campaign.id, PERIOD, 1, tuple(sorted(serials))), elements)
        self.release, self.book = read_release(raw, campaign), self.store.books()[0]
        self.numbers = sum(subject.size for subject in released_vectors(campaign))
        self.columns = [[groups.wide(row[place]) for row in self.rows] for place in range(count)]

    def _last(self, elements: list[int]) -> list[int]:
        """The ciphertexts with which every total is 1234."""
        wanted = Slots(TERMS.slot_bits).pack([1234] * sum(each.size for each in released_vectors(self.campaign)))
        found = []
        for place, plaintext in enumerate(wanted):
            product = groups.wide(elements[place])
            for row in self.rows:
                product = product * row[place] % SQUARE
            found.append(int((1 + plaintext * MODULUS) * groups.power(int(product), -1, SQUARE) % SQUARE))
        return found

    def products(self) -> None:
        """Six bare products."""
        square = groups.wide(SQUARE)
        for column in self.columns:
            product = groups.wide(1)
            for factor in column:
                product = product * factor % square

    def powers(self) -> None:
        """Six bare powers."""
        for column in self.columns:
            groups.in_use.power(column[0], self.total, SQUARE)

    def decrypt(self) -> None:
        """From the store to the totals. The result is not stored, so that it can be repeated."""
        assert set(self.store._opened(self.release, self.book)) == {1234}  # noqa: SLF001


def rows(nodes: int, folder: Path, clock: Callable[[], float]) -> list[Row]:
    """All figures, in milliseconds."""
    fleet = Fleet(nodes, folder)
    products, powers, decrypt = interleaved_seconds([fleet.products, fleet.powers, fleet.decrypt], REPEATS, clock)
    least = f"{6 * nodes:,} products, six powers"
    return [
        Row("numbers in a message", fleet.numbers, ""),
        Row(least, 1000 * (products + powers), "ms"),
        Row("six powers and decryption from a store", 1000 * (decrypt + powers), "ms", least,
            (decrypt + powers) / (products + powers)),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--cpu", action="store_true", help="processor time, where the machine does other work too")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        found = rows(given.nodes, Path(folder), clock)
    kind = "Python's integers" if groups.in_use is groups.PLAIN else "gmpy2"
    show(f"Masked sums of {given.nodes:,} nodes in a store, with {kind}", found, as_json=given.json)


if __name__ == "__main__":
    main()
