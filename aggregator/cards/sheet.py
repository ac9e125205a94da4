"""The guarantee sheet of a campaign: what a device spends, what shuffling adds, what lies can do, what stays unseen.

Everything follows from the campaign's file and from what the reader of the sheet states: the number of devices, δ, and
whether an anonymous shuffler mixes the reports. Nothing is taken from reports. Source: docs/decisions/0058.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

from aggregator.cards.manipulation import LIARS, Bound, manipulation
from aggregator.cards.set_bits import LYING_SHARE, power
from aggregator.cards.shuffling import Amplified, amplified
from aggregator.publishing.privacy import PrivacySheet, periods, privacy_sheet
from protocol import allowance
from protocol.document import DAY_SECONDS, read_payload
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.mechanisms import BITS, SINGLE
from protocol.schema import refusing

MOST_DEVICES = 10**15
DELTA = 1e-6
"""δ of a sheet whose reader states none."""
_REPORTS = 100_000
"""Number of reports that a sheet speaks of where the number of devices is not known."""
_FALSE_ALARMS = 0.01
_ENOUGH_POWER = 0.95
"""Power of a test from which a sheet does not name what the test misses."""
_GAIN = 0.99
"""A central ε above this part of the local one counts as no gain."""


class Spending(NamedTuple):
    """The most ε that one device spends on a campaign under the default limits of its owner, in millionths.

    Attributes:
        period: of one period; it is what the campaign declares.
        day: in any 24 hours.
        life: in the campaign's life.
        periods: number of periods of the campaign's life.
        answered: at most so many of these periods are answered.
    """

    period: int
    day: int
    life: int
    periods: int
    answered: int


class Central(NamedTuple):
    """Privacy of the shuffled reports of one period, against readers of the shuffled reports alone.

    Attributes:
        obstacles: why no central ε is stated, in words; empty if one is stated.
        devices: number of honest devices whose reports are mixed; None if it is not stated.
        delta: δ.
        local: exact privacy loss of a device in one period.
        epsilon: the smaller one of the numeric bound and the closed form; None with obstacles.
        by_stratum: whether ``epsilon`` is the sum over the strata, each shuffled at δ/r, because that sum is smaller
            than the bound for all answers of a device together.
        bounds: numeric bound and closed forms for all answers of a device together; None with obstacles.
    """

    obstacles: tuple[str, ...]
    devices: int | None
    delta: float
    local: float
    epsilon: float | None = None
    by_stratum: bool = False
    bounds: Amplified | None = None


class GuaranteeSheet(NamedTuple):
    """All guarantees of a campaign.

    Attributes:
        campaign: the campaign.
        privacy: the exact ε of every question.
        spending: what one device spends.
        central: the privacy of shuffled reports.
        lies: how far lies move the estimates; empty for a campaign that has ended.
        unseen: what no test of the reports can see, in sentences.
    """

    campaign: Campaign
    privacy: PrivacySheet
    spending: Spending
    central: Central
    lies: tuple[Bound, ...]
    unseen: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``hearsay guarantee --json`` prints."""
        header, bounds = self.campaign.header, self.central.bounds
        spent = self.spending
        return {
            "campaign": self.campaign.id.hex(),
            "name": header.name,
            "version": header.version,
            "privacy": self.privacy.to_json(),
            "device": {
                "epsilon_per_period": format_micro(spent.period),
                "epsilon_per_day": format_micro(spent.day),
                "epsilon_in_life": format_micro(spent.life),
                "periods": spent.periods,
                "periods_answered": spent.answered,
                "series": None if self.campaign.series is None else self.campaign.series.name,
            },
            "pilots": [one._asdict() for one in self.campaign.pilots],
            "shuffled": {
                "applies": not self.central.obstacles,
                "obstacles": list(self.central.obstacles),
                "devices": self.central.devices,
                "delta": self.central.delta,
                "local_epsilon": self.central.local,
                "epsilon": self.central.epsilon,
                "by_stratum": self.central.by_stratum,
                "numeric": None if bounds is None else bounds.numeric,
                "closed_form": None if bounds is None else bounds.closed_form,
                "closed_form_as_printed": None if bounds is None else bounds.printed,
            },
            "lies": [bound._asdict() for bound in self.lies],
            "unseen": list(self.unseen),
        }


def guarantee_sheet(
    payload: bytes,
    *,
    devices: int | None = None,
    delta: float = DELTA,
    shuffled: bool = False,
    liars: Sequence[float] = LIARS,
) -> GuaranteeSheet:
    """Compute the guarantee sheet of a campaign's payload. Run by analysts, owners and auditors.

    Args:
        payload: of the campaign's file. Its signatures are not checked here.
        devices: number of devices that answer in one period, at most :data:`MOST_DEVICES`; None if it is not known.
            It counts honest devices for the privacy of shuffled reports, and all devices for the reach of lies.
        delta: δ of the shuffled reports.
        shuffled: whether an anonymous shuffler mixes the reports of these devices before anybody reads them.
        liars: shares of lying devices, each between 0 and 1.

    Raises:
        DocumentError: the payload is no valid campaign (:func:`protocol.documents.campaign.parse_campaign`).
        InputError: ``argument_invalid``: ``devices``, ``delta`` or a share is out of its range.
    """
    if (devices is not None and not 1 <= devices <= MOST_DEVICES) or not 0 < delta < 1:
        raise InputError("argument_invalid", "devices are 1 to 10¹⁵, and δ is above 0 and below 1")
    found = parse_campaign(payload)
    privacy = privacy_sheet(read_payload(payload)[0])
    return GuaranteeSheet(
        found,
        privacy,
        spending(found),
        _central(found, privacy, devices, delta, shuffled=shuffled),
        manipulation(found, liars, devices) if found.questions else (),
        _unseen(found, devices),
    )


def spending(found: Campaign, cost_micro: int | None = None) -> Spending:
    """The most that one device or node spends on a campaign under the default limits (``protocol.allowance``).

    Args:
        found: the campaign.
        cost_micro: what one period costs, in millionths of ε; None for the campaign's ε.

    In a series that is one answer, and it is the most that the device spends on the whole series, if all campaigns of
    the series have this ε.
    A campaign whose ε is above the default limit of one period is answered only by devices whose owner allows more. Its
    periods are then counted without limits.
    """
    micro, whole, length = (
        found.epsilon_micro if cost_micro is None else cost_micro,
        periods(found),
        found.time_precision,
    )
    if not micro or not whole:
        return Spending(micro, 0, 0, whole, 0)
    if found.series is not None:
        return Spending(micro, micro, micro, whole, 1)
    begun = min(whole, -(-DAY_SECONDS // length))
    if micro > allowance.PERIOD_MICRO:
        return Spending(micro, begun * micro, whole * micro, whole, whole)
    day = min(begun, allowance.DAY_MICRO // micro)
    answered = min(whole, allowance.LIFETIME_MICRO // micro)
    for pace in allowance.paces(micro, length, [allowance.Limit(allowance.DAY_MICRO, DAY_SECONDS)]):
        answered = min(answered, pace.answers * ceil(whole * length / pace.seconds))
    return Spending(micro, day * micro, answered * micro, whole, answered)


def _central(found: Campaign, privacy: PrivacySheet, devices: int | None, delta: float, *, shuffled: bool) -> Central:
    """The privacy of shuffled reports, or the obstacles."""
    local = float(privacy.total)
    obstacles = []
    if not found.questions:
        obstacles.append("the campaign has ended: there are no reports")
    if refusing(found.schema):
        obstacles.append("whether a device reports depends on its record (unlisted = refuse), which no shuffling hides")
    if not shuffled:
        obstacles.append(
            "whoever collects the files of single devices sees which reports are whose; state --shuffled if a gateway "
            "(hearsay merge) that its readers do not control mixes the reports before they are read"
        )
    if devices is None:
        obstacles.append("the number of devices in a period is not stated; give --devices")
    if obstacles or devices is None:
        return Central(tuple(obstacles), devices, delta, local)
    together = amplified(local, devices, delta)
    epsilon = _smaller(together)
    strata: dict[int, float] = {}
    for question, loss in zip(privacy.questions, privacy.losses, strict=True):
        strata[question.stratum] = max(strata.get(question.stratum, 0.0), float(loss))
    apart = epsilon
    if len(strata) > 1:
        known = {loss: _smaller(amplified(loss, devices, delta / len(strata))) for loss in set(strata.values())}
        apart = sum(known[loss] for loss in strata.values())
    least = min(epsilon, apart)
    if least > _GAIN * local:
        few = f"devices are too few ({devices}) to hide one another at a local ε of {local:.4g} and δ = {delta:g}"
        return Central((few,), devices, delta, local)
    return Central((), devices, delta, local, least, apart < epsilon, together)


def _smaller(found: Amplified) -> float:
    """The smaller one of the numeric bound and the closed form."""
    return found.numeric if found.closed_form is None else min(found.numeric, found.closed_form)


def _unseen(found: Campaign, devices: int | None) -> tuple[str, ...]:
    """What no test of a campaign's reports can see, in sentences; none for a campaign that has ended."""
    if not found.questions:
        return ()
    said = [
        "lies that look like the answers of honest devices with other records: no test can tell these from the truth"
    ]
    layouts = {question.mechanism.layout for question in found.questions}
    names = sorted({question.mechanism.name for question in found.questions if question.mechanism.layout == SINGLE})
    if names:
        said.append(
            f"under {', '.join(names)}: 1 % of the devices that always give one answer; it is a possible answer"
        )
    if BITS in layouts:
        said.append("in rows of bits: liars who set one bit and draw all others by the mechanism's law")
        said += _hardly_seen(found, _REPORTS if devices is None else devices * found.answers)
    said.append(
        "in an open fleet: one machine that sends many reports; ids are free there, so β counts reports. In a "
        "closed fleet each device has one id per question and period"
    )
    if found.series is not None:
        said.append(
            "in an open fleet: devices that answer outside of their share, or more than once in the series. A closed "
            "fleet's ids leave out the devices outside of the share; second answers show where the fleet list is given"
        )
    return tuple(said)


def _hardly_seen(found: Campaign, reports: int) -> list[str]:
    """What the best test of set bits misses in a number of reports: a sentence, or none if it misses little."""
    best = power(found, reports, _FALSE_ALARMS)
    if best is None or best.found >= _ENOUGH_POWER:
        return []
    return [
        (
            f"in rows of bits: liars who set one bit only and send {100 * LYING_SHARE:g} % of {reports} reports, "
            f"in {1 - best.found:.0%} of such campaigns or more. Honest answers have one set bit with "
            f"probability {best.chance:.2g}; no test of set bits with {_FALSE_ALARMS:.0%} of false alarms does better"
        )
    ]
