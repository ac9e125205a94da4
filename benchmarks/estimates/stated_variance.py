"""Ratios of stated to exact variances of estimates, for every mechanism and question.

    python -m benchmarks.estimates.stated_variance [--json]

The counts are the expected ones of many answers, so estimates equal the truth and nothing is random. The exact variance
of one answer is computed from the mechanism's distribution (values) or from its variance at every input (numbers), and
from the population's true values. The campaigns have one or three answers per device.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import lower_mean, sign_size
from aggregator.estimates.reports import estimate
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.reports.tally.tally import Tally
from benchmarks.shared.harness import Table, arguments
from protocol import SCALE
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.features import Categorical, Numeric
from protocol.mechanisms import SINGLE, Mechanism
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.mechanisms.she import SummedHistogram
from protocol.questions import CELL, CLASS, SQUARE, Question, Subject
from protocol.schema import Label, build_schema

N = 10**8
_MOST_BITS = 8
"""All answers of a unary encoding of at most so many bits are enumerated; longer encodings use the bits' chances."""


FREQUENCY = ("direct", "oue", "sue", "subset", "the", "she")
NUMERIC = ("bit", "bits", "piecewise", "hybrid", "laplace", "duchi")
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
        tables: P(value | class) of every feature, shape (values, 4) float64.
    """

    campaign: Campaign
    tables: tuple[Floats, ...]
    devices: int
    periods: int


def setting(mechanism: str, epsilon: float, answers: int, periods: int) -> Setting:
    """Return a campaign: three questions for one answer per device, two per stratum (question group) for several.

    Numeric mechanisms ask for one number and one category with two values.
    """
    numeric = mechanism in NUMERIC
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


def clipped_laws(mechanism: SummedHistogram) -> tuple[Floats, Floats]:
    """Return two distributions on 0 … M, of components clipped to [0, M]: of the true value, and of another value."""
    q = np.exp(-mechanism.s / mechanism.t)
    other = (1 - q) / (1 + q) * q ** np.arange(GRID + 1)
    other[0] = 1 / (1 + q)
    other[GRID] = q**GRID / (1 + q)
    assert abs(other @ np.arange(GRID + 1) - float(lower_mean(mechanism.s, mechanism.t))) < 1e-6 * GRID
    other /= other.sum()
    return other[::-1].copy(), other


def shares_of(subject: Subject, found: list[tuple[Floats, Floats]]) -> Floats:
    """Return the true shares or means of a question's K cells (value by class), in order: shape (K,) float64."""
    classes, table = found[subject.feature or 0]
    if subject.kind == CLASS:
        return classes
    if subject.kind == CELL:
        return table.ravel()
    moments = (NUMBERS**subject.power) @ table
    return moments if subject.of_class is None else moments[subject.of_class : subject.of_class + 1]


def supports(mechanism: Mechanism, value: int) -> Floats:
    """Return exact probability that an answer about ``value`` supports each value: shape (K,) float64."""
    size = mechanism.size
    if mechanism.layout == SINGLE:
        law = mechanism.distribution(value)
        return np.array([float(law[answer]) for answer in range(size)])
    if size > _MOST_BITS:
        return np.array([float(mechanism.p if value == place else mechanism.q) for place in range(size)])
    law = mechanism.distribution(value)
    return np.sum([float(chance) * np.array(bits) for bits, chance in law.items()], axis=0)


def of_values(mechanism: Mechanism, shares: Floats) -> tuple[list[int], Floats]:
    """Return expected counts of N answers about values, and the exact variance of an estimated share per answer."""
    if isinstance(mechanism, SummedHistogram):
        grid = np.arange(GRID + 1)
        own, other = ((law @ grid, law @ grid**2) for law in clipped_laws(mechanism))
        gain = own[0] - other[0]
        first = shares * own[0] + (1 - shares) * other[0]
        second = shares * own[1] + (1 - shares) * other[1]
        return np.rint(N * first).astype(np.int64).tolist(), (second - first**2) / gain**2
    table = np.array([supports(mechanism, value) for value in range(mechanism.size)])
    chances = shares @ table
    gain = table[0, 0] - table[1, 0]
    return np.rint(N * chances).astype(np.int64).tolist(), chances * (1 - chances) / gain**2


def of_numbers(question: Question, joint: Floats) -> tuple[list[int], Floats]:
    """Return expected counts of N answers about numbers, and the exact variance of the estimate of each mean.

    ``joint``: shape (values, 4) float64, shares of all pairs of number and class.
    """
    mechanism, subject = question.mechanism, question.subject
    assert isinstance(mechanism, NumericMechanism)
    power = subject.power or 1
    columns = range(4) if subject.of_class is None else [subject.of_class]
    stretched = subject.of_class is not None and power == SQUARE
    counts: list[Floats] = []
    variances = []
    for column in columns:
        values = np.append(np.rint(NUMBERS**power * SCALE), 0).astype(np.int64)
        chances = np.append(joint[:, column], 1 - joint[:, column].sum())
        inputs = 2 * values - SCALE if stretched else values
        noise = np.array([float(mechanism.variance(int(value))) for value in inputs]) / SCALE**2
        mean = chances @ values / SCALE
        variances.append(chances @ noise / (4 if stretched else 1) + chances @ (values / SCALE) ** 2 - mean**2)
        if mechanism.layout == SINGLE:
            laws = [mechanism.distribution(int(value)) for value in inputs]
            table = np.array([[float(law[answer]) for answer in range(mechanism.answers)] for law in laws])
            counts.append(N * (chances @ table))
        elif isinstance(mechanism, CoinMechanism):
            counts.append(np.array([N * (1 + mean / sign_size(mechanism)) / 2]))
        else:
            counts.append(np.array([N * GRID * mean]))
    return np.rint(np.concatenate(counts)).astype(np.int64).tolist(), np.array(variances)


def ratios(given: Setting) -> dict[str, Floats]:
    """Return the ratios of stated to exact variance of all estimates, by kind of question."""
    campaign = given.campaign
    truth = [(CLASSES, table * CLASSES) for table in given.tables]
    counts, exact = [], []
    for question in campaign.questions:
        if question.kind in (CLASS, CELL):
            found = of_values(question.mechanism, shares_of(question.subject, truth))
        else:
            found = of_numbers(question, truth[question.feature or 0][1])
        counts.append(tuple(found[0]))
        exact.append(found[1])
    statistics = estimate(campaign, Tally(campaign.id, (N,) * len(counts), tuple(counts)))
    collected: dict[str, list[Floats]] = {}
    for one, variance in zip(statistics.questions, exact, strict=True):
        name = one.subject.kind if one.subject.power is None else f"{one.subject.kind} {one.subject.power}"
        # One stratum's questions share N answers each; the population's variance is that of N different devices.
        collected.setdefault(name, []).append(one.variance / N / variance)
    return {name: np.concatenate(parts) for name, parts in collected.items()}


def main() -> None:
    """Compute and print."""
    options = arguments(__doc__).parse_args()
    columns = "mechanism<11 ε<5g answers>8 question>12 least>9.4f most>9.4f numbers>9"
    table = Table("Stated over exact variances", columns, as_json=options.json)
    for mechanism, epsilon, answers in product((*FREQUENCY, *NUMERIC), (0.5, 1.0, 4.0), (1, 3)):
        for name, found in ratios(setting(mechanism, epsilon, answers, 1)).items():
            about = {"mechanism": mechanism, "ε": epsilon, "answers": answers, "question": name}
            table.add(about | {"least": float(found.min()), "most": float(found.max()), "numbers": len(found)})
    least, most = min(row["least"] for row in table.rows), max(row["most"] for row in table.rows)
    table.end(f"least {least:.4f}, most {most:.4f}")


if __name__ == "__main__":
    main()
