"""How often alarms ring, in honest campaigns and with 1 % of liars, through real report bytes, decoding and tally.

    python -m benchmarks.guarantees.alarms [--honest 1000] [--lying 100] [--reports 100000] [--settings 0,1]
        [--kinds 'one bit,choose'] [--json]

Records have two classes and uneven shares. ``one bit``: liars answer the question of their id and set one bit only.
``choose``: in an open fleet they choose one question, and answer it honestly. ``both``: they do both. ``most`` is the
power of the best test of set bits with 1 % of false alarms against ``one bit`` (``aggregator.cards.set_bits``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.cards.alarms import Alarms, alarms
from aggregator.cards.set_bits import LYING_SHARE, power
from aggregator.estimates.reports import estimate
from aggregator.models.encoding import EncodedFrame
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import draw
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.profile import ProfileCounter
from aggregator.reports.tally.tally import count, settle
from benchmarks.guarantees.attacks import answer_all, choose_question
from benchmarks.shared.harness import Table, arguments
from benchmarks.shared.made_batches import NOW, batch
from protocol import SCALE
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical
from protocol.mechanisms import BITS, Mechanism
from protocol.schema import Label, build_schema
from simulation.fleet import vector_reports

Rows = NDArray[np.uint8]


LIARS = LYING_SHARE
FALSE_ALARMS = 0.01
DAY = 86_400
MUSHROOM = (6, 4, 10, 2, 9, 4, 3, 2, 12, 2, 5, 4, 4, 9, 9, 2, 4, 3, 5, 9, 6, 7)
"""Numbers of values of the features of the mushroom records."""


KINDS = ("one bit", "choose", "both")
COLUMNS = (
    "setting<26 reports>8 periods>9 answers>9 honest>8 false_alarms>14 one_bit>9.1% most>8.1% choose>8.1% both>8.1%"
)


class Setting(NamedTuple):
    """One kind of campaign. ``part`` is its share of the number of reports in ``--reports``."""

    mechanism: str
    epsilon: str
    sizes: tuple[int, ...]
    periods: int = 5
    answers: int = 1
    part: float = 1.0

    @property
    def words(self) -> str:
        """The setting in words."""
        return f"{self.mechanism} ε={self.epsilon} {len(self.sizes)} features"


SETTINGS = (
    Setting("oue", "1", MUSHROOM),
    Setting("oue", "4", MUSHROOM),
    Setting("oue", "1", (4, 4, 4)),
    Setting("sue", "1", (4, 4, 4)),
    Setting("direct", "1", (4, 4, 4)),
    Setting("she", "1", (4, 4, 4)),
    Setting("oue", "1", (4, 4, 4), periods=1),
    Setting("oue", "1", MUSHROOM, periods=31),
    Setting("direct", "1", MUSHROOM, periods=31, answers=3),
    Setting("oue", "1", (4, 4, 4), periods=1, answers=3),
    Setting("direct", "1", (4, 4, 4), periods=1, part=0.02),
    Setting("oue", "4", MUSHROOM, periods=31, part=0.02),
)


def campaign_of(setting: Setting) -> Campaign:
    """Return a campaign of this setting."""
    return parse_campaign(payload_of(setting))


def payload_of(setting: Setting) -> bytes:
    """Return the payload of a campaign of this setting."""
    features = [Categorical(f"f{i}", [f"v{j}" for j in range(size)]) for i, size in enumerate(setting.sizes)]
    schema = build_schema(Label("label", ["a", "b"]), features)
    parameters = CampaignParameters(
        "alarms",
        micro_epsilon(setting.epsilon),
        setting.mechanism,
        setting.answers,
        postprocess="simplex",
        lifetime_seconds=60 * DAY,
    )
    return build_campaign(schema, parameters, 1, NOW - 40 * DAY)


def honest_rows(campaign: Campaign, reports: int, rng: np.random.Generator, periods: int = 5) -> Rows:
    """Return about ``reports`` reports of L bytes of honest devices in the last periods: (reports, L) uint8."""
    sizes = np.array([feature.size for feature in campaign.schema.observed])
    now = campaign.period_at(NOW)
    parts = []
    for period in range(now - periods + 1, now + 1):
        own = reports // (periods * campaign.answers)
        labels = (rng.random(own) < 0.4).astype(np.int64)
        codes = (rng.random((own, len(sizes))) ** (1 + labels[:, None]) * sizes).astype(np.int64)
        numbers = rng.integers(-SCALE, SCALE + 1, (own, len(sizes)))
        parts.append(vector_reports(campaign, EncodedFrame(codes, numbers), labels, period, rng))
    return np.concatenate(parts)


def lie(campaign: Campaign, rows: Rows, kind: str, rng: np.random.Generator) -> None:
    """Replace 1 % of the reports by lies, in place. The module's docstring explains the kinds."""
    liars = rng.permutation(len(rows))[: int(len(rows) * LIARS)]
    some = rows[liars]
    if kind != "one bit":
        choose_question(campaign, some, rng)

    def answers(mechanism: Mechanism, count: int) -> NDArray[np.int64]:
        values = np.full(count, int(rng.integers(0, mechanism.size)))
        if kind == "choose":
            return draw(mechanism, values, rng)
        return np.eye(mechanism.size, dtype=np.int64)[values]

    answer_all(campaign, some, answers)
    rows[liars] = some


def alarms_of(campaign: Campaign, rows: Rows) -> Alarms:
    """Return the alarms that the bytes of these reports cause."""
    decoded = decode_batches(batch(campaign, rows), campaign, now=NOW)
    assert not decoded.rejected, decoded.rejected
    records = settle(decoded.records).records
    counter = ProfileCounter(campaign)
    counter.add(records)
    tally = count(campaign, records)
    return alarms(campaign, tally, estimate(campaign, tally), counter.profile())


def main() -> None:
    """Count alarms and print."""
    parser = arguments(__doc__)
    parser.add_argument("--honest", type=int, default=1000, help="honest campaigns, over all settings")
    parser.add_argument("--lying", type=int, default=100, help="campaigns per setting and kind of lies")
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--settings", default=",".join(map(str, range(len(SETTINGS)))), help="indices of settings")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of lies")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    settings = [SETTINGS[int(index)] for index in options.settings.split(",")]
    rng = np.random.default_rng(11)
    table = Table(f"1 % liars; alarms in shares of {options.lying} campaigns", COLUMNS, as_json=options.json)
    for place, setting in enumerate(settings):
        campaign, reports = campaign_of(setting), int(options.reports * setting.part)
        many = len(range(place, options.honest, len(settings)))
        made = (honest_rows(campaign, reports, rng, setting.periods) for _ in range(many))
        raised = sum(bool(alarms_of(campaign, rows).raised) for rows in made)
        row: dict[str, object] = {"setting": setting.words, "reports": reports, "periods": setting.periods}
        row |= {"answers": setting.answers, "honest": many, "false_alarms": raised}
        best = power(campaign, reports, FALSE_ALARMS)
        if best is not None:
            row["most"] = best.found
        for kind in kinds if setting.part == 1 and options.lying else ():
            if kind != "choose" and campaign.layout.kind != BITS:
                continue
            found = 0
            for _ in range(options.lying):
                lying = honest_rows(campaign, reports, rng, setting.periods)
                lie(campaign, lying, kind, rng)
                found += bool(alarms_of(campaign, lying).raised)
            row[kind.replace(" ", "_")] = found / options.lying
        table.add(row)
    false, of = (sum(row[name] for row in table.rows) for name in ("false_alarms", "honest"))
    table.end(f"false alarms: {false} of {of} honest campaigns ({false / max(of, 1):.2%})")


if __name__ == "__main__":
    main()
