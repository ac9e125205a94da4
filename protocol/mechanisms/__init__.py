"""The mechanisms, one module each, and their table. A mechanism is made from ε or from a document.

Device and aggregator derive the same integers from the same ε. So a device can check a campaign, and the
aggregator removes bias with exactly the probabilities that the device used.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocol.epsilon import micro_epsilon
from protocol.errors import InputError
from protocol.mechanisms.base import BITS, INTEGERS, SINGLE, FrequencyMechanism, Mechanism, ValueMechanism

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = [
    "BITS",
    "INTEGERS",
    "SINGLE",
    "FrequencyMechanism",
    "Mechanism",
    "ValueMechanism",
    "from_dict",
    "from_epsilon",
    "from_micro",
    "kind",
    "names",
]

_CLASSES = {
    "direct": "Direct",
    "oue": "OptimisedUnary",
    "sue": "SymmetricUnary",
    "the": "ThresholdedHistogram",
    "she": "SummedHistogram",
    "bit": "Bit",
    "bits": "Bits",
    "piecewise": "Piecewise",
    "hybrid": "Hybrid",
    "laplace": "Laplace",
    "duchi": "Duchi",
}
"""The table of mechanisms: name → class. The class is in the module of the same name.

A module is loaded at the first use of its mechanism, because a device needs only one or two mechanisms.
"""


def names() -> tuple[str, ...]:
    """The names of all mechanisms."""
    return tuple(_CLASSES)


def kind(name: object) -> type[Mechanism]:
    """The class of the mechanism called ``name``.

    Raises:
        InputError: ``mechanism_unknown``: there is no such mechanism; ``mechanism_incomplete``: its class lacks a
            method that :class:`Mechanism` demands.
    """
    if not isinstance(name, str) or name not in _CLASSES:
        raise InputError("mechanism_unknown", f"the mechanisms are {', '.join(_CLASSES)}")
    found: type[Mechanism] = getattr(import_module(f"{__name__}.{name}"), _CLASSES[name])
    if found.__abstractmethods__:
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise InputError("mechanism_incomplete", f"the mechanism {name} lacks {missing}: see docs/how-to/extending.md")
    return found


def from_epsilon(name: str, epsilon: str | float | Decimal, size: int = 1, **options: Any) -> Mechanism:
    """The mechanism called ``name`` that spends at most ``epsilon`` on one answer.

    >>> from_epsilon("direct", epsilon="1.0", size=6).to_dict()["keep"]
    1512633486

    Args:
        name: one of :func:`names`.
        epsilon: 0.001 … 16, a multiple of 10⁻⁶.
        size: the number of values, classes or dimensions of the input.
        options: the mechanism's :attr:`~Mechanism.option_names`: ``theta`` of ``the``, ``delta`` of ``laplace``.

    Raises:
        InputError: ``mechanism_unknown``, ``mechanism_incomplete``, ``epsilon_invalid``, ``size_invalid``,
            ``option_unknown``, ``theta_invalid``, ``delta_invalid``; ``parameters_invalid``: with this ε and size no
            useful answer is possible.
    """
    # The cache of mechanisms can not tell 6.0 from 6, so a float is refused here.
    if type(size) is not int:
        raise InputError("size_invalid", "the size is an integer")
    return from_micro(kind(name).name, micro_epsilon(epsilon), size, **options)


def from_micro(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """The mechanism called ``name`` that spends at most ``epsilon_micro`` millionths of ε on one answer.

    ``size``, ``options`` and the errors are those of :func:`from_epsilon`.
    """
    # Mechanisms with options are not cached: an option may be of a type without a hash.
    if options:
        found = kind(name)
        unknown = set(options) - set(found.option_names)
        if unknown:
            raise InputError("option_unknown", f"the mechanism {name} has no option '{min(unknown)}'")
        return found.from_micro(epsilon_micro, size, **options)
    return _derived(name, epsilon_micro, size)


@lru_cache(maxsize=4096)
def _derived(name: str, epsilon_micro: int, size: int) -> Mechanism:
    return kind(name).from_micro(epsilon_micro, size)


def from_dict(parameters: object) -> Mechanism:
    """The mechanism with the integers in ``parameters``, the map that a campaign carries for it.

    Whether the integers follow from the stated ε is not checked here; the checks of campaigns compare the result with
    that of :func:`from_micro`.

    Raises:
        InputError: ``mechanism_unknown``, ``mechanism_incomplete``; ``parameters_invalid``: no map, a wrong set of
            parameters, a value out of range, or answers without information; ``loss_unbounded``: the privacy loss is
            infinite; ``size_invalid``, ``delta_invalid``.
    """
    if not isinstance(parameters, dict):
        raise InputError("parameters_invalid", "a mechanism is a map of parameters")
    return kind(parameters.get("name")).from_dict(parameters)
