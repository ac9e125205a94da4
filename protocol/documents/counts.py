"""Counts of a pilot's or a curator's records for one campaign: a signed document that holds no record.

The role ``model`` signs it: who may sign models can state counts. Devices never read it. Source: docs/formats.md,
section 5 (counts).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol import canonical
from protocol.documents.payload import HEADER_KEYS, Header, read_field, read_integer, read_payload, read_text
from protocol.epsilon import MICRO
from protocol.errors import DocumentError
from protocol.questions import ADD_REMOVE, ADJACENCIES

ROLE = "counts"
UNDERSTOOD = frozenset((*HEADER_KEYS, "campaign", "consent", "noise", "people", "records", "vectors"))
"""Payload keys that this reader understands."""
CRIT = ("campaign", "noise", "records", "vectors")
MOST_RECORDS = 1 << 32
MOST = 1 << 53
"""Limit of a number's size."""
_DIGEST_BYTES = 32


class Noise(NamedTuple):
    """The noise in counts: ε in millionths, adjacency and division of ε (as in a curator's fit), name of the budget."""

    epsilon_micro: int
    adjacency: str
    division: str
    budget: str


class Counts(NamedTuple):
    """Counts of records.

    Attributes:
        header: name, version and dates.
        campaign: id of the campaign whose features, groups and bins were counted, 32 bytes.
        records: number of records; with noise for ``add-remove`` an estimate.
        vectors: counts and sums of each released vector (docs/formats.md), with noise if ``noise`` is not None.
        people: keyed digest, 32 bytes: of exact counts of the records, so equal for the same records and the same
            publisher; with noise of the budget alone, so equal for all counts that it paid.
        consent: who agreed to exact counts, and to what; empty for counts with noise.
    """

    header: Header
    campaign: bytes
    records: int
    vectors: tuple[tuple[int, ...], ...]
    people: bytes
    consent: str
    noise: Noise | None


def build_counts(counts: Counts) -> bytes:
    """Return the payload. ``header.crit`` is replaced. Raises DocumentError as :func:`parse_counts`."""
    body = {
        **counts._asdict(),
        **counts.header._replace(crit=CRIT).to_dict(),
        "vectors": list(map(list, counts.vectors)),
    }
    del body["header"]
    body["noise"] = None if counts.noise is None else counts.noise._asdict()
    payload = canonical.pack(body)
    parse_counts(payload)
    return payload


def parse_counts(payload: bytes) -> Counts:
    """Parse a payload. The caller must have verified the signatures, ``spec`` and ``crit``.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``counts_invalid``: a number out of
            range, a digest that has not 32 bytes, exact counts without a consent, noisy ones with one, or no ``noise``
            or no :data:`CRIT`.
    """
    body, header = read_payload(payload)
    if "noise" not in body or not set(CRIT).issubset(header.crit):
        raise DocumentError("counts_invalid", f"'noise' is missing, or 'crit' does not name {', '.join(CRIT)}")
    vectors = read_field(body, "vectors", list, "counts_invalid")
    noise = None if body["noise"] is None else _noise(read_field(body, "noise", dict, "counts_invalid"))
    if (noise is None) != bool(body.get("consent")):
        raise DocumentError("counts_invalid", "exact counts have a line of consent, and counts with noise have none")
    least = -MOST_RECORDS if noise is not None and noise.adjacency == ADD_REMOVE else 1
    return Counts(
        header,
        _digest(body, "campaign"),
        read_integer(body, "records", least, MOST_RECORDS, "counts_invalid"),
        tuple(_vector(each) for each in vectors),
        _digest(body, "people"),
        "" if noise is not None else read_text(body, "consent", "counts_invalid"),
        noise,
    )


def _noise(body: dict[str, Any]) -> Noise:
    if body.keys() != set(Noise._fields):
        raise DocumentError("counts_invalid", "the terms of the noise can not be read")
    epsilon = read_integer(body, "epsilon_micro", 1, MICRO * MICRO - 1, "counts_invalid")
    noise = Noise(epsilon, *(read_text(body, key, "counts_invalid") for key in Noise._fields[1:]))
    if noise.adjacency not in ADJACENCIES:
        raise DocumentError("counts_invalid", "the counts name an unknown adjacency")
    return noise


def _digest(body: dict[str, Any], key: str) -> bytes:
    found: bytes = read_field(body, key, bytes, "counts_invalid")
    if len(found) != _DIGEST_BYTES:
        raise DocumentError("counts_invalid", f"'{key}' has not {_DIGEST_BYTES} bytes")
    return found


def _vector(entry: object) -> tuple[int, ...]:
    numbers = entry if isinstance(entry, list) else [None]
    if not all(type(number) is int and abs(number) < MOST for number in numbers):
        raise DocumentError("counts_invalid", "a vector holds something that is no count")
    return tuple(numbers)
