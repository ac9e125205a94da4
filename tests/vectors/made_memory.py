"""Vectors of campaigns with memory: which are refused, and what a device answers in one."""

from functools import partial

from support.publisher import DAY, NOW

from protocol import canonical
from protocol.documents.campaign import Series
from protocol.documents.memory_terms import Memory
from vectors.made_devices import add_device
from vectors.makers import END, PUBLISHER, Collection, campaign, changed

INVALID = "invalid_campaign"
TERMS = Memory(2, 17, 500_000)
BODY = canonical.unpack(PUBLISHER.campaign_payload(memory=TERMS))
MAP = BODY["memory"]
signed = partial(campaign, BODY)

cases = Collection()

for name, terms in {
    "two_renewals": TERMS,
    "no_renewal": Memory(0, 1, 500_000),
    "most_renewals": Memory(999, (1 << 32) - 1, 500_000),
    "report_almost_all": Memory(2, 17, 999_999),
}.items():
    cases.add(name, PUBLISHER.campaign(memory=terms))
for name, terms in {"bits": TERMS, "bits_of_little_epsilon": Memory(2, 17, 100_000)}.items():
    cases.add(name, PUBLISHER.campaign(mechanism="oue", memory=terms))
ended = canonical.unpack(PUBLISHER.campaign_payload(version=2))
cases.add("its_end_has_no_memory", campaign(ended, **END), before=(("campaign", signed(), NOW),))

fresh = MAP["fresh"]
for name, changes in {
    "renewals_negative": {"renewals": -1},
    "renewals_1000": {"renewals": 1000},
    "renewals_is_true": {"renewals": True},
    "stretch_0": {"stretch": 0},
    "stretch_2_to_the_32": {"stretch": 1 << 32},
    "report_as_much_as_the_kept_answer": {"report_micro": 1_000_000},
    "report_below_a_thousandth": {"report_micro": 999},
    "fresh_follows_from_another_epsilon": {"report_micro": 500_001},
    "fresh_one_too_large": {"fresh": [fresh[0] + 1, *fresh[1:]]},
    "fresh_one_too_small": {"fresh": [fresh[0] - 1, *fresh[1:]]},
    "fresh_of_fewer_questions": {"fresh": fresh[:-1]},
    "fresh_is_a_number": {"fresh": fresh[0]},
    "unknown_key": {"zz": 1},
    **{f"without_{key}": {key: ...} for key in MAP},
}.items():
    cases.add(name, signed(memory=changed(MAP, **changes)), reason=INVALID)
for name, fields in {
    "key_is_not_in_crit": {"crit": []},
    "crit_without_the_key": {"memory": ...},
    "memory_is_nil": {"memory": None},
    "end_with_memory": {"version": 2, **END},
    "of_a_series": {"crit": ["memory", "series"], "series": Series("pilot", NOW).to_dict()},
}.items():
    cases.add(name, signed(**fields), reason=INVALID)
for name, mechanism in (("sue", "sue"), ("sums", "she")):
    other = canonical.unpack(PUBLISHER.campaign_payload(mechanism=mechanism))
    cases.add(f"with_{name}", campaign(other, crit=["memory"], memory=MAP), reason=INVALID)
three = canonical.unpack(PUBLISHER.campaign_payload(answers=3))
cases.add("three_answers", campaign(three, crit=["memory"], memory=MAP), reason=INVALID)
understated = [{**each, "mechanism": {**each["mechanism"], "keep": (1 << 32) - 1}} for each in BODY["questions"]]
cases.add("kept_answers_that_reveal_more", signed(questions=understated), reason="epsilon_understated")
cases.older("memory", {"older_reader": signed()}, {"older_reader_of_no_memory": (PUBLISHER.campaign(), "mushrooms")})

name = "mushrooms"
enrolled = [("enrol", signed(), NOW)]
lifetime = {"epsilon_lifetime": 3.5}


def period(clock, *, repeated=False):
    return {"period": clock // DAY, "repeated": repeated}


def step(clock):
    return ("report", name, clock)


add_device(cases, "first_report", enrolled, step(NOW), expect=period(NOW), policy=lifetime)
first = [*enrolled, step(NOW)]
add_device(cases, "again_in_the_period", first, step(NOW), expect=period(NOW, repeated=True), policy=lifetime)
for case, days in (("next_day", 1), ("next_stretch", 17), ("last_day", 364)):
    clock = NOW + days * DAY
    add_device(cases, f"{case}_costs_nothing_more", first, step(clock), expect=period(clock), policy=lifetime)
little = {"epsilon_lifetime": 2.9}
add_device(cases, "its_whole_cost_is_asked_at_first", enrolled, step(NOW), reason="budget_exhausted", policy=little)
dear = PUBLISHER.campaign(epsilon_micro=2_000_000, memory=TERMS)
add_device(cases, "its_whole_cost_is_that_of_a_day", [], ("enrol", dear, NOW), reason="policy_refused")
version = [*first, ("enrol", PUBLISHER.campaign(version=2, memory=TERMS), NOW)]
add_device(cases, "another_version_pays_anew", version, step(NOW + DAY), reason="budget_exhausted", policy=lifetime)
