"""Kinds for counts: what answers add up to, and what is estimated of the sums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from aggregator.estimates.debias import debias
from aggregator.reports.tally.tally import TallyBuilder
from protocol import mechanisms
from protocol.batches.report import decode_answer, layout_for
from protocol.errors import InputError
from vectors.runner import kind


@kind
def sums(mechanism: str, epsilon: str, size: int, options: dict[str, Any], fields: list[str]) -> list[int]:
    """The counts of one question in the tally bytes, from answer fields in the layout of the mechanism alone.

    ``value_out_of_domain`` if one of the fields is no answer.
    """
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    layout = layout_for([chosen])
    if any(decode_answer(chosen, bytes.fromhex(field), layout) is None for field in fields):
        raise InputError("value_out_of_domain", "an answer field holds no answer")
    counting = TallyBuilder(SimpleNamespace(questions=[SimpleNamespace(mechanism=chosen)], layout=layout))
    answers = np.array([list(bytes.fromhex(field)) for field in fields], np.uint8)
    counting.add_answers(np.zeros(len(fields), np.uint16), answers)
    answered, *counts = counting.drain()[0]
    assert answered == len(fields)
    return counts


@kind
def held(epsilon: str, size: int, n: int, sums: list[int]) -> list[str]:
    """How many of n devices hold each value, from the sums of ``she``; nine significant digits."""
    mechanism = mechanisms.from_epsilon("she", epsilon, size)
    return [f"{value:.9g}" for value in debias(mechanism, n, sums).estimate.tolist()]
