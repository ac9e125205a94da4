"""Vertical form at the aggregator: open the products of parties with different features, and compare the classes.

F features are divided among the parties. All parties know the same records and their labels, each its own features. For
a record to classify and every class c, the parties send ciphertexts whose product opens to

    P_c = Π_f (n_f(v_f, c) + 1)

where v_f is the record's value of feature f and n_f(v, c) the noisy number of records with value v and class c, at
least 0. With m_c the noisy number of records of class c, at least 1, and A_f the number of values of feature f:

    score(c) = m_c · Π_f (n_f(v_f, c) + 1) / (m_c + A_f)

This is Naive Bayes with add-one smoothing. The class with the largest score is the prediction; of equal scores the
first class. All numbers are integers, so the comparison is exact. If a record has no value of feature f, the party puts
Σ_v (n_f(v, c) + 1) in the place of the factor.

The aggregator learns the products of every record that it classifies, and the noisy class counts; docs/math.md,
section 6, has the cost in ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from protocol.errors import DocumentError
from protocol.masked.products import opened_product


def class_weights(counts: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Integers w_c in the ratio of m_c/Π_f (m_c + A_f), so w_c·P_c orders the classes as the score does.

    Args:
        counts: the noisy number of records of every class; m_c is the larger of it and 1.
        sizes: A_f, the number of values of every feature.
    """
    shares = [max(count, 1) for count in counts]
    divisors = [prod(share + size for size in sizes) for share in shares]
    return tuple(
        share * prod(divisor for other, divisor in enumerate(divisors) if other != place)
        for place, share in enumerate(shares)
    )


def decide(products: Sequence[int], weights: Sequence[int]) -> int:
    """The class with the largest score, by its place in the list of classes; of equal scores the first one.

    Args:
        products: P_c of every class.
        weights: of :func:`class_weights`.
    """
    scores = [product * weight for product, weight in zip(products, weights, strict=True)]
    return scores.index(max(scores))


class ProductOpener(NamedTuple):
    """Opens the products of one vertical campaign. The aggregator holds it.

    Attributes:
        campaign: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1; parties with new tables use a new one.
        secret: sk_0, the aggregator's key.
        bounds: the largest number that each party may encrypt, by public knowledge.
        weights: of :func:`class_weights`.
    """

    campaign: bytes
    period: int
    secret: int
    bounds: tuple[int, ...]
    weights: tuple[int, ...]

    def products(self, ciphertexts: Sequence[Sequence[int]], query: int) -> list[int]:
        """Open P_c of every class.

        Args:
            ciphertexts: one list per party, in the order of the bounds: a ciphertext for every class.
            query: running number of the record to classify, from 0; no two records have the same number.

        Raises:
            InputError: ``product_overflow``: the bounds allow a product that does not fit into the group.
            DocumentError: ``mask_mismatch``: ciphertexts of another record, party, campaign or period, or not one of
                each party for every class.
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
        """The place of the predicted class. Arguments and errors as :meth:`products`."""
        return decide(self.products(ciphertexts, query), self.weights)
