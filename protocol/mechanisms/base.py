"""The contract of a mechanism: integer parameters, a perturbation, its exact distribution, a sentence for owners.

docs/extending.md says how to add a mechanism. ``tests/aggregator/test_mechanism_contract.py`` holds every one to this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.epsilon import MICRO, format_micro
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from protocol.epsilon import PrivacyLoss

ONE = 1 << 32
"""Probabilities are integers out of this."""

SINGLE, BITS, INTEGERS = 1, 2, 3
"""The report layout that an answer needs: one small integer, a row of bits, a row of integers."""


class Mechanism(ABC):
    """An ε-locally-differentially-private question-and-answer rule with integer parameters.

    A mechanism is an immutable value. The device calls :meth:`perturb`; ``explain`` prints :meth:`describe`;
    the aggregator reads the integer parameters to debias; both can ask for :meth:`distribution` and
    :meth:`privacy_loss`.

    Attributes:
        name: the mechanism's name in campaigns; also the name of its module and its row in the table.
        option_names: the arguments that :meth:`from_micro` takes besides ε and size.
        layout: :data:`SINGLE`, :data:`BITS` or :data:`INTEGERS` (docs/formats.md, section 3).
        size: how many values, classes or dimensions the input has.
        epsilon_micro: declared ε in millionths; the true loss is never above it.
    """

    __slots__ = ("epsilon_micro", "size")
    name: ClassVar[str]
    layout: ClassVar[int]
    option_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, epsilon_micro: int, size: int) -> None:
        self.epsilon_micro = epsilon_micro
        self.size = size

    @classmethod
    @abstractmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Mechanism:
        """The mechanism with the integers that docs/math.md derives from ε."""

    @classmethod
    @abstractmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Mechanism:
        """The mechanism with the integers a document states, whatever ε it claims."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Name, size, ε and integer parameters, as a campaign carries them."""

    @abstractmethod
    def perturb(self, value: Any, seed: bytes) -> Any:
        """The answer to ``value``: a pure function of the input and a 32-byte seed. Run by the device."""

    @abstractmethod
    def distribution(self, value: Any) -> dict[Any, Fraction]:
        """Exact probability of every answer to ``value``."""

    @abstractmethod
    def privacy_loss(self) -> PrivacyLoss:
        """The exact worst log-ratio of an answer's probabilities over all pairs of inputs."""

    @abstractmethod
    def describe(self) -> str:
        """How an answer hides its input, in words for the owner of a device: one line, without a full stop."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """Layout 1: number of possible answers. Layouts 2 and 3: bits or integers in an answer."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Layout 3: the least and the largest integer in an answer."""
        return -(1 << 31), (1 << 31) - 1

    @property
    def counted(self) -> tuple[int, int]:
        """Layout 3: between which integers those of an answer are brought before they are added up."""
        return self.bounds

    def options(self) -> dict[str, Any]:
        """The values of :attr:`option_names`: with ε and size, all that the integers follow from."""
        return {}

    @property
    def most_nonzero(self) -> int:
        """How many coordinates of a vector of numbers may differ from 0."""
        return self.size

    @property
    def epsilon(self) -> float:
        """Declared ε of one answer."""
        return self.epsilon_micro / MICRO

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        # The integers too: a campaign may hold thousands of mechanisms that differ in nothing else, and in sets
        # and caches each would be compared with all. The name is first since its hash is secret to the process.
        return hash((self.name, *self.to_dict().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={format_micro(self.epsilon_micro)}, size={self.size})"


class ValueMechanism(Mechanism):
    """A mechanism whose input is one value of {0 … size − 1}."""

    __slots__ = ()

    def check_value(self, value: object) -> None:
        """Refuse an input outside the domain, before any randomness is read and without naming it.

        Raises:
            InputError: ``value_out_of_domain``.
        """
        if type(value) is not int or not 0 <= value < self.size:
            raise out_of_domain(f"an integer from 0 to {self.size - 1}")


class FrequencyMechanism(ValueMechanism):
    """A pure protocol: an answer *supports* values.

    With probability ``p`` it supports the true one, with probability ``q`` any given other one.
    Source: Wang et al., USENIX Security 2017, section 3.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """Probability that an answer supports the true value."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """Probability that an answer supports one given other value."""


def out_of_domain(domain: str) -> InputError:
    """The error for an input outside a mechanism's domain; names the domain, never the input."""
    return InputError("value_out_of_domain", f"the input of this mechanism is {domain}")


def uninformative() -> InputError:
    """The error for parameters under which the answer says nothing about the input (p ≤ q)."""
    return InputError("parameters_invalid", "with these parameters an answer says nothing about its input")


def unbounded() -> InputError:
    """The error for parameters under which some answer rules an input out: an infinite privacy loss.

    It has a reason of its own, since a campaign that states such integers lies about its ε.
    """
    return InputError("loss_unbounded", "with these parameters an answer can give its input away")


def check_size(size: object, least: int, most: int) -> None:
    """Refuse a size that the mechanism has no meaning for.

    Raises:
        InputError: ``size_invalid``.
    """
    if type(size) is not int or not least <= size <= most:
        raise InputError("size_invalid", f"the size is an integer from {least} to {most}")


def read_integers(parameters: dict[str, Any], names: Sequence[str], most: int = ONE) -> list[int]:
    """The named integers of a document's parameter map; the map must hold just these and the common ones.

    Raises:
        InputError: ``parameters_invalid``: a name is missing, unknown, or not an integer in 0 … most.
    """
    if set(parameters) != {"name", "size", "epsilon_micro", *names}:
        raise InputError("parameters_invalid", "a mechanism lacks a parameter or has an unknown one")
    values = [parameters[name] for name in ("size", "epsilon_micro", *names)]
    if not all(type(value) is int and 0 <= value <= most for value in values):
        raise InputError("parameters_invalid", "a mechanism's parameter is not an integer in its range")
    return values
