"""The contract of a mechanism: integer parameters, perturbation, exact distribution, description for owners.

docs/how-to/extending.md explains how to add a mechanism. ``tests/aggregator/test_mechanism_contract.py`` tests the
contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.epsilon import MICRO, format_micro
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from protocol.epsilon import PrivacyLoss

ONE = 1 << 32
"""A mechanism's probabilities are integers divided by this number."""

SINGLE, BITS, INTEGERS = 1, 2, 3
"""Layouts (shapes) of answers in reports: one integer, a row of bits, a row of integers."""


class Mechanism(ABC):
    """A random map from inputs to answers that is ε-locally differentially private, with integer parameters.

    Mechanisms are immutable. The device calls :meth:`perturb`; ``explain`` prints :meth:`describe`; the aggregator's
    estimators use the integer parameters; device and aggregator call :meth:`distribution` and :meth:`privacy_loss`.

    Attributes:
        name: name of the mechanism in campaigns, of its module, and of its row in the table.
        option_names: the arguments of :meth:`from_micro` besides ε and size.
        layout: the shape of an answer: :data:`SINGLE`, :data:`BITS` or :data:`INTEGERS` (docs/formats.md, section 3).
        size: number of values, classes or dimensions of the input.
        epsilon_micro: declared ε in millionths. Campaign checks refuse mechanisms with a larger privacy loss.
        estimators: for a mechanism of another package the name of the module that registers its estimator, interval and
            draw (:mod:`protocol.mechanisms.by_family`). The aggregator imports it; a device never does.
    """

    __slots__ = ("epsilon_micro", "size")
    name: ClassVar[str]
    estimators: ClassVar[str] = ""
    layout: ClassVar[int]
    option_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, epsilon_micro: int, size: int) -> None:
        self.epsilon_micro = epsilon_micro
        self.size = size

    @classmethod
    @abstractmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Mechanism:
        """Return the mechanism with the integers that follow from ε, in millionths, by the formulas of docs/math.md.

        Raises:
            InputError: ``epsilon_invalid``, ``size_invalid``; some mechanisms also ``parameters_invalid`` or the reason
                of a wrong option.
        """

    @classmethod
    @abstractmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Mechanism:
        """Return the mechanism with the integers in ``parameters``, the map that :meth:`to_dict` makes.

        Raises:
            InputError: ``size_invalid``; ``parameters_invalid``: a wrong set of parameters, or answers that say
                nothing; ``loss_unbounded``: the privacy loss is infinite.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the map that a campaign carries: name, size, ε and integer parameters."""

    def _stated(self, **own: int) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "epsilon_micro": self.epsilon_micro, **own}

    @abstractmethod
    def perturb(self, value: Any, seed: bytes) -> Any:
        """Return the random answer for the input ``value``, determined by ``value`` and ``seed``. The device runs this.

        ``value`` is an integer, or a sequence of integers for vectors. The seed of 32 random bytes is used for one
        answer.

        Raises:
            InputError: ``value_out_of_domain``; ``seed_invalid``: the seed is not 32 bytes.
        """

    @abstractmethod
    def distribution(self, value: Any) -> dict[Any, Fraction]:
        """Return the exact probability of every answer for the input ``value``: answer → probability.

        ``she`` and ``laplace`` have irrational probabilities: they return rounded ones of the likeliest answers only.

        Raises:
            InputError: ``value_out_of_domain``; ``too_many_answers``: too many answers to list.
        """

    @abstractmethod
    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss: the maximum of ln P(a | x)/P(a | x′) over answers a and inputs x and x′.

        P(a | x) is the probability of the answer a for the input x.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return how the answer hides the input, in words for the owner of a device: one line without a full stop."""

    @property
    def answers(self) -> int:
        """The number of possible single answers, or of the bits or integers in an answer: by default ``size``."""
        return self.size

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in an answer. Only layout :data:`INTEGERS` has them."""
        return -(1 << 31), (1 << 31) - 1

    @property
    def counted(self) -> tuple[int, int]:
        """The smallest and the largest integer to which the aggregator clips before it adds.

        Only layout :data:`INTEGERS` has them.
        """
        return self.bounds

    def impossible(self, answers: Any) -> Any:
        """Return which of N answers no device ever gives: the aggregator refuses them as ``value_out_of_domain``.

        The caller must have checked the layout: a single value is below :attr:`answers`, and integers are within
        :attr:`bounds`. A campaign is signed only if its mechanism's class or family defines this method.

        Args:
            answers: a numpy array of integers: shape (N,) for :data:`SINGLE`, else (N, A) with A = :attr:`answers`.

        Returns:
            (N,) bool; or None, for every N, if a device may give every answer that the layout can hold.
        """
        del answers

    def set_bits_law(self) -> Sequence[float] | None:
        """Return the probabilities of 0 … A ones in an honest row of A bits, or None if they depend on the input.

        Alarms compare the reports with them. A campaign is signed only if the class or family of a mechanism of layout
        :data:`BITS` defines this method.
        """
        return None

    def options(self) -> dict[str, Any]:
        """Return the value of each option of :attr:`option_names`: option → value."""
        return {}

    @property
    def most_nonzero(self) -> int:
        """Largest number of coordinates of an input vector that may differ from 0."""
        return self.size

    @property
    def epsilon(self) -> float:
        """Declared ε of one answer."""
        return self.epsilon_micro / MICRO

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        # A campaign may hold thousands of mechanisms that differ only in their integers, so the hash includes the
        # integers. It includes the name because Python salts hashes of strings: a campaign's maker can not
        # construct collisions.
        return hash((self.name, *self.to_dict().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={format_micro(self.epsilon_micro)}, size={self.size})"


class ValueMechanism(Mechanism):
    """A mechanism whose input is one value of {0 … size − 1}."""

    __slots__ = ()

    def check_value(self, value: object) -> None:
        """Refuse (``value_out_of_domain``) an input that is no integer of 0 … size − 1, and do not name it."""
        if type(value) is not int or not 0 <= value < self.size:
            raise out_of_domain(f"an integer from 0 to {self.size - 1}")


class FrequencyMechanism(ValueMechanism):
    """A pure protocol: every answer stands for a set of values, which it *supports* (:meth:`supports`).

    An answer supports the true value with probability ``p`` and each given other value with probability ``q``. For rows
    of bits the supported values are always those whose bits are 1, since the aggregator has only the sums of the bits.
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
        """Probability that an answer supports one given value that is not the true one."""

    def supports(self, answer: Any, value: int) -> bool:
        """Return whether ``answer`` supports ``value``: by default the single answer i supports the value i alone."""
        return bool(answer[value]) if self.layout == BITS else bool(answer == value)


def out_of_domain(domain: str) -> InputError:
    """Return the error for an input outside a mechanism's domain.

    Its text has ``domain``, a description in words, and never the input.
    """
    return InputError("value_out_of_domain", f"the input of this mechanism is {domain}")


def uninformative() -> InputError:
    """Return the error for parameters with which an answer contains no information about the input."""
    return InputError("parameters_invalid", "with these parameters an answer says nothing about its input")


def unbounded() -> InputError:
    """Return the error for parameters with an infinite privacy loss: some answer is impossible for some input.

    The reason is not ``parameters_invalid``, because a campaign with such integers understates its ε.
    """
    return InputError("loss_unbounded", "with these parameters an answer can give its input away")


def rows_of_bits(ones: Sequence[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """Return row of bits → probability, for independent bits: bit j is 1 with probability ``ones[j]``."""
    from fractions import Fraction

    table = {}
    for bits in product((0, 1), repeat=len(ones)):
        probability = Fraction(1)
        for bit, one in zip(bits, ones, strict=True):
            probability *= one if bit else 1 - one
        table[bits] = probability
    return table


def check_size(size: object, least: int, most: int) -> None:
    """Refuse (``size_invalid``) a mechanism's size that is no integer of ``least`` … ``most``."""
    if type(size) is not int or not least <= size <= most:
        raise InputError("size_invalid", f"the size is an integer from {least} to {most}")


def read_integers(parameters: dict[str, Any], names: Sequence[str], most: int = ONE) -> list[int]:
    """Return size, ε in millionths and the integers of ``names``, in order, from a mechanism's map in a document.

    Raises:
        InputError: ``parameters_invalid``: a parameter is missing, unknown, or not an integer in 0 … ``most``.
    """
    if set(parameters) != {"name", "size", "epsilon_micro", *names}:
        raise InputError("parameters_invalid", "a mechanism lacks a parameter or has an unknown one")
    values = [parameters[name] for name in ("size", "epsilon_micro", *names)]
    if not all(type(value) is int and 0 <= value <= most for value in values):
        raise InputError("parameters_invalid", "a mechanism's parameter is not an integer in its range")
    return values
