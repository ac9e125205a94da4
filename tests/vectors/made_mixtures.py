"""Vectors of campaigns with ``sue``, ``the``, ``she``, and with mixtures: value limits and layouts."""

from support.mixtures import mixed_payload
from support.publisher import Publisher

from protocol import canonical, mechanisms
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from vectors.made_campaigns import INVALID, UNDERSTATED, WORD, asked, perturbed, stated
from vectors.makers import PUBLISHER, Collection, campaign

SYMMETRIC = canonical.unpack(PUBLISHER.campaign_payload(mechanism="sue"))
THRESHOLDED = canonical.unpack(PUBLISHER.campaign_payload(mechanism="the"))
HISTOGRAM = canonical.unpack(PUBLISHER.campaign_payload(mechanism="she"))
BESIDE_BITS = canonical.unpack(mixed_payload(("direct", "oue", "sue")))
BESIDE_INTEGERS = canonical.unpack(mixed_payload(("direct", "she", "she")))


def _with_theta(*thetas):
    each = thetas if len(thetas) > 1 else thetas * 3
    questions = [
        {**question, "mechanism": mechanisms.from_epsilon("the", 1, question["size"], theta=theta).to_dict()}
        for question, theta in zip(THRESHOLDED["questions"], each, strict=True)
    ]
    return campaign(THRESHOLDED, questions=questions)


def _replaced(body, number, name, epsilon_micro):
    size = body["questions"][number]["size"]
    return asked(body, number, mechanism=mechanisms.from_micro(name, epsilon_micro, size).to_dict())


def _too_large():
    schema = build_schema(Label("label", ["e", "p"]), [Categorical("f", [str(n) for n in range(2048)])])
    body = canonical.unpack(Publisher(schema=schema).campaign_payload())
    mechanism = mechanisms.from_micro("she", 1_000_000, 4096).to_dict()
    questions = [{**question, "mechanism": {**mechanism, "size": question["size"]}} for question in body["questions"]]
    return campaign(body, questions=questions, layout=3, record_length=14 + 4 * 4098 + 4)


cases = Collection()

for name in ("sue", "the", "she"):
    cases.add(name, PUBLISHER.campaign(mechanism=name))
    cases.add(f"{name}_every_question", PUBLISHER.campaign(mechanism=name, answers=3))
    two = PUBLISHER.campaign(mechanism=name, answers=2, epsilon_micro=999_999)
    cases.add(f"{name}_two_answers_of_an_odd_epsilon", two)
for name, questions, answers in (
    ("direct_beside_bits", ("direct", "oue", "direct"), 1),
    ("narrow_bits_beside_direct", ("oue", "direct", "direct"), 1),
    ("all_unary_encodings", ("oue", "sue", "the"), 3),
    ("direct_beside_integers", ("direct", "she", "she"), 1),
    ("wide_direct_beside_narrow_integers", ("she", "direct", "she"), 2),
):
    cases.add(name, PUBLISHER.sign("campaign", mixed_payload(questions, answers=answers)))
cases.add("the_with_another_threshold", _with_theta("0.5"))
cases.add("the_with_the_smallest_threshold", _with_theta("0.000001"))
cases.add("the_with_a_threshold_for_each_question", _with_theta("0.1", "0.5", "0.9"))

cases.add("sue_bolder", perturbed(SYMMETRIC, 1, p=1, q=-1), reason=UNDERSTATED)
cases.add("sue_shyer", perturbed(SYMMETRIC, 1, p=-1, q=1), reason=INVALID)
cases.add("sue_not_symmetric", perturbed(SYMMETRIC, 1, p=-1), reason=INVALID)
cases.add("sue_of_twice_the_epsilon", _replaced(SYMMETRIC, 1, "sue", 2_000_000), reason=UNDERSTATED)
cases.add("sue_called_oue", stated(SYMMETRIC, 1, name="oue"), reason=INVALID)
cases.add("sue_never_lies_about_others", stated(SYMMETRIC, 0, q=0), reason=UNDERSTATED)

for name, change in {
    "the_with_theta_a_millionth_higher": {"theta_micro": 1},
    "the_with_theta_a_millionth_lower": {"theta_micro": -1},
    "the_with_theta_0": {"theta_micro": -250_000},
    "the_with_theta_1": {"theta_micro": 750_000},
    "the_with_theta_below_0": {"theta_micro": -250_001},
    "the_with_theta_above_1": {"theta_micro": 750_001},
    "the_true_bit_likelier": {"p": 1},
    "the_other_bits_rarer": {"q": -1},
}.items():
    cases.add(name, perturbed(THRESHOLDED, 1, **change), reason=INVALID)
notes = "it spends 0.883 of ε = 1, so one step bolder breaks no promise, but is not what follows from ε"
cases.cases[-1]["notes"] = cases.cases[-2]["notes"] = notes
cases.add("the_theta_is_text", stated(THRESHOLDED, 1, theta_micro="250000"), reason=INVALID)
cases.add("the_theta_is_true", stated(THRESHOLDED, 1, theta_micro=True), reason=INVALID)
cases.add("the_without_theta", stated(THRESHOLDED, 1, theta_micro=...), reason=INVALID)
cases.add("the_of_twice_the_epsilon", _replaced(THRESHOLDED, 1, "the", 2_000_000), reason=UNDERSTATED)
cases.add("sue_with_theta", stated(SYMMETRIC, 1, theta_micro=250_000), reason=INVALID)

s, t = (HISTOGRAM["questions"][1]["mechanism"][name] for name in ("s", "t"))
cases.add("she_rate_not_in_lowest_terms", perturbed(HISTOGRAM, 1, s=s, t=t), reason=INVALID)
cases.add("she_rate_steeper_in_s", perturbed(HISTOGRAM, 1, s=1), reason=UNDERSTATED)
cases.add("she_rate_steeper_in_t", perturbed(HISTOGRAM, 1, t=-1), reason=UNDERSTATED)
cases.add("she_rate_flatter", perturbed(HISTOGRAM, 1, t=1), reason=INVALID)
cases.add("she_rate_0", stated(HISTOGRAM, 1, s=0), reason=INVALID)
cases.add("she_rate_without_denominator", stated(HISTOGRAM, 1, t=0), reason=UNDERSTATED)
cases.add("she_denominator_above_2_to_the_32", stated(HISTOGRAM, 1, t=WORD + 1), reason=INVALID)
cases.add("she_of_twice_the_epsilon", _replaced(HISTOGRAM, 1, "she", 2_000_000), reason=UNDERSTATED)
cases.add("she_with_theta", stated(HISTOGRAM, 1, theta_micro=250_000), reason=INVALID)
cases.add("she_without_s", stated(HISTOGRAM, 1, s=...), reason=INVALID)
cases.add("she_of_4098_values", _too_large(), reason=INVALID)
cases.add("auto_is_no_mechanism", stated(HISTOGRAM, 1, name="auto"), reason=INVALID)

length = HISTOGRAM["record_length"]
for name, data in {
    "integers_beside_bits": _replaced(HISTOGRAM, 1, "oue", 1_000_000),
    "bits_beside_integers": _replaced(BESIDE_BITS, 2, "she", 1_000_000),
    "integers_in_a_layout_of_bits": campaign(HISTOGRAM, layout=2),
    "integers_in_a_layout_of_single_values": campaign(HISTOGRAM, layout=1),
    "bits_in_a_layout_of_integers": campaign(BESIDE_BITS, layout=3),
    "mixture_in_the_layout_of_its_single_values": campaign(BESIDE_BITS, layout=1),
    "integers_as_long_as_the_first_question_needs": campaign(BESIDE_INTEGERS, record_length=18),
    "integers_an_answer_longer": campaign(HISTOGRAM, record_length=length + 4),
    "integers_a_byte_shorter": campaign(HISTOGRAM, record_length=length - 1),
}.items():
    cases.add(name, data, reason=INVALID)
