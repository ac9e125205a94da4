"""What a curator's fit costs: sensitivities of exact vectors, the division of ε among them, and the sum.

A *vector* is one list of integers that is released with noise, such as the counts of a table or the sums of a number in
all classes. Its sensitivity Δ is the largest Σ|difference| between neighbours. Discrete Laplace noise of rate ε'/Δ on
every entry gives the vector ε'-differential privacy. Vectors of one fit compose sequentially: their ε add up. Within a
vector the classes are disjoint parts of the records, which Δ takes into account: a changed label touches two classes.

    vector                                  add-remove   change   change-features
    counts of the classes                   1            2        0
    counts of value × class                 1            2        2
    counts of present/missing × class       1            2        2
    sums of u by class, |u| ≤ S             S            2S       2S
    sums of ⌊u²/S⌋ by class                 S            2S       S

Source: Dwork, McSherry, Nissim, Smith (TCC 2006); Ghosh, Roughgarden, Sundararajan (2009) for the discrete noise; Bun,
Steinke (TCC 2016), proposition 1.4, for ρ = ε²/2; docs/math.md, section 7.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1
from typing import TYPE_CHECKING, NamedTuple

from aggregator.central.terms import ADD_REMOVE, CHANGE, CHANGE_FEATURES, EQUAL, TWO_TO_ONE
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.mechanisms.noise import discrete_laplace
from protocol.questions import CELL, CLASS, MOMENT, PRESENT, SQUARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from protocol.questions import Subject
    from protocol.stream import Stream

_COUNTS = {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 2}
SENSITIVITIES: Mapping[tuple[str, int | None], Mapping[str, int]] = {
    (CLASS, None): {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 0},
    (CELL, None): _COUNTS,
    (PRESENT, None): _COUNTS,
    (MOMENT, 1): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: 2 * SCALE},
    (MOMENT, SQUARE): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: SCALE},
}
"""Kind and power of a subject → adjacency → L1 sensitivity of its sums over records, in counts or units of 1/S."""


class Cost(NamedTuple):
    """Privacy cost of a fit, exact.

    Attributes:
        epsilon_micro: ε by sequential composition, in millionths.
        delta: δ; 0 for pure differential privacy.
        rho: ρ of zero-concentrated differential privacy, Σ ε_j²/2 over the vectors; None if the method has none.
    """

    epsilon_micro: int
    delta: Fraction
    rho: Fraction | None


class Budget(NamedTuple):
    """ε and δ of one released vector: ε in millionths; δ is 0 for noise that needs none."""

    epsilon_micro: int
    delta: Fraction = Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """ε as a fraction."""
        return Fraction(self.epsilon_micro, MICRO)


class Vector(NamedTuple):
    """One exact vector and its share of the budget.

    Attributes:
        subject: what the entries are about.
        values: K exact integers.
        sensitivity: Δ for the fit's adjacency; 0 if neighbours never differ in the entries.
        epsilon_micro: ε of the vector in millionths; 0 if Δ is 0.
    """

    subject: Subject
    values: tuple[int, ...]
    sensitivity: int
    epsilon_micro: int


class Noisy(NamedTuple):
    """A vector with noise: K integers, and the variance of the noise of one entry."""

    subject: Subject
    values: tuple[int, ...]
    variance: float


def cost_of(shares: Iterable[int]) -> Cost:
    """The cost of vectors with pure ε by sequential composition; ``shares``: ε of each vector in millionths."""
    shares = list(shares)
    rho = sum((Fraction(share * share, 2 * MICRO * MICRO) for share in shares), Fraction(0))
    return Cost(sum(shares), Fraction(0), rho)


def divide(epsilon_micro: int, subjects: Sequence[Subject], classes: int, adjacency: str, division: str) -> list[int]:
    """Divide ε among the vectors of a fit. The division never looks at the records.

    - ``equal``: the class counts and every feature get equal parts; the vectors of one feature share its part equally.
    - ``2:1``: the class counts and every category get one part, every number two: each vector has one part (a number
      that may be missing has three).
    - ``worth``: ε_j ∝ (w_j Δ_j²)^(1/3) minimises Σ w_j Δ_j²/ε_j², the noise in a record's score to first order. w_j is
      the variance that a unit of noise variance in an entry adds to the score, in units of (k/n)², at equal shares and
      uniform numbers (variance v = 1/3 in [−1, 1]): 1 for class counts, A² for a table of A values, 1/v = 3 for a sum,
      1/(2v²) = 4.5 for a sum of squares.

    A vector of sensitivity 0 needs no noise and gets 0.

    Args:
        epsilon_micro: total ε in millionths.
        subjects: one per vector.
        classes: k.
        adjacency: neighbours, a key of the inner maps of :data:`SENSITIVITIES`.
        division: ``equal``, ``2:1`` or ``worth``.

    Returns:
        ε of each vector in millionths, rounded down; their sum is at most ``epsilon_micro``.

    Raises:
        InputError: ``epsilon_invalid``: a part is less than a millionth.
    """
    sensitive = [SENSITIVITIES[one.kind, one.power][adjacency] > 0 for one in subjects]
    owners = [(one.kind == CLASS, one.feature) for one in subjects]
    weights = []
    for one, is_sensitive, owner in zip(subjects, sensitive, owners, strict=True):
        if not is_sensitive:
            weights.append(Fraction(0))
        elif division == EQUAL:
            of_feature = sum(other == owner and needs for other, needs in zip(owners, sensitive, strict=True))
            weights.append(Fraction(1, of_feature))
        else:
            weights.append(Fraction(1) if division == TWO_TO_ONE else _worth(one, classes, adjacency))
    total = sum(weights, Fraction(0))
    shares = [int(epsilon_micro * weight / total) if total else 0 for weight in weights]
    if any(is_sensitive and share < 1 for is_sensitive, share in zip(sensitive, shares, strict=True)):
        raise InputError("epsilon_invalid", f"ε is too small to be divided among {sum(sensitive)} released vectors")
    return shares


def _worth(subject: Subject, classes: int, adjacency: str) -> Fraction:
    """(w Δ²)^(1/3) of :func:`divide`, rounded to millionths. Sums of numbers have Δ in units of S."""
    delta = SENSITIVITIES[subject.kind, subject.power][adjacency]
    if subject.kind == MOMENT:
        weight, relative = (3.0, delta / SCALE) if subject.power == 1 else (4.5, delta / SCALE)
    else:
        weight, relative = float(subject.size // classes) ** 2, float(delta)
    return Fraction(max(round(MICRO * (weight * relative**2) ** (1 / 3)), 1), MICRO)


def with_noise(vector: Vector, stream: Stream) -> Noisy:
    """Add discrete Laplace noise P(m) ∝ e^{−|m| ε'/Δ} to every entry; entries of sensitivity 0 stay exact.

    Args:
        vector: exact integers, Δ and ε'.
        stream: the randomness; its position advances.
    """
    if not vector.sensitivity:
        return Noisy(vector.subject, vector.values, 0.0)
    rate = Fraction(vector.epsilon_micro, MICRO * vector.sensitivity)
    s, t = rate.numerator, rate.denominator
    values = tuple(value + discrete_laplace(stream, s, t) for value in vector.values)
    return Noisy(vector.subject, values, laplace_variance(rate))


def laplace_variance(rate: Fraction) -> float:
    """Variance of an integer m with P(m) ∝ e^{−|m|·rate}: 2q/(1 − q)², q = e^{−rate}."""
    return 2 * exp(-float(rate)) / expm1(-float(rate)) ** 2


def privacy_loss(first: Sequence[Vector], second: Sequence[Vector]) -> Fraction:
    """Largest |ln ratio| of the probabilities of one release under two data sets: Σ_j ‖f_j(x) − f_j(x')‖₁ ε_j/Δ_j.

    The supremum over all outputs is reached far out on the side of one data set, since the noise of every entry is
    independent discrete Laplace noise. Run by tests and auditors, over enumerated neighbours.

    Args:
        first, second: the exact vectors of the two data sets, from the same terms.

    Raises:
        InputError: ``loss_unbounded``: the data sets differ in an entry that is released without noise.
    """
    total = Fraction(0)
    for one, other in zip(first, second, strict=True):
        distance = sum(abs(a - b) for a, b in zip(one.values, other.values, strict=True))
        if distance and not (one.sensitivity and other.sensitivity):
            raise InputError("loss_unbounded", "an entry without noise tells the two data sets apart")
        if distance:
            total += distance * Fraction(one.epsilon_micro, MICRO * one.sensitivity)
    return total
