"""Vectors of campaigns that compare several models: which are well-formed, and which devices take part."""

from support.publisher import DAY, NOW, Publisher

from protocol import canonical, mechanisms
from protocol.documents.campaign import Series
from protocol.schema import build_schema
from vectors.made_devices import CLASHING, HIDDEN, add_device, add_enrolled
from vectors.makers import END, PUBLISHER, Collection, campaign, changed

INVALID = "invalid_campaign"
NAMES = ("mushrooms", "top-2", "top-4")
NARROW = Publisher(schema=build_schema(PUBLISHER.schema.label, PUBLISHER.schema.features[:1]))
"""A publisher of models that read the first feature alone."""
MODELS = {NAMES[0]: PUBLISHER.model(), NAMES[1]: NARROW.model(name=NAMES[1]), NAMES[2]: PUBLISHER.model(name=NAMES[2])}
BODY = canonical.unpack(PUBLISHER.comparison_payload(MODELS))


def _changed(change):
    return campaign(BODY, questions=[{**each, **change(number, each)} for number, each in enumerate(BODY["questions"])])


def _good(cases, name, data, models=MODELS):
    before = tuple(("model", file, NOW) for file in models.values())
    floors = {"campaign comparison": data, **{f"model {called}": file for called, file in models.items()}}
    cases.add(name, data, before=before, floors=floors)


def _of(models, **options):
    return canonical.unpack(PUBLISHER.comparison_payload(models, **options))


def _seventeen(models):
    last = _of(dict(list(models.items())[1:]))
    body = _of(dict(list(models.items())[:16]))
    return {**body, "models": [*body["models"], last["models"][-1]], "model_names": list(models)}


cases = Collection()

digests, names = BODY["models"], BODY["model_names"]
two = dict(list(MODELS.items())[:2])
_good(cases, "three_models", campaign(BODY))
_good(cases, "two_models", campaign(_of(two)), two)
many = {f"m{number}": PUBLISHER.model(name=f"m{number}") for number in range(17)}
sixteen = dict(list(many.items())[:16])
_good(cases, "sixteen_models", campaign(_of(sixteen)), sixteen)
_good(cases, "models_of_unequal_weights", campaign(_of(MODELS, weights=[1, 2, 5])))
series = Series("pilot", NOW, 0, 1 << 31)
_good(cases, "models_of_a_series", campaign(_of(MODELS, series=series)))
unnamed = campaign(_of(MODELS, series=series), crit=["models"])
cases.add("models_of_a_series_that_crit_does_not_name", unnamed, reason=INVALID)
cases.add("the_end_of_a_comparison", campaign(BODY, version=2, **END))
later = campaign(BODY, models_of_later=digests, crit=["models", "models_of_later"])
cases.add("the_key_is_one_that_this_reader_does_not_know", later, reason="unknown_crit")
one = canonical.unpack(PUBLISHER.evaluation_payload(MODELS[NAMES[0]]))
for name, body, changes in (
    ("models_that_crit_does_not_name", BODY, {"crit": []}),
    ("crit_names_models_that_are_absent", BODY, {"models": ...}),
    ("names_absent", BODY, {"model_names": ...}),
    ("a_model_and_models", BODY, {"model": digests[0]}),
    ("one_model_in_models", BODY, {"models": digests[:1], "model_names": names[:1]}),
    ("models_is_no_array", BODY, {"models": digests[0]}),
    ("models_without_an_entry", BODY, {"models": [], "model_names": []}),
    ("a_model_twice", BODY, {"models": [*digests[:2], digests[0]]}),
    ("a_digest_of_31_bytes", BODY, {"models": [*digests[:2], digests[2][:31]]}),
    ("a_digest_that_is_text", BODY, {"models": [*digests[:2], digests[2].hex()[:32]]}),
    ("two_models_of_one_name", BODY, {"model_names": [*names[:2], names[0]]}),
    ("a_name_too_few", BODY, {"model_names": names[:2]}),
    ("an_empty_name", BODY, {"model_names": [*names[:2], ""]}),
    ("a_name_that_does_not_print", BODY, {"model_names": [*names[:2], "top\u200b4"]}),
    ("a_name_that_is_a_number", BODY, {"model_names": [*names[:2], 4]}),
    ("models_of_a_campaign_that_makes_a_model", BODY, {"fit": {"family": "discrete", "postprocess": "simplex"}}),
    ("one_models_errors_asked_of_several", BODY, {"questions": one["questions"]}),
    ("names_of_one_model", one, {"model_names": names[:1]}),
    ("crit_names_models_where_one_model_is_evaluated", one, {"crit": ["models"]}),
    ("several_models_asked_of_one", one, {"questions": BODY["questions"]}),
    ("the_end_with_a_model_twice", {**BODY, **END}, {"models": [digests[0]] * 3}),
):
    cases.add(name, campaign(body, **changes), reason=INVALID)
cases.add("seventeen_models", campaign(_seventeen(many)), reason=INVALID)

first, second, third = BODY["questions"]
oue = mechanisms.from_micro("oue", 1_000_000, 2).to_dict()
of_class = changed(third, model=..., kind="class")
three = mechanisms.from_micro("direct", 1_000_000, 3).to_dict()
for name, data in {
    "an_index_beyond_the_models": _changed(lambda number, _: {"model": number + 1}),
    "an_index_of_65535": _changed(lambda number, _: {"model": number if number < 2 else 65535}),
    "a_negative_index": _changed(lambda number, _: {"model": number - 1}),
    "an_index_that_is_a_name": _changed(lambda number, _: {"model": NAMES[number]}),
    "a_question_without_an_index": campaign(BODY, questions=[first, second, changed(third, model=...)]),
    "a_model_asked_about_twice": _changed(lambda number, _: {"model": min(number, 1)}),
    "a_model_that_no_question_is_about": campaign(BODY, questions=[first, {**second, "bound": 1 << 32}]),
    "a_question_of_three_values": _changed(lambda *_: {"size": 3, "mechanism": three}),
    "a_size_that_is_not_the_mechanisms": _changed(lambda *_: {"size": 3}),
    "a_comparison_by_bits": _changed(lambda *_: {"mechanism": oue}),
    "a_question_about_the_class": campaign(BODY, questions=[first, second, of_class]),
}.items():
    cases.add(name, data, reason=INVALID)
each = mechanisms.from_micro("direct", 333_333, 2).to_dict()
strata = [
    {**question, "stratum": place, "bound": 1 << 32, "mechanism": each}
    for place, question in enumerate(BODY["questions"])
]
cases.add("an_answer_about_each_model", campaign(BODY, questions=strata, answers=3), reason=INVALID)
turned = [{**first, "model": 2}, {**second, "model": 0}, {**third, "model": 1}]
_good(cases, "indices_in_another_order", campaign(BODY, questions=turned))

raw = campaign(BODY)
told = {"name": "comparison", "version": 1}
clash, hidden = CLASHING.model(name=NAMES[2]), HIDDEN.model(name=NAMES[1])


def enrol(name, *files, **outcome):
    add_enrolled(cases, f"comparison_{name}", *files, **outcome)


all_three = tuple(MODELS.values())
allowed = {"features": ["odor", "width", "label"]}
enrol("with_all_models", raw, *all_three, expect=told)
enrol("with_all_models_in_another_order", raw, *all_three[::-1], expect=told)
enrol("without_any_model", raw, reason="model_unknown")
for place, name in enumerate(NAMES):
    others = all_three[:place] + all_three[place + 1 :]
    enrol(f"without_{name}", raw, *others, reason="model_unknown")
newer = PUBLISHER.model(name=NAMES[2], version=2)
enrol("with_a_newer_version_of_one", raw, *all_three, newer, reason="model_unknown")
strange = {**MODELS, NAMES[2]: clash}
enrol("with_a_model_of_other_classes", campaign(_of(strange)), *strange.values(), reason=INVALID)
other_names = [NAMES[0], NAMES[2], NAMES[1]]
enrol("with_names_that_are_not_the_models", campaign(BODY, model_names=other_names), *all_three, reason=INVALID)
enrol("whose_models_read_what_is_allowed", raw, *all_three, policy=allowed, expect=told)
secret = {**MODELS, NAMES[1]: hidden}
more = campaign(_of(secret))
enrol("whose_second_model_reads_more", more, *secret.values(), policy=allowed, reason="policy_refused")
enrol("that_ends_needs_no_model", campaign({**BODY, **END}), expect=told)
before = [*(("install", each, NOW) for each in all_three), ("enrol", raw, NOW)]
step = ("report", "comparison", NOW)
add_device(cases, "comparison_answers", before, step, expect={"period": NOW // DAY, "repeated": False})
replaced = [*before, ("install", newer, NOW)]
add_device(cases, "comparison_of_a_model_that_was_replaced", replaced, step, reason="model_unknown")
