"""Devices that answer again: what their repeated answers say of the population they are drawn from.

Device i answers a stratum in T_i periods and its record stays the same. Its answers are T_i looks at one
person, and not T_i people. With N = ΣT_i answers to the stratum, n of them to one question, π = n/N, φ the
variance of one answer's noise and s² that of the true values (f(1 − f) of a share f), an estimate n·f has

    of these devices, each weighted by its answers    V = nφ + n(1 − π)s²
    of the population that they are drawn from        V + n² s² c,   c = ΣT_i²/(ΣT_i)²

(which answers a question gets is a choice of n among N without putting back; T_i = 1 gives c = 1/N and
n(φ + s²), as of n people). Ids tell no device from another, so without the fleet's secrets only a bound is
known, from the devices N_t that answered in each period: two periods share min(N_s, N_t) devices at most,

    ΣT_i² = Σ_{s,t} |devices of s and of t| ≤ Σ_{s,t} min(N_s, N_t) = Σ_k (2k − 1)·N_(k),   N_(1) ≥ N_(2) ≥ …

Source: docs/math.md, section 1; docs/decisions/0040.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from aggregator.tally.tally import Tally
    from aggregator.tally.turnout import Turnout
    from protocol.documents.campaign import Campaign

ONCE, KNOWN, BOUND = "once", "known", "bound"

DEVICES = "these devices, each weighted by its answers"
POPULATION = "the population that these devices are drawn from"
HOW_KNOWN = {
    ONCE: "every device answered once",
    KNOWN: "how often each device answered is known from the fleet list",
    BOUND: "how often a device answered is not known: at most as often as the counts of the periods allow",
}
"""What the second population's intervals rest on, in words. All of them take a device's record as fixed."""


class Recurrence(NamedTuple):
    """How often the same devices answered.

    Attributes:
        basis: :data:`ONCE` (one period, or taken for it), :data:`KNOWN` or :data:`BOUND`.
        answers: per stratum N, the answers to its questions.
        concentration: per stratum c = ΣT²/(ΣT)², or its upper bound; 0 where nobody answered.
    """

    basis: str
    answers: tuple[int, ...]
    concentration: tuple[float, ...]

    @property
    def assumption(self) -> str:
        """What the intervals of the population rest on, in words."""
        return f"records do not change; {HOW_KNOWN[self.basis]}"

    def to_json(self) -> dict[str, object]:
        """Which populations there are, and what is known of them, for programs."""
        return {
            "devices": DEVICES,
            "population": POPULATION,
            "basis": self.basis,
            "assumes": self.assumption,
            "answers": list(self.answers),
            "effective_devices": [1 / share if share else 0 for share in self.concentration],
        }


def once(campaign: Campaign, tally: Tally) -> Recurrence:
    """As if every answer to a stratum came of another device: right for one period."""
    answers = answers_by_stratum(campaign, tally)
    return Recurrence(ONCE, answers, tuple(1 / number if number else 0.0 for number in answers))


def at_most(campaign: Campaign, tally: Tally, turnout: Turnout) -> Recurrence:
    """The upper bound from the devices of each period; exact where there is one period."""
    if len(np.unique(turnout.period)) <= 1:
        return once(campaign, tally)
    bounds = []
    for stratum in range(campaign.answers):
        falling = np.sort(turnout.of_stratum(stratum))[::-1].astype(np.float64)
        pairs = float((falling * (2 * np.arange(1, len(falling) + 1) - 1)).sum())
        bounds.append(pairs / float(falling.sum()) ** 2 if len(falling) else 0.0)
    return Recurrence(BOUND, answers_by_stratum(campaign, tally), tuple(bounds))


def known(campaign: Campaign, tally: Tally, squares: tuple[int, ...]) -> Recurrence:
    """From ΣT² of every stratum, as the fleet's secrets tell."""
    answers = answers_by_stratum(campaign, tally)
    pairs = zip(squares, answers, strict=True)
    return Recurrence(KNOWN, answers, tuple(square / number**2 if number else 0.0 for square, number in pairs))


def answers_by_stratum(campaign: Campaign, tally: Tally) -> tuple[int, ...]:
    """N of every stratum."""
    found = [0] * campaign.answers
    for question, n in zip(campaign.questions, tally.n, strict=True):
        found[question.stratum] += n
    return tuple(found)
