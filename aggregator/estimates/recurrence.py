"""Devices with several answers: the effect of repeated answers on the variance of an estimate.

A stratum is a group of questions of which a device is asked one in each period. Device i answers a stratum in T_i
periods, and its record stays the same. The T_i answers are about one person, not about T_i people. With N = ΣT_i
answers to the stratum, n of them to one question, π = n/N, φ the variance of one answer's noise and s² the variance of
the true values between devices (f(1 − f) for a share f), the variance of an estimate n·f is

    for the devices that answered, weighted by answers  V = nφ + n(1 − π)s²
    for the population of the devices                   V + n² s² c,   c = ΣT_i²/(ΣT_i)²

The answers to one question are a sample of n among N without replacement. c is the *concentration* of the answers.
T_i = 1 gives c = 1/N and the variance n(φ + s²) of n different people.

Ids do not link the reports of one device, so T_i is unknown without the fleet's secrets. The number N_t of devices in
each period t gives an upper bound, because the periods s and t share at most min(N_s, N_t) devices. With N_(k) the
numbers N_t in falling order:

    ΣT_i² = Σ_{s,t} |devices of both s and t| ≤ Σ_{s,t} min(N_s, N_t) = Σ_k (2k − 1)·N_(k)

Source: docs/math.md, section 1; decision 40.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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

    Attributes:
        basis: :data:`ONCE` (one period, a series, or several periods treated as one), :data:`KNOWN` or :data:`BOUND`.
        answers: per stratum, the number N of answers to its questions.
        concentration: per stratum, c = ΣT²/(ΣT)² over its devices, with T the number of answers of one device, or an
            upper bound of c; 0 for a stratum without answers.
    """

    basis: str
    answers: tuple[int, ...]
    concentration: tuple[float, ...]

    @property
    def assumption(self) -> str:
        """The assumption about repeated answers behind the population's intervals, as a sentence."""
        return f"records do not change; {HOW_KNOWN[self.basis]}"

    def to_json(self) -> dict[str, object]:
        """Return who each of the two intervals is about, and the assumptions, for programs.

        ``answers`` has the number of answers to every stratum. ``effective_devices`` has the number of devices that
        would have the same concentration if each gave equally many answers; 0 without answers.
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
    """Return the recurrence under the assumption that every answer to a stratum is from another device.

    This is right for reports of one period, and for a campaign of a series.
    """
    answers = answers_by_stratum(campaign, tally)
    return Recurrence(ONCE, answers, tuple(1 / number if number else 0.0 for number in answers))


def at_most(campaign: Campaign, tally: Tally, turnout: Turnout) -> Recurrence:
    """Return the largest recurrence that ``turnout``, the number of devices in each period, allows.

    Return :func:`once`, which is exact, for one period, and for a campaign of a series, in which an honest device
    answers once.
    """
    if campaign.series is not None or len(np.unique(turnout.period)) <= 1:
        return once(campaign, tally)
    bounds = []
    for stratum in range(campaign.answers):
        falling = np.sort(turnout.of_stratum(stratum))[::-1].astype(np.float64)
        pairs = float((falling * (2 * np.arange(1, len(falling) + 1) - 1)).sum())
        bounds.append(pairs / float(falling.sum()) ** 2 if len(falling) else 0.0)
    return Recurrence(BOUND, answers_by_stratum(campaign, tally), tuple(bounds))


def known(campaign: Campaign, tally: Tally, squares: tuple[int, ...]) -> Recurrence:
    """Return the exact recurrence.

    ``tally``: the counts of the answers. ``squares``: for every stratum ΣT² over its devices, with T the number of
    answers of one device, computed with the fleet's secrets.
    """
    answers = answers_by_stratum(campaign, tally)
    pairs = zip(squares, answers, strict=True)
    return Recurrence(KNOWN, answers, tuple(square / number**2 if number else 0.0 for square, number in pairs))


def answers_by_stratum(campaign: Campaign, tally: Tally) -> tuple[int, ...]:
    """Return for every stratum the number N of answers to all of its questions, from the counts in ``tally``."""
    found = [0] * campaign.answers
    for question, n in zip(campaign.questions, tally.n, strict=True):
        found[question.stratum] += n
    return tuple(found)
