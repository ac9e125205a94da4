"""The noisy statistic, rounded to a public grid: exactly the rounded value of the real number f + k·S·Z.

The grid is public. Rounding is post-processing, so the guarantee of the real-valued noise holds for the rounded result
without any loss. No floating-point number takes part.
"""

from __future__ import annotations

from fractions import Fraction

from protocol.errors import InputError
from protocol.noise.calibration import Calibration
from protocol.noise.rounding import rounded
from protocol.noise.smooth_bound import SmoothSensitivity
from protocol.stream import Stream


def release(
    statistic: Fraction, sensitivity: SmoothSensitivity, calibration: Calibration, grid: Fraction, stream: Stream
) -> Fraction:
    """Release f + k·S·Z, rounded to the nearest multiple of ``grid``. The result may be published.

    Args:
        statistic: f, exactly.
        sensitivity: S of this statistic and this data set.
        calibration: the noise, with k and β.
        grid: a positive number that does not depend on the data, for example a thousandth of the expected noise.
        stream: fresh randomness, as secret as the data.

    Raises:
        InputError: ``beta_invalid``: S is not as smooth as the noise needs; ``grid_invalid``: the grid is not positive.
    """
    if sensitivity.beta > calibration.beta:
        raise InputError("beta_invalid", "the smooth sensitivity was computed for a larger β than the noise allows")
    if grid <= 0:
        raise InputError("grid_invalid", "the grid to round to is a positive number")
    noise = calibration.law.draw(stream)
    return grid * rounded(statistic / grid, calibration.multiplier * sensitivity.value / grid, noise)
