"""Devices with several answers: the effect of repeated answers on the variance of an estimate.

Device i answers a stratum (questions of which it is asked one in each period) T_i times about one record. That adds
n²s²·c to a variance: n answers, s² the variance of true values, c = ΣT_i²/(ΣT_i)². Source: docs/math.md, section 1.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.reports.tally.tally import Tally
from aggregator.reports.tally.turnout import Turnout
from protocol.documents.campaign import Campaign

ONCE, KNOWN, BOUND = "once", "known", "bound"

DEVICES = "these devices, each weighted by its answers"
POPULATION = "the population that these devices are drawn from"
HOW_KNOWN = {
    ONCE: "every device answered once",
    KNOWN: "how often each device answered is known from the fleet list",
    BOUND: "how often a device answered is not known: at most as often as the counts of the periods allow",
}
"""Basis → what the population's intervals assume, in words. Every basis also assumes that records do not change."""


class Recurrence(NamedTuple):
    """How often the same devices answered, or an upper bound.

    ``basis``: :data:`ONCE` (one period, a series, or several periods treated as one), :data:`KNOWN` or :data:`BOUND`.
    ``answers``: per stratum, the number N of answers to its questions. ``concentration``: per stratum, the
    concentration c of its answers or an upper bound of c; 0 without answers. ``kept``: of a campaign with memory
    ρ = ΣT²/ΣT or an upper bound, T the number of reports of one kept answer; None for other campaigns.
    """

    basis: str
    answers: tuple[int, ...]
    concentration: tuple[float, ...]
    kept: float | None = None

    @property
    def repeats(self) -> float:
        """How many reports of a campaign with memory count as one device: m = N·c, at least 1; 1 for other campaigns.

        A device of such a campaign answers one question in all periods.
        """
        return 1.0 if self.kept is None else max(1.0, self.answers[0] * self.concentration[0])

    @property
    def left(self) -> tuple[float, float]:
        """The parts of fresh noise, 1/m, and of kept noise, ρ/m, in the mean of the m reports of a device."""
        return 1 / self.repeats, (self.kept or 1.0) / self.repeats

    def devices(self, n: int) -> int:
        """Return the number of devices that count for ``n`` reports: n, or n/m (:attr:`repeats`), rounded."""
        return n if self.repeats == 1 else round(n / self.repeats) or min(1, n)

    @property
    def assumption(self) -> str:
        """The assumption about repeated answers behind the population's intervals, as a sentence."""
        changing = "" if self.kept is None else ", or the numbers are means over the periods"
        return f"records do not change{changing}; {HOW_KNOWN[self.basis]}"

    def to_json(self) -> dict[str, object]:
        """Return who each of the two intervals is about, and the assumptions, for programs.

        ``answers`` counts the answers to every stratum. ``effective_devices`` is the number of devices of equally many
        answers that have the same concentration; 0 without answers.
        """
        return {
            "devices": DEVICES,
            "population": POPULATION,
            "basis": self.basis,
            "assumes": self.assumption,
            "answers": list(self.answers),
            "effective_devices": [1 / share if share else 0 for share in self.concentration],
        }


def once(campaign: Campaign, tally: Tally) -> Recurrence:
    """Return the recurrence if every answer to a stratum is from another device, as in one period or a series."""
    answers = answers_by_stratum(campaign, tally)
    each = tuple(1 / number if number else 0.0 for number in answers)
    return Recurrence(ONCE, answers, each, None if campaign.memory is None else 1.0)


def at_most(campaign: Campaign, tally: Tally, turnout: Turnout) -> Recurrence:
    """Return the largest recurrence that ``turnout``, the number N_t of devices in each period t, allows.

        ΣT_i² ≤ Σ_{s,t} min(N_s, N_t) = Σ_k (2k − 1)·N_(k)      N_(k): the N_t in falling order

    For one period and for a campaign of a series it is :func:`once`, which is exact.
    """
    if campaign.series is not None or len(np.unique(turnout.period)) <= 1:
        return once(campaign, tally)
    bounds = []
    for stratum in range(campaign.answers):
        found = turnout.of_stratum(stratum)
        bounds.append(_most_pairs(found) / float(found.sum()) ** 2 if len(found) else 0.0)
    return Recurrence(BOUND, answers_by_stratum(campaign, tally), tuple(bounds), _kept(campaign, turnout))


def _most_pairs(answers: Integers) -> float:
    """Return the largest ΣT² of devices that gave ``answers``, (P,) int64, in P periods: Σ_k (2k − 1)·N_(k)."""
    falling = np.sort(answers)[::-1].astype(np.float64)
    return float((falling * (2 * np.arange(1, len(falling) + 1) - 1)).sum())


def _kept(campaign: Campaign, turnout: Turnout) -> float | None:
    """Return the largest ρ that ``turnout`` allows (:attr:`Recurrence.kept`): ΣT² is bounded stretch by stretch."""
    memory, answers = campaign.memory, turnout.answers
    if memory is None:
        return None
    stretches = np.array([memory.number(period) for period in turnout.period.tolist()], np.int64)
    pairs = sum(_most_pairs(answers[stretches == one]) for one in np.unique(stretches).tolist())
    return pairs / float(answers.sum()) if len(answers) else 1.0


def known(campaign: Campaign, tally: Tally, squares: tuple[int, ...], turnout: Turnout | None = None) -> Recurrence:
    """Return the exact recurrence; ``squares``: for every stratum ΣT_i², computed with the fleet's secrets.

    Of a campaign with memory ρ is an upper bound: m, or that of ``turnout`` if it is smaller.
    """
    answers = answers_by_stratum(campaign, tally)
    pairs = zip(squares, answers, strict=True)
    each = tuple(square / number**2 if number else 0.0 for square, number in pairs)
    found = Recurrence(KNOWN, answers, each, None if campaign.memory is None else inf)
    if found.kept is None:
        return found
    most = None if turnout is None else _kept(campaign, turnout)
    return found._replace(kept=min(most or inf, found.repeats))


def answers_by_stratum(campaign: Campaign, tally: Tally) -> tuple[int, ...]:
    """Return for every stratum the number N of answers to all of its questions, from the counts in ``tally``."""
    found = [0] * campaign.answers
    for question, n in zip(campaign.questions, tally.n, strict=True):
        found[question.stratum] += n
    return tuple(found)
