"""Records of a curator with a category and a number that both tell the class."""

from __future__ import annotations

import numpy as np
import pandas as pd

from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

SCHEMA = build_schema(
    Label("label", ["a", "b"]),
    [Categorical("colour", ["red", "blue", "green"], substitute=0), Numeric("size", "0", "10", [0], substitute=0)],
)


def people(rows: int = 2000, seed: int = 1) -> pd.DataFrame:
    """Records of both classes."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 2, rows)
    colour = np.where(generator.random(rows) < 0.8, label, 2)
    size = np.clip(generator.normal(3 + 4 * label, 1.2), 0, 10)
    names = np.array(["red", "blue", "green"], object)[colour]
    return pd.DataFrame({"label": np.array(["a", "b"], object)[label], "colour": names, "size": size.astype(object)})
