"""The results of a simulation in words: the lines of one simulation, and the numbers of a row of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.estimates.cells import as_range, as_share
from protocol.documents.masked_terms import RECORD
from protocol.sums.adjacency import ADD_REMOVE
from simulation.settings import CENTRAL, DISTRIBUTED, FEDERATED, LOCAL, VERTICAL

_NO_INTERVAL = "not known"


def facts_of(result: dict[str, Any]) -> dict[str, str]:
    """The lines that are printed of one simulation."""
    spread = "" if result["accuracy_sd"] is None else f" (sd of one trial {result['accuracy_sd']:.1%})"
    interval = {}
    if result["accuracy_low"] is not None:
        ends = f"{result['accuracy_low']:.1%} to {result['accuracy_high']:.1%}"
        interval["95 % interval"] = (
            f"{ends}, of the mean of endless repetitions on these records, if the accuracies of repetitions are near "
            "normal"
        )
    elif result["repeats"] > 1:
        interval["95 % interval"] = f"{_NO_INTERVAL}: all repetitions gave the same accuracy"
    private = {}
    if "accuracy_private" in result:
        low, high = result["accuracy_private_low"], result["accuracy_private_high"]
        private["as devices told it"] = (
            f"{as_share(result['accuracy_private'])} ({as_range(low, high)}, of the population), at ε = "
            f"{result['epsilon_evaluation']:g}"
        )
    return {
        "accuracy": f"{result['accuracy']:.1%}{spread}",
        **interval,
        **private,
        "not private": f"{result['accuracy_nonprivate']:.1%}",
        "largest class": f"{result['accuracy_majority']:.1%}",
        **_FACTS[result.get("trust", LOCAL)](result),
    }


def _local_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_total']:g} per device, {result['epsilon_per_answer']:g} per answer",
        "devices": f"{result['devices']}, {result['answers_per_device']} answers each by '{result['mechanism']}'",
        "tested on": f"{result['test_records']} records",
        "trials": f"{result['trials']}, {result['reports']} reports in all",
    }


def _central_facts(result: dict[str, Any]) -> dict[str, str]:
    return {
        "ε": f"{result['epsilon_paid']:g} of {result['epsilon_total']:g} in all, δ = {result['delta']:g}",
        "hides": f"neighbours by '{result['adjacency']}'",
        "method": f"{result['mechanism']}, {result['noise']} noise, ε divided {result['division']}, {result['family']}",
        "records": f"{result['records']} of a curator",
        "tested on": f"{result['test_records']} records",
        "trials": str(result["trials"]),
    }


def _federated_facts(result: dict[str, Any]) -> dict[str, str]:
    smallest, largest = result["node_records"]
    each = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    rule = result["robust"] or "plain addition"
    total, changed = f"{result['epsilon_total']:g}", f"{result['epsilon_change']:g}"
    if result["adjacency"] == ADD_REMOVE:
        cost = f"{total} for adding or removing a record, {changed} for changing one"
    else:
        cost = f"{total} for changing the features of a record, not its label"
    return {
        "ε": cost,
        "nodes": f"{result['nodes']} of {each} records, {result['summaries']} summaries in all",
        "method": f"{rule} of {result['queries']} noisy vectors, {result['postprocess']}, {result['family']}",
        "tested on": f"{result['test_records']} records",
        "trials": str(result["trials"]),
    }


def _distributed_facts(result: dict[str, Any]) -> dict[str, str]:
    smallest, largest = result["node_records"]
    each = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    unit = "a record" if result["unit"] == RECORD else "all records of a node"
    cost, changed = (f"{result[f'epsilon_{of}']:g}, δ = {result[f'delta_{of}']:g}" for of in ("total", "change"))
    return {
        "ε": f"{cost} for adding or removing {unit}; {changed} for changing it",
        "nodes": f"{result['nodes']} of {each} records, {result['messages']} messages in all",
        "noise": f"{result['noise']}, {result['noise_copies']:.3g} whole copies in a total, "
        f"{result['honest_share']:g} honest, {result['colluding_share']:g} colluding",
        "method": f"total of {result['queries']} noisy vectors in {result['ciphertexts']} ciphertexts, "
        f"{result['postprocess']}, {result['family']}",
        "tested on": f"{result['test_records']} records",
        "trials": str(result["trials"]),
    }


def _vertical_facts(result: dict[str, Any]) -> dict[str, str]:
    smallest, largest = result["node_features"]
    each = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    return {
        "ε": f"{result['epsilon_total']:g} for adding or removing a record, {result['epsilon_change']:g} for changing "
        f"one; {result['epsilon_per_count']:g} per count",
        "nodes": f"{result['nodes']} of {each} features, with {result['records']} records in common",
        "products": f"{result['products']} opened in all",
        "tested on": f"{result['test_records']} records",
        "trials": str(result["trials"]),
    }


_FACTS = {
    LOCAL: _local_facts,
    CENTRAL: _central_facts,
    FEDERATED: _federated_facts,
    DISTRIBUTED: _distributed_facts,
    VERTICAL: _vertical_facts,
}
"""Kind of trust → the lines about its fleet, records or nodes."""


def accuracies_of(result: Mapping[str, Any]) -> list[str]:
    """The numbers of a simulation's row in the table of a sweep, as text. An end without an interval is empty."""
    ends = [_percent(result[key]) for key in ("accuracy_low", "accuracy_high")]
    if result["repeats"] > 1 and result["accuracy_low"] is None:
        ends = [_NO_INTERVAL] * 2
    shown = [_percent(result["accuracy"]), *ends]
    shown += [_percent(result[key]) for key in ("accuracy_nonprivate", "accuracy_majority")]
    if "accuracy_private" in result:
        shown += [as_share(result["accuracy_private"]), f"{result['epsilon_evaluation']:g}"]
    return shown


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
