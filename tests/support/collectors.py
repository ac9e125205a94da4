"""Two collectors in folders, with the keys of :mod:`support.shared`, and reports for them, honest and forged."""

from __future__ import annotations

from collections import Counter
from hashlib import shake_128
from typing import TYPE_CHECKING, Any, NamedTuple

from nacl import bindings

from aggregator.collectors.collector import CollectorFolder
from aggregator.collectors.noise import noisy
from protocol.batches.batch import write_batch
from protocol.batches.framing import Header
from protocol.batches.report import encode_report
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.shared.report import box_key, context_of, variant_of
from protocol.stream import sha256
from support.publisher import DAY, NOW, Publisher
from support.shared import COLLECTORS, shared_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aggregator.collectors.total import Total
    from protocol.documents.campaign import Campaign

PERIOD = NOW // DAY
LATER = NOW + 2 * DAY
SEEDS = (80, 81)
"""Byte of all random bytes of leader and helper, so that their keys are those of :mod:`support.shared`."""
ROOT = Publisher().root()


class Forged(NamedTuple):
    """What a hostile device does differently. Fields: see :func:`field_of`."""

    vector: Any = None
    shares: Any = None
    public: Any = None
    bound: Any = None
    sealed: Any = None
    question: int = 0
    identifier: Any = None


def random_bytes(*names: object) -> bytes:
    return shake_128(repr(names).encode()).digest(4096)


def field_of(campaign: Campaign, identifier: bytes, cells: list[int], how: Forged | None = None) -> bytes:
    """The answer field of a report, put together without the device's own code for it.

    ``vector``, ``shares``, ``public`` and ``bound`` change what their name says before anything is sealed; ``sealed``
    changes the finished field.
    """
    how = how or Forged()
    prio3, some = variant_of(campaign), random_bytes("report", identifier)
    vector = prio3.circuit.encoded(cells)  # type: ignore[attr-defined]
    nonce, random, own = some[:16], some[16 : 16 + prio3.random_bytes], some[-32:]
    shards = prio3.shard(context_of(campaign.id), how.vector(vector) if how.vector else vector, nonce, random)
    inputs = how.shares(shards.inputs) if how.shares else shards.inputs
    public = how.public(shards.public) if how.public else shards.public
    sender, private = bindings.crypto_box_seed_keypair(own)
    field = nonce + public + sender
    for role, (collector, share) in enumerate(zip(COLLECTORS, inputs, strict=True)):
        bound = (campaign.id, PERIOD.to_bytes(4, "big"), identifier, bytes([role]), sha256(nonce + public).digest())
        content = b"".join(how.bound(role, bound) if how.bound else bound) + share
        field += bindings.crypto_box(content, bytes([role]).ljust(24, b"\0"), box_key(collector.key), private)
    return how.sealed(field) if how.sealed else field


def report_of(campaign: Campaign, number: int, how: Forged | None = None) -> bytes:
    """The report of device ``number``, whose record's cells follow from its number."""
    identifier, how = number.to_bytes(8, "big"), how or Forged()
    field = field_of(campaign, identifier, cells_of(campaign, number), how)
    return encode_report(campaign.layout, how.identifier or identifier, PERIOD, how.question, field)


def cells_of(campaign: Campaign, number: int) -> list[int]:
    return [(number + at) % size for at, size in enumerate(variant_of(campaign).circuit.sizes)]  # type: ignore[attr-defined]


class Two:
    """Both collectors of one campaign, and the files between them, in one folder."""

    def __init__(self, folder: Path, *, smallest: int = 2, make: bool = True, **options: Any) -> None:
        self.folder = folder
        self.raw = shared_file(min_batch_size=smallest, **options)
        self.campaign = parse_campaign(read_envelope(self.raw, "campaign").payload)
        for name, seed, one in zip(("leader", "helper"), SEEDS, COLLECTORS, strict=True) if make else ():
            CollectorFolder.create(folder / name, one.name, one.contact, entropy=constant(seed)).close()

    def open(self, name: str, *, noise: int | None = None, at: int = LATER) -> CollectorFolder:
        seed = SEEDS[name == "helper"] if noise is None else noise
        return CollectorFolder.open(self.folder / name, clock=lambda: at, entropy=constant(seed))

    def batch(self, reports: Iterable[bytes], name: str = "in.hsr") -> Path:
        layout = self.campaign.layout
        path = self.folder / name
        path.write_bytes(write_batch(Header(self.campaign.id, layout.kind, layout.record_length), list(reports)))
        return path

    def honest(self, numbers: Iterable[int], name: str = "in.hsr") -> Path:
        return self.batch([report_of(self.campaign, number) for number in numbers], name)

    def check(self, *files: Path, period: int = PERIOD, out: str = "request", **options: Any) -> Any:
        with self.open("leader", **options) as leader:
            return leader.check(self.raw, ROOT, period, files, self.folder / out)

    def answer(self, request: str = "request", out: str = "answer", **options: Any) -> Any:
        with self.open("helper", **options) as helper:
            return helper.answer(self.raw, ROOT, self.folder / request, self.folder / out)

    def finish(self, answer: str = "answer", out: str = "total", **options: Any) -> Total:
        with self.open("leader", **options) as leader:
            return leader.finish(self.raw, ROOT, self.folder / answer, self.folder / out)

    def total(self, *files: Path) -> Total:
        self.check(*files)
        self.answer()
        return self.finish()

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def expected(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The exact counts of these devices, plus both noises."""
        sizes = variant_of(self.campaign).circuit.sizes  # type: ignore[attr-defined]
        counts = Counter[int]()
        for number in numbers:
            for at, cell in enumerate(cells_of(self.campaign, number)):
                counts[sum(sizes[:at]) + cell] += 1
        noises = [noisy(self.campaign, [0] * sum(sizes), bytes([seed]) * 32) for seed in SEEDS]
        return tuple(counts[at] + one + other for at, (one, other) in enumerate(zip(*noises, strict=True)))


def constant(seed: int) -> Any:
    """Randomness that is always the same byte."""
    return lambda size: bytes([seed]) * size
