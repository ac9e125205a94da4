"""The keys of ``policy.toml``, and how their values are read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from protocol.document import DAY_SECONDS
from protocol.epsilon import MICRO, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.sums.adjacency import ADJACENCIES

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": DAY_SECONDS}
MOST = 1 << 40
"""Largest whole number of an entry, and of days of a window."""


def _epsilon(name: str, value: object) -> int:
    with suppress(InputError):
        return micro_epsilon(value)  # type: ignore[arg-type]
    raise InputError("policy_invalid", f"{name} is a number above 0 and below {MICRO}, with at most six decimal places")


def _delta(name: str, value: object) -> int:
    with suppress(InputError):
        return pico_delta(value)  # type: ignore[arg-type]
    raise InputError("policy_invalid", f"{name} is 0 or a number below 1, with at most twelve decimal places")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError("policy_invalid", f"{name} is true or false")
    return value


def _number(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise InputError("policy_invalid", f"{name} is a whole number from 1 to 2^40")
    return value


def _days(name: str, value: object) -> int:
    return _number(name, value) * DAY_SECONDS


def _duration(name: str, value: object) -> int:
    if isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isascii() and value[:-1].isdigit():
        return _number(name, int(value[:-1][:13]) * _UNITS[value[-1]])
    if isinstance(value, str):
        raise InputError("policy_invalid", f'{name} is a duration such as "90s", "15m", "1h" or "1d"')
    return _number(name, value)


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InputError("policy_invalid", f"{name} is a list of names")
    return tuple(value)


def _adjacency(name: str, value: object) -> str:
    if value not in ADJACENCIES:
        raise InputError("policy_invalid", f"{name} is one of {', '.join(ADJACENCIES)}")
    return str(value)


ENTRIES: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "epsilon_per_period": ("period_micro", _epsilon),
    "epsilon_per_day": ("day_micro", _epsilon),
    "epsilon_per_window": ("window_micro", _epsilon),
    "window_days": ("window_seconds", _days),
    "epsilon_lifetime": ("lifetime_micro", _epsilon),
    "shortest_period": ("shortest_period", _duration),
    "smallest_batch": ("smallest_batch", _number),
    "report_bytes": ("report_bytes", _number),
    "features": ("features", _names),
    "campaigns": ("campaigns", _names),
    "spool_reports": ("reports", _number),
    "spool_bytes": ("size_bytes", _number),
    "spool_days": ("age_seconds", _days),
    "allow_refuse": ("allow_refuse", _flag),
    "node_adjacency": ("node_adjacency", _adjacency),
    "allow_masked": ("allow_masked", _flag),
    "delta_per_period": ("period_delta_pico", _delta),
    "delta_lifetime": ("lifetime_delta_pico", _delta),
}
"""Key of ``policy.toml`` → field of :class:`edge_sdk.policy.policy.Policy` or of its spool's limits, and the function
that reads the value."""
