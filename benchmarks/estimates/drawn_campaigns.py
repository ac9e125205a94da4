"""Random campaigns as tallies: fleets, assignment of questions and noise are drawn exactly, many campaigns at once.

A fleet is drawn from a population with classes of 70, 22, 4 and 4 %. Every device answers in every period. In each
stratum and period it answers one question, chosen at random. The values of all features are fixed per device. Given the
class, the answers to one question are a random subset of all (device, period) pairs of the class, so hypergeometric
draws are exact. No value of a single device is simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import lower_mean, sign_size
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol import SCALE
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.features import Categorical, Numeric
from protocol.mechanisms import SINGLE, Mechanism
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.mechanisms.she import SummedHistogram
from protocol.questions import CELL, CLASS, SQUARE, Question
from protocol.schema import Label, build_schema

Counts = NDArray[np.int64]


START = 1_790_000_000
CLASSES = np.array([0.7, 0.22, 0.04, 0.04])
NUMBERS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
"""Values of a numeric feature. Multiples of 1/2 lie on the grid of ``laplace``, so it rounds none."""
PER_QUESTION, LEAST = 240, 200
"""Expected answers per question and period. Fleets with fewer than ``LEAST`` for a question are drawn again."""
_SHAPES = {2: [0.8, 0.2], 3: [0.65, 0.3, 0.05], 4: [0.55, 0.3, 0.1, 0.05], 5: [0.1, 0.15, 0.25, 0.3, 0.2]}


class Setting(NamedTuple):
    """A campaign to be drawn many times.

    Attributes:
        campaign: the campaign.
        tables: P(value | class) of every feature, shape (values, 4) float64.
        devices: number of devices in the fleet.
        periods: number of periods in which every device answers.
    """

    campaign: Campaign
    tables: tuple[Floats, ...]
    devices: int
    periods: int


class Drawn(NamedTuple):
    """R random campaigns.

    Attributes:
        n: shape (R, questions) int64, numbers of answers.
        counts: per question, shape (R, answers) int64.
        classes: shape (R, 4) int64, devices of every class.
        cells: per feature, shape (R, values, 4) int64, devices of every value and class.
    """

    n: Counts
    counts: tuple[Counts, ...]
    classes: Counts
    cells: tuple[Counts, ...]


def setting(mechanism: str, epsilon: float, answers: int, periods: int) -> Setting:
    """A campaign of three questions for one answer per device, or of two questions per stratum for several answers.

    Numeric mechanisms ask for one number and one category with two values.
    """
    numeric = mechanism in ("bit", "bits", "piecewise", "hybrid", "laplace", "duchi")
    if numeric:
        sizes = [5, 2]
        features = [Numeric("u", "-1", "1", [0], substitute=0), _category("f", 2)]
    else:
        sizes = [2, 4] if answers == 1 else [2, 4, 3, 2, 2]
        features = [_category(f"f{place}", size) for place, size in enumerate(sizes)]
    schema = build_schema(Label("y", list("abcd")), features)
    family = "gaussian" if numeric else "discrete"
    terms = CampaignParameters("x", round(epsilon * 1e6), mechanism, answers=answers, family=family)
    campaign = parse_campaign(build_campaign(schema, terms, 1, START))
    per_stratum = np.bincount([question.stratum for question in campaign.questions])
    tables = tuple(np.array([np.roll(_SHAPES[size], place) for place in range(4)]).T for size in sizes)
    return Setting(campaign, tables, PER_QUESTION * int(per_stratum.max()), periods)


def _category(name: str, size: int) -> Categorical:
    return Categorical(name, [str(value) for value in range(size)], substitute=0)


def draw(given: Setting, repeats: int, generator: np.random.Generator) -> Drawn:
    """Draw ``repeats`` campaigns."""
    questions = given.campaign.questions
    classes = generator.multinomial(given.devices, CLASSES, repeats)
    cells = tuple(
        np.stack([generator.multinomial(classes[:, c], table[:, c]) for c in range(4)], axis=2)
        for table in given.tables
    )
    asked = _split(given, classes, generator)
    counts = []
    for place, question in enumerate(questions):
        of_class = asked[:, place]
        if question.kind == CLASS:
            held = of_class
        else:
            feature = 0 if question.feature is None else question.feature
            own = given.periods * cells[feature]
            held = np.stack([_subset(own[:, :, c], of_class[:, c], generator) for c in range(4)], axis=2)
        counts.append(_answers(question, held, generator))
    return Drawn(asked.sum(axis=2), tuple(counts), classes, cells)


def _split(given: Setting, classes: Counts, generator: np.random.Generator) -> Counts:
    """Answers of every class to every question: shape (R, questions, 4) int64, at least :data:`LEAST` per question."""
    strata = [question.stratum for question in given.campaign.questions]
    found = np.zeros((len(classes), len(strata), 4), np.int64)
    for stratum in set(strata):
        places = [place for place, one in enumerate(strata) if one == stratum]
        chances = np.full(len(places), 1 / len(places))
        todo = np.arange(len(classes))
        while len(todo):
            for c in range(4):
                found[np.ix_(todo, places, [c])] = generator.multinomial(given.periods * classes[todo, c], chances)[
                    :, :, None
                ]
            todo = todo[(found[np.ix_(todo, places)].sum(axis=2) < LEAST).any(axis=1)]
    return found


def _subset(own: Counts, size: Counts, generator: np.random.Generator) -> Counts:
    """A random subset of ``size`` of the items of every value: shape (R, values) int64, drawn without replacement."""
    left, rest = size.copy(), own.sum(axis=1)
    found = np.zeros_like(own)
    for value in range(own.shape[1]):
        rest = rest - own[:, value]
        found[:, value] = generator.hypergeometric(own[:, value], rest, left)
        left = left - found[:, value]
    return found


def _answers(question: Question, held: Counts, generator: np.random.Generator) -> Counts:
    """Counts of the answers of one question, shape (R, answers) int64.

    Args:
        question: the question.
        held: answers by true value: shape (R, 4) for the class, else (R, values, 4).
        generator: the source of randomness.
    """
    mechanism = question.mechanism
    if question.kind in (CLASS, CELL):
        return _frequencies(mechanism, held.reshape(len(held), -1), generator)
    assert isinstance(mechanism, NumericMechanism)
    values = np.rint(NUMBERS * SCALE).astype(np.int64)
    if question.subject.power == SQUARE:
        values = values * values // SCALE
    of_class = question.subject.of_class
    if of_class is None:
        total = held.sum(axis=(1, 2))
        columns = [
            _coordinate(mechanism, held[:, :, c], total - held[:, :, c].sum(axis=1), values, generator)
            for c in range(4)
        ]
        return np.stack(columns, axis=1)
    inputs = np.append(values, 0)
    others = held.sum(axis=(1, 2)) - held[:, :, of_class].sum(axis=1)
    times = np.concatenate([held[:, :, of_class], others[:, None]], axis=1)
    if question.subject.power == SQUARE:
        inputs = 2 * inputs - SCALE
    return _single_answers(mechanism, inputs, times, generator)


def _frequencies(mechanism: Mechanism, held: Counts, generator: np.random.Generator) -> Counts:
    """Counts of a question about a value: numbers of values or bits, or sums of the components of ``she``."""
    n = held.sum(axis=1, keepdims=True)
    if isinstance(mechanism, SummedHistogram):
        own, other = clipped_laws(mechanism)
        grid = np.arange(GRID + 1)
        sums = [
            generator.multinomial(times, own) @ grid + generator.multinomial(n[:, 0] - times, other) @ grid
            for times in held.T
        ]
        return np.stack(sums, axis=1)
    p, q = float(mechanism.p), float(mechanism.q)
    if isinstance(mechanism, Direct):
        size = held.shape[1]
        table = np.full((size, size), q) + np.eye(size) * (p - q)
        return np.sum([generator.multinomial(held[:, v], table[v] / table[v].sum()) for v in range(size)], axis=0)
    return generator.binomial(held, p) + generator.binomial(n - held, q)


def clipped_laws(mechanism: SummedHistogram) -> tuple[Floats, Floats]:
    """Distributions on 0 … M of a component that is held and of one that is not, clipped to [0, M]."""
    q = np.exp(-mechanism.s / mechanism.t)
    other = (1 - q) / (1 + q) * q ** np.arange(GRID + 1)
    other[0] = 1 / (1 + q)
    other[GRID] = q**GRID / (1 + q)
    assert abs(other @ np.arange(GRID + 1) - float(lower_mean(mechanism.s, mechanism.t))) < 1e-6 * GRID
    other /= other.sum()
    return other[::-1].copy(), other


def _coordinate(
    mechanism: NumericMechanism, held: Counts, zeros: Counts, values: Counts, generator: np.random.Generator
) -> Counts:
    """One coordinate of a vector: number of set bits, or sum of noisy numbers. Shape (R,) int64."""
    n = held.sum(axis=1) + zeros
    if isinstance(mechanism, CoinMechanism):
        half = 1 / (2 * sign_size(mechanism))
        chances = 0.5 + half * values / SCALE
        return generator.binomial(held, chances).sum(axis=1) + generator.binomial(zeros, 0.5)
    assert isinstance(mechanism, Laplace)
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = generator.negative_binomial(n, leave) - generator.negative_binomial(n, leave)
    return held @ (values * GRID // SCALE) + noise


_tables: dict[tuple[Mechanism, int], tuple[Floats, Counts]] = {}


def _single_answers(
    mechanism: NumericMechanism, inputs: Counts, times: Counts, generator: np.random.Generator
) -> Counts:
    """Numbers of every answer about a single number. Shape (R, answers) int64.

    Args:
        mechanism: a mechanism about a single number.
        inputs: shape (I,) int64, the different inputs.
        times: shape (R, I) int64, how often each input was asked.
        generator: the source of randomness.
    """
    assert mechanism.layout == SINGLE
    size = mechanism.answers
    found = np.zeros(len(times) * size, np.int64)
    for value, often in zip(inputs.tolist(), times.T, strict=True):
        key = mechanism, value
        if key not in _tables:
            law = mechanism.distribution(value)
            _tables[key] = _alias(np.array([float(law[answer]) for answer in range(size)]))
        keep, other = _tables[key]
        place, part = np.divmod(generator.random(int(often.sum())) * size, 1)
        answers = place.astype(np.int64)
        answers = np.where(part < keep[answers], answers, other[answers])
        rows = np.repeat(np.arange(len(times)) * size, often)
        found += np.bincount(rows + answers, minlength=len(found))
    return found.reshape(len(times), size)


def _alias(law: Floats) -> tuple[Floats, Counts]:
    """Alias table of a distribution: draw i uniformly, keep i with probability ``keep[i]``, else take ``other[i]``.

    Source: Walker, ACM TOMS 3 (1977), 253-256.
    """
    keep = law * len(law) / law.sum()
    other = np.arange(len(law))
    small, large = np.flatnonzero(keep < 1).tolist(), np.flatnonzero(keep >= 1).tolist()
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        keep[high] -= 1 - keep[low]
        if keep[high] < 1:
            small.append(large.pop())
    return keep, other
