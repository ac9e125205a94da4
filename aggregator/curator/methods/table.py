"""All methods by name."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.curator.methods.base import Method
from aggregator.curator.methods.global_sensitivity import GlobalDeviation, GlobalVariance
from aggregator.curator.methods.smooth import BunSteinke, Smooth, SmoothTrimmed
from aggregator.curator.methods.sums import Sums
from protocol.errors import InputError

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (Sums(), GlobalDeviation(), GlobalVariance(), Smooth(), SmoothTrimmed(), BunSteinke())
}
DEFAULT = "sums"


def default_noise(name: str) -> str | None:
    """Return the first noise that a method offers, if the terms name none; None: discrete Laplace noise."""
    method = method_of(name)
    return method.noises[0] if isinstance(method, Smooth) else None


def method_of(name: str) -> Method:
    """Return the method of this name, or raise ``method_unknown`` (``InputError``)."""
    if name not in METHODS:
        raise InputError("method_unknown", f"the methods are {', '.join(METHODS)}")
    return METHODS[name]
