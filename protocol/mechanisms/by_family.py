"""Functions with one implementation per family of mechanisms, also for mechanisms of other packages.

The aggregator's estimators, intervals and draws need numpy, which a device does not have. So they are functions that
are registered for a mechanism's class and its subclasses. Another package registers them in the module that its class
names (``Mechanism.estimators``), which is imported at the first call, in every process. Source: decision 109.
"""

from __future__ import annotations

from functools import lru_cache, singledispatch, update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.mechanisms.base import Mechanism

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class ByFamily(Generic[T]):
    """A function whose implementation follows from the class of its first argument, a mechanism.

    ``default`` is called for a mechanism of a family without an implementation.

    >>> from protocol.mechanisms.direct import Direct
    >>> @ByFamily
    ... def words(mechanism):
    ...     return "a mechanism"
    >>> _ = words.register(Direct)(lambda mechanism: "randomised response")
    >>> words.has(Direct)
    True
    """

    def __init__(self, default: Callable[..., T]) -> None:
        self._functions = singledispatch(default)
        self._default = default
        update_wrapper(self, default)

    def __call__(self, mechanism: Mechanism, *arguments: Any, **options: Any) -> T:
        """Call the implementation for the class of ``mechanism`` (or ``mechanism_incomplete``: no import)."""
        return self.of(type(mechanism))(mechanism, *arguments, **options)

    def register(self, family: type[Any]) -> Callable[[F], F]:
        """Return a decorator that makes a function the implementation for ``family`` and its subclasses."""

        def keep(function: F) -> F:
            self._functions.register(family, function)
            return function

        return keep

    def of(self, kind: type[Mechanism]) -> Callable[..., T]:
        """Return the implementation for the class ``kind``, or that of its family if ``kind`` has none of its own."""
        _import_estimators(kind)
        return self._functions.dispatch(kind)

    def has(self, kind: type[Mechanism]) -> bool:
        """Return whether the class ``kind`` or its family has an implementation."""
        return self.of(kind) is not self._default


@lru_cache(maxsize=256)
def _import_estimators(kind: type[Mechanism]) -> None:
    if not kind.estimators:
        return
    try:
        import_module(kind.estimators)
    except Exception as error:  # noqa: BLE001 - whatever a package raises, its text is not shown
        told = f"{kind.estimators} can not be imported: {type(error).__name__}"
    else:
        return
    raise InputError(
        "mechanism_incomplete", f"{told}; install the package of the mechanism {kind.name} with all that it needs"
    )
