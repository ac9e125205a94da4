"""Vectors of a campaign's value limits: signed by the right key, and refused all the same."""

from support.publisher import DAY, NOW, Publisher

from protocol import canonical, mechanisms
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from vectors.makers import END, PUBLISHER, Collection, campaign, changed

WORD = 1 << 32
UNDERSTATED, INVALID = "epsilon_understated", "invalid_campaign"
BODY = canonical.unpack(PUBLISHER.campaign_payload())
ALL = canonical.unpack(PUBLISHER.campaign_payload(answers=3))
KEEP, SIZE = (BODY["questions"][0]["mechanism"][name] for name in ("keep", "size"))
UNARY = canonical.unpack(PUBLISHER.campaign_payload(mechanism="oue"))


def asked(body, number, **changes):
    """A campaign with one question changed."""
    questions = list(body["questions"])
    questions[number] = {**questions[number], **changes}
    return campaign(body, questions=questions)


def stated(body, number, **changes):
    """A campaign in which one question's mechanism states other values; one of ``...`` is left out."""
    return asked(body, number, mechanism=changed(body["questions"][number]["mechanism"], **changes))


def perturbed(body, number, **changes):
    """A campaign in which integers of one question's mechanism are larger by these."""
    standing = body["questions"][number]["mechanism"]
    return stated(body, number, **{name: standing.get(name, 0) + value for name, value in changes.items()})


def described(**entries):
    """A campaign in which the label, ``odor`` or ``width`` has other values; one of ``...`` is left out."""
    features = [changed(each, **entries.get(each["name"], {})) for each in BODY["features"]]
    return campaign(BODY, label=changed(BODY["label"], **entries.get("label", {})), features=features)


cases = Collection()

cases.add("one_answer", PUBLISHER.campaign())
cases.add("every_question", PUBLISHER.campaign(answers=3))
cases.add("two_answers", PUBLISHER.campaign(answers=2))
cases.add("unary", PUBLISHER.campaign(mechanism="oue"))
cases.add("epsilon_at_the_upper_end", PUBLISHER.campaign(epsilon_micro=16_000_000))
cases.add("epsilon_at_the_lower_end", PUBLISHER.campaign(epsilon_micro=1_000))
cases.add("epsilon_not_divisible_by_the_answers", PUBLISHER.campaign(epsilon_micro=1_000_001, answers=3))
wide = build_schema(Label("label", ["e", "p"]), [Categorical("f", [str(n) for n in range(9)])])
cases.add("nine_values_and_missing", Publisher(schema=wide).campaign(mechanism="oue"))

cases.add("declares_a_millionth_less", campaign(BODY, epsilon_micro=999_999), reason=UNDERSTATED)
cases.add("direct_keeps_one_in_2_to_the_32_more", perturbed(BODY, 0, keep=1), reason=UNDERSTATED)
cases.add("direct_keeps_less", perturbed(BODY, 0, keep=-1), reason=INVALID)
cases.add("unary_other_bits_rarer", perturbed(UNARY, 0, q=-1), reason=UNDERSTATED)
cases.add("unary_true_bit_likelier", perturbed(UNARY, 0, p=1), reason=UNDERSTATED)
cases.add("unary_less_said", perturbed(UNARY, 0, q=1), reason=INVALID)
doubled = mechanisms.from_micro("direct", 2_000_000, 2).to_dict()
cases.add("a_question_of_twice_the_epsilon", stated(BODY, 0, **doubled), reason=UNDERSTATED)
later = mechanisms.from_micro("direct", 1_000_001, 8).to_dict()
cases.add("a_later_question_of_more_epsilon", asked(BODY, 1, mechanism=later), reason=UNDERSTATED)
unsaid = stated(BODY, 0, **doubled | {"epsilon_micro": 1_000_000})
cases.add("a_question_of_twice_the_epsilon_that_claims_less", unsaid, reason=UNDERSTATED)
spendthrift = [
    {**question, "mechanism": mechanisms.from_micro("direct", 1_000_000, question["size"]).to_dict()}
    for question in ALL["questions"]
]
cases.add("every_stratum_spends_the_whole_epsilon", campaign(ALL, questions=spendthrift), reason=UNDERSTATED)
cases.add("mechanism_claims_another_epsilon", perturbed(BODY, 0, epsilon_micro=-1), reason=INVALID)
cases.add("declares_more_than_it_spends", campaign(BODY, epsilon_micro=1_000_001), reason=INVALID)
cases.add("declares_above_16_per_answer", campaign(BODY, epsilon_micro=16_000_001), reason=INVALID)
cases.add("epsilon_0", campaign(BODY, epsilon_micro=0), reason=INVALID)
cases.add("epsilon_is_text", campaign(BODY, epsilon_micro="1000000"), reason=INVALID)
for name, changes in {
    "direct_keeps_more_than_everything": {"keep": KEEP + WORD},
    "direct_says_nothing": {"keep": WORD // 2},
    "unknown_parameter": {"zz": 1},
    "unknown_mechanism": {"name": "drect"},
    "mechanism_of_another_size": {"size": SIZE + 1},
}.items():
    cases.add(name, stated(BODY, 0, **changes), reason=INVALID)

for name, body, changes in (
    ("direct_gives_itself_away", BODY, {"keep": WORD}),
    ("direct_keeps_nothing", BODY, {"keep": 0}),
    ("unary_other_bits_never", UNARY, {"q": 0}),
    ("unary_other_bits_always", UNARY, {"q": WORD}),
    ("unary_true_bit_always", UNARY, {"p": WORD}),
    ("unary_true_bit_never", UNARY, {"p": 0}),
):
    cases.add(name, stated(body, 0, **changes), reason=UNDERSTATED)
cases.add("unary_bits_never", stated(UNARY, 0, p=0, q=0), reason=INVALID)
cases.add("mechanism_is_nil", asked(BODY, 0, mechanism=None), reason=INVALID)

first_bound = BODY["questions"][0]["bound"]
for name, data in {
    "interval_of_no_width": asked(BODY, 1, bound=first_bound),
    "intervals_overlap": asked(BODY, 1, bound=first_bound - 1),
    "first_interval_empty": asked(BODY, 0, bound=0),
    "last_bound_below_2_to_the_32": asked(BODY, 2, bound=WORD - 1),
    "bound_above_2_to_the_32": asked(BODY, 2, bound=WORD + 1),
    "stratum_left_out": asked(ALL, 2, stratum=3),
    "strata_out_of_order": campaign(ALL, questions=ALL["questions"][::-1]),
    "stratum_does_not_end": asked(ALL, 0, bound=WORD - 1),
    "first_stratum_is_not_0": campaign(BODY, questions=[{**each, "stratum": 1} for each in BODY["questions"]]),
    "more_answers_than_strata": campaign(BODY, answers=2),
    "fewer_answers_than_strata": campaign(ALL, answers=2),
    "no_answers": campaign(BODY, answers=0),
    "answers_is_true": campaign(BODY, answers=True),
    "no_questions": campaign(BODY, questions=[]),
    "question_is_no_map": campaign(BODY, questions=[1]),
    "question_of_unknown_kind": asked(BODY, 0, kind="name"),
    "question_of_another_size": asked(BODY, 0, size=3),
    "question_about_an_absent_feature": asked(BODY, 1, feature=2),
    "question_about_feature_minus_1": asked(BODY, 1, feature=-1),
    "question_about_a_feature_by_name": asked(BODY, 1, feature="odor"),
}.items():
    cases.add(name, data, reason=INVALID)

for name, changes in {
    "label_is_a_feature": {"label": {"name": "odor"}},
    "one_class": {"label": {"classes": ["e"]}},
    "a_class_twice": {"label": {"classes": ["e", "e"]}},
    "class_is_a_number": {"label": {"classes": ["e", 1]}},
    "class_with_a_line_break": {"label": {"classes": ["e", "p\n"]}},
    "class_of_1025_bytes": {"label": {"classes": ["e", "é" * 512 + "p"]}},
    "label_name_empty": {"label": {"name": ""}},
    "substitute_is_no_class": {"label": {"substitute": 2}},
}.items():
    cases.add(name, described(**changes), reason=INVALID)
for name, changes in {
    "label_absent": {"label": None},
    "no_features": {"features": []},
    "feature_is_no_map": {"features": ["odor", "width"]},
}.items():
    cases.add(name, campaign(BODY, **changes), reason=INVALID)
for name, changes in {
    "feature_twice": {"width": {"name": "odor"}},
    "feature_of_unknown_kind": {"width": {"kind": "text"}},
    "value_twice": {"odor": {"values": ["a", "a", "f"]}},
    "value_of_1025_bytes": {"odor": {"values": ["a", "x" * 1025, "f"]}},
    "value_with_a_format_character": {"odor": {"values": ["a", "n\u200b", "f"]}},
    "feature_name_empty": {"odor": {"name": ""}},
    "categorical_substitute_absent": {"odor": {"substitute": ...}},
    "numeric_substitute_absent": {"width": {"substitute": ...}},
    "value_is_nil": {"odor": {"values": ["a", None, "f"]}},
    "unlisted_is_unknown": {"odor": {"unlisted": "keep"}},
    "substitute_is_no_value": {"odor": {"values": ["a", "n", "f", "x"], "substitute": 4}},
    "bounds_equal": {"width": {"high": "0.0"}},
    "bounds_reversed": {"width": {"high": "-1"}},
    "bound_nan": {"width": {"high": "nan"}},
    "bound_infinite": {"width": {"high": "Infinity"}},
    "bound_is_a_number": {"width": {"high": 10}},
    "bound_with_underscores": {"width": {"high": "1__0"}},
    "bound_with_a_space": {"width": {"high": "10 "}},
    "bound_with_a_plus": {"width": {"high": "+10"}},
    "bound_exponent_301": {"width": {"high": "0.1e301"}},
    "edges_fall": {"width": {"edges": [0, 0]}},
    "edge_outside": {"width": {"edges": [65537]}},
    "edge_at_the_low_end": {"width": {"edges": [-65536]}},
    "edge_is_text": {"width": {"edges": ["0"]}},
    "one_bin": {"width": {"edges": []}},
    "numeric_substitute_outside": {"width": {"substitute": 65537}},
}.items():
    cases.add(name, described(**changes), reason=INVALID)
for name, changes in {
    "class_and_value_empty": {"label": {"classes": ["", "p"]}, "odor": {"values": ["a", "", "f"]}},
    "class_and_value_of_1024_bytes": {
        "label": {"classes": ["e", "é" * 512]},
        "odor": {"values": ["a", "x" * 1024, "f"]},
    },
    "bounds_in_scientific_notation": {"width": {"low": "-1.5E-3", "high": "9.99e+300"}},
    "unknown_keys_of_label_and_features": {"label": {"zz": 1}, "odor": {"zz": 1}, "width": {"zz": 1}},
}.items():
    cases.add(name, described(**changes))

for name, changes in {
    "layout_of_bits_for_single_values": {"layout": 2},
    "layout_4": {"layout": 4},
    "record_a_byte_longer": {"record_length": 19},
    "record_length_absent": {"record_length": None},
    "unknown_projection": {"projection": {"shift": 1}},
    "unknown_family": {"fit": {**BODY["fit"], "family": "unheard of"}},
    "fit_is_a_list": {"fit": []},
    "fit_without_family": {"fit": {"postprocess": "simplex"}},
    "fit_without_postprocess": {"fit": {"family": "discrete"}},
    "postprocess_is_a_number": {"fit": {**BODY["fit"], "postprocess": 1}},
    "postprocess_with_a_terminal_escape": {"fit": {**BODY["fit"], "postprocess": "a\x1b[31m"}},
    "postprocess_of_1025_bytes": {"fit": {**BODY["fit"], "postprocess": "a" * 1025}},
    "purpose_empty": {"purpose": ""},
    "purpose_with_a_terminal_escape": {"purpose": "\x1b[31mfree"},
    "purpose_of_1025_bytes": {"purpose": "x" * 1025},
    "purpose_with_a_no_break_space": {"purpose": "a\u00a0b"},
    "purpose_with_a_private_character": {"purpose": "a\ue000"},
    "purpose_with_a_format_character_of_unicode_15": {"purpose": "a\U0001343f"},
    "contact_empty": {"contact": ""},
    "contact_absent": {"contact": None},
    "period_of_no_seconds": {"time_precision": 0},
    "period_of_68_years": {"time_precision": (1 << 31) + 1},
    "last_period_does_not_fit_into_a_report": {"time_precision": 1, "expires": 1 << 32},
    "minimum_batch_of_nothing": {"min_batch_size": 0},
    "minimum_batch_of_2_to_the_32": {"min_batch_size": WORD},
}.items():
    cases.add(name, campaign(BODY, **changes), reason=INVALID)
# Whether a reader's tables know them or not: U+1FAE9 is of Unicode 16, U+0378 of none.
cases.add("purpose_with_characters_that_are_new_or_not_assigned", campaign(BODY, purpose="a\U0001fae9\u0378"))
cases.add("largest_minimum_batch", campaign(BODY, min_batch_size=WORD - 1))
cases.add("longest_period", campaign(BODY, time_precision=1 << 31))
newer = asked({**BODY, "fit": {**BODY["fit"], "zz": 1}}, 0, zz=1)
cases.add("unknown_keys_of_question_and_fit", newer)
cases.add("last_period_just_fits", campaign(BODY, time_precision=1, expires=(1 << 32) - 1))
cases.add("unary_layout_of_single_values", campaign(UNARY, layout=1), reason=INVALID)
cases.add("projection_absent", campaign(BODY, projection=...), reason=INVALID)
cases.add("shortest_period_of_a_day", campaign(BODY, time_precision=DAY))

classes = [str(number) for number in range(256)]
wide = Publisher(schema=build_schema(Label("label", classes), [Categorical("f", [str(n) for n in range(15)])]))
body = canonical.unpack(wide.campaign_payload(mechanism="she"))
(cell,) = [question for question in body["questions"] if question["size"] == 4096]
epsilon = cell["mechanism"]["epsilon_micro"]


def strata(count):
    questions = [{**cell, "stratum": stratum, "bound": WORD} for stratum in range(count)]
    return campaign(body, questions=questions, answers=count, epsilon_micro=count * epsilon)


cases.add("most_bytes_of_one_period", strata(71))
cases.add("more_bytes_of_one_period", strata(72), reason=INVALID)
cases.add("twice_as_many_bytes_of_one_period", strata(142), reason=INVALID)

before = (("campaign", PUBLISHER.campaign(), NOW),)
cases.add("end", campaign(BODY, version=2, **END), before=before)
cases.add("end_as_a_first_version", campaign(BODY, **END))
oue = {"layout": 1, "record_length": 18}
cases.add("end_of_a_unary_campaign", campaign(UNARY, version=2, **END, **oue))
end = (("campaign", campaign(BODY, version=2, **END), NOW),)
cases.add("asked_again_after_the_end", PUBLISHER.campaign(version=3), before=end)
for name, changes in {
    "end_with_answers": {**END, "answers": 1},
    "end_with_an_epsilon": {**END, "epsilon_micro": 1_000_000},
    "end_with_questions": {**END, "questions": BODY["questions"]},
    "end_without_questions_alone": {"questions": []},
    "end_of_layout_2": {**END, "layout": 2},
    "end_with_a_longer_record": {**END, "record_length": 19},
    "end_without_features": {**END, "features": []},
    "end_without_a_family": {**END, "fit": {"postprocess": "simplex"}},
    "end_with_periods_of_no_seconds": {**END, "time_precision": 0},
}.items():
    cases.add(name, campaign(BODY, version=2, **changes), reason=INVALID)
