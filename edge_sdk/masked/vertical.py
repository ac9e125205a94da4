"""A party of the vertical form: it counts its own features by class, with noise, and encrypts numbers of its tables.

The parties hold different features of the same records, and all know the labels. A party reads its records once and
keeps noisy tables. For a record to classify and every class c it encrypts the product of n_f(v_f, c) + 1 over its
features f, where n_f(v, c) is the noisy number of records with value v and class c. Where the record has no value of f
that the schema lists, Σ_v (n_f(v, c) + 1) takes the place of the factor. The aggregator opens the product over all
parties (``aggregator.nodes.dealer.vertical``).

No ledger counts the cost of the tables, :attr:`VerticalParty.epsilon_micro`; the caller records it.
Source: docs/math.md, section 6.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edge_sdk.node.sums import ExactSums
from protocol.errors import InputError
from protocol.masked.products import mask_number
from protocol.questions import CLASS, discrete_subjects
from protocol.stream import Stream
from protocol.sums.vectors import Vector, with_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from protocol.masked.vertical import VerticalTerms
    from protocol.schema import Schema

NOISE_TAG = b"hearsay/1/vertical noise"
"""Tag of the stream of a party's noise."""


class VerticalParty:
    """One party, with its noisy tables and its key.

    Args:
        schema: the label and the features of this party, without groups and projection.
        records: all records; each maps the names of the features and of the label to a value.
        terms: of the campaign.
        secret: the party's key, of :func:`protocol.masked.products.product_keys`.
        seed: 32 fresh random bytes, used for nothing else.
        with_classes: whether this party also releases the noisy class counts. One party of a campaign does.

    Attributes:
        tables: per feature, values × classes, the noisy counts from 0 to ``terms.largest``.
        class_counts: per class, the noisy number of records, which goes to the aggregator in the clear; may be
            negative. Empty without ``with_classes``.
        bound: the largest number that the party encrypts, which is public.
        epsilon_micro: what the tables cost a record that is added or removed, in millionths; a changed record costs
            twice as much.

    Raises:
        InputError: ``schema_invalid``: the schema has groups or a projection; ``record_invalid``: a record is no
            mapping.
    """

    def __init__(
        self,
        schema: Schema,
        records: Iterable[Mapping[str, object]],
        terms: VerticalTerms,
        secret: int,
        seed: bytes,
        *,
        with_classes: bool = False,
    ) -> None:
        if schema.projection is not None or schema.groups:
            raise InputError("schema_invalid", "a party of the vertical form has features without groups or projection")
        subjects = discrete_subjects(schema)
        exact = ExactSums(schema, subjects)
        exact.add_all(records)
        stream, place = Stream(seed, NOISE_TAG), 0
        self.class_counts: tuple[int, ...] = ()
        self.tables: list[list[list[int]]] = []
        for subject in subjects:
            values = tuple(exact.totals[place : place + subject.size])
            place += subject.size
            if subject.kind == CLASS and not with_classes:
                continue
            noisy = with_noise(Vector(subject, values, 1, terms.epsilon_micro), stream).values
            if subject.kind == CLASS:
                self.class_counts = noisy
            else:
                self.tables.append(_table(noisy, len(schema.label.classes), terms.largest))
        self.bound = terms.bound(feature.size for feature in schema.features)
        self.epsilon_micro = terms.epsilon_micro * (len(self.tables) + with_classes)
        self._schema, self._terms, self._secret, self._next = schema, terms, secret, 0

    def encrypt(self, record: Mapping[str, object], query: int) -> list[int]:
        """The ciphertexts of the party's numbers for one record to classify, one for every class.

        Args:
            record: maps the names of the party's features to values; what is absent has no value.
            query: running number of the record, from 0; it rises from call to call. Two records with one number would
                tell the aggregator the ratio of the party's numbers.

        Raises:
            InputError: ``argument_invalid``: the number is not above that of the call before, or too large.
        """
        if query < self._next:
            raise InputError("argument_invalid", f"the number of a record rises; it is now {self._next} at least")
        self._next = query + 1
        columns = [
            _factors(table, feature.known_code(record.get(feature.name)))
            for table, feature in zip(self.tables, self._schema.features, strict=True)
        ]
        campaign, period, classes = self._terms.campaign, self._terms.period, len(self._schema.label.classes)
        return [
            mask_number(prod(factors) - 1, self.bound, self._secret, campaign, period, query * classes + place)
            for place, factors in enumerate(zip(*columns, strict=True))
        ]


def _table(noisy: tuple[int, ...], classes: int, largest: int) -> list[list[int]]:
    """The noisy counts of one feature, values × classes, from 0 to ``largest``."""
    kept = [min(max(value, 0), largest) for value in noisy]
    return [kept[start : start + classes] for start in range(0, len(kept), classes)]


def _factors(table: list[list[int]], code: int | None) -> list[int]:
    """n_f(v, c) + 1 of every class c; without a code their sums over the values."""
    if code is not None:
        return [count + 1 for count in table[code]]
    return [sum(column) + len(table) for column in zip(*table, strict=True)]
