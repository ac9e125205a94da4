"""Classify a record by parties that hold different features of the same records (vertical form of masked sums).

F features are divided among the parties. All parties know the records' labels. Every party counts its own features'
values by class once (:class:`VerticalParty`) and adds discrete Laplace noise of rate ε_q to each count. Noisy counts
are cut off at 0 and at a public bound. With one table for each feature, and noisy class counts, adding or removing a
record costs (F + 1)·ε_q, and changing a record twice that. No ledger counts this cost; the caller records it.

For a record to classify and every class c the parties send ciphertexts. Their product decrypts (:class:`ProductOpener`)
to

    P_c = Π_f (n_f(v_f, c) + 1)

where v_f is the record's value of feature f and n_f(v, c) the noisy number of records with value v and class c. If the
record has no value of f that the schema lists, the factor is Σ_v (n_f(v, c) + 1). With m_c the noisy number of records
of class c, at least 1, and A_f the number of values of feature f:

    score(c) = m_c · Π_f (n_f(v_f, c) + 1) / (m_c + A_f)

This is Naive Bayes with add-one smoothing. The class with the largest score is predicted; if several have it, the first
of them. All numbers are integers, so the comparison is exact. The aggregator learns the products of every record that
it classifies, and the noisy class counts.

Source: docs/math.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from edge_sdk.node.sums import ExactSums
from protocol.epsilon import MICRO
from protocol.errors import DocumentError, InputError
from protocol.noise.sums import Vector, with_noise
from protocol.questions import CLASS, discrete_subjects
from protocol.schema import Schema
from protocol.stream import Stream
from research.products import mask_number, opened_product

_TAIL = 64


class VerticalTerms(NamedTuple):
    """The terms on which all parties and the aggregator agree.

    Attributes:
        campaign: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1; if parties count again, with new noise, they use a new period.
        epsilon_micro: ε_q of every count, in millionths.
        records: the largest number of records, by public knowledge.
    """

    campaign: bytes
    period: int
    epsilon_micro: int
    records: int

    @property
    def largest(self) -> int:
        """The largest noisy count of a table: ``records`` + ⌈64/ε_q⌉. Noise exceeds ⌈64/ε_q⌉ with probability e^−64."""
        return self.records + -(-_TAIL * MICRO // self.epsilon_micro)

    def bound(self, sizes: Iterable[int]) -> int:
        """Return the largest number that a party encrypts: Π_f A_f·(largest + 1) − 1 over its features f.

        Args:
            sizes: A_f, the number of values of each feature of the party.
        """
        return prod(size * (self.largest + 1) for size in sizes) - 1


NOISE_TAG = b"hearsay/1/vertical noise"
"""Tag of the random stream for a party's noise."""


class VerticalParty:
    """One party, with its noisy tables and its key.

    Args:
        schema: the label and the features of this party, without groups and projection.
        records: all records; each maps the names of the features and of the label to a value.
        terms: the terms of the campaign.
        secret: the party's key, from :func:`research.products.product_keys`.
        seed: 32 fresh random bytes, used for nothing else.
        with_classes: whether this party also releases the noisy class counts. Exactly one party of a campaign does.

    Attributes:
        tables: for each feature a table, values × classes, of noisy counts from 0 to ``terms.largest``.
        class_counts: for each class the noisy number of records, which goes to the aggregator in the clear. It may be
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
        """Return the ciphertexts of the party's numbers for one record to classify, one for every class.

        Args:
            record: maps the names of the party's features to values; an absent feature has no value.
            query: running number of the record, from 0; it must rise from call to call. From two records with one
                running number the aggregator would learn the ratio of the party's numbers.

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
    """Return the noisy counts of one feature as a table, values × classes, cut off at 0 and ``largest``."""
    kept = [min(max(value, 0), largest) for value in noisy]
    return [kept[start : start + classes] for start in range(0, len(kept), classes)]


def _factors(table: list[list[int]], code: int | None) -> list[int]:
    """Return n_f(v, c) + 1 for every class c, v the value with this code; if ``code`` is None, sums over all values."""
    if code is not None:
        return [count + 1 for count in table[code]]
    return [sum(column) + len(table) for column in zip(*table, strict=True)]


def class_weights(counts: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return integers w_c in the ratio of m_c/Π_f (m_c + A_f), so that w_c·P_c orders the classes c as the score does.

    Args:
        counts: the noisy number of records of every class c; m_c is the larger of this number and 1.
        sizes: A_f, the number of values of every feature.
    """
    shares = [max(count, 1) for count in counts]
    divisors = [prod(share + size for size in sizes) for share in shares]
    return tuple(
        share * prod(divisor for other, divisor in enumerate(divisors) if other != place)
        for place, share in enumerate(shares)
    )


def decide(products: Sequence[int], weights: Sequence[int]) -> int:
    """Return the index of the class with the largest score; if several classes have it, of the first.

    Args:
        products: P_c of every class c.
        weights: the result of :func:`class_weights`.
    """
    scores = [product * weight for product, weight in zip(products, weights, strict=True)]
    return scores.index(max(scores))


class ProductOpener(NamedTuple):
    """Decrypts the products of one vertical campaign, for the aggregator.

    Attributes:
        campaign: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1; if parties make new tables, they use a new period.
        secret: sk_0, the aggregator's key.
        bounds: the largest number that each party may encrypt, by public knowledge.
        weights: the result of :func:`class_weights`.
    """

    campaign: bytes
    period: int
    secret: int
    bounds: tuple[int, ...]
    weights: tuple[int, ...]

    def products(self, ciphertexts: Sequence[Sequence[int]], query: int) -> list[int]:
        """Decrypt and return the product P_c of every class c.

        Args:
            ciphertexts: one list per party, in the order of the bounds: a ciphertext for every class.
            query: running number of the record to classify, from 0; no two records have the same number.

        Raises:
            InputError: ``product_overflow``: the bounds allow a product that does not fit into the group.
            DocumentError: ``mask_mismatch``: ciphertexts belong to another record, party, campaign or period, or one of
                a party or class is missing.
        """
        classes = len(self.weights)
        if len(ciphertexts) != len(self.bounds) or any(len(of_party) != classes for of_party in ciphertexts):
            raise DocumentError(
                "mask_mismatch",
                f"{len(self.bounds)} parties are to send {classes} ciphertexts each, one for every class",
            )
        return [
            opened_product(of_class, self.bounds, self.secret, self.campaign, self.period, query * classes + place)
            for place, of_class in enumerate(zip(*ciphertexts, strict=True))
        ]

    def classify(self, ciphertexts: Sequence[Sequence[int]], query: int) -> int:
        """Return the index of the predicted class. Takes the arguments and raises the errors of :meth:`products`."""
        return decide(self.products(ciphertexts, query), self.weights)
