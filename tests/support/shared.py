"""Shared campaigns made in memory for tests, with fixed keys of two collectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.collectors.pair import new_pair
from protocol.documents.campaign import DISCRETE, Fit, parse_campaign
from protocol.documents.shared_terms import GAUSSIAN, Collector, SharedTerms, best_chunk, shared_subjects
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from support.publisher import Publisher, key

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.schema import Schema

COLLECTOR_KEYS = key(80), key(81)
"""The key pairs of the leader and of the helper."""
COLLECTORS = tuple(
    Collector(name, f"{name}@example.org", own.public)
    for name, own in zip(("hospital", "university"), COLLECTOR_KEYS, strict=True)
)
PAIR = new_pair(COLLECTOR_KEYS[0], *COLLECTORS, bytes(range(32)))
ALLOWED = [one.key.hex() for one in COLLECTORS]
"""What an owner writes under ``collectors`` to take part."""


def terms(schema: Schema | None = None, **changes: Any) -> SharedTerms:
    """The terms of a shared campaign about a schema; by default that of the tests' publisher."""
    cells = sum(subject.size for subject in shared_subjects(schema or Publisher().schema))
    return SharedTerms(PAIR.collectors, PAIR.salt, PAIR.verify_key, best_chunk(cells))._replace(**changes)


def gaussian(schema: Schema | None = None, delta_pico: int = 1_000_000) -> SharedTerms:
    """The same with Gaussian noise."""
    return terms(schema, noise=GAUSSIAN, delta_pico=delta_pico)


def shared_payload(
    publisher: Publisher | None = None,
    *,
    name: str = "mushrooms",
    version: int = 1,
    epsilon_micro: int = 1_000_000,
    shared: SharedTerms | None = None,
    **options: Any,
) -> bytes:
    """The payload of a shared campaign on the publisher's schema. ``options``: ``changes``, ``time_precision``, …"""
    publisher = publisher or Publisher()
    fit = options.pop("fit", Fit(DISCRETE, "posterior"))
    shared = shared or terms(publisher.schema)
    return publisher._payload(publisher.header(name, version), (), epsilon_micro, fit, shared=shared, **options)


def shared_file(publisher: Publisher | None = None, **options: Any) -> bytes:
    """A signed shared campaign; ``options`` as for :func:`shared_payload`."""
    publisher = publisher or Publisher()
    return publisher.sign("campaign", shared_payload(publisher, **options))


def shared_campaign(publisher: Publisher | None = None, **options: Any) -> Campaign:
    """A parsed shared campaign; ``options`` as for :func:`shared_payload`."""
    return parse_campaign(shared_payload(publisher, **options))


def of_cells(features: int, values: int, classes: int = 2) -> Publisher:
    """A publisher whose records have ``classes``·(``values`` + 1) cells in each of ``features`` blocks."""
    listed = [str(number) for number in range(values)]
    schema = build_schema(
        Label("label", ["e", "p", *map(str, range(classes - 2))]),
        [Categorical(f"f{number}", listed) for number in range(features)],
    )
    return Publisher(schema=schema)
