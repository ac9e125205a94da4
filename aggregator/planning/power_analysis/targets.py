"""Find how many devices, which ε or how many days a target needs: the reverse of a forecast.

The width of an interval has a closed form. The expected accuracy is simulated at a grid of values, made monotone (the
least-squares rising sequence, by pooling adjacent violators), and interpolated in the logarithm of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95
from aggregator.planning.power_analysis.precision import devices_for_width, precisions, widest
from aggregator.planning.power_analysis.rehearsal import Fleet
from aggregator.planning.power_analysis.study import Design, Study
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO, MIN_ANSWER_MICRO

DEVICES, EPSILON, DAYS = "devices", "epsilon", "days"
QUANTITIES = (DEVICES, EPSILON, DAYS)
MOST_DEVICES = 10**12
MOST_DAYS = 3650
GRIDS = {
    DEVICES: tuple(round(10 ** (power / 2)) for power in range(4, 17)),
    EPSILON: (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    DAYS: (1, 2, 4, 8, 16, 32, 64, 128, 365),
}
"""Quantity → the rising values at which accuracies are simulated."""
FIELDS = {DEVICES: "devices", DAYS: "periods"}
"""Quantity → the field of :class:`Fleet` that holds it."""
PER_FOLD = 2
"""Simulated campaigns for each division of the records (:class:`Fold`) at each value of the quantity."""
NEAR_TARGET = 8
"""Further simulated campaigns at values where the simulation's noise does not tell the accuracy from the target."""


class Curve(NamedTuple):
    """Expected accuracies of one design at rising values (``grid``) of a quantity: devices, epsilon or days.

    The arrays have shape (V,) float64. ``accuracy`` rises; ``errors``: its standard errors.
    """

    design: Design
    quantity: str
    grid: Floats
    accuracy: Floats
    errors: Floats

    def reaches(self, target: float, shift: float = 0.0) -> float | None:
        """Return the value at which ``accuracy + shift·errors`` reaches the target; None if it stays below."""
        heights = np.maximum.accumulate(self.accuracy + shift * self.errors)
        above = np.flatnonzero(heights >= target)
        if not above.size:
            return None
        place = int(above[0])
        if place == 0:
            return float(self.grid[0])
        before, after = heights[place - 1], heights[place]
        part = (target - before) / (after - before)
        return exp(log(self.grid[place - 1]) * (1 - part) + log(self.grid[place]) * part)


class Solution(NamedTuple):
    """The devices, ε or days that a target needs.

    ``value`` is None if the target can not be reached; ``why`` then says why. ``low``, ``high``: its 95 % interval;
    ``design``: the one that needs the smallest value; ``most``, ``least``: the searched range. If ``value`` equals
    ``least``, smaller values were not tried.
    """

    target: str
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    design: Design | None = None
    why: str = ""
    most: float | None = None
    least: float | None = None


def rising(values: Floats) -> Floats:
    """Return the rising sequence of least squared distance to ``values``, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, members = pools.pop()
            mean, size = (mean * size + before * members) / (size + members), size + members
        pools.append((mean, size))
    return np.array([mean for mean, size in pools for _ in range(size)])


def curve(
    study: Study,
    design: Design,
    fleet: Fleet,
    quantity: str,
    values: Sequence[float],
    *,
    target: float | None = None,
    done: Callable[[], None] | None = None,
) -> Curve:
    """Simulate the accuracies of a design at rising values of a quantity, without values of ε that no answer can have.

    ``quantity`` takes the place of the fleet's devices or periods, or of the study's ε. ``target``: an accuracy; near
    it more campaigns are simulated. ``done``: called after every value.
    """
    found: list[tuple[float, float, float]] = []
    for value in values:
        micro = round(value * MICRO) if quantity == EPSILON else None
        if micro is None or MIN_ANSWER_MICRO <= micro // design.answers <= MAX_ANSWER_MICRO:
            rehearsal = study.rehearsal(
                design, fleet._replace(**{FIELDS[quantity]: round(value)} if micro is None else {}), micro
            )
            rehearsal.run(PER_FOLD)
            forecast = rehearsal.forecast()
            if target is not None and abs(forecast.accuracy - target) < 2 * forecast.noise:
                rehearsal.run(NEAR_TARGET)
                forecast = rehearsal.forecast()
            found.append((value, forecast.accuracy, forecast.error))
        if done is not None:
            done()
    columns = np.array(found).reshape(-1, 3).T
    return Curve(design, quantity, columns[0], rising(columns[1]), columns[2])


def for_accuracy(curves: Sequence[Curve], plain: Sequence[float], target: float) -> Solution:
    """Return the least value of a quantity at which one of several designs reaches an accuracy.

    ``plain``: for every curve the design's accuracy without privacy and with infinitely many devices.
    """
    said = f"accuracy {target:.1%}"
    quantity, end = curves[0].quantity, float(curves[0].grid[-1])
    reached = [(value, one) for one in curves if (value := one.reaches(target)) is not None]
    if not reached:
        most = max(plain)
        if most < target:
            return Solution(said, quantity, None, why=f"without privacy the accuracy on these records is {most:.1%}")
        best = max(float(one.accuracy[-1]) for one in curves)
        return Solution(
            said, quantity, None, why=f"at {quantity} = {shown(quantity, end)} the expected accuracy is {best:.1%}"
        )
    value, one = min(reached, key=lambda pair: pair[0])
    low, high = one.reaches(target, Z95), one.reaches(target, -Z95)
    least = None if quantity == DAYS else float(one.grid[0])
    if least is not None and low is not None and low <= least:
        low = None
    return Solution(said, quantity, value, low, high, one.design, most=end, least=least)


def shown(quantity: str, value: float) -> str:
    """Return a value of a quantity as text: whole devices and days, ε with three digits."""
    return f"{value:.3g}" if quantity == EPSILON else f"{ceil(value - 1e-9):,}"


def for_width(study: Study, design: Design, fleet: Fleet, width: float, quantity: str) -> Solution:
    """Return the least value of a quantity at which every 95 % interval of a design is at most ``width`` wide.

    ``quantity`` takes the place of the fleet's devices or periods, or of the study's ε. Raises the errors of
    :meth:`Study.campaign`.
    """
    said = f"95 % intervals at most {width:g} wide"
    campaign, population = study.campaign(design)
    if quantity == DEVICES and campaign.shared is None:
        needed = devices_for_width(precisions(campaign, fleet, population), fleet.devices, width)
        if needed > MOST_DEVICES:
            return Solution(said, quantity, None, why=f"more than {MOST_DEVICES:.0e} devices would be needed")
        return Solution(said, quantity, needed, design=design)

    def width_at(value: int) -> float:
        if quantity in FIELDS:
            return widest(precisions(campaign, fleet._replace(**{FIELDS[quantity]: value}), population)).width
        return widest(precisions(study.campaign(design, value)[0], fleet, population)).width

    unit, low, high = MICRO, MIN_ANSWER_MICRO * design.answers, MAX_ANSWER_MICRO * design.answers
    if quantity in FIELDS:
        unit, low, high = 1, 1, MOST_DAYS if quantity == DAYS else MOST_DEVICES
    least = width_at(high)
    if least > width:
        why = f"at {quantity} = {shown(quantity, high / unit)} the widest interval is {least:.3g} wide"
        return Solution(said, quantity, None, why=why)
    while high - low > max(1, low // 200 if quantity == EPSILON else 0):
        middle = (low + high) // 2
        if width_at(middle) > width:
            low = middle
        else:
            high = middle
    value = low if width_at(low) <= width else high
    return Solution(said, quantity, value / unit, design=design)


def span_of(quantity: str, fleet: Fleet) -> Sequence[float]:
    """Return values for a plot. Devices: from a thirtieth to thirty times the fleet's, two per power of ten."""
    if quantity != DEVICES:
        return GRIDS[quantity]
    devices = fleet.devices
    return sorted({max(10, round(min(devices * 10 ** (power / 2), MOST_DEVICES))) for power in range(-3, 4)})
