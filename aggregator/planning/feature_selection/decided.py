"""What ``hearsay design`` and ``hearsay refine`` decided, as records for schema files and cards of models.

The record of a design from open pilot records has accuracies that were measured on these records.
:mod:`aggregator.planning.feature_selection.from_private_pilot` makes the record of a private design, which has only
what was released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aggregator.planning.feature_selection.candidates import Rated
from aggregator.planning.feature_selection.from_answers import Refined
from aggregator.planning.feature_selection.from_pilot import Designed, percent
from aggregator.planning.feature_selection.steps import Fleet
from aggregator.publishing.decisions.record import bounded
from protocol.epsilon import format_micro
from protocol.schema import Schema

BY_DESIGN, _BY_REFINE = "hearsay design", "hearsay refine"
_SMALLEST = (
    "of the sets tried, the smallest one that is not worse than the most accurate one by more than a standard error of "
    "the difference"
)


def of_design(found: Designed, schema: Schema, epsilon_micro: int, devices: int, seed: int) -> dict[str, Any]:
    """The record of a design from a pilot's records.

    Args:
        found: the design.
        schema: the schema that the design started from.
        epsilon_micro, devices, seed: arguments of :func:`aggregator.planning.feature_selection.from_pilot.design`.
    """
    names = [feature.name for feature in schema.observed]
    record: dict[str, Any] = {
        "by": BY_DESIGN,
        "why": _SMALLEST,
        "devices": devices,
        "epsilon": format_micro(epsilon_micro),
        "seed": seed,
        "pilot": f"{found.used} of {found.records} records with a class",
        "largest_class": percent(found.largest),
    }
    if found.fleet is not None and found.alone is not None:
        record["accuracy_of_the_fleet"] = f"{found.fleet.shown}, on records that chose nothing"
        record["accuracy_of_the_pilot"] = f"{found.alone.shown}, on records that chose nothing"
        record["verdict"] = found.verdict
    record["candidates"] = [
        {
            "features": len(each.ways),
            "names": _listed(names[way.feature] + ("" if way.parts == 0 else f" ({way.shown})") for way in each.ways),
            "accuracy": f"{each.accuracy:.1%}",
            "error": f"{each.error:.1%}",
            "chosen": "yes" if each is found.best else "no",
        }
        for each in found.path
    ]
    kept = {way.feature for way in found.best.ways}
    return with_features(record, names, [names[place] for place in sorted(kept)])


def of_refine(found: Refined, fleet: Fleet) -> dict[str, Any]:
    """The record of a step of a series; everything in it follows from private answers."""
    step, share = found.step, found.share
    record: dict[str, Any] = {
        "by": _BY_REFINE,
        "step": step.kind,
        "why": step.why,
        "series": found.series,
        "devices": fleet.devices,
        "epsilon": format_micro(fleet.epsilon_micro),
        "asked_so_far": f"{found.used:.1%} of the devices",
    }
    record |= {} if share is None else {"share": share.shown}
    if step.choice is not None:
        choice = step.choice
        record["gain"] = f"{100 * choice.gain:+z.1f} ± {100 * choice.error:.1f} points over all features"
        rated = dict.fromkeys((choice.best, choice.everything))
        record["candidates"] = [_rated(found, one, is_chosen=one.features == choice.features) for one in rated]
    elif found.candidates:
        record["candidates"] = [
            {"model": name, "features": len(features), "names": _listed(features)}
            for name, features in found.candidates.items()
        ]
    asked = step.features if step.features is not None else step.asks[0].features if step.asks else None
    return bounded(record) if asked is None else with_features(record, found.names, found.named(asked))


def _rated(found: Refined, one: Rated, *, is_chosen: bool) -> dict[str, Any]:
    """A candidate with its accuracy in private answers."""
    return {
        "features": len(one.features),
        "names": _listed(found.named(one.features)),
        "accuracy": f"{one.mean:.1%}",
        "error": f"{one.error:.1%}",
        "chosen": "yes" if is_chosen else "no",
    }


def with_features(record: Mapping[str, Any], names: Iterable[str], kept: Iterable[str]) -> dict[str, Any]:
    """A bounded record with the features that are asked about, and those that are not.

    Args:
        record: the other entries.
        names: names of all features.
        kept: names of those that are asked about.
    """
    asked = list(kept)
    rest = [name for name in names if name not in set(asked)]
    return bounded({**record, "features": _listed(asked)} | ({"dropped": _listed(rest)} if rest else {}))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
