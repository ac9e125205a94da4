"""Choose between a discrete and a Gaussian campaign (family ``auto``) by the largest expected accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from aggregator.planning.power_analysis.plan import Plan, plan
from aggregator.planning.power_analysis.study import NO_SHARES
from aggregator.publishing.ask_table import Ask
from aggregator.publishing.mechanisms.choice import AUTO, is_numeric
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol.documents.asked import plain
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.errors import InputError
from protocol.schema import Schema


def only_family(schema: Schema, family: str, mechanism: str, *, class_question: bool = True) -> str | None:
    """Return the only possible family, which is ``family`` unless that is ``auto``; None if both are possible.

    A mechanism belongs to one family. With joined features, and without numeric ones or the question about the class
    alone, only discrete campaigns are possible.
    """
    if family != AUTO:
        return family
    if mechanism != AUTO:
        return GAUSSIAN if is_numeric(mechanism) else DISCRETE
    return None if schema.numeric and class_question and not schema.asked_as else DISCRETE


def best_of_families(
    schema: Schema,
    *,
    devices: int | None,
    ask: Ask = NO_SHARES,
    coding: str = "schema",
    fixed: Sequence[object] = (),
    **options: Any,
) -> Plan:
    """Rank the campaigns of both families. ``Plan.ranked[0].design`` is the campaign that ``auto`` means.

    Raises InputError ``plan_invalid``: an option in ``fixed`` is given, or the number of devices is not; the errors of
    :func:`aggregator.planning.power_analysis.plan.plan`.

    Args:
        ask: the features of ``schema`` with their groups and shares; empty for all with the schema's groups.
        coding: ``schema``, or a projection to fit on the pilot.
        fixed: values of the options that only one mechanism or family has; None for an option that is not given.
        options: further arguments of :func:`aggregator.planning.power_analysis.plan.plan`, ``epsilon`` among them.
    """
    if any(option is not None for option in fixed):
        raise InputError(
            "plan_invalid", "theta, approach, variance floor and split need a --family and a --mechanism, not auto"
        )
    if devices is None:
        raise InputError("plan_invalid", "family auto compares accuracies: say --devices, and --pilot if there is one")
    file = SchemaFile("", plain(schema), ask) if ask else schema
    return plan(file, devices=devices, coding=coding, **options)


class FamilyChoice(NamedTuple):
    """Parameters of a campaign, settled by ``auto``. ``forecast``: the plan that settled them; None if none was."""

    family: str
    mechanism: str
    approach: int | None
    answers: str | int
    forecast: Plan | None = None


def choose_family(
    schema: Schema,
    asked: FamilyChoice,
    *,
    pilot: pd.DataFrame | str | Path | None,
    class_question: bool = True,
    **options: Any,
) -> FamilyChoice:
    """Choose the family of a campaign, and its mechanism if both families are possible, by :func:`best_of_families`.

    ``asked``: the parameters as the user gave them. Raises InputError ``plan_invalid``: there is a pilot, but ``auto``
    has nothing to choose.
    """
    family = only_family(schema, asked.family, asked.mechanism, class_question=class_question)
    if family is None:
        found = best_of_families(schema, pilot=pilot, answers=asked.answers, **options)
        best = found.ranked[0].design
        return FamilyChoice(best.family, best.mechanism, best.approach, best.answers, found)
    if pilot is not None:
        raise InputError(
            "plan_invalid", "a pilot is for --family auto --mechanism auto, with numbers and the class question"
        )
    return asked._replace(family=family)


def reason_of(found: Plan) -> str:
    """Return a sentence with the chosen campaign, its expected accuracy and that of the other family's best."""
    first = found.ranked[0]
    others = [one for one in found.ranked if one.design.family != first.design.family]
    beside = f"; {others[0].design.name}: {others[0].forecast.accuracy:.1%}" if others else ""
    return (
        f"family auto: {first.design.name} has the largest expected accuracy ({first.forecast.accuracy:.1%}{beside}); "
        f"from {found.basis}"
    )
