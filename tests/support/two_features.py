"""Records with one category and one number, for simulations."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 600


def people(rows=ROWS, seed=1):
    """Records with a category and a number that both tell the class, and some missing numbers."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, 2, rows)
    odor = np.array(["n", "f"])[np.where(generator.random(rows) < 0.9, kind, 1 - kind)]
    width = np.clip(generator.normal(3 + 4 * kind, 1), 0.1, 9.9).round(2)
    return pd.DataFrame({"odor": odor, "width": width, "label": np.array(["e", "p"])[kind]})
