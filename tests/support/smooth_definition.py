"""The definition of smooth sensitivity, written down as it is in docs/smooth.md: O(n²), in floating point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def changes_of_mean(x: Floats, width: float, trim: int) -> Floats:
    """A(t) of the trimmed mean for t = 0 … n, by the formula of docs/smooth.md, over all l.

    Args:
        x: sorted values in 0 … ``width``, ``(n,) float64``.
        trim: m, how many values are left out at either end.
    """
    n = len(x)
    padded = np.concatenate([np.zeros(n + 2), x, np.full(n + 2, width)])  # x_(i) is padded[i + n + 1]
    found = []
    for t in range(n + 1):
        l = np.arange(t + 2)
        upper, lower = n - trim + 1 + t - l, trim + 1 - l
        found.append((padded[np.clip(upper, -n, 2 * n) + n + 1] - padded[np.clip(lower, -n, 2 * n) + n + 1]).max())
    return np.array(found) / (n - 2 * trim)


def changes_of_variance(x: Floats, width: float) -> Floats:
    """A(t) of the variance for t = 0 … n, by the cases (i) and (ii) of docs/smooth.md, over all kept values.

    ``x`` are sorted values in 0 … ``width``, ``(n,) float64``.
    """
    n = len(x)
    found = np.zeros(n + 1)
    for side in (x, width - x[::-1]):
        for t in range(n + 1):
            if t >= 1:
                r = side[: n - t].sum() / (n - 1)
                found[t] = max(found[t], max(width - r, r) ** 2)
            if t <= n - 1:
                total = side[: n - t].sum()  # all but the t largest
                next_largest = side[n - t - 1]
                kept = np.arange(n)
                rest = np.where(kept < n - t, total - side, total - next_largest)
                r = rest / (n - 1)
                candidates = np.maximum((width - r) ** 2 - (side - r) ** 2, np.where(side > r, (side - r) ** 2, 0))
                found[t] = max(found[t], candidates.max())
    return found * (n - 1) / n**2


def smooth(changes: Floats, beta: float) -> float:
    """The largest e^(−βt)·A(t); ``changes`` is A(0) … A(n)."""
    return float((np.exp(-beta * np.arange(len(changes))) * changes).max())
