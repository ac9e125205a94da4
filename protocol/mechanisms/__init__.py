"""The mechanisms, one module each, and their table. A mechanism is made from ε or from a document.

A mechanism turns the input of a question into a noisy answer. Device and aggregator derive the same integers from the
same ε. So a device can check a campaign, and the aggregator removes bias with exactly the device's probabilities.
A mechanism of another package, installed on both sides, is found through the entry-point group :data:`GROUP`.
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
    "GROUP",
    "INTEGERS",
    "SINGLE",
    "FrequencyMechanism",
    "Mechanism",
    "ValueMechanism",
    "add",
    "foreign",
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
    "subset": "Subset",
    "the": "ThresholdedHistogram",
    "she": "SummedHistogram",
    "bit": "Bit",
    "bits": "Bits",
    "piecewise": "Piecewise",
    "hybrid": "Hybrid",
    "laplace": "Laplace",
    "duchi": "Duchi",
}
"""The table of mechanisms: name of the mechanism and of its module → class in that module.

A module is loaded at the first use of its mechanism, because a device needs only one or two.
"""

GROUP = "hearsay.mechanisms"
"""Entry-point group by which another package adds a mechanism: name → class."""
_MAX_NAME = 32
_foreign: dict[str, type[Mechanism]] = {}


def names() -> tuple[str, ...]:
    """Return the names of the mechanisms of the table. ``auto`` and plans choose among these alone."""
    return tuple(_CLASSES)


def foreign() -> tuple[str, ...]:
    """Return the names of the mechanisms of other packages: of installed packages, and those given to :func:`add`."""
    from importlib.metadata import entry_points

    return tuple(sorted({*_foreign, *(entry.name for entry in entry_points(group=GROUP))} - set(_CLASSES)))


def add(kind_of_mechanism: type[Mechanism]) -> None:
    """Make a mechanism of another package known to this process, by its ``name``, without an entry point.

    This is for notebooks and tests. A later call for the same name replaces the class.

    Raises:
        InputError: ``mechanism_unknown``: the name is in the table, or is no name; ``mechanism_incomplete``: no class.
    """
    name = getattr(kind_of_mechanism, "name", None)
    if not _is_name(name) or name in _CLASSES:
        raise InputError("mechanism_unknown", f"a mechanism's name is an identifier, and none of {', '.join(_CLASSES)}")
    _foreign[str(name)] = _checked(str(name), kind_of_mechanism)
    _derived.cache_clear()


def kind(name: object) -> type[Mechanism]:
    """Return the class of the mechanism called ``name``; a package can not replace one of the table.

    Raises:
        InputError: ``mechanism_unknown``: there is no such mechanism, or two packages bring it;
            ``mechanism_incomplete``: its class lacks a method that :class:`Mechanism` demands, or can not be loaded.
    """
    if isinstance(name, str) and name in _CLASSES:
        return _whole(name, getattr(import_module(f"{__name__}.{name}"), _CLASSES[name]))
    if not _is_name(name):
        raise InputError("mechanism_unknown", f"the mechanisms are {', '.join(_CLASSES)}")
    if name not in _foreign:
        _foreign[str(name)] = _load(str(name))
    return _whole(str(name), _foreign[str(name)])


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.isascii() and len(name) <= _MAX_NAME


def _load(name: str) -> type[Mechanism]:
    """Load the class of a mechanism of another package; only here the list of packages is read, which takes long."""
    from importlib.metadata import entry_points

    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if len(found) > 1:
        raise InputError("mechanism_unknown", f"{len(found)} packages bring the mechanism {name}; leave one installed")
    if not found:
        told = f"the mechanisms are {', '.join(_CLASSES)}; no installed package brings another of this name"
        raise InputError("mechanism_unknown", told)
    try:
        loaded = next(iter(found.values())).load()
    except Exception as error:  # noqa: BLE001 - whatever a package raises, its text is not shown
        told = f"the package of the mechanism {name} can not be loaded: {type(error).__name__}"
    else:
        return _checked(name, loaded)
    raise InputError("mechanism_incomplete", told)


def _checked(name: str, found: object) -> type[Mechanism]:
    if not (isinstance(found, type) and issubclass(found, Mechanism) and getattr(found, "name", None) == name):
        told = f"what a package brings as {name} is no class of a mechanism with this name"
        raise InputError("mechanism_incomplete", told)
    return found


def _whole(name: str, found: type[Mechanism]) -> type[Mechanism]:
    if found.__abstractmethods__:
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise InputError("mechanism_incomplete", f"the mechanism {name} lacks {missing}: see docs/how-to/extending.md")
    return found


def from_epsilon(name: str, epsilon: str | float | Decimal, size: int = 1, **options: Any) -> Mechanism:
    """Return the mechanism called ``name`` that spends at most ``epsilon`` on one answer.

    >>> from_epsilon("direct", epsilon="1.0", size=6).to_dict()["keep"]
    1512633486

    Args:
        name: one of :func:`names`, or a mechanism of another package.
        epsilon: 0.001 … 16, a multiple of 10⁻⁶.
        size: the number of values, classes or dimensions of the input.
        options: the mechanism's :attr:`~Mechanism.option_names`: ``theta`` of ``the``, ``delta`` of ``laplace``.

    Raises:
        InputError: as :func:`kind`; ``epsilon_invalid``, ``size_invalid``, ``option_unknown``, ``theta_invalid``,
            ``delta_invalid``; ``parameters_invalid``: with this ε and size no useful answer is possible.
    """
    # The cache of mechanisms can not tell 6.0 from 6, so a float is refused here.
    if type(size) is not int:
        raise InputError("size_invalid", "the size is an integer")
    return from_micro(kind(name).name, micro_epsilon(epsilon), size, **options)


def from_micro(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """Return the mechanism called ``name`` that spends at most ``epsilon_micro`` millionths of ε on one answer.

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
    """Return the mechanism with the integers in ``parameters``, the map that a campaign carries for it.

    It is not checked that the integers follow from the stated ε: the checks of campaigns do that.

    Raises:
        InputError: as :func:`kind` and :meth:`Mechanism.from_dict`.
    """
    if not isinstance(parameters, dict):
        raise InputError("parameters_invalid", "a mechanism is a map of parameters")
    return kind(parameters.get("name")).from_dict(parameters)
