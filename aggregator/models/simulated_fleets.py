"""Simulate fleets that agree with given statistics: draw tables and moments from their posterior, given the noise.

A feature has rows r of numbers u_rc = b_r + τ·e_rc, one per class c: a table's P(value r | c) ∝ exp u_rc; a number's
mean is S·u_1c and its variance S²·exp(u_2c/2), S² the variance in all classes together. e is Student's: normal times
a factor λ. τ, of :data:`SIGNALS`, says how much classes differ. Source: docs/math.md, section 4; decision 95.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import SubjectEstimate, moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import NORMAL_FAMILIES, NormalParameters
from aggregator.models.postprocess.joint_tables import joint_table, project_to_simplex
from aggregator.models.postprocess.methods import simplex_prior
from aggregator.models.postprocess.posterior import posterior_tables
from protocol.epsilon import MICRO
from protocol.questions import CELL, PRESENT, SQUARE
from protocol.schema import missing_code

SIGNALS = np.array([0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0])
"""Possible values of τ, which says how much the classes differ."""
CONCENTRATION = 1.0
"""Concentration of the Dirichlet process: the larger, the more the features' τ may differ from each other."""
NOTHING = 0.3
"""Probability of the smallest τ: a feature without information about the class."""
TAILS = 2.0
"""Degrees of freedom of e, the classes' differences in units of τ."""
COMMON = 1.0
"""β, the standard deviation of what the classes have in common."""
CHAINS, FIRST, BETWEEN = 25, 50, 12
"""Number of Markov chains, of steps before the first draw of a chain, and of steps from one draw to the next."""
MOST_WORK, FEWEST_CHAINS, BETWEEN_IF_FEW = 200_000, 5, 4
"""Most chains times table entries; the fewest chains; and the steps from one draw to the next if chains are fewer."""
WIDTHS = (6, 24, 96, 1 << 30)
"""Widths of tables, in values. Tables with the same smallest width that holds them are drawn together."""
_LEAST = 1e-6
_WIDEST = 8.0
"""Largest |u| of the rows of variances; larger ones are clipped to it."""


class Feature(NamedTuple):
    """An observed feature of one fleet.

    ``term`` is P(value | class), shape (values, k) float64, or a number's mean and variance in every class. ``there``,
    shape (k,), is the share of each class's records with the number. ``left_out`` is the code of a missing value, which
    scoring leaves out; None if there is none.
    """

    term: Floats | NormalParameters
    there: Floats
    left_out: int | None


class SimulatedFleet(NamedTuple):
    """One simulated fleet: shares of the classes, shape (k,) float64, and its features."""

    prior: Floats
    features: tuple[Feature, ...]


class _Seen(Protocol):
    """What statistics say about F features of one kind, each with R rows of k classes. Letters: see the module."""

    @property
    def rows(self) -> NDArray[np.bool_]:
        """Rows that a feature has: shape (F, R) bool."""

    @property
    def prior(self) -> Floats:
        """The classes' shares in each Markov chain; the first axis is that of the chains."""

    @property
    def groups(self) -> int:
        """Number of τ (how much classes differ) of a feature: 1, or R if each of its R rows has its own."""

    def start(self) -> Floats:
        """Return u of the published model: shape (F, R, k) float64."""

    def precision(self) -> Floats:
        """Return roughly 1/variance of u if the estimates alone decided: shape (F, R, k) float64."""

    def likelihood(self, u: Floats) -> tuple[Floats, Floats]:
        """Return the log density of the estimates, (chains, F), and its derivative by u, (chains, F, R, k)."""


class _Tables(NamedTuple):
    """Estimates of F tables. Rows beyond a table's values have no weight.

    ``share`` (estimated joint shares), ``weight`` (inverse variances; 0 without answers) and ``table`` (P(value |
    class) to begin at): shape (F, R, k) float64. ``rows``: (F, R) bool, the table's rows. ``prior``: (chains, 1, 1, k),
    the classes' shares.
    """

    share: Floats
    weight: Floats
    rows: NDArray[np.bool_]
    prior: Floats
    table: Floats

    @property
    def groups(self) -> int:
        return 1

    def tables(self, u: Floats) -> Floats:
        """Return P(value | class) for ``u``; both have the shape (chains, F, R, k)."""
        masked = np.where(self.rows[..., None], u, -np.inf)
        found = np.exp(masked - masked.max(axis=2, keepdims=True))
        return np.asarray(found / found.sum(axis=2, keepdims=True))

    def start(self) -> Floats:
        u = np.log(np.maximum(self.table, 0.02))
        return np.where(self.rows[..., None], u - u.mean(axis=1, keepdims=True), 0.0)

    def precision(self) -> Floats:
        prior = self.prior.mean(axis=0)
        sd = 1 / np.sqrt(np.where(self.weight > 0, self.weight, np.inf)) / prior
        table = np.maximum(self.table, np.minimum(sd, 0.3) / 2)
        return np.asarray((prior * np.minimum(table * (1 - np.minimum(table, 0.7)), 0.25)) ** 2 * self.weight)

    def likelihood(self, u: Floats) -> tuple[Floats, Floats]:
        table = self.tables(u)
        off = self.share - self.prior * table
        pull = off * self.weight
        by_table = self.prior * pull
        slope = table * (by_table - (table * by_table).sum(axis=2, keepdims=True))
        return -(off * pull).sum(axis=(2, 3)) / 2, slope


class _Numbers(NamedTuple):
    """Estimates of the moments of F numbers.

    ``first``, ``second``: estimated means of x·[y = c] and of x²·[y = c], with inverse variances (0 without answers);
    ``there``: share of each class's records with the number: (F, k) float64. ``scale``: (F, 1), S. ``prior``: (chains,
    1, k), the classes' shares. ``normal``: (2, F, k), means and variances to begin at. ``floor``: smallest variance.
    """

    first: Floats
    second: Floats
    first_weight: Floats
    second_weight: Floats
    there: Floats
    scale: Floats
    prior: Floats
    normal: Floats
    floor: float

    @property
    def rows(self) -> NDArray[np.bool_]:
        return np.ones((len(self.first), 2), bool)

    @property
    def groups(self) -> int:
        return 2

    def moments_of(self, u: Floats) -> tuple[Floats, Floats]:
        """Return means and variances, shape (chains, F, k) float64 each, for u of shape (chains, F, 2, k)."""
        mean = np.clip(self.scale * u[:, :, 0], -1, 1)
        variance = self.scale**2 * np.exp(np.clip(u[:, :, 1], -_WIDEST, _WIDEST) / 2)
        return mean, np.clip(variance, self.floor, 1)

    def start(self) -> Floats:
        mean, variance = self.normal
        return np.stack([mean / self.scale, 2 * np.log(variance / self.scale**2)], axis=1)

    def precision(self) -> Floats:
        mean, variance = self.normal
        share = self.prior.mean(axis=0) * self.there
        first = (share * self.scale) ** 2 * (self.first_weight + 4 * mean**2 * self.second_weight)
        return np.stack([first, (share * variance / 2) ** 2 * self.second_weight], axis=1)

    def likelihood(self, u: Floats) -> tuple[Floats, Floats]:
        mean, variance = self.moments_of(u)
        share = self.prior * self.there
        off = self.first - share * mean, self.second - share * (mean**2 + variance)
        pull = off[0] * self.first_weight, off[1] * self.second_weight
        by_mean = share * (pull[0] + 2 * mean * pull[1]) * self.scale * (np.abs(mean) < 1)
        inside = (variance > self.floor) & (variance < 1)
        slope = np.stack([by_mean, share * pull[1] * variance / 2 * inside], axis=2)
        return -(off[0] * pull[0] + off[1] * pull[1]).sum(axis=2) / 2, slope


class _State(NamedTuple):
    """State of all Markov chains; the letters are those of the module's docstring.

    ``common``: b, (chains, F, R); ``apart``: e/λ, and ``tail``: λ, (chains, F, R, k), float64. ``signal``: indices of τ
    in :data:`SIGNALS`, (chains, F, groups) int64.
    """

    common: Floats
    apart: Floats
    tail: Floats
    signal: Integers

    @property
    def tau(self) -> Floats:
        return np.asarray(SIGNALS[self.signal][..., None])

    @property
    def size(self) -> Floats:
        return np.asarray(self.tau * self.tail)

    @property
    def u(self) -> Floats:
        return np.asarray(self.common[..., None] + self.size * self.apart)


def fleets(statistics: Statistics, generator: np.random.Generator, draws: int) -> Iterator[SimulatedFleet]:
    """Yield ``draws`` random fleets from the posterior given the statistics, features in the schema's order.

    Markov chains begin at the published model. b and e move by Hamiltonian steps, τ at the same e and at the same τ·e
    (Yu, Meng 2011). The τ of all features of a kind have one distribution from a Dirichlet process of concentration
    :data:`CONCENTRATION`, around one with probability :data:`NOTHING` at the smallest τ. So many features with small
    differences count as a signal, and a single one may be chance. Raises InputError ``not_fittable``: there is no
    question about the values of a feature.
    """
    schema = statistics.schema
    numbers = list(schema.numeric) if statistics.fit.family in NORMAL_FAMILIES else []
    chains = int(np.clip(MOST_WORK // cells_of_tables(statistics), FEWEST_CHAINS, CHAINS))
    priors = _priors(statistics, generator, chains)
    walks: list[Callable[[], dict[int, list[Feature]]]] = []
    tables = [index for index in range(len(schema.observed)) if index not in numbers]
    for _, alike in groupby(sorted(tables, key=lambda index: _width(statistics, index)), partial(_width, statistics)):
        walks.append(_table_walk(statistics, list(alike), priors, generator))
    if numbers:
        walks.append(_number_walk(statistics, numbers, priors, generator))
    for left in range(draws, 0, -chains):
        found: dict[int, list[Feature]] = {}
        for walk in walks:
            found |= walk()
        for chain in range(min(left, chains)):
            yield SimulatedFleet(priors[chain], tuple(found[index][chain] for index in range(len(schema.observed))))


def cells_of_tables(statistics: Statistics) -> int:
    """Return how many entries all tables have together as :func:`fleets` draws them; at least 1."""
    numbers = statistics.schema.numeric if statistics.fit.family in NORMAL_FAMILIES else ()
    widths = [_width(statistics, index) for index in range(len(statistics.schema.observed)) if index not in numbers]
    return max(1, sum(widths) * len(statistics.schema.label.classes))


def _width(statistics: Statistics, feature: int) -> int:
    """Return the smallest of :data:`WIDTHS` that holds a feature's values. Tables of one width are drawn together."""
    size = statistics.schema.observed[feature].size
    return next(width for width in WIDTHS if size <= width)


def _table_walk(
    statistics: Statistics, features: list[int], priors: Floats, generator: np.random.Generator
) -> Callable[[], dict[int, list[Feature]]]:
    """Return a function that draws new tables of some features: index of a feature → its draw in each chain."""
    seen = _tables(statistics, features, priors)
    chain = _walk(seen, generator)

    def drawn() -> dict[int, list[Feature]]:
        tables, found = seen.tables(next(chain)), {}
        for place, index in enumerate(features):
            observed = statistics.schema.observed[index]
            parts = np.maximum(tables[:, place, : observed.size], _LEAST)
            found[index] = [Feature(part, np.ones(len(part[0])), missing_code(observed)) for part in parts]
        return found

    return drawn


def _number_walk(
    statistics: Statistics, features: list[int], priors: Floats, generator: np.random.Generator
) -> Callable[[], dict[int, list[Feature]]]:
    """Return a function that draws new means and variances of all numbers: index of a feature → its draw per chain."""
    there = np.array([_there(statistics, index) for index in features])
    seen = _numbers(statistics, there, priors)
    chain = _walk(seen, generator)

    def drawn() -> dict[int, list[Feature]]:
        mean, variance = seen.moments_of(next(chain))
        return {
            index: [
                Feature(NormalParameters(*pair), there[place], None)
                for pair in zip(mean[:, place], variance[:, place], strict=True)
            ]
            for place, index in enumerate(features)
        }

    return drawn


def _walk(seen: _Seen, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield draws of u for all chains without end, shape (chains, F, R, k) float64 each, some steps apart."""
    state, rows = _started(seen, generator), seen.rows
    between = BETWEEN if len(seen.prior) == CHAINS else BETWEEN_IF_FEW
    length = np.full(len(rows), 0.35)
    steps = 0
    while True:
        state, accepted = _moved(seen, state, length, generator)
        if steps < FIRST:
            length = np.minimum(length * np.exp(0.3 * (accepted - 0.75)), 1.0)
        state = _resized(seen, state, generator)
        steps += 1
        if steps >= FIRST and (steps - FIRST) % between == 0:
            yield state.u


def _started(seen: _Seen, generator: np.random.Generator) -> _State:
    """Return a state near the published model. Far from it, steps would be too long and never accepted."""
    chains, u = len(seen.prior), seen.start()
    common = np.where(seen.rows, u.mean(axis=2), 0.0)
    apart = np.where(seen.rows[..., None], u - common[..., None], 0.0)
    squares, cells = (apart**2).mean(axis=2), seen.rows
    if seen.groups == 1:
        squares = (squares.sum(axis=1) / cells.sum(axis=1))[:, None]
    signal = np.abs(np.log(SIGNALS) - np.log(np.sqrt(squares) + 0.05)[..., None]).argmin(axis=-1)
    size = SIGNALS[signal][..., None]
    noise = 0.2 * generator.normal(size=(chains, *u.shape)) / np.sqrt(1 + size**2 * seen.precision())
    apart = np.where(cells[..., None], apart / size + noise, 0.0)
    return _State(np.tile(common, (chains, 1, 1)), apart, np.ones_like(apart), np.tile(signal, (chains, 1, 1)))


def _moved(seen: _Seen, state: _State, length: Floats, generator: np.random.Generator) -> tuple[_State, Floats]:
    """Make a Hamiltonian step of ``length`` for b and e at constant τ; return the state and the share accepted."""
    rows, size, precision = seen.rows, state.size, seen.precision()
    mass = 1 + size**2 * precision
    common_mass = 1 / COMMON**2 + precision.sum(axis=2)
    speed = np.where(rows[..., None], generator.normal(size=state.apart.shape), 0.0) * np.sqrt(mass)
    common_speed = np.where(rows, generator.normal(size=state.common.shape), 0.0) * np.sqrt(common_mass)

    def energy(density: Floats, apart: Floats, common: Floats, speed: Floats, common_speed: Floats) -> Floats:
        still = (apart**2 + speed**2 / mass).sum(axis=(2, 3))
        return np.asarray((still + (common**2 / COMMON**2 + common_speed**2 / common_mass).sum(axis=2)) / 2 - density)

    step = (length * generator.uniform(0.2, 1.2, state.common.shape[:2]))[..., None]
    apart, common = state.apart, state.common
    density, slope = seen.likelihood(state.u)
    before = energy(density, apart, common, speed, common_speed)
    for _ in range(int(generator.integers(4, 9))):
        speed = speed + step[..., None] / 2 * (size * slope - apart)
        common_speed = common_speed + step / 2 * (slope.sum(axis=3) - common / COMMON**2)
        apart = apart + step[..., None] * speed / mass
        common = common + step * common_speed / common_mass
        density, slope = seen.likelihood(common[..., None] + size * apart)
        speed = np.where(rows[..., None], speed + step[..., None] / 2 * (size * slope - apart), 0.0)
        common_speed = np.where(rows, common_speed + step / 2 * (slope.sum(axis=3) - common / COMMON**2), 0.0)
    change = before - energy(density, apart, common, speed, common_speed)
    taken = np.log(generator.random(change.shape)) < change
    moved = _State(
        np.where(taken[..., None], common, state.common),
        np.where(taken[..., None, None], apart, state.apart),
        state.tail,
        state.signal,
    )
    return moved, taken.mean(axis=0)


def _resized(seen: _Seen, state: _State, generator: np.random.Generator) -> _State:
    """Draw the distribution of τ; a new τ of every feature, first at the same e, then at the same τ·e; then new λ."""
    for group in range(seen.groups):
        log_law = _law(state.signal[..., group], generator)
        here: Integers = state.signal[..., group]
        step = generator.integers(1, 4, here.shape) * generator.choice(np.array([-1, 1]), here.shape)
        possible = (here + step >= 0) & (here + step < len(SIGNALS))
        new: Integers = np.clip(here + step, 0, len(SIGNALS) - 1)
        trial = state._replace(signal=_with(state.signal, group, new))
        gain = seen.likelihood(trial.u)[0] - seen.likelihood(state.u)[0]
        gain = gain + np.take_along_axis(log_law, new, 1) - np.take_along_axis(log_law, here, 1)
        taken = possible & (np.log(generator.random(here.shape)) < gain)
        state = state._replace(signal=_with(state.signal, group, np.where(taken, new, here)))
        differences = state.tau * state.apart
        part = slice(None) if seen.groups == 1 else slice(group, group + 1)
        squares = (differences[:, :, part] ** 2).sum(axis=(2, 3))
        cells = seen.rows[:, part].sum(axis=1) * state.apart.shape[-1]
        weight = -cells[:, None] * np.log(SIGNALS) - squares[..., None] / SIGNALS**2 / 2 + log_law[:, None, :]
        ends = np.cumsum(np.exp(weight - weight.max(axis=-1, keepdims=True)), axis=-1)
        found = (ends < generator.random(here.shape)[..., None] * ends[..., -1:]).sum(axis=-1)
        state = state._replace(signal=_with(state.signal, group, np.minimum(found, len(SIGNALS) - 1)))
        state = state._replace(apart=differences / state.tau)
    whole = state.tail * state.apart
    tail = np.sqrt((TAILS + whole**2) / 2 / generator.gamma((TAILS + 1) / 2, size=whole.shape))
    return state._replace(tail=tail, apart=whole / tail)


def _law(signal: NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """Return the logarithm of a random distribution of τ, (chains, signals). ``signal``: index of each feature's τ."""
    base = np.full(len(SIGNALS), CONCENTRATION * (1 - NOTHING) / (len(SIGNALS) - 1))
    base[0] = CONCENTRATION * NOTHING
    counts = (signal[..., None] == np.arange(len(SIGNALS))).sum(axis=1)
    drawn = generator.gamma(base + counts)
    return np.asarray(np.log(np.maximum(drawn / drawn.sum(axis=1, keepdims=True), 1e-12)))


def _with(signal: NDArray[np.int64], group: int, new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``signal``, shape (chains, F, groups) int64, with ``new``, shape (chains, F), in place of one group."""
    changed = signal.copy()
    changed[..., group] = new
    return changed


def _priors(statistics: Statistics, generator: np.random.Generator, chains: int) -> Floats:
    """Return random shares of the classes for every chain: shape (chains, k) float64."""
    shares, middle = class_shares(statistics), simplex_prior(statistics)
    known = np.isfinite(shares.ratio) & np.isfinite(shares.ratio_variance)
    centre = np.where(known, shares.ratio, middle)
    spread = np.sqrt(np.where(known, shares.ratio_variance, 1.0))
    return np.array([_possible(generator.normal(centre, spread)) for _ in range(chains)])


def _there(statistics: Statistics, feature: int) -> Floats:
    """Return the share of each class's records with the number: shape (k,) float64; ones if presence was not asked."""
    prior, kind = simplex_prior(statistics), (PRESENT, feature)
    asked = [one for one in statistics.questions if (one.subject.kind, one.subject.feature) == kind and one.n]
    if not asked:
        return np.ones(len(prior))
    n = sum(one.n for one in asked)
    joint = sum((one.estimate for one in asked), np.zeros(2 * len(prior)))[len(prior) :] / n
    return np.asarray(np.clip(joint / prior, 1 / n, 1))


def _tables(statistics: Statistics, features: Sequence[int], priors: Floats) -> _Tables:
    """Return the estimates of some features' tables. ``priors``: shape (chains, k) float64.

    The variances are those at the published table, sampling with f in place of f(1 − f). If the K entries always add up
    to n, they vary together: the variances are then K/(K − 1) times larger.
    """
    began = posterior_tables(statistics, features)
    joints = [joint_table(statistics, index) for index in features]
    shape = (len(joints), max(len(joint.estimate) for joint in joints), len(began.prior))
    share, weight, table, rows = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape[:2], bool)
    for place, (index, joint, first) in enumerate(zip(features, joints, began.likelihood, strict=True)):
        values = len(first)
        rows[place, :values], table[place, :values] = True, first
        if joint.n:
            f = first * began.prior
            variance = (joint.at_zero + f * (joint.at_one - joint.at_zero + joint.scatter)) / joint.n**2
            if _adds_up(statistics, index):
                variance = variance * f.size / (f.size - 1)
            share[place, :values], weight[place, :values] = joint.share, 1 / np.maximum(variance, _LEAST**2)
    return _Tables(share, weight, rows, priors[:, None, None, :], table)


def _adds_up(statistics: Statistics, feature: int) -> bool:
    kind = (CELL, feature)
    return any(one.adds_up for one in statistics.questions if (one.subject.kind, one.subject.feature) == kind)


def _numbers(statistics: Statistics, there: Floats, priors: Floats) -> _Numbers:
    """Return the estimates of all numbers' moments. ``there``: shape (F, k); ``priors``: shape (chains, k) float64."""
    schema, found = statistics.schema, statistics.questions
    noise = [SubjectEstimate(one.subject, one.n, one.variance / max(one.n, 1)) for one in found]
    first, second = (np.nan_to_num(moments(found, schema, power)) for power in (1, SQUARE))
    one, two = (
        1 / np.maximum(np.nan_to_num(moments(noise, schema, power), nan=np.inf, posinf=np.inf), _LEAST**2)
        for power in (1, SQUARE)
    )
    floor = max(statistics.fit.variance_floor_micro / MICRO, _LEAST)
    share = simplex_prior(statistics) * there
    total = share.sum(axis=1)
    mean = np.clip(first.sum(axis=1) / total, -1, 1)
    scale = np.sqrt(np.clip(second.sum(axis=1) / total - mean**2, 0.01, 1))[:, None]
    began = np.array([np.tile(mean[:, None], (1, share.shape[1])), np.tile(scale**2, (1, share.shape[1]))])
    return _Numbers(first, second, one, two, there, scale, priors[:, None, :], began, floor)


def _possible(shares: Floats) -> Floats:
    """Return the nearest positive shares with the sum 1: shape (n,) float64."""
    found = project_to_simplex(shares, 1.0) + _LEAST
    return np.asarray(found / found.sum(), np.float64)
