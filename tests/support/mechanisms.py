"""All mechanisms with inputs of the right kind, so that no test needs a list of names.

The mechanism of ``examples/mechanisms`` is that of a stranger. The contract also runs over it.
"""

import sys
from pathlib import Path

import numpy as np

from protocol import SCALE, mechanisms
from protocol.errors import InputError
from protocol.mechanisms import BITS, SINGLE, ValueMechanism
from protocol.mechanisms.noise import ApproximateTable
from support.reports import summand

sys.path.append(str(Path(__file__).parents[2] / "examples" / "mechanisms"))

from more_mechanisms.hadamard import Hadamard

mechanisms.add(Hadamard)

TABLE = mechanisms.names()
EVERY = (*TABLE, *mechanisms.foreign())
"""The table, and mechanisms of other packages: those that are installed, and the example."""
NUMBERS = (-SCALE, SCALE, 0, -20_000, 777)


def kinds(form, among=TABLE):
    return tuple(name for name in among if issubclass(mechanisms.kind(name), form))


def sizes(name, most=4):
    """The possible sizes of a mechanism up to ``most``."""
    return [size for size in range(1, most + 1) if _takes(name, size)]


def _takes(name, size):
    try:
        mechanisms.from_epsilon(name, 1, size)
    except InputError as error:
        if error.reason != "size_invalid":
            raise
        return False
    return True


def made(name, epsilon="1", most=3):
    """Make a mechanism with its largest possible size up to ``most``."""
    return mechanisms.from_epsilon(name, epsilon, sizes(name, most)[-1])


def inputs_of(mechanism):
    """Inputs from the whole domain of a mechanism: every value, or some numbers with both ends of the range."""
    if isinstance(mechanism, ValueMechanism):
        return list(range(mechanism.size))
    if mechanism.layout == SINGLE:
        return list(NUMBERS)
    used = mechanism.most_nonzero
    vectors = [tuple(x if place < used else 0 for place in range(mechanism.size)) for x in NUMBERS]
    return vectors + [vector[::-1] for vector in vectors if used < mechanism.size]


def truth(mechanism, value):
    """The true quantity that an answer estimates: a one-hot row for a value, or numbers divided by S."""
    if isinstance(mechanism, ValueMechanism):
        return [float(value == other) for other in range(mechanism.size)]
    return [x / SCALE for x in (value if isinstance(value, tuple) else (value,))]


def has_whole_table(mechanism):
    return is_exact(mechanism.distribution(inputs_of(mechanism)[0]))


def is_exact(table):
    return not isinstance(table, ApproximateTable)


def groups_of(mechanism):
    return [groups for groups in range(1, mechanism.size + 1) if mechanism.size % groups == 0]


def sums_of(mechanism, answers):
    """One question's counts, as a tally has them: docs/formats.md, section 4."""
    if mechanism.layout == SINGLE:
        return np.bincount(list(answers), minlength=mechanism.answers).tolist()
    if mechanism.layout == BITS:
        return np.sum([np.asarray(answer, np.int64) for answer in answers], axis=0).tolist()
    return np.sum([summand(mechanism, answer) for answer in answers], axis=0).tolist()


def as_answers(mechanism, drawn):
    """Convert the answers of a vectorised draw to the form of ``perturb``."""
    if mechanism.layout == SINGLE:
        return drawn.tolist()
    return [tuple(row) for row in drawn.astype(int).tolist()]
