"""Scores summed in 32 and in 64 bits: their largest difference, and the class of a tie (docs/formats.md, section 5).

A device without 64-bit floats sums in 32 bits. Its prediction may differ only if two classes have almost equal scores.
"""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest
from support.publisher import NOW, Publisher

from edge_sdk.classifier import Classifier
from protocol import SCALE
from protocol.documents.model import DiscreteModel, GaussianModel, Normal
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

CLASSES = ["a", "b", "c"]
SINGLE = np.float32


def single(value):
    """The nearest 32-bit float, as a model's parameters are."""
    return float(SINGLE(value))


def distance(terms):
    """The largest difference of two sums of n terms: (n + 8)·2⁻²³·(n + Σ|terms|)."""
    return (len(terms) + 8) * 2.0**-23 * (len(terms) + sum(map(abs, terms)))


def in_32_bits(terms):
    total = SINGLE(0)
    for term in terms:
        total = SINGLE(total + SINGLE(term))
    return float(total)


def discrete(rows, prior):
    """A model of binary features: rows of two codes' terms per class."""
    features = [Categorical(f"f{i}", ["0", "1"], substitute=0) for i in range(len(rows))]
    tables = tuple(tuple(tuple(map(single, code)) for code in row) for row in rows)
    return DiscreteModel(*common(features, tuple(map(single, prior)), tables))


def common(features, prior, tables):
    schema = build_schema(Label("y", CLASSES), features)
    return Publisher().header("m"), bytes(32), schema, prior, tables, bytes(32), None, {}


def test_sums_in_32_bits_lie_within_the_distance_stated():
    rng = random.Random(1)
    other = 0
    for _ in range(100):
        count = rng.choice((1, 10, 300))
        rows = [[[math.log(rng.uniform(1e-9, 1)) for _ in CLASSES] for _ in range(2)] for _ in range(count)]
        model = discrete(rows, [math.log(1 / 3)] * 3)
        codes = [rng.randrange(2) for _ in range(count)]
        scores = Classifier(model, lambda: NOW).scores({f"f{i}": str(code) for i, code in enumerate(codes)})
        terms = [
            [model.log_prior[c], *(table[code][c] for table, code in zip(model.log_likelihood, codes, strict=True))]
            for c in range(3)
        ]
        narrow = [in_32_bits(each) for each in terms]
        for wide, short, each in zip(scores, narrow, terms, strict=True):
            assert abs(wide - short) <= distance(each)
            other += wide != short
    assert other > 100, "the widths do differ"


@pytest.mark.parametrize("best", [[0, 1, 2], [1, 2], [0, 2]])
def test_a_tie_goes_to_the_class_that_is_listed_first(best):
    """Powers of two and their sums are exact in both widths, so a tie is one in both."""
    prior = [-1.0 if c in best else -4.0 for c in range(3)]
    model = discrete([[[-0.5] * 3, [-2.0] * 3]] * 7, prior)
    classifier = Classifier(model, lambda: NOW)
    record = {f"f{i}": str(i % 2) for i in range(7)}
    scores = classifier.scores(record)
    assert [c for c, score in enumerate(scores) if score == max(scores)] == best
    terms = [[prior[c], *(row[i % 2][c] for i, row in enumerate(model.log_likelihood))] for c in range(3)]
    assert [in_32_bits(each) for each in terms] == scores
    assert classifier.predict(record) == CLASSES[best[0]]


def test_numbers_scored_in_32_bits_lie_within_the_distance_stated():
    rng = random.Random(3)
    for _ in range(300):
        low, high = rng.choice((("0", "1"), ("-3", "7")))
        feature = Numeric("x", low, high, [0], substitute=0)
        normal = Normal(*(tuple(single(rng.uniform(least, 1)) for _ in CLASSES) for least in (-1, 0.01)))
        prior = tuple(single(math.log(rng.uniform(0.1, 1))) for _ in CLASSES)
        value = rng.uniform(float(low), float(high))
        scores = Classifier(GaussianModel(*common([feature], prior, (normal,))), lambda: NOW).scores({"x": value})
        x = SINGLE(feature.scaled(value) / SCALE)
        for c, wide in enumerate(scores):
            mean, variance = SINGLE(normal.mean[c]), SINGLE(normal.variance[c])
            a = SINGLE(-0.5) * np.log(SINGLE(2 * math.pi) * variance)
            term = SINGLE(-0.5) / variance * (x - mean) * (x - mean)
            narrow = float(SINGLE(SINGLE(prior[c]) + SINGLE(a)) + term)
            assert abs(wide - narrow) <= distance([prior[c], float(a), float(term)])


def test_a_number_of_a_truncated_distribution_is_scored_by_the_mass_within_the_bounds():
    normal = Normal((-1.0, 0.25, 1.0), (0.5, 0.01, 2.0))
    prior = (0.0, -0.5, -1.0)
    model = GaussianModel(*common([Numeric("x", "0", "10", [0], substitute=0)], prior, (normal,)), is_truncated=True)
    scores = Classifier(model, lambda: NOW).scores({"x": 5})
    for c, (mean, variance) in enumerate(zip(*normal, strict=True)):
        sd = math.sqrt(variance)
        mass = NormalDist(mean, sd).cdf(1) - NormalDist(mean, sd).cdf(-1)
        expected = prior[c] + math.log(NormalDist(mean, sd).pdf(0) / mass)
        assert math.isclose(scores[c], expected, rel_tol=1e-12)
