"""Records with two features that tell the class, and copies of a third one: a right choice leaves the copies out."""

from __future__ import annotations

import numpy as np
import pandas as pd

COPIES = 8
FEATURES = ["one", "two", *(f"copy {number}" for number in range(COPIES))]
SCHEMA = 'name = "notes"\n[label]\nname = "class"\nclasses = ["n", "y"]\n' + "".join(
    f'[[features]]\nname = "{name}"\nkind = "categorical"\nvalues = ["a", "b"]\nmissing = "a"\n' for name in FEATURES
)


def people(rng, count):
    """Two features tell the class in 80 and 75 %; all others are copies of one that tells it in 70 %."""
    labels = rng.integers(0, 2, count)
    own = labels[:, None] ^ (rng.random((count, 3)) > np.array([0.8, 0.75, 0.7]))
    codes = np.hstack([own[:, :2], np.repeat(own[:, 2:], COPIES, axis=1)])
    frame = pd.DataFrame(np.array(["a", "b"], object)[codes], columns=FEATURES)
    return frame.assign(**{"class": np.array(["n", "y"], object)[labels]})
