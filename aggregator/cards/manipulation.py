"""How far lying devices or nodes can move an estimate, in closed form.

One accepted answer adds to an estimate a number between c₋ and c₊, which follow from the mechanism's integers and the
clamps of the counting. With λ the share of lies among the answers to a question, an estimated share or mean moves by at
most λ·R, R = c₊ − c₋, and on average by at most λ·max(c₊ − x₋, x₊ − c₋), where [x₋, x₊] is the range of true values.

With β the share of lies among all reports, r answers of a device in a period, and w the question's share of the report
ids of its stratum (group of questions, of which a device answers one):

    closed fleet   λ = β                         ids are enrolled, and the id assigns the question
    open fleet     λ = βr/(βr + (1 − β)w)        whoever invents ids chooses the question, and how often he answers

The share of a class, combined from all questions j about classes with weights n_j/u_j, moves by at most Σ L_j R_j/u_j
over Σ (H_j + L_j)/u_j: L_j lies and H_j honest answers of variance u_j. In an open fleet that is largest if all lies
are about one question.

**Nodes.** A lying node states counts from −H to M + H, M its most records and H the range of the noise. From tables j
with K_j values a class, noise variance v_j, k classes and n records per node, it states at most U records of a class
for the pooled share, and at least −D:

    U = Σ_j w_j K_j (M + H_j)      D = Σ_j w_j K_j H_j      w_j ∝ 1/(K_j v_j/n + (k − 1)/k²), Σ_j w_j = 1

n = (1 − λ)r + λk(M + H) is the largest that can be stated, for honest nodes of r records. Of L lying nodes beside R
honest records in all, the share of one class moves by at most 1 and the largest of LU/(R + LU − L(k − 1)D),
L(k − 1)D/R and L(k − 1)U/(R − LD + L(k − 1)U). Source: docs/math.md, sections 3 and 5; decision 78.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from aggregator.cards.binomial import least_likely, most_likely
from aggregator.estimates.cells import question_name
from aggregator.estimates.debias import debias, marginal, noise_law, support_counts, supports_by_set
from aggregator.estimates.question_estimate import is_share, is_stretched
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.mechanisms import BITS, INTEGERS, Mechanism
from protocol.mechanisms.numeric import SingleNumberMechanism
from protocol.nodes.terms import noise_variance, ranges, released_vectors, shares, terms_of
from protocol.questions import CELL, CLASS, OUTCOME, PRESENT, Question

LIARS = (0.01, 0.05)
"""Shares of lying devices for which the sheet states bounds."""
CHANCE = 1e-9
"""Probability with which a stated bound of a question's number of lies, or of honest answers, may fail by chance."""
_WORD = 1 << 32


class Contribution(NamedTuple):
    """Least and most that one accepted answer adds to an estimate: in devices, or for numbers in half ranges."""

    least: float
    most: float

    @property
    def width(self) -> float:
        """R, the most by which two answers can differ in their contribution."""
        return self.most - self.least


class Bound(NamedTuple):
    """How far lies can move the estimates of one kind.

    ``mechanism`` is empty for the combined shares of the classes; ``one_answer`` is R, how far one changed answer moves
    a count of devices. The others map the share β of lies to the most that a share or mean moves, or (None for combined
    shares) its expectation, in a closed and in an open fleet.
    """

    estimate: str
    mechanism: str
    one_answer: float
    closed: dict[float, float]
    open: dict[float, float]
    closed_average: dict[float, float] | None
    open_average: dict[float, float] | None


@lru_cache(maxsize=256)
def contribution(mechanism: Mechanism, groups: int = 0) -> Contribution:
    """Return the least and the most that one answer adds to an estimate, by the estimator that the aggregator uses.

    Every estimator is affine in the counts and rises with the estimate's own counts, so the two bounds are the
    estimates from one extreme answer each. Of rows of bits those with the mechanism's number of ones are taken as
    possible (:func:`_ones`), or all rows.

    ``groups``: k > 0 for the sum of the estimates of a group of values, of k groups (value i is in group i mod k); 0
    for a single value. Raises InputError ``mechanism_incomplete``: the mechanism has no estimator for groups of values.
    """
    if isinstance(mechanism, SingleNumberMechanism):
        values = [float(mechanism.estimate(answer)) / SCALE for answer in range(mechanism.answers)]
        return Contribution(min(values), max(values))
    if mechanism.answers == 1:
        ends = mechanism.counted if mechanism.layout == INTEGERS else (0, 1)
        return Contribution(*(_estimate(mechanism, [end], groups) for end in ends))
    if supports_by_set(mechanism):
        alone = np.eye(mechanism.answers, dtype=np.int64)
        each = [_estimate(mechanism, row, groups) for row in support_counts(mechanism, alone).tolist()]
        return Contribution(min(each), max(each))
    least, most = mechanism.counted if mechanism.layout == INTEGERS else (0, 1)
    step = groups or mechanism.answers
    own = [place % step == 0 for place in range(mechanism.answers)]
    ones = _ones(mechanism)
    if ones is not None:
        members = set(range(0, len(own), step))
        low, high = _row(set(range(len(own))) - members, ones, len(own)), _row(members, ones, len(own))
    elif mechanism.layout in (BITS, INTEGERS):
        low, high = [least] * len(own), [most if member else least for member in own]
    else:  # A single value supports one value only.
        low, high = ([int(place == chosen) for place in range(len(own))] for chosen in (1, 0))
    return Contribution(_estimate(mechanism, low, groups), _estimate(mechanism, high, groups))


def _ones(mechanism: Mechanism) -> int | None:
    """Return the number of ones in every answer of a mechanism of rows of bits, or None if it varies."""
    law = mechanism.set_bits_law() if mechanism.layout == BITS else None
    return None if law is None or max(law) < 1 else list(law).index(1)


def _row(wanted: set[int], ones: int, size: int) -> list[int]:
    """Return a row of ``size`` bits with ``ones`` ones: at ``wanted`` places, then after the first of them, in turn."""
    first = min(wanted, default=0)
    order = sorted(range(size), key=lambda place: (place not in wanted, (place - first) % size))
    chosen = set(order[:ones])
    return [int(place in chosen) for place in range(size)]


def _estimate(mechanism: Mechanism, counts: Sequence[int], groups: int) -> float:
    if not groups:
        return float(debias(mechanism, 1, counts).estimate[0])
    found = marginal(mechanism, 1, counts, groups)
    if found is None:
        raise InputError("mechanism_incomplete", f"the mechanism {mechanism.name} has no estimator for groups")
    return float(found.estimate[0])


@lru_cache(maxsize=256)
def extreme_answers(mechanism: Mechanism, groups: int) -> tuple[tuple[int, ...], ...]:
    """Return the accepted answers that move some estimate, or the sum of a group's estimates, the furthest.

    Each answer is given by the counts that it adds: of one number the two extreme ones, of single values all; of rows
    those with one place, the places of one group (place i is in group i mod ``groups``), or all places at an end of the
    range. Where all rows have the same number of ones, these places or all others come first.
    """
    size = mechanism.answers
    if isinstance(mechanism, SingleNumberMechanism):
        values = [mechanism.estimate(answer) for answer in range(size)]
        chosen = dict.fromkeys((values.index(min(values)), values.index(max(values))))
        return tuple(tuple(int(place == one) for place in range(size)) for one in chosen)
    if mechanism.layout not in (BITS, INTEGERS):
        return tuple(tuple(int(place == one) for place in range(size)) for one in range(size))
    least, most = mechanism.counted if mechanism.layout == INTEGERS else (0, 1)
    sets = [{one} for one in range(size)] + [set(range(group, size, groups)) for group in range(groups)] + [set()]
    ones = _ones(mechanism)
    if ones is not None:
        wanted = (part for one in sets for part in (one, set(range(size)) - one))
        return tuple(dict.fromkeys(tuple(_row(part, ones, size)) for part in wanted))
    ends = ((least, most), (most, least))
    rows = (tuple(high if place in one else low for place in range(size)) for low, high in ends for one in sets)
    return tuple(dict.fromkeys(rows))


class Numbers(NamedTuple):
    """Lies and honest answers to one question: their numbers, or parts of all devices if that number is not known.

    ``lies``: most lies about this question in a closed fleet, where ids assign the questions. ``all_lies``: lies about
    all questions together; in an open fleet all may be about this question.
    """

    lies: float
    honest: float
    all_lies: float

    @property
    def closed(self) -> float:
        """λ, the share of lies among the answers to the question, in a closed fleet."""
        return self.lies / (self.lies + self.honest) if self.lies else 0.0

    @property
    def open(self) -> float:
        """λ, the share of lies among the answers to the question, in an open fleet, if all lies are about it."""
        return self.all_lies / (self.all_lies + self.honest)


def numbers_of(share: float, weight: float, answers: int, devices: int | None = None) -> Numbers:
    """Return how many answers to one question are lies, and how many are honest.

    ``share``: β. ``weight``: w, the question's share of its stratum's report ids. ``answers``: r. With a number of
    ``devices``, each result is a bound that fails with probability :data:`CHANCE`.
    """
    if devices is None:
        return Numbers(share * weight, (1 - share) * weight, share * answers)
    liars = ceil(share * devices)
    return Numbers(
        most_likely(liars, weight, CHANCE), least_likely(devices - liars, weight, CHANCE), float(liars * answers)
    )


def weights_of(campaign: Campaign) -> list[float]:
    """Return the weight w of every question: the share of report ids that get it, among all ids of its stratum."""
    intervals = [campaign.assignment.interval(i, question.stratum) for i, question in enumerate(campaign.questions)]
    return [(high - low) / _WORD for low, high in intervals]


def manipulation(campaign: Campaign, shares: Sequence[float] = LIARS, devices: int | None = None) -> tuple[Bound, ...]:
    """Return how far lies can move every question's estimates, then the combined shares of the classes.

    ``shares``: the shares β of lying devices. ``devices``: all devices, or None for the limit of many. Raises
    InputError ``argument_invalid``: a share is not between 0 and 1, or there is no device.
    """
    if not all(0 < share < 1 for share in shares) or (devices is not None and devices < 1):
        raise InputError(
            "argument_invalid", "shares of lying devices are above 0 and below 1, and there is at least one device"
        )
    weights = weights_of(campaign)
    by_share = {share: [numbers_of(share, weight, campaign.answers, devices) for weight in weights] for share in shares}
    found = [
        _of_question(campaign, question, {share: numbers[place] for share, numbers in by_share.items()})
        for place, question in enumerate(campaign.questions)
    ]
    return (*found, *_combined(campaign, by_share))


def _of_question(campaign: Campaign, question: Question, numbers: dict[float, Numbers]) -> Bound:
    classes = len(campaign.schema.label.classes)
    ends, least = contribution(question.mechanism), -1.0
    if is_stretched(question.subject):
        ends = Contribution((ends.least + 1) / 2, (ends.most + 1) / 2)
    if is_share(question.subject) or is_stretched(question.subject):
        least = 0.0
    name = question_name(question.subject, campaign.schema)
    if question.kind == OUTCOME:  # Lies about cells and about the accuracy have the same reach under direct.
        ends = contribution(question.mechanism, classes)
    average = max(ends.most - least, 1 - ends.least)
    return Bound(
        name,
        question.mechanism.name,
        ends.width,
        {share: each.closed * ends.width for share, each in numbers.items()},
        {share: each.open * ends.width for share, each in numbers.items()},
        {share: each.closed * average for share, each in numbers.items()},
        {share: each.open * average for share, each in numbers.items()},
    )


def _combined(campaign: Campaign, by_share: dict[float, list[Numbers]]) -> list[Bound]:
    """Return the bound for the shares of the classes, combined from all questions about classes; empty without any."""
    classes = len(campaign.schema.label.classes)
    equal = 1 / classes
    telling, widths, precision = [], [], []
    for place, question in enumerate(campaign.questions):
        law = noise_law(question.mechanism)
        if question.kind not in (CLASS, CELL, PRESENT) or law is None:
            continue
        empty = marginal(question.mechanism, 1, [0] * question.mechanism.size, classes)
        if empty is None:
            continue
        telling.append(place)
        widths.append(contribution(question.mechanism, classes).width)
        precision.append(1 / (float(empty.law.at(np.array(equal))) + equal * (1 - equal)))
    if not telling:
        return []
    width, each = np.array(widths), np.array(precision)
    closed, opened = {}, {}
    for share, numbers in by_share.items():
        lies = np.array([numbers[place].lies for place in telling])
        honest = np.array([numbers[place].honest for place in telling])
        whole = np.array([numbers[place].all_lies for place in telling])
        opened[share] = float((whole * each * width / (honest @ each + whole * each)).max())
        # Bounds of each question's lies add up to more than all lies, which bound a closed fleet, too.
        closed[share] = min(float((lies * each) @ width / ((honest + lies) @ each)), opened[share])
    return [Bound("class shares, all questions", "", float(width.max()), closed, opened, None, None)]


# Nodes ----------------------------------------------------------------------------------------------


class TableClaim(NamedTuple):
    """What one summary can claim in one table of counts by class.

    ``values``: number K of values for each class. The stated counts are from −H (``noise``) to M + H (``most``);
    ``variance``: smallest noise variance of one count.
    """

    values: int
    noise: int
    most: int
    variance: float


def node_claims(found: Campaign) -> list[TableClaim]:
    """Return what a node can claim in each table from which a class's share is pooled; class counts come first."""
    classes, least_epsilon = len(found.schema.label.classes), terms_of(found).least_epsilon_micro
    vectors = zip(released_vectors(found), ranges(found, least_epsilon), shares(found), strict=True)
    return [
        TableClaim(subject.size // classes, -least, most, noise_variance(found, subject, share))
        for subject, (least, most), share in vectors
        if subject.kind in (CLASS, CELL, PRESENT)
    ]


def _pooled_claims(claims: Sequence[TableClaim], classes: int, records: float) -> tuple[float, float]:
    """Return U and D: one node can add at most U records to the combined count of a class, and take off at most D."""
    equal = (classes - 1) / classes**2
    weights = [1 / (table.values * table.variance / records + equal) for table in claims]
    each = list(zip(weights, claims, strict=True))
    most = sum(weight * table.values * table.most for weight, table in each)
    noise = sum(weight * table.values * table.noise for weight, table in each)
    return most / sum(weights), noise / sum(weights)


def moved_share(claims: Sequence[TableClaim], classes: int, records: float, share: float, nodes: int | None) -> float:
    """Return the most by which a ``share`` of lying nodes moves a class's share; ``nodes`` None for a large number.

    ``claims``: from :func:`node_claims`. ``records``: of an honest node, on average.
    """
    lying = share if nodes is None else min(nodes, max(1, round(share * nodes))) / nodes
    honest, others = (1 - lying) * records, classes - 1
    most, noise = _pooled_claims(claims, classes, honest + lying * classes * claims[0].most)
    up, below, down = lying * most, lying * others * noise, lying * others * most
    return max(_part(up, honest + up - below), _part(below, honest), _part(down, honest - lying * noise + down))


def _part(number: float, of: float) -> float:
    """Return ``number / of``, at most 1; 1 if ``of`` is not positive, since the claims then exceed all records."""
    return min(1.0, number / of) if of > 0 else 1.0
