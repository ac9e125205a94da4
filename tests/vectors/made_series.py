"""Vectors of campaigns of a series: which are refused, and what a device answers in one."""

import hmac
from functools import partial
from hashlib import sha256

from support.publisher import DAY, NOW

from protocol import canonical
from protocol.documents.campaign import WHOLE, Series
from protocol.documents.payload import MAX_TIME
from vectors.made_devices import add_device
from vectors.makers import END, PUBLISHER, Collection, campaign, changed

INVALID = "invalid_campaign"
SERIES = Series("pilot", NOW - 1, 0, WHOLE // 4)
MAP = SERIES.to_dict()
BODY = canonical.unpack(PUBLISHER.campaign_payload(series=SERIES))
signed = partial(campaign, BODY)

cases = Collection()

for name, changes in {
    "share": {},
    "last_device": {"from": WHOLE - 1, "to": WHOLE},
    "whole": {"to": WHOLE},
    "begins_with_the_campaign": {"begins": NOW},
    "begins_in_1970": {"begins": 0},
    "name_of_1024_bytes": {"name": "x" * 1024},
}.items():
    cases.add(name, signed(series={**MAP, **changes}))
cases.add("named_twice_in_crit", signed(crit=["series", "series"]))
ended = canonical.unpack(PUBLISHER.campaign_payload(version=2))
cases.add("its_end_is_of_no_series", campaign(ended, **END), before=(("campaign", signed(), NOW),))

for name, changes in {
    "from_negative": {"from": -1},
    "from_is_to": {"from": 5, "to": 5},
    "from_above_to": {"from": 6, "to": 5},
    "to_above_2_to_the_32": {"to": WHOLE + 1},
    "from_is_true": {"from": True},
    "to_is_text": {"to": "5"},
    "name_empty": {"name": ""},
    "name_with_a_line_break": {"name": "a\n"},
    "name_of_1025_bytes": {"name": "x" * 1025},
    "name_is_a_number": {"name": 1},
    "begins_after_the_campaign": {"begins": NOW + 1},
    "begins_negative": {"begins": -1},
    "begins_beyond_all_times": {"begins": MAX_TIME + 1},
    "unknown_key": {"zz": 1},
    **{f"without_{key}": {key: ...} for key in MAP},
}.items():
    cases.add(name, signed(series=changed(MAP, **changes)), reason=INVALID)
for name, fields in {
    "key_is_not_in_crit": {"crit": []},
    "crit_without_the_key": {"series": ...},
    "series_is_nil": {"series": None},
    "series_is_text": {"series": "pilot"},
    "end_of_a_series": {"version": 2, **END},
}.items():
    cases.add(name, signed(**fields), reason=INVALID)
three = canonical.unpack(PUBLISHER.campaign_payload(answers=3))
cases.add("three_answers", campaign(three, crit=["series"], series=MAP), reason=INVALID)
cases.add("another_key_in_crit", signed(crit=["series", "zz"]), reason="unknown_crit")
older = {"older_reader": signed(), "older_reader_of_the_whole": signed(series={**MAP, "to": WHOLE})}
cases.older("series", older, {"older_reader_of_no_series": (PUBLISHER.campaign(), "mushrooms")})

name = "mushrooms"
u = int.from_bytes(hmac.digest(bytes(32), b"hearsay/1/series" + sha256(b"pilot").digest(), "sha256")[:4])


def of_series(name=name, version=1, **changes):
    series = Series("pilot", NOW, 0, WHOLE)._replace(**changes)
    return PUBLISHER.campaign(name=name, version=version, series=series)


def first(clock=NOW, **outcome):
    return {"expect": {"period": clock // DAY, "repeated": False}} | outcome


asked = [("enrol", of_series(), NOW)]
answered = [*asked, ("report", name, NOW)]
add_device(cases, "answered_in_a_series", asked, ("report", name, NOW), **first())
again = {"period": NOW // DAY, "repeated": True}
add_device(cases, "the_answered_period_again", answered, ("report", name, NOW), expect=again)
add_device(cases, "the_next_period", answered, ("report", name, NOW + DAY), reason="series_answered")
for case, raw, called in (
    ("another_version", of_series(version=2), name),
    ("another_campaign", of_series("other"), "other"),
    ("another_share", of_series("other", low=u, high=u + 1), "other"),
    ("another_begin", of_series("other", begins=0), "other"),
):
    before = [*answered, ("enrol", raw, NOW)]
    for when, clock in (("at_once", NOW), ("later", NOW + 30 * DAY)):
        add_device(cases, f"{case}_{when}", before, ("report", called, clock), reason="series_answered")
other = PUBLISHER.campaign(name="other", series=Series("pilot 2", NOW))
add_device(cases, "another_series", [*answered, ("enrol", other, NOW)], ("report", "other", NOW), **first())
free = PUBLISHER.campaign(name="other")
add_device(cases, "no_series", [*answered, ("enrol", free, NOW)], ("report", "other", NOW), **first())
for case, low, high, outcome in (
    ("first_of_its_share", u, u + 1, first()),
    ("last_of_its_share", 0, u + 1, first()),
    ("at_the_end_of_a_share", 0, u, {"reason": "series_not_member"}),
    ("before_a_share", u + 1, WHOLE, {"reason": "series_not_member"}),
):
    share = [("enrol", of_series(low=low, high=high), NOW)]
    add_device(cases, f"device_{case}", share, ("report", name, NOW), **outcome)
outside = [("enrol", of_series(high=u), NOW), ("enrol", of_series("other", low=u), NOW)]
add_device(cases, "outside_costs_nothing", outside, ("report", "other", NOW), **first())
add_device(
    cases,
    "outside_after_an_answer",
    [*outside, ("report", "other", NOW)],
    ("report", name, NOW),
    reason="series_answered",
)
