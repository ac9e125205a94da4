"""What a summary of a campaign releases, how ε is divided, the range of every number, and the cost by adjacency.

A summary has Q released vectors (lists of counts or sums), which share ε equally: ε_q = ⌊ε/Q⌋ millionths. With the
sensitivity ``global`` every entry has discrete Laplace noise of rate ε_q/Δ; Δ is the sensitivity to adding or removing
one record. With ``smooth`` neighbouring data sets differ in the features of one record, and the sum of squares of a
number in a class of at least n₀ = ⌈3/ε_q⌉ records is released by the smooth sensitivity of its variance, with noise by
Student's t. The constants follow from ε_q with a proven cost (:mod:`protocol.noise`).
Source: docs/math.md, section 5; docs/smooth.md.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.documents.masked_terms import GLOBAL, MAX_NUMBERS, MAX_RECORDS, SENSITIVITY_KINDS, SMOOTH, NodeTerms
from protocol.epsilon import MICRO
from protocol.errors import InputError, PolicyError
from protocol.noise.law import StudentT, calibrated
from protocol.noise.sums import laplace_variance, rate, summed_subjects
from protocol.questions import ADD_REMOVE, CHANGE_FEATURES, MOMENT, SENSITIVITIES, SQUARE

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.noise.law import Calibration
    from protocol.questions import Subject

__all__ = [
    "GLOBAL",
    "MAX_NUMBERS",
    "MAX_RECORDS",
    "SENSITIVITY_KINDS",
    "SMOOTH",
    "NodeTerms",
    "cost_micro",
    "ranges",
    "released_vectors",
    "sensitivity",
    "shares",
    "terms_of",
]

_TAIL = 64
"""Released noise is at most this multiple of 1/rate. Unbounded noise exceeds it with probability below e^{−64}."""
_HEAVY_TAIL = 1 << 17
"""As ``_TAIL``, for sums of squares with the sensitivity ``smooth``. Exceeded with probability below 10^−11."""


def terms_of(campaign: Campaign) -> NodeTerms:
    """Return the campaign's terms for nodes; a campaign for devices is refused as ``campaign_for_devices``."""
    if campaign.nodes is None:
        raise InputError("campaign_for_devices", "this campaign asks devices for reports and no node for a summary")
    return campaign.nodes


def released_vectors(campaign: Campaign) -> tuple[Subject, ...]:
    """Return the subjects of the vectors of a summary of a campaign for nodes, in order: the class counts first."""
    terms_of(campaign)
    return tuple(summed_subjects(campaign.schema, campaign.fit.family))


def sensitivity(subject: Subject, kind: str = GLOBAL) -> int:
    """Return Δ, the sensitivity for the discrete Laplace noise of a released vector.

    ``global``: for adding or removing one record, 1 for counts and S = 65536 for sums. ``smooth``: for changing the
    features of one record, 1 for class counts, 2 for other counts, 2S for sums of u, S for sums of squares. Neighbours
    by ``smooth`` never differ in the class counts; exact ones would tell who is among a node's records to somebody who
    knows all others.
    """
    return max(SENSITIVITIES[subject.kind, subject.power][ADD_REMOVE if kind == GLOBAL else CHANGE_FEATURES], 1)


def shares(campaign: Campaign, epsilon_micro: int | None = None) -> tuple[int, ...]:
    """Return ε_q of every released vector in millionths: Q times ⌊ε/Q⌋, Q the number of vectors.

    ``epsilon_micro`` is the ε of the summary; None for the campaign's.

    Raises InputError ``campaign_for_devices``; ``epsilon_invalid``: ε is above the campaign's, or below the smallest
    that the campaign allows.
    """
    terms = terms_of(campaign)
    epsilon_micro = campaign.epsilon_micro if epsilon_micro is None else epsilon_micro
    if not terms.least_epsilon_micro <= epsilon_micro <= campaign.epsilon_micro:
        raise InputError("epsilon_invalid", "the ε of a summary is above the campaign's, or below its smallest")
    vectors = len(released_vectors(campaign))
    return (epsilon_micro // vectors,) * vectors


def ranges(campaign: Campaign, epsilon_micro: int | None = None) -> list[tuple[int, int]]:
    """Return the smallest and the largest number of every released vector. Nodes clamp to them.

    With n = ``max_records``, S = 65536 and H = ⌈64·Δ/ε_q⌉, where Δ is :func:`sensitivity` and ε_q the vector's ε
    (:func:`shares`): counts [−H, n + H]; sums of u ±(n·S + H); sums of ⌊u²/S⌋ [−H, n·S + H]. With the sensitivity
    ``smooth`` H of sums of squares is ⌈2^17 S/ε_q⌉, since their noise has heavier tails. Raises InputError as
    :func:`shares`.
    """
    terms = terms_of(campaign)
    most, kind = terms.max_records, terms.sensitivity
    found = []
    for subject, share in zip(released_vectors(campaign), shares(campaign, epsilon_micro), strict=True):
        s, t = rate(share, sensitivity(subject, kind)).as_integer_ratio()
        is_heavy = kind == SMOOTH and (subject.kind, subject.power) == (MOMENT, SQUARE)
        reach = -(-(_HEAVY_TAIL if is_heavy else _TAIL) * t // s)
        high = most * (SCALE if subject.kind == MOMENT else 1)
        low = 0 if subject.kind != MOMENT or subject.power == SQUARE else -high
        found.append((low - reach, high + reach))
    return found


def cost_micro(campaign: Campaign, adjacency: str, epsilon_micro: int | None = None) -> int:
    """Return what a summary costs one record, in millionths of ε, for one of :data:`protocol.questions.ADJACENCIES`.

    With the sensitivity ``global``: ε for ``add-remove``, 2ε for ``change`` and ``change-features``. With ``smooth``: ε
    for ``change-features``. Raises InputError ``campaign_for_devices``; PolicyError ``adjacency_uncovered``: the
    sensitivity is ``smooth``, and the adjacency is another one.
    """
    terms = terms_of(campaign)
    epsilon_micro = campaign.epsilon_micro if epsilon_micro is None else epsilon_micro
    if terms.sensitivity == GLOBAL:
        return epsilon_micro if adjacency == ADD_REMOVE else 2 * epsilon_micro
    if adjacency != CHANGE_FEATURES:
        raise PolicyError(
            "adjacency_uncovered", f"noise for smooth sensitivity covers {CHANGE_FEATURES} and not '{adjacency}'"
        )
    return epsilon_micro


_LEAST_RECORDS = 3


@lru_cache(maxsize=256)
def calibration(share: int) -> Calibration:
    """Return the noise of a released class variance, with its constants, for ε' = ``share`` millionths."""
    return calibrated(StudentT(), Fraction(share, MICRO), Fraction(0))


def least_records(share: int) -> int:
    """Return the size of the smallest class whose variance is released, for ε' = ``share`` millionths.

    In smaller classes the noise of the squared sum would outweigh the rest.
    """
    return max(2, -(-_LEAST_RECORDS * MICRO // share))


def variance_of_sums(share: int) -> float:
    """Return V, the variance of the noise of one sum of u, for ε' = ``share`` millionths."""
    return laplace_variance(rate(share, 2 * SCALE))


def variance_of_squares(share: int) -> float:
    """Return an upper bound of the variance of the noise of one sum of squares, for all records.

    The true variance is private. k is the multiplier of :func:`calibration`, S* the smooth and GS the global
    sensitivity of a class's variance, n the number of its records, n₀ is :func:`least_records`, V is
    :func:`variance_of_sums`, S = 65536. With k·S* ≤ k·GS, n·GS ≤ 4S², |mean| ≤ S, n ≥ n₀, and at most 5V² + V for the
    variance of the square of the noise, the bound is

        48·k²·S² + 4V + (5V² + V)/(n₀·S)²
    """
    k, spread = float(calibration(share).multiplier), variance_of_sums(share)
    bound = 48 * k**2 * SCALE**2 + 4 * spread + (5 * spread**2 + spread) / (least_records(share) * SCALE) ** 2
    return max(bound, laplace_variance(rate(share, SCALE)))


def noise_variance(campaign: Campaign, subject: Subject, share: int) -> float:
    """Return the variance of the noise of one number of a released vector with ε' = ``share`` millionths.

    For sums of squares with the sensitivity ``smooth`` the result is an upper bound.
    """
    kind = terms_of(campaign).sensitivity
    if kind == SMOOTH and (subject.kind, subject.power) == (MOMENT, SQUARE):
        return variance_of_squares(share)
    return laplace_variance(rate(share, sensitivity(subject, kind)))
