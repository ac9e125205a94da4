"""Models with hostile cards, schemas with hostile names, and damaged bytes."""

import math

from protocol.documents import model
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from support.publisher import Publisher

MARKUP = "<script>alert(1)</script>\"'&lt;x onload=y>"
KNOWN = (
    *("expected_accuracy", "largest_class", "largest_class_low", "largest_class_high", "beats_largest_class"),
    *("class_intervals", "interval_widths", "influence", "expected_recall", "rejected", "chosen", "mechanisms"),
    "asked",
)
CARDS = {
    "nothing": {},
    "markup": dict.fromkeys(["purpose", "threats", "reports", "rejected", "chosen", MARKUP], MARKUP),
    "wrong types": {key: [1, None, b"\x00\xff", {"a": [True, -5]}] for key in KNOWN},
    "numbers as text": {
        "expected_accuracy": "nan",
        "expected_accuracy_low": "-1e400",
        "largest_class": "inf",
        "largest_class_low": "7",
        "largest_class_high": "0x1",
        "beats_largest_class": "maybe",
        "expected_recall": {"e": "1.999 (0.9 to 3.000)", "p": "1.999 (0.000 to 1.000)", MARKUP: MARKUP},
        "class_intervals": {"e": "5 to 3", "p": "nan to 1"},
        "influence": {"odor": "1e9", "width": "-3", "other": "nan", "x": 1 << 62},
    },
    "nested": {"chosen": {"a": {"b": {"c": {"d": {"e": {"f": ["g"] * 9}}}}}}, "threats": [[[[[["x"]]]]]]},
    "huge": {
        "purpose": "y" * 300_000,
        "rejected": {f"reason_{number}": number for number in range(20_000)},
        "influence": {f"{'&' * 90}{number}": "0.5" for number in range(3_000)},
        "chosen": {"candidates": [{f"column {i} {'<' * 200}": "&" * 300 for i in range(20)} for _ in range(60)]},
    },
    "unseen characters": {
        "threats": "a\u202eb\u0000c\x1b[2J\u200bd\u2028e\ud7ff\U000e0041",
        "chosen": {"\u202e\x07": "\u2066z"},
    },
}


def model_of(schema, card):
    classes = len(schema.label.classes)
    likelihood = tuple(((math.log(1 / one.size),) * classes,) * one.size for one in schema.observed)
    publisher = Publisher(schema=schema)
    document = model.DiscreteModel(
        header=publisher.header("m"),
        campaign=bytes(32),
        schema=schema,
        log_prior=(math.log(1 / classes),) * classes,
        log_likelihood=likelihood,
        statistics_id=bytes(32),
        previous=None,
        card=card,
    )
    return publisher.sign("model", model.build_payload(document))


def wide(features, values, classes, name="feature"):
    """A schema with long names that are full of markup."""
    return build_schema(
        Label("&" * 200, [f"{MARKUP} {number}" for number in range(classes)]),
        [
            Categorical(f"{name} {number} " + "<&>" * 60, [f"{value}{'&' * 150}" for value in range(values)])
            for number in range(features)
        ],
    )


def every_bit(raw, positions=None, bits=range(8)):
    """The bytes with each bit turned, one at a time; of the bytes at some positions alone, if they are given."""
    for position in range(len(raw)) if positions is None else positions:
        for bit in bits:
            yield raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1 :]
