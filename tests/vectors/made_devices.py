"""Vectors of rules that need a device's state: evaluations, and versions of one campaign in one period."""

from support.publisher import DAY, NOW, Publisher

from protocol.features import Categorical
from protocol.schema import Label, build_schema
from vectors.makers import PUBLISHER, Collection

HOUR = 3_600
WEEK = 7 * DAY
TODAY = NOW // DAY * DAY
"""The day of the vectors begins."""

HIDDEN = Publisher(schema=build_schema(PUBLISHER.schema.label, [Categorical("hiv", ["no", "yes"])]))
"""Its models read a feature that no campaign of the others names."""
CLASHING = Publisher(schema=build_schema(Label("label", ["e", "q"]), PUBLISHER.schema.features))
"""Its models have other classes."""

Step = tuple[str, bytes | str, int]


def add_device(cases, name, before, step, *, policy=None, **outcome):
    """One case: what a device does at a step, after the steps before."""

    def written(number, step):
        what, argument, clock = step
        return [what, argument if isinstance(argument, str) else cases.keep(f"{name}.{number}", argument), clock]

    inputs = {"root": cases.root, "policy": policy or {}, "before": [written(*each) for each in enumerate(before)]}
    cases.case(name, "device", spec="formats 5", **inputs, step=written(len(before), step), **outcome)


def add_enrolled(cases, name, campaign_file, *models, **outcome):
    """One case: a device with these models accepts the campaign, or does not."""
    before = [("install", each, NOW) for each in models]
    add_device(cases, name, before, ("enrol", campaign_file, NOW), **outcome)


def _period(clock, length, *, repeated=False):
    return {"period": clock // length, "repeated": repeated}


def _evaluation(model, publisher=PUBLISHER, **changes):
    return publisher.sign("campaign", publisher.evaluation_payload(model, **changes))


cases = Collection()

name = "mushrooms"
for old, new in ((DAY, DAY), (DAY, HOUR), (HOUR, DAY), (DAY, WEEK), (WEEK, DAY), (HOUR, 5 * HOUR // 2)):
    paid = (NOW // old + 1) * old
    opens = -(-paid // new) * new
    before = [
        ("enrol", PUBLISHER.campaign(time_precision=old), NOW),
        ("report", name, NOW),
        ("enrol", PUBLISHER.campaign(version=2, time_precision=new), NOW),
    ]
    case = f"versions_of_{old}_and_{new}_seconds"
    for when, clock in (("at_once", NOW), ("before_the_paid_end", paid - 1), ("before_a_period_begins", opens - 1)):
        if when == "at_once" or (when == "before_the_paid_end") == (opens == paid):
            add_device(cases, f"{case}_{when}", before, ("report", name, clock), reason="period_answered")
    add_device(cases, f"{case}_after", before, ("report", name, opens), expect=_period(opens, new))
first = [("enrol", PUBLISHER.campaign(), NOW), ("report", name, NOW)]
second, third = (("enrol", PUBLISHER.campaign(version=version), NOW) for version in (2, 3))
other = ("enrol", PUBLISHER.campaign(name="other"), NOW)
again, fresh = {"expect": _period(NOW, DAY, repeated=True)}, {"expect": _period(NOW, DAY)}
refused = {"reason": "period_answered"}
for case, before, step, outcome in (
    ("the_same_version_says_the_same", first, ("report", name, NOW), again),
    ("an_earlier_period_says_the_same", first, ("report", name, NOW - DAY), again),
    ("another_name_is_another_campaign", [*first, other], ("report", "other", NOW), fresh),
    ("an_unanswered_version_pays_nothing", [first[0], second], ("report", name, NOW), fresh),
    ("a_version_in_between_opens_nothing", [*first, second, third], ("report", name, TODAY), refused),
):
    add_device(cases, case, before, step, **outcome)

model = PUBLISHER.model()
raw = _evaluation(model)
secret, strange = HIDDEN.model(), CLASHING.model()
told = {"name": "outcome", "version": 1}
asked = {"features": ["odor", "width", "label"]}


def enrol(name, *files, **outcome):
    add_enrolled(cases, f"evaluation_{name}", *files, **outcome)


enrol("with_its_model", raw, model, expect=told)
enrol("without_its_model", raw, reason="model_unknown")
enrol("with_a_newer_version_of_its_model", raw, model, PUBLISHER.model(version=2), reason="model_unknown")
enrol("with_another_model", raw, PUBLISHER.model(name="other", version=3), reason="model_unknown")
enrol("of_a_model_with_other_classes", _evaluation(strange), strange, reason="invalid_campaign")
enrol("of_a_model_that_reads_what_is_allowed", raw, model, policy=asked, expect=told)
hidden = _evaluation(secret)
enrol("of_a_model_that_reads_what_is_not_allowed", hidden, secret, policy=asked, reason="policy_refused")
only = {"features": ["hiv", "label"]}
enrol("whose_own_features_are_not_allowed", hidden, secret, policy=only, reason="policy_refused")
enrol("of_a_hidden_feature_without_a_policy", hidden, secret, expect=told)
ended = _evaluation(model, questions=[], answers=0, epsilon_micro=0)
enrol("that_ends_needs_no_model", ended, expect=told)
before = [("install", model, NOW), ("enrol", raw, NOW)]
add_device(cases, "evaluation_answers", before, ("report", "outcome", NOW), expect=_period(NOW, DAY))
newer = [*before, ("install", PUBLISHER.model(version=2), NOW)]
replaced = {"reason": "model_unknown"}
add_device(cases, "evaluation_of_a_model_that_was_replaced", newer, ("report", "outcome", NOW), **replaced)
