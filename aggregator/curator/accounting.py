"""What a curator's fit costs: the division of ε among exact vectors, and the sum.

Vectors (:mod:`protocol.sums.vectors`) of one fit compose sequentially: their ε add up. Within a vector the classes are
disjoint parts of the records, which the sensitivity Δ (:data:`protocol.sums.adjacency.SENSITIVITIES`) takes into
account: a changed label touches two classes.

Source: Bun, Steinke (TCC 2016), proposition 1.4, for ρ = ε²/2; docs/math.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from aggregator.curator.terms import EQUAL, TWO_TO_ONE
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.questions import CLASS, MOMENT, Subject
from protocol.sums.adjacency import SENSITIVITIES
from protocol.sums.vectors import Vector


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
