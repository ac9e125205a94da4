"""The draft's test vectors of Prio3, and the circuits of its variants that devices do not use."""

from __future__ import annotations

import json
from pathlib import Path

from protocol.shared.circuits import Bits, Blocks
from protocol.shared.field import FIELD64
from protocol.shared.prio3 import Prio3
from protocol.shared.proofs import Circuit, dot
from research.dap import MULTIHOT, MultihotCountVec, bits_of, weights

FOLDER = Path(__file__).parents[1] / "protocol" / "shared" / "vdaf"
FILES = sorted(path.name for path in FOLDER.glob("Prio3*.json"))


class Count(Circuit):
    """One number, 0 or 1."""

    field, arity, calls, length, joint, results, outputs = FIELD64, 2, 1, 1, 0, 1, 1

    def gadget(self, inputs):
        return inputs[0] * inputs[1]

    def evaluated(self, call, vector, joint, shares):
        return [(call([vector[0], vector[0]]) - vector[0]) % self.field.modulus]

    def encoded(self, number):
        return [number]


class Sum(Circuit):
    """One number from 0 to ``largest``, as weighted bits."""

    field, arity, joint, outputs = FIELD64, 1, 0, 1

    def __init__(self, largest):
        self.largest = largest
        self.calls = self.length = self.results = largest.bit_length()

    def gadget(self, inputs):
        return inputs[0] * inputs[0] - inputs[0]

    def evaluated(self, call, vector, joint, shares):
        return [call([bit]) for bit in vector]

    def released(self, vector):
        return [dot(weights(self.largest), vector) % self.field.modulus]

    def encoded(self, number):
        return bits_of(number, self.largest)


class SumVec(Bits):
    """Several numbers from 0 to ``largest``."""

    def __init__(self, numbers, largest, chunk):
        super().__init__(numbers * largest.bit_length(), chunk)
        self.outputs, self.largest = numbers, largest

    def released(self, vector):
        size = self.largest.bit_length()
        parts = [vector[at : at + size] for at in range(0, len(vector), size)]
        return [dot(weights(self.largest), part) % self.field.modulus for part in parts]

    def encoded(self, numbers):
        return [bit for number in numbers for bit in bits_of(number, self.largest)]


def of_file(name):
    """The contents of a file of test vectors, and its variant of Prio3."""
    data = json.loads((FOLDER / name).read_text())
    kind = name.split("_")[0].removeprefix("Prio3")
    length, chunk = data.get("length"), data.get("chunk_length")
    algorithm, circuit = {
        "Count": lambda: (1, Count()),
        "Sum": lambda: (2, Sum(data["max_measurement"])),
        "SumVec": lambda: (3, SumVec(length, data["max_measurement"], chunk)),
        "Histogram": lambda: (4, Blocks([length], chunk)),
        "MultihotCountVec": lambda: (MULTIHOT, MultihotCountVec(length, data.get("max_weight"), chunk)),
    }[kind]()
    return data, Prio3(algorithm, circuit, data["shares"])


def encoded(circuit, measurement):
    """The vector of a measurement; a histogram's is the number of a cell."""
    return circuit.encoded([measurement] if isinstance(circuit, Blocks) else measurement)
