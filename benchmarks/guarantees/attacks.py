"""Three attacks by lying devices, through real report bytes, decoding and tally: how far they move the estimates.

    python -m benchmarks.guarantees.attacks [--attacks 100] [--devices 2000] [--epsilon 1] [--mechanisms direct,oue]
                                            [--json]

Lies replace the reports of 1 % or 5 % of the devices. In a *closed* fleet a lie keeps the question of its device, in an
*open* one all choose the same. ``random``: any accepted answer; ``target``: the answer for one count alone; ``gain``:
those that move the estimates of one class, or all, most. The figure is the largest move of an estimate divided by the
bound of ``aggregator.cards.manipulation``, against the same reports without lies (open: the honest reports alone).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.cards.manipulation import LIARS, manipulation
from aggregator.estimates.reports import estimate
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import EncodedFrame
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.tally import count, settle
from benchmarks.shared.harness import Table, arguments
from benchmarks.shared.made_batches import NOW, batch
from protocol import SCALE, mechanisms
from protocol.batches.report import FIXED_BYTES
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical, Numeric
from protocol.mechanisms import BITS, INTEGERS, Mechanism, ValueMechanism
from protocol.schema import Label, build_schema
from simulation.fleet import vector_reports

Rows = NDArray[np.uint8]


KINDS, FLEETS = ("random", "target", "gain"), ("closed", "open")
VALUES = build_schema(
    Label("label", ["a", "b", "c"]), [Categorical("x", ["u", "v", "w"]), Categorical("y", ["0", "1", "2", "3", "4"])]
)
NUMBERS = build_schema(Label("label", ["a", "b"]), [Numeric("x", "0", "1", [0]), Numeric("y", "0", "1", [0])])


class Attack(NamedTuple):
    """One attack: kind of lies, open or closed fleet, share of lying devices."""

    kind: str
    fleet: str
    share: float


def campaign_of(mechanism: str, epsilon: str, answers: int) -> Campaign:
    """Return a campaign with one mechanism, about two features and three classes, or about two numbers."""
    values = issubclass(mechanisms.kind(mechanism), ValueMechanism)
    parameters = CampaignParameters(
        "attacked",
        micro_epsilon(epsilon),
        mechanism,
        answers,
        family="discrete" if values else "gaussian",
        postprocess="simplex",
    )
    return parse_campaign(build_campaign(VALUES if values else NUMBERS, parameters, 1, NOW))


def fleet_rows(campaign: Campaign, devices: int, rng: np.random.Generator) -> Rows:
    """Return honest reports, L bytes each, of random records with uneven shares: (devices·answers, L) uint8."""
    classes = len(campaign.schema.label.classes)
    labels = (rng.random(devices) ** 2 * classes).astype(np.int64)
    sizes = np.array([feature.size for feature in campaign.schema.observed])
    codes = (rng.random((devices, len(sizes))) ** 2 * sizes).astype(np.int64)
    numbers = rng.integers(-SCALE, SCALE + 1, (devices, len(sizes)))
    return vector_reports(campaign, EncodedFrame(codes, numbers), labels, campaign.period_at(NOW), rng)


def lies(mechanism: Mechanism, kind: str, classes: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return answers of ``count`` liars: (count,) or (count, answers) int64."""
    size = mechanism.answers
    if mechanism.layout not in (BITS, INTEGERS):
        if kind == "random":
            return rng.integers(0, size, count)
        ends = [mechanism.estimate(answer) for answer in range(size)] if hasattr(mechanism, "estimate") else None
        if ends is not None:
            return np.full(count, int(np.argmax(ends) if rng.random() < 0.5 else np.argmin(ends)))
        return np.full(count, int(rng.integers(0, size)))
    least, most = mechanism.bounds if mechanism.layout == INTEGERS else (0, 1)
    if kind == "random":
        return rng.integers(least, most + 1, (count, size))
    row = np.zeros(size, np.int64)
    target = int(rng.integers(0, size))
    if kind == "target":
        row[target] = most
    elif rng.random() < 0.5:
        row[target % classes :: classes] = most
    else:
        row[:] = most if rng.random() < 0.5 else least
    return np.tile(row, (count, 1))


def write_answers(campaign: Campaign, rows: Rows, question: int, answers: NDArray[np.int64]) -> None:
    """Write answers in place into M reports of L bytes to one question, (M, L) uint8."""
    mechanism, start = campaign.questions[question].mechanism, len(campaign.layout.prefix) + FIXED_BYTES
    rows[:, start:] = 0
    if mechanism.layout == BITS:
        field = np.packbits(answers.astype(np.uint8), axis=1)
    elif mechanism.layout == INTEGERS:
        field = answers.astype(">i4").view(np.uint8).reshape(len(rows), -1)
    else:
        width = 4 if campaign.layout.kind == INTEGERS else 2
        field = answers.astype(f">u{width}").view(np.uint8).reshape(len(rows), width)
    rows[:, start : start + field.shape[1]] = field


def choose_question(campaign: Campaign, rows: Rows, rng: np.random.Generator) -> None:
    """Give the M reports (M, L) uint8 of an open fleet's liars one question and ids that belong to it, in place."""
    head = len(campaign.layout.prefix)
    chosen = int(rng.integers(0, len(campaign.questions)))
    low, high = campaign.assignment.interval(chosen, campaign.questions[chosen].stratum)
    ids = rng.integers(low, high, len(rows), np.uint64).astype(">u4")
    rows[:, head : head + 4] = ids.view(np.uint8).reshape(-1, 4)
    rows[:, head + 12 : head + 14] = np.frombuffer(chosen.to_bytes(2, "big"), np.uint8)


def answer_all(campaign: Campaign, rows: Rows, answers: Callable[[Mechanism, int], NDArray[np.int64]]) -> None:
    """Replace the answers of the reports (M, L) uint8 in place.

    ``answers`` is called with each question's mechanism and its number of reports, in rising order of the questions.
    """
    head = len(campaign.layout.prefix)
    asked = np.ascontiguousarray(rows[:, head + 12 : head + 14]).view(">u2")[:, 0]
    for question in np.unique(asked).tolist():
        own = np.flatnonzero(asked == question)
        some = rows[own]
        write_answers(campaign, some, question, answers(campaign.questions[question].mechanism, len(own)))
        rows[own] = some


def attacked(campaign: Campaign, rows: Rows, attack: Attack, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return the reports with lies, and the reports without lies for the comparison."""
    devices, classes = len(rows) // campaign.answers, len(campaign.schema.label.classes)
    liars = rng.permutation(devices)[: int(np.ceil(attack.share * devices))]
    lying = (liars[:, None] * campaign.answers + np.arange(campaign.answers)).ravel()
    changed, some = rows.copy(), rows[lying]
    if attack.fleet == "open":
        choose_question(campaign, some, rng)
    answer_all(campaign, some, lambda mechanism, count: lies(mechanism, attack.kind, classes, count, rng))
    changed[lying] = some
    before = rows if attack.fleet == "closed" else np.delete(rows, lying, axis=0)
    return changed, before


def counted(campaign: Campaign, rows: Rows) -> Statistics:
    """Return the statistics that the bytes of the reports give."""
    decoded = decode_batches(batch(campaign, rows), campaign, now=NOW)
    assert not decoded.rejected, decoded.rejected
    return estimate(campaign, count(campaign, settle(decoded.records).records))


def moves(after: Statistics, before: Statistics) -> list[float]:
    """Return the largest move of a share or mean for each question, then of the combined shares of the classes."""
    found, votes, old = [], [], []
    for one, other in zip(after.questions, before.questions, strict=True):
        found.append(float(np.abs(one.estimate / one.n - other.estimate / other.n).max()) if one.n and other.n else 0.0)
        votes += one.classes
        old += other.classes
    if votes and len(votes) == len(old):
        weights = np.array([1 / vote.planned_variance for vote in votes])
        shift = np.array([vote.share for vote in votes]) - np.array([vote.share for vote in old])
        found.append(float(np.abs(weights / weights.sum() @ shift).max()))
    return found


def main() -> None:
    """Attack, compare and print."""
    parser = arguments(__doc__)
    parser.add_argument("--attacks", type=int, default=100, help="attacks of each kind per mechanism")
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--mechanisms", default=",".join(mechanisms.names()))
    options = parser.parse_args()
    about = f"{options.devices} devices, ε = {options.epsilon}, 1 and 2 answers, β = 1 % and 5 %"
    pairs = [(kind, fleet) for fleet in FLEETS for kind in KINDS]
    columns = "mechanism<11" + "".join(f" {kind}_{fleet}>15.3f" for kind, fleet in pairs)
    table = Table(f"Largest move of an estimate over its bound; {about}", columns, as_json=options.json)
    exceeded = total = 0
    for mechanism in options.mechanisms.split(","):
        rng = np.random.default_rng(list(mechanism.encode()))
        campaigns = [campaign_of(mechanism, options.epsilon, answers) for answers in (1, 2)]
        bounds = [manipulation(campaign, devices=options.devices) for campaign in campaigns]
        worst = dict.fromkeys((f"{kind}_{fleet}" for kind, fleet in pairs), 0.0)
        for number in range(options.attacks):
            campaign, limits = campaigns[number % 2], bounds[number % 2]
            honest = fleet_rows(campaign, options.devices, rng)
            for kind in KINDS:
                attack = Attack(kind, FLEETS[number // 2 % 2], LIARS[number // 4 % 2])
                after, before = attacked(campaign, honest, attack, rng)
                moved = moves(counted(campaign, after), counted(campaign, before))
                allowed = [getattr(limit, attack.fleet)[attack.share] for limit in limits]
                part = max(move / most for move, most in zip(moved, allowed, strict=False))
                worst[f"{kind}_{attack.fleet}"] = max(worst[f"{kind}_{attack.fleet}"], part)
                exceeded += part > 1 + 1e-9
                total += 1
        table.add({"mechanism": mechanism, **worst})
    table.end(f"attacks beyond a bound: {exceeded} of {total}")


if __name__ == "__main__":
    main()
