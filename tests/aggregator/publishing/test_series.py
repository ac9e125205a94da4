"""Campaigns of a series: shares that divide the devices, one begin for all, ids of members alone, one answer each."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support import stores
from support.examples import examples
from support.failures import reason
from support.publisher import DAY, NOW, Publisher, small_schema
from support.reports import batch, digest, opened, report

from aggregator.cards.guarantee import guarantee_sheet, spending
from aggregator.estimates.joining import join
from aggregator.operations.campaigns import make_campaign, make_evaluation
from aggregator.operations.report_store import create_store
from aggregator.operations.status import status
from aggregator.publishing.privacy import most_answered, periods
from aggregator.publishing.series import SeriesShare, series_share
from aggregator.reports.fleet import FleetIds, IdReader, Roster, fleet_ids, members, write_ids
from aggregator.reports.intake.enrolment import enrolled_from_rosters
from protocol.documents.campaign import WHOLE, Series
from protocol.documents.envelope import read_envelope


def make(work, name, share=None, series="pilot", now=NOW, **options):
    options = {"epsilon": 1, "mechanism": "direct", **options}
    return make_campaign(work, small_schema(), name=name, series=series, share=share, now=now, **options)


@examples(50)
@given(st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=2, max_size=5, unique=True))
def test_shares_with_a_common_end_have_no_device_in_common_and_leave_none_out(ends):
    found = []
    for low, high in pairwise(sorted(ends)):
        share = f"{low}:{high}"
        if int(low * WHOLE) == int(high * WHOLE):
            assert reason(series_share, "s", share) == "series_invalid"
            return
        found.append(series_share("s", share))
    for one, other in pairwise(found):
        assert one.high == other.low
    assert [found[0].low, found[-1].high] == [int(min(ends) * WHOLE), int(max(ends) * WHOLE)]
    assert abs(Fraction(found[0].low, WHOLE) - min(ends)) < Fraction(1, WHOLE)


def test_what_a_share_may_be():
    assert series_share("s", None) == SeriesShare("s", 0, WHOLE)
    assert series_share(None, None) is None
    assert series_share("s", "0.250:1/2") == SeriesShare("s", WHOLE // 4, WHOLE // 2)
    for name, share in (
        (None, "0:1"), ("", "0:1"), ("a\n", "0:1"), ("\u3164", "0:1"), ("x" * 1025, None), ("s", "0"), ("s", ":1"),
        ("s", "0:1:1"), ("s", "0:1.5"), ("s", "-0.1:1"), ("s", "0.5:0.5"), ("s", "1:0"), ("s", "0:1e-1"),
        ("s", "0:1/0"), ("s", "0: 1"), ("s", "0:٠.٥"), ("s", "0:0.0000000001"), ("s", "0:" + "9" * 30),
        ("s", "0:1/3/3"),
    ):  # fmt: skip
        assert reason(series_share, name, share) == "series_invalid", (name, share)


def test_all_campaigns_of_a_series_state_its_first_begin_and_those_that_ask_the_same_devices_are_named(work):
    first = make(work, "one", "0:0.25")
    later = make(work, "two", "0.25:0.5", now=NOW + 5 * DAY)
    other = make(work, "other", series="another", now=NOW + 7 * DAY)
    assert first.campaign.series == Series("pilot", NOW, 0, WHOLE // 4)
    assert later.campaign.series == Series("pilot", NOW, WHOLE // 4, WHOLE // 2)
    assert other.campaign.series == Series("another", NOW + 7 * DAY)
    assert first.campaign.header.crit == ("series",)
    assert first.warnings == later.warnings == other.warnings == ()
    (warning,) = make(work, "three", "0.2:0.3").warnings
    assert "'one', 'two'" in warning
    again = make(work, "one", "0:0.1")  # a new version takes the place of the old one
    assert (again.warnings, again.campaign.header.version) == ((), 2)
    assert again.campaign.series == Series("pilot", NOW, 0, int(WHOLE / 10))
    (warning,) = make(work, "three", "0.05:0.07", now=NOW + DAY).warnings
    assert "'one'" in warning
    assert make(work, "four", now=NOW + 60 * DAY).warnings == ()  # these have expired


def test_a_campaign_of_a_series_gives_one_answer_and_costs_its_epsilon_once(work):
    assert reason(make, work, "x", answers="all") == "series_invalid"
    made = make(work, "one", "0:0.01", epsilon=2, period="1h")
    assert made.warnings == ()  # no period is skipped: only one is answered
    assert (periods(made.campaign), most_answered(made.campaign)) == (30 * 24, 1)
    spent = spending(made.campaign)
    assert (spent.period, spent.day, spent.life, spent.answered) == (2_000_000, 2_000_000, 2_000_000, 1)
    sheet = guarantee_sheet(read_envelope(made.raw, "campaign").payload)
    assert sheet.to_json()["device"]["series"] == "pilot"
    assert "outside of their share" in " ".join(sheet.unseen)
    assert "share" not in " ".join(guarantee_sheet(Publisher().campaign_payload()).unseen)


def test_an_evaluation_is_of_a_series(work):
    payload = read_envelope(Publisher().model(), "model").payload
    signed = work.publish("model", "mushrooms", NOW, lambda *_: payload)
    begun = make(work, "one", "0:0.5").campaign.series
    made = make_evaluation(work, signed, epsilon=1, series="pilot", share="0.5:1", now=NOW + DAY)
    assert made.campaign.series == begun._replace(low=WHOLE // 2, high=WHOLE)
    assert made.warnings == ()
    assert reason(make_evaluation, work, signed, epsilon=1, share="0.5:1", now=NOW) == "series_invalid"


FLEET = Roster("f", tuple(map(str, range(400))), b"".join(digest("secret", device) for device in range(400)))


def asked(low=0, high=WHOLE, **options):
    return opened(Publisher().campaign(series=Series("pilot", NOW, low, high), **options))


def test_only_members_have_ids(tmp_path):
    quarter, rest = asked(high=WHOLE // 4), asked(low=WHOLE // 4, version=2)
    inside = [device for device in range(400) if quarter.series.has(digest("secret", device))]
    assert 60 <= len(inside) <= 140  # 100 ± 40: missed with a chance below 1e-5 by another hash
    assert members(FLEET.secrets, quarter) == b"".join(digest("secret", device) for device in inside)
    assert len(members(FLEET.secrets, rest)) == 32 * (400 - len(inside))
    assert members(FLEET.secrets, opened(Publisher().campaign())) == FLEET.secrets
    wanted = range(quarter.period_at(NOW), quarter.period_at(NOW) + 2)
    with (tmp_path / "ids.hsi").open("wb") as sink:
        write_ids(sink, quarter, wanted, fleet_ids([FLEET], quarter, wanted), lambda _: None)
    reader = IdReader(tmp_path / "ids.hsi")
    assert reader.about.devices == len(inside)
    assert [len(ids) for ids in FleetIds([FLEET], quarter).known(wanted[0])] == [len(inside)]
    for period, (ids,) in fleet_ids([FLEET], quarter, wanted):
        assert np.array_equal(np.sort(reader.known_as(period, 0, ids)), reader.known(period)[0])


def test_a_closed_fleets_store_refuses_devices_outside_of_the_share(tmp_path):
    raw = Publisher().campaign(series=Series("pilot", NOW, 0, WHOLE // 4))
    campaign = opened(raw)
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, device) for device in range(100)]))
    store = create_store(tmp_path / "store", raw)
    summary = store.ingest([tmp_path / "a.hsr"], enrolled=enrolled_from_rosters(campaign, [FLEET]), now=NOW + DAY)
    inside = sum(campaign.series.has(digest("secret", device)) for device in range(100))
    assert 0 < summary.accepted == inside < 100
    assert summary.rejected == {"id_not_enrolled": 100 - inside}


def test_every_answer_of_a_series_is_of_another_device(tmp_path):
    found = {}
    for name, series in (("series", Series("pilot", NOW)), ("none", None)):
        raw = Publisher().campaign(series=series)
        campaign = opened(raw)
        first = campaign.period_at(NOW)
        records = [report(campaign, n, n, period=first + n % 3) for n in range(300)]
        store = stores.stored(tmp_path / name, raw, batch(campaign, records), now=NOW + 9 * DAY)
        found[name] = status(store), store.statistics()
    alone, once = found["none"], found["series"]
    assert (once[0].devices_at_least, once[0].devices_at_most) == (300, 300)
    assert (alone[0].devices_at_least, alone[0].devices_at_most) == (100, 300)
    assert (once[1].source.recurrence.basis, alone[1].source.recurrence.basis) == ("once", "bound")
    assert once[1].source.recurrence.concentration == (1 / 300,)
    assert (once[1].source.card()["series"], "series" in alone[1].source.card()) == ("pilot", False)
    assert alone[1].source.recurrence.concentration == (1 / 100,)


def test_campaigns_of_one_series_are_joined_as_disjoint(tmp_path):
    found = {}
    for name, series in (("series", "pilot"), ("other", None)):
        parts = []
        for number, (low, high) in enumerate(((0, WHOLE // 2), (WHOLE // 2, WHOLE))):
            of = Series("pilot", NOW, low, high) if series or number else None
            raw = Publisher().campaign(name=f"c{number}", series=of)
            records = [report(opened(raw), n, n) for n in range(200)]
            store = stores.stored(tmp_path / f"{name}{number}", raw, batch(opened(raw), records), now=NOW + DAY)
            parts.append(store.statistics())
        found[name] = [join(parts, one_population=True, disjoint=disjoint).statistics for disjoint in (False, True)]
    for name, (linked, apart) in found.items():
        same = [np.array_equal(a.high, b.high) for a, b in zip(linked.questions, apart.questions, strict=True)]
        assert all(same) == (name == "series")


def test_a_device_that_answers_twice_shows_where_the_fleet_list_is_given(tmp_path):
    raw = Publisher().campaign(series=Series("pilot", NOW))
    campaign = opened(raw)
    first = campaign.period_at(NOW)
    records = [report(campaign, n, n, period=first) for n in range(100)] + [report(campaign, 3, period=first + 1)]
    store = stores.stored(tmp_path, raw, batch(campaign, records), now=NOW + 9 * DAY)
    seen = store.statistics(rosters=[FLEET]).source.recurrence.to_json()
    assert seen["answers"] == [101]
    assert seen["effective_devices"][0] < 100
