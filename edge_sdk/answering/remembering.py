"""Answer a campaign with memory: keep a noisy answer in the state for a stretch of periods, and report it with noise.

The kept (permanent) answer is drawn from fresh randomness and stored with the first report of its stretch, in one
transaction. It is not derived from the device's secret: who knows the secrets of a closed fleet could undo its noise.
Whether another one is drawn follows from the period alone, and not from the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.storage.rows import KEPT, damaged
from protocol import canonical
from protocol.batches.report import decode_answer, encode_answer, encode_report
from protocol.documents.memory_terms import Remembered
from protocol.errors import DocumentError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from edge_sdk.storage.database import State
    from protocol.documents.campaign import Campaign
    from protocol.questions import Question


def report(
    state: State,
    campaign: Campaign,
    secret: bytes,
    period: int,
    input_of: Callable[[Question], Any],
    entropy: Callable[[int], bytes],
) -> bytes:
    """Return the report of a period. In the first period of a stretch a new answer is drawn and stored.

    The caller must have opened a transaction. ``input_of``: question → the mechanism's input for the record; it is
    called only where a new answer is drawn. Raises StorageError ``state_damaged``, ``entropy_unavailable``.
    """
    memory, layout = campaign.memory, campaign.layout
    assert memory is not None
    identifier, number = campaign.identify(secret, period, 0)
    question = campaign.questions[number]
    mechanism = question.mechanism
    assert isinstance(mechanism, Remembered)
    stretch, key = memory.number(period), KEPT + campaign.id.hex()
    kept = _read(state.meta(key), number, mechanism, campaign)
    if kept is None or kept[0] < stretch:
        answer = mechanism.permanent.perturb(input_of(question), entropy(SEED_BYTES))
        state.write_meta(key, canonical.pack([stretch, number, encode_answer(mechanism, answer, layout)]))
    else:
        answer = kept[1]
    field = encode_answer(mechanism, mechanism.again(answer, entropy(SEED_BYTES)), layout)
    return encode_report(layout, identifier, period, number, field)


def _read(stored: bytes | None, number: int, mechanism: Remembered, campaign: Campaign) -> tuple[int, Any] | None:
    """Return the stretch and the answer of a stored value; None if nothing is stored."""
    if stored is None:
        return None
    try:
        stretch, question, field = canonical.unpack(stored)
    except (DocumentError, TypeError, ValueError):
        raise damaged() from None
    answer = decode_answer(mechanism, field, campaign.layout)
    if question != number or answer is None:
        raise damaged()
    return stretch, answer
