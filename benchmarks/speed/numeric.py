"""Time that a device takes for a large projection and for predictions of Gaussian and discrete models.

    python -m benchmarks.speed.numeric [--json]

The device uses plain Python. The baseline is numpy on the same integers in the same run, with one record per call as
on a device, so the baseline is mostly numpy's overhead per call.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from aggregator.models.scoring import Model
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show
from edge_sdk.classifier import Classifier
from protocol import SCALE
from protocol.documents.model import DiscreteModel, GaussianModel, Normal
from protocol.documents.payload import Header
from protocol.features import Numeric
from protocol.schema import Component, Label, Projection, Schema, build_schema

INPUTS, COMPONENTS = 784, 10
FEATURES, CLASSES = 30, 3
ROUNDS = 200
"""Calls per repetition: enough for a clock with a resolution of microseconds."""


def times(actions: list[Callable[[], object]], repeats: int = 15) -> list[float]:
    """Return the median seconds of one call of each action; the actions take turns."""

    def many(action: Callable[[], object]) -> Callable[[], object]:
        return lambda: [action() for _ in range(ROUNDS)]

    return [seconds / ROUNDS for seconds in interleaved_seconds([many(action) for action in actions], repeats)]


def numeric_schema(features: int, projection: Projection | None = None) -> Schema:
    """Return a schema of numeric features from −8 to 8 with four bins each."""
    label = Label("label", [str(number) for number in range(CLASSES)])
    edges = [-SCALE // 2, 0, SCALE // 2]
    return build_schema(label, [Numeric(f"x{i}", "-8", "8", edges) for i in range(features)], projection)


def projections(draw: Random) -> list[Row]:
    """Measure the projection alone, and the coding of a whole record: scaling, projection, bins."""
    matrix = [[draw.randint(-(1 << 30), 1 << 30) for _ in range(INPUTS)] for _ in range(COMPONENTS)]
    offsets = [draw.randint(-(1 << 40), 1 << 40) for _ in range(COMPONENTS)]
    parts = [Component(f"c{i}", -SCALE, SCALE, [0]) for i in range(COMPONENTS)]
    projection = Projection(range(INPUTS), matrix, offsets, 34, parts)
    numbers = [draw.randint(-SCALE, SCALE) for _ in range(INPUTS)]
    array, weights, shifts = np.array(numbers), np.array(matrix), np.array(offsets)

    def by_numpy() -> list[int]:
        sums: list[int] = np.clip((weights @ array + shifts) >> 34, -SCALE, SCALE).tolist()
        return sums

    assert projection.apply(numbers) == by_numpy()
    schema = numeric_schema(INPUTS, projection)
    record = {f"x{i}": draw.uniform(-8, 8) for i in range(INPUTS)}
    applied, vector, whole = times([lambda: projection.apply(numbers), by_numpy, lambda: schema.observe(record)])
    size = f"{INPUTS} x {COMPONENTS}"
    return [
        Row(f"projection {size}, integers given", applied * 1e6, "µs", "numpy int64, one record", applied / vector),
        Row(f"projection {size}, from a record", whole * 1e6, "µs", "numpy int64, one record", whole / vector),
    ]


def predictions(draw: Random) -> list[Row]:
    """Measure predictions by a Gaussian and a discrete model of 30 numeric features and 3 classes."""
    schema = numeric_schema(FEATURES)
    header = Header("bench", 1, 0, 0, 1)
    shared = (header, bytes(32), schema, (-1.1, -1.1, -1.1))
    normal = [
        Normal(tuple(draw.uniform(-1, 1) for _ in range(CLASSES)), tuple(draw.uniform(0.01, 1) for _ in range(CLASSES)))
        for _ in range(FEATURES)
    ]
    tables = [tuple(tuple(-draw.random() for _ in range(CLASSES)) for _ in range(4)) for _ in range(FEATURES)]
    record = {f"x{i}": draw.uniform(-8, 8) for i in range(FEATURES)}
    rows = []
    for name, model in (
        ("Gaussian", GaussianModel(*shared, tuple(normal), bytes(32), None, {})),
        ("discrete", DiscreteModel(*shared, tuple(tables), bytes(32), None, {})),
    ):
        classifier = Classifier(model, lambda: 0)
        score = _numpy_scores(Model.of(model), [reading or (0, 0) for reading in schema.recognise(record)])
        assert np.allclose(score(), classifier.scores(record), atol=1e-9)
        taken, vector = times([lambda c=classifier: c.predict(record), score])  # type: ignore[misc]
        rows.append(
            Row(
                f"{name} prediction, {FEATURES} numbers, {CLASSES} classes",
                taken * 1e6,
                "µs",
                "numpy's sums alone, record already coded",
                taken / vector,
            )
        )
    return rows


def _numpy_scores(model: Model, readings: list[tuple[int, int | None]]) -> Callable[[], np.ndarray]:
    """Return a function that scores one coded record by array sums: (classes,) float64."""
    if isinstance(model.terms[0], tuple):
        mean, variance = (np.stack([term[part] for term in model.terms]) for part in (0, 1))
        constant, slope = -0.5 * np.log(2 * np.pi * variance), -0.5 / variance
        x = np.array([number for _, number in readings])[:, None] / SCALE
        return lambda: model.log_prior + (constant + slope * (x - mean) ** 2).sum(axis=0)
    table = np.stack([np.asarray(term) for term in model.terms])
    codes, places = np.array([code for code, _ in readings]), np.arange(len(readings))
    return lambda: model.log_prior + table[places, codes].sum(axis=0)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__).parse_args()
    draw = Random(1)
    show("Numbers on a device", [*projections(draw), *predictions(draw)], as_json=options.json)


if __name__ == "__main__":
    main()
